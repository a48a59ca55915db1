package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"
)

// recallData is a file of conversations with questions. The first speaker is the caller, and each
// conversation is one caller.
type recallData struct {
	Conversations []struct {
		ID       string   `json:"id"`
		Speakers []string `json:"speakers"`
		Calls    []struct {
			Date  string `json:"date"` // such as "1:56 pm on 8 May, 2023", or RFC 3339
			Turns []struct{ ID, Speaker, Text string }
		} `json:"calls"`
		Questions []struct {
			Question string   `json:"question"`
			Category int      `json:"category"`
			Gold     []string `json:"gold"` // IDs of the turns with the answer
		} `json:"questions"`
	} `json:"conversations"`
}

// benchRecall measures how much of what questions ask for is among the first ten hits, through
// HTTP, and how long the answers take.
func benchRecall(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("bench recall", flag.ContinueOnError)
	path := flags.String("data", "", "JSON file with conversations and questions")
	server := flags.String("server", "", "the server's binary; empty builds one")
	if err := flags.Parse(args); err != nil {
		return err
	}
	raw, err := os.ReadFile(*path)
	if err != nil {
		return err
	}
	var data recallData
	if err := json.Unmarshal(raw, &data); err != nil {
		return fmt.Errorf("%s: %w", *path, err)
	}
	b := &bench{bin: *server}
	if b.dir, err = os.MkdirTemp("", "heardlog-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	defer b.stopAll()
	if b.bin == "" {
		if b.bin, err = build(ctx, b.dir); err != nil {
			return err
		}
	}
	p, _, err := b.startServer(ctx, b.db("recall"), "warn")
	if err != nil {
		return err
	}
	c, err := dial(ctx, p.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	r := recaller{c: c, addr: p.addr, sum: map[int]float64{}, n: map[int]int{}}
	for i := range data.Conversations {
		if err := r.conversation(&data, i); err != nil {
			return err
		}
	}
	r.print(out)
	return nil
}

// recaller asks one server.
type recaller struct {
	c    *conn
	addr string
	sum  map[int]float64 // of the recalls, by category
	n    map[int]int     // questions
	took []time.Duration
}

// post sends a request and reads the answer into v, if that is not nil.
func (r *recaller) post(path string, body, v any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	status, err := r.c.do(request("POST", path, r.addr, b, ""))
	if err != nil {
		return err
	}
	if status != 200 {
		return fmt.Errorf("POST %s: %d %s", path, status, r.c.body)
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(r.c.body, v)
}

func (r *recaller) conversation(data *recallData, i int) error {
	conv := &data.Conversations[i]
	turns := map[string]string{} // by agent and seq
	for n, call := range conv.Calls {
		at, err := time.Parse("3:04 pm on 2 January, 2006", call.Date)
		if err != nil {
			if at, err = time.Parse(time.RFC3339, call.Date); err != nil {
				return err
			}
		}
		var joined struct {
			ID string `json:"agent_id"`
		}
		scope := map[string]any{"scope": map[string]any{"user_id": conv.ID}}
		err = r.post("/v1/join", map[string]any{"name": fmt.Sprintf("%s-%d", conv.ID, n), "properties": map[string]any{"heardlog": scope}}, &joined)
		if err != nil {
			return err
		}
		for rest := call.Turns; len(rest) > 0; rest = rest[min(len(rest), 100):] {
			var msgs []map[string]any
			for _, t := range rest[:min(len(rest), 100)] {
				role := "assistant"
				if t.Speaker == conv.Speakers[0] {
					role = "user"
				}
				at = at.Add(5 * time.Second)
				msgs = append(msgs, map[string]any{"role": role, "content": t.Text, "timestamp": at.UnixMilli()})
			}
			var stored struct{ Messages []struct{ Seq int64 } }
			if err := r.post("/v1/agents/"+joined.ID+"/messages", map[string]any{"messages": msgs}, &stored); err != nil {
				return err
			}
			for k, m := range stored.Messages {
				turns[fmt.Sprint(joined.ID, ":", m.Seq)] = rest[k].ID
			}
		}
	}
	for _, q := range conv.Questions {
		if len(q.Gold) == 0 {
			continue
		}
		var found struct{ Hits []struct{ ID string } }
		start := time.Now()
		err := r.post("/v1/recall", map[string]any{"user_id": conv.ID, "query": q.Question, "k": 10, "deadline_ms": 10_000}, &found)
		if err != nil {
			return err
		}
		r.took = append(r.took, time.Since(start))
		hit := 0
		for _, h := range found.Hits {
			if slices.Contains(q.Gold, turns[h.ID]) {
				hit++
			}
		}
		r.sum[q.Category] += float64(hit) / float64(len(q.Gold))
		r.n[q.Category]++
	}
	return nil
}

func (r *recaller) print(out io.Writer) {
	fmt.Fprintf(out, "%-10s %9s %9s\n", "category", "questions", "recall@10")
	sum, n := 0., 0
	for _, c := range slices.Sorted(maps.Keys(r.n)) {
		fmt.Fprintf(out, "%-10d %9d %9.3f\n", c, r.n[c], r.sum[c]/float64(r.n[c]))
		sum, n = sum+r.sum[c], n+r.n[c]
	}
	slices.SortFunc(r.took, cmp.Compare[time.Duration])
	if n > 0 {
		fmt.Fprintf(out, "%-10s %9d %9.3f   p50 %s, p99 %s\n", "all", n, sum/float64(n), r.took[n/2], r.took[n*99/100])
	}
}
