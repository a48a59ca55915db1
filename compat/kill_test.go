package compat_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// crash holds what a server that is killed repeatedly has acknowledged to its clients.
type crash struct {
	t     *testing.T
	s     *server // the generation that runs
	hooks *hooks  // nil where the store has no webhooks
	round int
	acks  atomic.Int64 // in this round
	enemy chan struct{}
	rest  chan struct{} // closed when clients are to begin no more; nil = never
	// isAway is set while the store is away. Then errors are no failures.
	isAway atomic.Bool
	took   []time.Duration // of acknowledged appends; nil = not measured

	mu      sync.Mutex
	lanes   []*lane
	streams []*talk
	calls   []*shortCall
}

// lane is a client that appends batches to one agent, which it shares with another.
type lane struct {
	agent  string
	name   string // its messages' ids begin with it
	n      int
	acked  []string // ids in order
	again  []object // the batch whose answer never came; it is sent again, with the same ids
	seen   int      // how many of acked were found, in order, after an earlier kill
	cursor int64    // and up to which seq
}

// talk is a client that asks one agent repeatedly.
type talk struct {
	agent string
	n     int
	asked []string          // user texts whose answer began
	whole map[string]string // user text → answer that came to its end
}

// shortCall is an agent that joins and leaves.
type shortCall struct {
	agent   string
	message bool // its message was acknowledged
	leave   bool // leave was sent
	left    bool // and acknowledged
}

// TestKill kills the server repeatedly while clients append, stream, join and leave, and while
// webhooks are sent. Nothing acknowledged is lost, nothing is stored twice, and the receiver gets
// the end of every agent.
func TestKill(t *testing.T) {
	t.Parallel()
	var tries atomic.Uint32
	hooks := newHooks(t, func(_, attempt string) (refuse, drop bool) {
		n := tries.Add(1)
		return attempt == "1" && n%5 == 0, attempt == "1" && n%7 == 0
	})
	killed(t, hooks, 26, "HEARDLOG_STORE=sqlite:"+filepath.Join(t.TempDir(), "heardlog.db"), "HEARDLOG_SECRET_KEY=a key that is long enough",
		"HEARDLOG_WEBHOOK_URL="+hooks.url, "HEARDLOG_WEBHOOK_SECRET="+hookSecret)
	hooks.mu.Lock()
	t.Logf("%d events came, %d of them more than once", len(hooks.bodies), hooks.repeat)
	hooks.mu.Unlock()
	if wrong := hooks.wrong(); len(wrong) > 0 {
		t.Errorf("the receiver complains: %s", strings.Join(wrong, "\n"))
	}
}

// killed kills a server with these settings that many times.
func killed(t *testing.T, hooks *hooks, kills int, settings ...string) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := &crash{t: t, hooks: hooks}
	env := append([]string{"HEARDLOG_LLM_URL=" + fakeLLM(t, "-delay-chunk", "3ms") + "/v1"}, settings...)
	c.s = start(t, env...)
	for i := range 2 {
		agent := c.s.join(t, fmt.Sprintf("lane-%d", i), nil)
		c.lanes = append(c.lanes, &lane{agent: agent, name: "a-"}, &lane{agent: agent, name: "b-"})
	}
	for i := range 3 {
		c.streams = append(c.streams, &talk{agent: c.s.join(t, fmt.Sprintf("talk-%d", i), nil), whole: map[string]string{}})
	}
	began := time.Now()
	for c.round = 1; c.round <= kills && !t.Failed(); c.round++ {
		c.run(20 + random.Int64N(120))
		if c.round%4 == 0 { // and once more while it starts
			half := launch(t, env...)
			half.stderr.find(func(string) bool { return true })
			half.kill()
		}
		c.s = start(t, env...)
		c.check(false)
	}
	t.Logf("%d kills in %s", kills, time.Since(began).Round(time.Millisecond))
	if t.Failed() {
		return
	}
	c.settle()
	c.check(true)
	// After an orderly end everything acknowledged is stored, too.
	c.s.signal(t, 15)
	if code := c.s.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	c.s = start(t, env...)
	c.check(true)
}

// run lets all clients work until the server has acknowledged that many requests, and kills it
// during the next.
func (c *crash) run(acks int64) {
	c.acks.Store(0)
	c.enemy = make(chan struct{})
	ctx, stop := context.WithTimeout(c.t.Context(), patience)
	defer stop()
	clients := c.all(ctx, 3)
	c.until(ctx, acks)
	close(c.enemy)
	c.s.kill()
	clients.Wait()
}

// goesOn reports whether a client begins another request.
func (c *crash) goesOn(ctx context.Context) bool {
	select {
	case <-c.rest:
		return false
	default:
		return ctx.Err() == nil
	}
}

// dead reports whether the server was killed. An error before that is a failure.
func (c *crash) dead() bool {
	select {
	case <-c.enemy:
		return true
	default:
		return false
	}
}

// broken records an error that the kill does not explain.
func (c *crash) broken(what string, status int, body []byte, err error) {
	if err != nil && c.dead() || c.isAway.Load() {
		return
	}
	c.t.Errorf("round %d: %s: %d %s %v", c.round, what, status, body, err)
}

func (c *crash) appends(ctx context.Context, l *lane) {
	for c.goesOn(ctx) {
		batch := l.again
		if batch == nil {
			for range 1 + l.n%3 {
				l.n++
				role := "user"
				if l.n%2 == 0 {
					role = "assistant"
				}
				batch = append(batch, object{"id": l.name + strconv.Itoa(l.n), "role": role, "content": fmt.Sprintf("message %d", l.n)})
			}
			l.again = batch
		}
		began := time.Now()
		status, body, err := c.s.try(ctx, "POST", "/v1/agents/"+l.agent+"/messages", object{"messages": batch})
		c.measured(time.Since(began))
		if err != nil || status != 200 {
			c.broken("append", status, body, err)
			return
		}
		for _, m := range batch {
			l.acked = append(l.acked, m["id"].(string))
		}
		l.again = nil
		c.acks.Add(1)
	}
}

// measured notes how long a request took, if that is asked for.
func (c *crash) measured(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.took != nil {
		c.took = append(c.took, took)
	}
}

func (c *crash) talks(ctx context.Context, k *talk) {
	for c.goesOn(ctx) {
		k.n++
		text := fmt.Sprintf("question %d of round %d", k.n, c.round)
		began, answer, err := c.stream(ctx, k.agent, text)
		if began {
			k.asked = append(k.asked, text)
		}
		if err != nil {
			c.broken("stream", 0, nil, err)
			return
		}
		k.whole[text] = answer
		c.acks.Add(1)
	}
}

// stream requests an answer. It reports whether one began and, without error, what it was.
func (c *crash) stream(ctx context.Context, agent, text string) (began bool, answer string, err error) {
	body := fmt.Sprintf(`{"stream":true,"messages":[{"role":"user","content":%q}]}`, text)
	req, err := http.NewRequestWithContext(ctx, "POST", c.s.url+"/v1/agents/"+agent+"/chat/completions", strings.NewReader(body))
	if err != nil {
		return false, "", err
	}
	res, err := c.s.client.Do(req)
	if err != nil {
		return false, "", err
	}
	defer res.Body.Close()
	if res.StatusCode != 200 {
		return false, "", fmt.Errorf("status %d", res.StatusCode)
	}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if lines.Text() == "data: [DONE]" {
			return true, answer, nil
		}
		var chunk struct {
			Choices []struct {
				Delta struct{ Content string }
			}
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || json.Unmarshal([]byte(data), &chunk) != nil {
			continue // a line that the kill tore
		}
		for _, choice := range chunk.Choices {
			answer += choice.Delta.Content
		}
	}
	if err = lines.Err(); err == nil {
		err = fmt.Errorf("the stream ended without its end")
	}
	return true, "", err
}

// comesAndGoes joins, appends, sometimes requests an answer, and leaves, sometimes during the
// answer.
func (c *crash) comesAndGoes(ctx context.Context) {
	for n := 0; c.goesOn(ctx); n++ {
		call := &shortCall{}
		name := fmt.Sprintf("call-%d-%d-%p", c.round, n, call)
		status, body, err := c.s.try(ctx, "POST", "/v1/agents", object{"name": name, "properties": object{"llm": object{"greeting_message": "Hello"}}})
		if err != nil || status != 200 {
			c.broken("join", status, body, err)
			return
		}
		call.agent = strings.Split(string(body), `"`)[3]
		c.mu.Lock()
		c.calls = append(c.calls, call)
		c.mu.Unlock()
		c.acks.Add(1)
		if status, body, err = c.s.try(ctx, "POST", "/v1/agents/"+call.agent+"/messages", object{"role": "user", "content": "kept", "id": "kept"}); err != nil || status != 200 {
			c.broken("message", status, body, err)
			return
		}
		call.message = true
		var asking sync.WaitGroup
		if n%3 == 0 {
			// Ended by the leave, or by the kill.
			asking.Go(func() { _, _, _ = c.stream(ctx, call.agent, "and now?") })
		}
		call.leave = true
		status, body, err = c.s.try(ctx, "POST", "/v1/agents/"+call.agent+"/leave", nil)
		asking.Wait()
		if err != nil || status != 200 {
			c.broken("leave", status, body, err)
			return
		}
		call.left = true
		c.acks.Add(1)
	}
}

// check compares what the server has with what it acknowledged, since the last check or in all.
func (c *crash) check(all bool) {
	ctx := c.t.Context()
	for _, l := range c.lanes {
		if all {
			l.seen, l.cursor = 0, 0
		}
		if got := c.s.statusOf(c.t, l.agent); got != "RUNNING" {
			c.t.Errorf("round %d: %s is %s", c.round, l.agent, got)
		}
		msgs := c.tail(l.agent, l.cursor)
		checkOrder(c.t, l.agent, msgs)
		var ids []string
		var seqs []int64
		for _, m := range msgs {
			number, mine := strings.CutPrefix(m.ID, l.name)
			if !mine {
				continue
			}
			ids, seqs = append(ids, m.ID), append(seqs, m.Seq)
			if want := "message " + number; m.Content != want {
				c.t.Errorf("round %d: %s holds %q", c.round, m.ID, m.Content)
			}
		}
		want := l.acked[l.seen:]
		// One batch whose answer was lost may follow what was acknowledged, complete or not at all.
		doubt := slices.Clone(want)
		for _, m := range l.again {
			doubt = append(doubt, m["id"].(string))
		}
		if !slices.Equal(ids, want) && !slices.Equal(ids, doubt) {
			c.t.Errorf("round %d: agent %s: acknowledged %q, stored %q, in doubt %v", c.round, l.agent, tailOf(want), tailOf(ids), l.again)
			continue
		}
		if n := len(want); n > 0 {
			l.seen, l.cursor = len(l.acked), seqs[n-1]
		}
	}
	for _, k := range c.streams {
		msgs, err := c.s.ledgerOf(ctx, k.agent)
		if err != nil {
			c.t.Fatal(err)
		}
		checkOrder(c.t, k.agent, msgs)
		c.checkTalk(k, msgs)
	}
}

func (c *crash) checkTalk(k *talk, msgs []message) {
	count, answers := map[string]int{}, map[string]string{}
	for i, m := range msgs {
		if m.Role != "user" {
			continue
		}
		count[m.Content]++
		if i+1 < len(msgs) && msgs[i+1].Role == "assistant" && msgs[i+1].State == "final" {
			answers[m.Content] = msgs[i+1].Content
			if msgs[i+1].TurnID != m.TurnID {
				c.t.Errorf("%q of turn %d is answered in turn %d", m.Content, m.TurnID, msgs[i+1].TurnID)
			}
		}
	}
	for _, text := range k.asked {
		if count[text] != 1 {
			c.t.Errorf("round %d: %q is stored %d times", c.round, text, count[text])
		}
	}
	for text, want := range k.whole {
		if answers[text] != want {
			c.t.Errorf("round %d: the answer to %q is %q, want %q", c.round, text, answers[text], want)
		}
	}
}

// tail returns the ledger after a seq.
func (c *crash) tail(agent string, after int64) []message {
	var out []message
	for {
		var page struct {
			Messages []message `json:"messages"`
			Next     *int64    `json:"next_cursor,string"`
		}
		c.s.call(c.t, 200, "GET", fmt.Sprintf("/v1/agents/%s/messages?limit=1000&after_seq=%d", agent, after), nil, &page)
		out = append(out, page.Messages...)
		if page.Next == nil {
			return out
		}
		after = *page.Next
	}
}

// checkOrder checks that seq increases without repeats, that turns never decrease, and that no turn
// has two user messages unless the first had no answer yet.
func checkOrder(t *testing.T, agent string, msgs []message) {
	t.Helper()
	answered := false
	for i, m := range msgs {
		if i > 0 {
			switch p := msgs[i-1]; {
			case m.Seq <= p.Seq:
				t.Errorf("agent %s: seq %d behind %d", agent, m.Seq, p.Seq)
			case m.TurnID < p.TurnID:
				t.Errorf("agent %s: turn %d behind %d", agent, m.TurnID, p.TurnID)
			case m.TurnID > p.TurnID:
				answered = false
			}
		}
		if m.Role == "user" && answered {
			t.Errorf("agent %s: turn %d is numbered twice: %q", agent, m.TurnID, m.Content)
		}
		answered = answered || m.Role == "assistant" && m.State == "final" && m.Content != ""
	}
}

func tailOf(list []string) []string { return list[max(0, len(list)-8):] }

// settle waits until every agent that left is stopped and its events have arrived, and checks the
// others.
func (c *crash) settle() {
	left, running := 0, 0
	// A delivery that was in flight at a kill is sent again when its lease ends, after half a
	// minute. A slow receiver may have a long queue: as long as events arrive, there is hope.
	var end time.Time
	arrived := -1
	late := func() bool {
		if n := c.hooks.count(); n != arrived {
			arrived, end = n, time.Now().Add(30*time.Second+patience)
		}
		return time.Now().After(end)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, call := range c.calls {
		if !call.leave {
			if got := c.s.statusOf(c.t, call.agent); got != "RUNNING" {
				c.t.Errorf("agent %s, which nobody asked to leave, is %s", call.agent, got)
			}
			running++
		}
		types := []int{101}
		if call.left {
			left++
			types = []int{101, 102, 103, 112}
			eventually(c.t, "an agent that left is STOPPED", func() bool { return c.s.statusOf(c.t, call.agent) == "STOPPED" })
		}
		if call.message {
			if n := len(c.tail(call.agent, 0)); n < 2 {
				c.t.Errorf("agent %s has %d messages", call.agent, n)
			}
		}
		if c.hooks == nil {
			continue
		}
		for _, typ := range types {
			for _, ok := c.hooks.of(call.agent)[typ]; !ok; _, ok = c.hooks.of(call.agent)[typ] {
				if late() {
					c.t.Errorf("event %d of agent %s never came", typ, call.agent)
					break
				}
				<-tick.C
			}
		}
		memory := c.hooks.of(call.agent)[103].Payload.Contents
		if call.left && (len(memory) < 2 || memory[0].Content != "Hello" || memory[1].Content != "kept") {
			c.t.Errorf("event 103 of agent %s holds %v", call.agent, memory)
		}
		if call.left && c.hooks.of(call.agent)[102].Payload.Status != "STOPPED" {
			c.t.Errorf("event 102 of agent %s is %v", call.agent, c.hooks.of(call.agent)[102])
		}
	}
	total := 0
	for _, l := range c.lanes {
		total += len(l.acked)
	}
	c.t.Logf("%d messages and %d leaves acknowledged; %d agents still run", total, left, running)
	if left == 0 || total == 0 {
		c.t.Error("nothing was put to the test")
	}
}
