package main

import (
	"context"
	"fmt"
)

// What an answer may lose to a search of its caller's earlier calls, in ms at p50, p95 and p99, and
// how many turns those calls have.
var budgetRecall = [3]float64{.5, 1, 2}

const rememberedTurns = 300

// budgetRemember compares the time to the first token of agents that recall their caller's earlier
// calls with that of agents of the same callers that do not.
func (b *bench) budgetRemember(ctx context.Context, x proxies) error {
	url := "http://" + x.upstream.addr + "/v1/chat/completions?" + openQuery
	c, err := dial(ctx, x.own.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	join := func(name string, client int, remember string) (string, error) {
		body := fmt.Appendf(nil, `{"name":"%s-%d","properties":{"idle_timeout":0,"llm":{"url":%q},"heardlog":{"scope":{"user_id":"caller-%d"},"remember":%s}}}`, name, client, url, client, remember)
		return joined(c, request("POST", "/v1/join", x.own.addr, body, ""))
	}
	var ways [2][]string // agents that recall nothing, and those that do
	for i := range budgetClients {
		old, err := join("old", i, `"off"`)
		if err != nil {
			return err
		}
		if err := wantOK(c, request("POST", "/v1/agents/"+old+"/messages", x.own.addr, turnsBody(rememberedTurns), "")); err != nil {
			return err
		}
		for way, how := range []string{`"off"`, `{"recall":"always"}`} {
			id, err := join(fmt.Sprint("new", way), i, how)
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
	var got [2][3][]float64
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
	return nil
}
