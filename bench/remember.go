package main

import (
	"context"
	"fmt"
)

// What an answer may lose to a search of its caller's earlier calls, in ms at p50, p95 and p99, and
// how many turns those calls have.
var budgetRecall = [3]float64{.5, 1, 2}

const rememberedTurns = 300

// What an answer may lose to the facts that its words ask for, in ms at p50, p95 and p99, how many
// facts a caller has, and how many callers there are.
var budgetFacts = [3]float64{.5, 1, 2}

const (
	rememberedFacts = 500
	factCallers     = 8
)

// budgetRemember compares the time to the first token of agents that recall their caller's earlier
// calls with that of agents of the same callers that do not, and with that of agents whose callers
// have facts.
func (b *bench) budgetRemember(ctx context.Context, x proxies) error {
	url := "http://" + x.upstream.addr + "/v1/chat/completions?" + openQuery
	c, err := dial(ctx, x.own.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	join := func(name string, client int, caller, remember string) (string, error) {
		body := fmt.Appendf(nil, `{"name":"%s-%d","properties":{"idle_timeout":0,"llm":{"url":%q},"heardlog":{"scope":{"user_id":%q},"remember":%s}}}`, name, client, url, caller, remember)
		return joined(c, request("POST", "/v1/join", x.own.addr, body, ""))
	}
	if err := rememberFacts(c, x.own.addr); err != nil {
		return err
	}
	var ways [3][]string // agents that recall nothing, those that recall turns, and those with facts
	for i := range budgetClients {
		caller := fmt.Sprint("caller-", i)
		old, err := join("old", i, caller, `"off"`)
		if err != nil {
			return err
		}
		if err := wantOK(c, request("POST", "/v1/agents/"+old+"/messages", x.own.addr, turnsBody(rememberedTurns), "")); err != nil {
			return err
		}
		for way, how := range []string{`"off"`, `{"recall":"always"}`, `{}`} {
			if way == 2 {
				caller = fmt.Sprint("facts-", i%factCallers)
			}
			id, err := join(fmt.Sprint("new", way), i, caller, how)
			if err != nil {
				return err
			}
			ways[way] = append(ways[way], id)
		}
		warm := fmt.Appendf(nil, `{"user_id":"caller-%d","query":"Thursday","deadline_ms":10000}`, i)
		if err := wantOK(c, request("POST", "/v1/recall", x.own.addr, warm, "")); err != nil {
			return err
		}
	}
	body := []byte(`{"model":"bench-1","stream":true,"messages":[{"role":"user","content":"Which day did I want to move my appointment to, and at what time after lunch?"}]}`)
	var got [3][3][]float64
	for round := -1; round < b.rounds; round++ {
		for way, ids := range ways {
			s, err := openLoop(ctx, x.own.addr, budgetClients, b.paced, budgetRate, func(client, _ int) []byte {
				return request("POST", "/v1/agents/"+ids[client]+"/chat/completions", x.own.addr, body, "")
			})
			if err != nil {
				return err
			}
			for i, q := range quantiles {
				if round >= 0 {
					got[way][i] = append(got[way][i], micros(s.at(q))/1000)
				}
			}
		}
	}
	for i, q := range quantiles {
		b.atMost(5, fmt.Sprintf("recall over %d turns: first token, added at p%.0f", rememberedTurns, 100*q), added(got[1][i], got[0][i]), "ms", budgetRecall[i],
			"%.2f ms against %.2f without, %d/s in an open loop", median(got[1][i]), median(got[0][i]), budgetRate)
	}
	for i, q := range quantiles {
		b.atMost(5, fmt.Sprintf("facts of the turn, of %d: first token, added at p%.0f", rememberedFacts, 100*q), added(got[2][i], got[0][i]), "ms", budgetFacts[i],
			"%.2f ms against %.2f without, %d/s in an open loop", median(got[2][i]), median(got[0][i]), budgetRate)
	}
	return nil
}

// rememberFacts stores what is known of callers.
func rememberFacts(c *conn, addr string) error {
	things := []string{"a canoe", "two dogs", "a piano", "a garden", "a bicycle", "a daughter", "a camera", "a boat", "a balcony", "a van"}
	towns := []string{"Bonn", "Ulm", "Porto", "Lyon", "Ghent", "Turin", "Oslo", "Graz", "Leeds", "Cork"}
	for caller := range factCallers {
		for i := range rememberedFacts {
			body := fmt.Appendf(nil, `{"content":"Has %s near %s, and moved an appointment of house %d to the old market of %s"}`, things[i%10], towns[i/10%10], i, towns[i/7%10])
			status, err := c.do(request("POST", fmt.Sprintf("/v1/users/facts-%d/facts", caller), addr, body, ""))
			if err != nil || status != 201 {
				return fmt.Errorf("store a fact: %d %.300s, %w", status, c.body, err)
			}
		}
	}
	return nil
}
