package main

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
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
			Category any      `json:"category"` // a number or a name
			Gold     []string `json:"gold"`     // IDs of the turns with the answer
		} `json:"questions"`
	} `json:"conversations"`
}

// benchRecall measures how much of what questions ask for is among the first ten hits, through
// HTTP, and how long the answers take. It also asks each caller the questions of the next one,
// which nothing answers, to measure the strengths.
func benchRecall(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("bench recall", flag.ContinueOnError)
	path := flags.String("data", "", "JSON file with conversations and questions, also packed by gzip")
	speech := flags.Bool("speech", false, "write turns and questions as speech recognition does: lower case, no punctuation")
	oneCall := flags.Bool("one-call", false, "make one call of all calls of a conversation")
	turns := flags.Int("turns", 0, "measure instead how long recalls take of one caller with so many turns, made of the conversations")
	deadline := flags.Int("deadline", 80, "deadline of these recalls in ms")
	server := flags.String("server", "", "the server's binary; empty builds one")
	if err := flags.Parse(args); err != nil {
		return err
	}
	data, err := readRecallData(*path)
	if err != nil {
		return err
	}
	data.edit(*speech, *oneCall)
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
	r := recaller{c: c, addr: p.addr, recalls: map[string][]float64{}, answered: map[string]int{}, missed: map[string]int{}, unanswerable: map[string]int{}}
	if *turns > 0 {
		return r.speed(ctx, data, p, *turns, *deadline, out)
	}
	for i := range data.Conversations {
		if err := r.conversation(data, i); err != nil {
			return err
		}
	}
	for i := range data.Conversations {
		next := data.Conversations[(i+1)%len(data.Conversations)]
		for n := 0; n < len(next.Questions) && len(data.Conversations) > 1; n += 4 {
			found, err := r.ask(data.Conversations[i].ID, next.Questions[n].Question)
			if err != nil {
				return err
			}
			r.unanswerable[found.Strength]++
		}
	}
	r.print(out)
	return nil
}

// readRecallData reads a file of conversations.
func readRecallData(path string) (*recallData, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var in io.Reader = file
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(file); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	var data recallData
	if err := json.NewDecoder(in).Decode(&data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &data, nil
}

// edit brings the texts into the form of speech and the calls of a conversation into one.
func (d *recallData) edit(speech, oneCall bool) {
	for i := range d.Conversations {
		c := &d.Conversations[i]
		for n := range c.Calls {
			if oneCall && n > 0 {
				c.Calls[0].Turns = append(c.Calls[0].Turns, c.Calls[n].Turns...)
			}
			for t := range c.Calls[n].Turns {
				if speech {
					c.Calls[n].Turns[t].Text = asSpoken(c.Calls[n].Turns[t].Text)
				}
			}
		}
		if oneCall {
			c.Calls = c.Calls[:1]
		}
		for q := range c.Questions {
			if speech {
				c.Questions[q].Question = asSpoken(c.Questions[q].Question)
			}
		}
	}
}

// asSpoken returns a text as speech recognition writes it.
func asSpoken(s string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		switch {
		case r == '\'' || r == '’':
			return -1
		case unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r):
			return unicode.ToLower(r)
		}
		return ' '
	}, s)), " ")
}

// recaller asks one server.
type recaller struct {
	c       *conn
	addr    string
	recalls map[string][]float64 // of the questions, by category
	took    []time.Duration
	// How often each strength came with questions that were answered among the first 10 hits, whose
	// answer was missed, and that nothing answers.
	answered, missed, unanswerable map[string]int
}

// recalled is the answer of a recall.
type recalled struct {
	Hits     []struct{ ID string }
	Strength string
}

func (r *recaller) ask(user, question string) (found recalled, err error) {
	start := time.Now()
	err = r.post("/v1/recall", map[string]any{"user_id": user, "query": question, "k": 10, "deadline_ms": 10_000}, &found)
	r.took = append(r.took, time.Since(start))
	return found, err
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
		found, err := r.ask(conv.ID, q.Question)
		if err != nil {
			return err
		}
		hit := 0
		for _, h := range found.Hits {
			if slices.Contains(q.Gold, turns[h.ID]) {
				hit++
			}
		}
		category := fmt.Sprint(q.Category)
		r.recalls[category] = append(r.recalls[category], float64(hit)/float64(len(q.Gold)))
		if hit > 0 {
			r.answered[found.Strength]++
		} else {
			r.missed[found.Strength]++
		}
	}
	return nil
}

func (r *recaller) print(out io.Writer) {
	fmt.Fprintf(out, "%-24s %9s %9s %15s\n", "category", "questions", "recall@10", "95 % interval")
	var all []float64
	for _, c := range slices.Sorted(maps.Keys(r.recalls)) {
		printRecall(out, c, r.recalls[c])
		all = append(all, r.recalls[c]...)
	}
	if len(all) == 0 {
		return
	}
	printRecall(out, "all", all)
	slices.SortFunc(r.took, cmp.Compare[time.Duration])
	fmt.Fprintf(out, "p50 %s, p99 %s\n\n%-8s %9s %9s %13s %10s %10s\n", r.took[len(r.took)/2], r.took[len(r.took)*99/100],
		"strength", "answered", "missed", "unanswerable", "precision", "recall")
	total := 0
	for _, n := range r.answered {
		total += n
	}
	right, wrong := 0, 0
	for _, level := range []string{"strong", "weak", "none"} { // each with those above it
		right, wrong = right+r.answered[level], wrong+r.missed[level]+r.unanswerable[level]
		fmt.Fprintf(out, "%-8s %9d %9d %13d", level, r.answered[level], r.missed[level], r.unanswerable[level])
		if level != "none" {
			fmt.Fprintf(out, " %10.3f %10.3f", float64(right)/float64(max(1, right+wrong)), float64(right)/float64(max(1, total)))
		}
		fmt.Fprintln(out)
	}
}

// printRecall prints an average with its interval, by 1,000 samples of the questions.
func printRecall(out io.Writer, name string, recalls []float64) {
	random := rand.New(rand.NewPCG(1, 2))
	average := func(next func() float64) float64 {
		sum := 0.
		for range recalls {
			sum += next()
		}
		return sum / float64(len(recalls))
	}
	var samples []float64
	for range 1000 {
		samples = append(samples, average(func() float64 { return recalls[random.IntN(len(recalls))] }))
	}
	slices.Sort(samples)
	at := -1
	mean := average(func() float64 { at++; return recalls[at] })
	fmt.Fprintf(out, "%-24s %9d %9.3f   %.3f - %.3f\n", name, len(recalls), mean, samples[25], samples[975])
}
