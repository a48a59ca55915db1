package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// How often a caller with many turns is asked for and appended to, a second, and for how long.
const (
	speedRecalls = 100
	speedAppends = 50
	speedTime    = 20 * time.Second
)

// speed fills one caller with turns, those of all conversations again and again, with every 20th
// word replaced by a new one from the second time on. Then it measures recalls in an open loop
// while a call of the caller goes on.
func (r *recaller) speed(ctx context.Context, data *recallData, p *process, turns, deadline int, out io.Writer) error {
	random := rand.New(rand.NewPCG(1, 2))
	var questions []string
	running := ""
	for left, round := turns, 0; left > 0; round++ {
		for i := range data.Conversations {
			conv := &data.Conversations[i]
			for _, q := range conv.Questions {
				if round == 0 {
					questions = append(questions, q.Question)
				}
			}
			for n := range conv.Calls {
				list := conv.Calls[n].Turns[:min(len(conv.Calls[n].Turns), left, maxBatch)]
				if len(list) == 0 {
					continue
				}
				left -= len(list)
				var joined struct {
					ID string `json:"agent_id"`
				}
				if err := r.post("/v1/join", map[string]any{"name": fmt.Sprintf("speed-%d-%d-%d", round, i, n), "properties": map[string]any{"idle_timeout": 0, "heardlog": map[string]any{"scope": map[string]any{"user_id": "speed"}}}}, &joined); err != nil {
					return err
				}
				running = joined.ID
				var msgs []map[string]any
				for k, t := range list {
					words := strings.Fields(t.Text)
					for w := range words {
						if round > 0 && random.IntN(20) == 0 {
							words[w] = fmt.Sprintf("w%cx%cz%c", 'a'+random.IntN(26), 'a'+random.IntN(26), 'a'+random.IntN(26))
						}
					}
					msgs = append(msgs, map[string]any{"role": []string{"user", "assistant"}[k%2], "content": strings.Join(words, " ")})
				}
				if err := r.post("/v1/agents/"+joined.ID+"/messages", map[string]any{"messages": msgs}, nil); err != nil {
					return err
				}
			}
		}
	}
	for range 3 { // until the index is there
		if _, err := r.ask("speed", questions[0]); err != nil {
			return err
		}
	}
	random.Shuffle(len(questions), func(i, j int) { questions[i], questions[j] = questions[j], questions[i] })
	before, err := p.cpu()
	if err != nil {
		return err
	}
	var took samples
	var over []float64
	degraded := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed, failedAppends error
	wg.Go(func() {
		failedAppends = onTime(ctx, r.addr, speedAppends, func(c *conn, n int) error {
			body := fmt.Appendf(nil, `{"messages":[{"role":"user","content":"%s"}]}`, question(n))
			return wantOK(c, request("POST", "/v1/agents/"+running+"/messages", r.addr, body, ""))
		})
	})
	wg.Go(func() {
		failed = onTime(ctx, r.addr, speedRecalls, func(c *conn, n int) error {
			body, err := json.Marshal(map[string]any{"user_id": "speed", "query": questions[n%len(questions)], "deadline_ms": deadline})
			if err != nil {
				return err
			}
			start := time.Now()
			if err := wantOK(c, request("POST", "/v1/recall", r.addr, body, "")); err != nil {
				return err
			}
			lat := time.Since(start)
			var got struct {
				Degraded []string
				TookMS   float64 `json:"took_ms"`
			}
			if err := json.Unmarshal(c.body, &got); err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, lat)
			if late := got.TookMS - float64(deadline); late > 0 {
				over = append(over, late)
			}
			for _, what := range got.Degraded {
				degraded[what]++
			}
			return nil
		})
	})
	wg.Wait()
	if failed != nil || failedAppends != nil {
		return fmt.Errorf("recalls: %w, appends: %w", failed, failedAppends)
	}
	after, err := p.cpu()
	if err != nil {
		return err
	}
	memory, err := p.memory("VmHWM")
	if err != nil {
		return err
	}
	ms := func(q float64) float64 { return micros(took.at(q)) / 1000 }
	fmt.Fprintf(out, "%d turns, %d recalls/s beside %d appends/s: p50 %.2f, p95 %.2f, p99 %.2f, most %.2f ms; CPU %.2f ms for a recall and half an append; %.0f MB at most\n",
		turns, speedRecalls, speedAppends, ms(.5), ms(.95), ms(.99), ms(1), micros(after-before)/1000/float64(len(took)), memory)
	most := 0.
	for _, late := range over {
		most = max(most, late)
	}
	fmt.Fprintf(out, "degraded %v; %d of %d after the deadline of %d ms, by %.2f ms at most\n", degraded, len(over), len(took), deadline, most)
	return nil
}

// onTime makes so many calls a second for speedTime, each on time whether or not earlier ones have
// ended.
func onTime(ctx context.Context, addr string, rate int, do func(c *conn, n int) error) error {
	free := make(chan *conn, 64)
	for range cap(free) {
		c, err := dial(ctx, addr)
		if err != nil {
			return err
		}
		defer c.Close()
		free <- c
	}
	total := rate * int(speedTime/time.Second)
	errs := make(chan error, total)
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for n := range total {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		c := <-free
		go func() {
			errs <- do(c, n)
			free <- c
		}()
	}
	var first error
	for range total {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}
