package compat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// hookKills is how often the server of TestFault05Kills is killed.
const hookKills = 26

// hookCrash holds what a server that is killed repeatedly has acknowledged about its webhooks.
type hookCrash struct {
	t     *testing.T
	s     *server
	hooks *hooks // of the main endpoint
	other *hooks // of all others
	round int
	acks  atomic.Int64 // in this round
	enemy chan struct{}
	main  string // the endpoint that lives from the first to the last moment

	mu      sync.Mutex
	left    []string        // agents whose leave was acknowledged
	edit    int             // number of edits of the main endpoint
	edited  int             // the last acknowledged one
	others  []string        // further endpoints, acknowledged
	deleted map[string]bool // true: acknowledged, false: in doubt
	replays map[string]int  // by message id, acknowledged
	taken   map[string]int  // by message id: what the receiver answered with a 200
}

// TestFault05Kills kills the server repeatedly while endpoints are created, changed and deleted,
// deliveries replayed, and agents join and leave. The server keeps every endpoint and change that
// it acknowledged, sends every event and every replay, and its log has the outcome of each
// delivery.
func TestFault05Kills(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := &hookCrash{t: t, deleted: map[string]bool{}, replays: map[string]int{}, taken: map[string]int{}}
	tries := 0
	c.hooks = newHooks(t, func(id, attempt string) (refuse, drop bool) { // called one at a time
		tries++
		refuse, drop = attempt == "1" && tries%9 == 0, attempt == "1" && tries%11 == 0
		if !refuse && !drop {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.taken[id]++
		}
		return refuse, drop
	})
	env := []string{"HEARDLOG_STORE=sqlite:" + filepath.Join(t.TempDir(), "heardlog.db"), "HEARDLOG_SECRET_KEY=a key that is long enough"}
	c.other = newHooks(t, nil)
	c.s = start(t, env...)
	c.main = c.endpoint(t.Context(), c.hooks, "edit 0")
	began := time.Now()
	for c.round = 1; c.round <= hookKills && !t.Failed(); c.round++ {
		c.run(15 + random.Int64N(40))
		c.s = start(t, env...)
		c.check()
	}
	t.Logf("%d kills in %s", hookKills, time.Since(began).Round(time.Millisecond))
	if t.Failed() {
		return
	}
	c.settle()
	if wrong := append(c.hooks.wrong(), c.other.wrong()...); len(wrong) > 0 {
		t.Errorf("the receiver complains: %s", strings.Join(wrong, "\n"))
	}
}

// endpoint creates an endpoint that gets everything by default, and returns "" if the server died
// meanwhile.
func (c *hookCrash) endpoint(ctx context.Context, to *hooks, description string) string {
	status, body, err := c.s.try(ctx, "POST", "/v1/webhooks/endpoints", object{
		"url": to.url, "description": description, "secrets": []object{{"secret": hookSecret}},
	})
	if err != nil || status != 201 {
		c.broken("make an endpoint", status, body, err)
		return ""
	}
	var out struct{ ID string }
	if err := json.Unmarshal(body, &out); err != nil || out.ID == "" {
		c.t.Errorf("%s: %v", body, err)
	}
	return out.ID
}

// run lets all clients work until that many requests were acknowledged, and kills the server during
// the next.
func (c *hookCrash) run(acks int64) {
	c.acks.Store(0)
	c.enemy = make(chan struct{})
	ctx, stop := context.WithTimeout(c.t.Context(), patience)
	defer stop()
	var clients sync.WaitGroup
	for _, work := range []func(context.Context) bool{c.comesAndGoes, c.comesAndGoes, c.edits, c.makes, c.replaysOne} {
		clients.Go(func() {
			for ctx.Err() == nil && work(ctx) {
				c.acks.Add(1)
			}
		})
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for c.acks.Load() < acks && ctx.Err() == nil {
		<-tick.C
	}
	close(c.enemy)
	c.s.kill()
	clients.Wait()
	if ctx.Err() != nil {
		c.t.Errorf("round %d: only %d acknowledgements in %s:\n%.3000s", c.round, c.acks.Load(), patience, c.s.stderr)
	}
}

// broken records an error that the kill does not explain.
func (c *hookCrash) broken(what string, status int, body []byte, err error) {
	select {
	case <-c.enemy:
		if err != nil {
			return
		}
	default:
	}
	c.t.Errorf("round %d: %s: %d %s %v", c.round, what, status, body, err)
}

func (c *hookCrash) comesAndGoes(ctx context.Context) bool {
	status, body, err := c.s.try(ctx, "POST", "/v1/agents", object{"name": fmt.Sprintf("call-%d-%d", c.round, rand.Int64())})
	if err != nil || status != 200 {
		c.broken("join", status, body, err)
		return false
	}
	var joined struct {
		AgentID string `json:"agent_id"`
	}
	if err := json.Unmarshal(body, &joined); err != nil {
		c.t.Error(err)
		return false
	}
	if status, body, err = c.s.try(ctx, "POST", "/v1/agents/"+joined.AgentID+"/leave", nil); err != nil || status != 200 {
		c.broken("leave", status, body, err)
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = append(c.left, joined.AgentID)
	return true
}

// edits changes the main endpoint repeatedly; nothing else changes it.
func (c *hookCrash) edits(ctx context.Context) bool {
	c.edit++
	status, body, err := c.s.try(ctx, "PATCH", "/v1/webhooks/endpoints/"+c.main, object{"description": fmt.Sprint("edit ", c.edit)})
	if err != nil || status != 200 {
		c.broken("edit", status, body, err)
		return false
	}
	c.edited = c.edit
	return true
}

// makes creates an endpoint, and deletes the oldest if there are several.
func (c *hookCrash) makes(ctx context.Context) bool {
	id := c.endpoint(ctx, c.other, "another")
	if id == "" {
		return false
	}
	c.others = append(c.others, id)
	if len(c.others) <= 2 {
		return true
	}
	old := c.others[0]
	c.others, c.deleted[old] = c.others[1:], false
	status, body, err := c.s.try(ctx, "DELETE", "/v1/webhooks/endpoints/"+old, nil)
	if err != nil || status/100 != 2 {
		c.broken("delete", status, body, err)
		return false
	}
	c.deleted[old] = true
	return true
}

// delivery is a delivery as the log shows it.
type delivery struct {
	ID        string
	MessageID string `json:"message_id"`
	State     string
	Attempt   int
	ReplayOf  string `json:"replay_of"`
	Attempts  []struct {
		N      int
		Status int
		Class  string `json:"error_class"`
	}
}

// replaysOne replays one of the newest deliveries of the main endpoint.
func (c *hookCrash) replaysOne(ctx context.Context) bool {
	status, body, err := c.s.try(ctx, "GET", "/v1/webhooks/deliveries?limit=10&endpoint="+c.main, nil)
	if err != nil || status != 200 {
		c.broken("list", status, body, err)
		return false
	}
	var page struct{ Deliveries []delivery }
	if err := json.Unmarshal(body, &page); err != nil {
		c.t.Error(err)
		return false
	}
	if len(page.Deliveries) == 0 {
		return true
	}
	d := page.Deliveries[rand.IntN(len(page.Deliveries))]
	if status, body, err = c.s.try(ctx, "POST", "/v1/webhooks/deliveries/"+d.ID+"/replay", nil); err != nil || status/100 != 2 {
		c.broken("replay", status, body, err)
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replays[d.MessageID]++
	return true
}

// check compares the endpoints with what was acknowledged.
func (c *hookCrash) check() {
	var list struct {
		Endpoints []struct{ ID, Description string }
	}
	c.s.call(c.t, 200, "GET", "/v1/webhooks/endpoints", nil, &list)
	var ids []string
	for _, e := range list.Endpoints {
		ids = append(ids, e.ID)
		if e.ID != c.main {
			continue
		}
		if e.Description != fmt.Sprint("edit ", c.edited) && e.Description != fmt.Sprint("edit ", c.edit) {
			c.t.Errorf("round %d: the endpoint is at %q, acknowledged was edit %d of %d", c.round, e.Description, c.edited, c.edit)
		}
	}
	for _, id := range append(slices.Clone(c.others), c.main) {
		if !slices.Contains(ids, id) {
			c.t.Errorf("round %d: endpoint %s is lost", c.round, id)
		}
	}
	for id, sure := range c.deleted {
		if sure && slices.Contains(ids, id) {
			c.t.Errorf("round %d: endpoint %s was deleted and is back", c.round, id)
		}
	}
}

// settle waits until no delivery is due for the main endpoint, and checks what arrived and what the
// log has.
func (c *hookCrash) settle() {
	end := time.Now().Add(30*time.Second + patience) // retries come after five seconds
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for len(c.deliveries("&state=pending")) > 0 {
		if time.Now().After(end) {
			c.t.Fatalf("%d deliveries still wait", len(c.deliveries("&state=pending")))
		}
		<-tick.C
	}
	for _, agent := range c.left {
		got := c.hooks.of(agent)
		for _, typ := range []int{101, 102, 103, 112} {
			if _, ok := got[typ]; !ok {
				c.t.Errorf("event %d of agent %s never came", typ, agent)
			}
		}
	}
	all := c.deliveries("")
	rows, replays := map[string]int{}, 0
	for _, d := range all {
		rows[d.MessageID]++
		if d.State != "delivered" {
			c.t.Errorf("delivery %s of %s is %s", d.ID, d.MessageID, d.State)
		}
		if d.ReplayOf != "" {
			replays++
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	acked := 0
	for id, n := range c.replays {
		acked += n
		if rows[id] < n+1 || c.taken[id] < n+1 {
			c.t.Errorf("%s was replayed %d times: %d deliveries, taken %d times", id, n, rows[id], c.taken[id])
		}
	}
	for _, d := range all[:min(len(all), 200)] {
		c.attempts(d.ID)
	}
	c.t.Logf("%d agents left, %d edits, %d endpoints deleted, %d replays acknowledged and %d made, %d deliveries", len(c.left), c.edited, len(c.deleted), acked, replays, len(all))
	if len(c.left) == 0 || c.edited == 0 || acked == 0 || len(c.deleted) == 0 {
		c.t.Error("not everything was put to the test")
	}
}

// deliveries lists all deliveries of the main endpoint.
func (c *hookCrash) deliveries(filter string) (all []delivery) {
	for cursor := ""; ; {
		var page struct {
			Deliveries []delivery
			Next       string `json:"next_cursor"`
		}
		c.s.call(c.t, 200, "GET", "/v1/webhooks/deliveries?limit=500&endpoint="+c.main+filter+cursor, nil, &page)
		all = append(all, page.Deliveries...)
		if page.Next == "" {
			return all
		}
		cursor = "&cursor=" + page.Next
	}
}

// attempts checks that the attempts of a delivered delivery end with its only success. Attempts
// that a kill ended may be missing.
func (c *hookCrash) attempts(id string) {
	var d delivery
	c.s.call(c.t, 200, "GET", "/v1/webhooks/deliveries/"+id, nil, &d)
	last := 0
	for i, a := range d.Attempts {
		if a.N <= last || a.N > d.Attempt {
			c.t.Errorf("delivery %s, at attempt %d, has %+v", id, d.Attempt, d.Attempts)
		}
		last = a.N
		if ok := a.Status/100 == 2; ok != (i == len(d.Attempts)-1) || ok != (a.Class == "") {
			c.t.Errorf("delivery %s: attempt %d of %d is %+v", id, i+1, len(d.Attempts), a)
		}
	}
	if last != d.Attempt {
		c.t.Errorf("delivery %s is delivered at attempt %d, its record ends with %d", id, d.Attempt, last)
	}
}
