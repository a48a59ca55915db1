package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// fairTarget is how many times as long as alone project B may wait while project A floods the
// server.
const fairTarget = 5

// The flood of project A, and how many agents project B uses in turn.
const (
	floodConns    = 12
	floodMessages = 1000 // of one append
	fairAgents    = 32
	fairRate      = 100 // requests of B a second; every second one is a call through the proxy
)

// benchFair is part 13: what project B notices while project A uses all that it can get.
func (b *bench) benchFair(ctx context.Context) (err error) {
	b.sayf("\n13. fairness: project B alone, and while project A appends %d messages at a time on %d connections", floodMessages, floodConns)
	if err := b.fairWrites(ctx, "SQLite", "sqlite:"+b.db("fair")); err != nil {
		return err
	}
	b.stopAll()
	base, drop, err := b.openSchema(ctx)
	if err != nil {
		b.sayf("  SKIPPED on PostgreSQL: no server answers at -postgres: %v", err)
	} else {
		err = b.fairWrites(ctx, "PostgreSQL", base)
		b.stopAll() // before the schema is dropped
		if err = errors.Join(err, drop()); err != nil {
			return err
		}
	}
	return b.fairDeliveries(ctx)
}

// fairWrites compares B's appends and first tokens, round by round in turn.
func (b *bench) fairWrites(ctx context.Context, what, store string) error {
	up, err := b.startRole(ctx, "upstream")
	if err != nil {
		return err
	}
	p, _, err := b.startOn(ctx, store, b.db("fair-"+what), b.level, twoProjects)
	if err != nil {
		return err
	}
	own, err := b.openTenant(ctx, p.addr, 1, fairAgents, "http://"+up.addr+"/v1/chat/completions?chunks=1")
	if err != nil {
		return err
	}
	defer own.Close()
	noisy, err := b.openTenant(ctx, p.addr, 0, floodConns, "")
	if err != nil {
		return err
	}
	defer noisy.Close()
	var appends, tokens [2][]float64 // p99 in ms, alone and in the flood
	stored := 0
	for round := -1; round < b.rounds; round++ { // the first is to be warm
		for i, flood := range []bool{false, true} {
			stop := func() (int, error) { return 0, nil }
			if flood {
				stop = noisy.flood(ctx)
			}
			app, tok, err := own.use(ctx, max(b.paced/4, 2))
			n, floodErr := stop()
			if err = errors.Join(err, floodErr); err != nil {
				return err
			}
			if round >= 0 {
				appends[i], tokens[i] = append(appends[i], micros(app.at(.99))/1000), append(tokens[i], micros(tok.at(.99))/1000)
				stored += n
			}
		}
	}
	for _, row := range []struct {
		what string
		got  [2][]float64
	}{{"append", appends}, {"first token", tokens}} {
		b.atMost(13, fmt.Sprintf("B's %s on %s while A floods, p99 against alone", row.what, what), ratio(row.got[1], row.got[0]), "x", fairTarget,
			"%.2f against %.2f ms; A stored %d × %d messages", median(row.got[1]), median(row.got[0]), stored, floodMessages)
	}
	return nil
}

// twoProjects are the credentials of authorization.
const twoProjects = "HEARDLOG_CREDENTIALS=p0=k0:secret-0,p1=k1:secret-1"

// tenant is a project with agents and a connection for each.
type tenant struct {
	addr, auth string
	agents     []string
	conns      []*conn
}

func (b *bench) openTenant(ctx context.Context, addr string, project, agents int, upstream string) (*tenant, error) {
	t := &tenant{addr: addr, auth: authorization(project)}
	for i := range agents {
		c, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		t.conns = append(t.conns, c)
		id, err := joined(c, request("POST", "/v1/join", addr, joinBody(fmt.Sprintf("fair-%d", i), upstream, 0), t.auth))
		if err != nil {
			return nil, err
		}
		t.agents = append(t.agents, id)
	}
	return t, nil
}

func (t *tenant) Close() {
	for _, c := range t.conns {
		_ = c.Close() // nothing more is asked of it
	}
}

func (t *tenant) post(agent int, path string, body []byte) []byte {
	return request("POST", "/v1/agents/"+t.agents[agent]+path, t.addr, body, t.auth)
}

// flood appends large batches on every connection until stop is called, which returns how many were
// stored.
func (t *tenant) flood(ctx context.Context) (stop func() (int, error)) {
	ctx, cancel := context.WithCancel(ctx)
	counts, errs := make([]int, len(t.conns)), make([]error, len(t.conns))
	var wg sync.WaitGroup
	for i, c := range t.conns {
		wg.Go(func() {
			req := t.post(i, "/messages", messagesBody(floodMessages))
			for ctx.Err() == nil && errs[i] == nil {
				errs[i] = wantOK(c, req)
				counts[i]++
			}
		})
	}
	return func() (int, error) {
		cancel()
		wg.Wait()
		stored := 0
		for _, n := range counts {
			stored += n
		}
		return stored, errors.Join(errs...)
	}
}

// use makes n appends and n calls at a steady rate, and returns how long the appends and the first
// tokens took.
func (t *tenant) use(ctx context.Context, n int) (appends, tokens samples, err error) {
	free := make(chan int, len(t.agents))
	for i := range t.agents {
		free <- i
	}
	message := []byte(`{"role":"user","source":"asr","content":"` + sentence + `"}`)
	call := chatBody(true)
	firsts := make([]time.Duration, 2*n)
	all, err := paced(ctx, fairRate, 2*n, always, func(i int) error {
		begun := time.Now()
		agent := <-free
		defer func() { free <- agent }()
		if i%2 == 0 {
			return wantOK(t.conns[agent], t.post(agent, "/messages", message))
		}
		first, err := wantStream(t.conns[agent], t.post(agent, "/chat/completions", call), 1)
		firsts[i] = first.Sub(begun)
		return err
	})
	for i := range all {
		if i%2 == 0 {
			appends = append(appends, all[i])
		} else {
			tokens = append(tokens, firsts[i])
		}
	}
	return appends, tokens, err
}
