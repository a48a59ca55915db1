package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// defaultPostgres returns the URL of the server that tests use too.
func defaultPostgres() string {
	if given := os.Getenv("TEST_POSTGRES_URL"); given != "" {
		return given
	}
	return "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
}

// benchPostgres is part 10. It measures appends on PostgreSQL against pgbench's inserts on the same
// server, histories against the bare chi handler, pages of a long ledger, and interrupts through
// another server. Without a server or pgbench it is skipped, with a message.
func (b *bench) benchPostgres(ctx context.Context) (err error) {
	b.sayf("\n10. PostgreSQL")
	if _, err := exec.LookPath("pgbench"); err != nil {
		b.sayf("  SKIPPED, nothing was measured: pgbench is not on this machine")
		return nil
	}
	base, drop, err := b.openSchema(ctx)
	if err != nil {
		b.sayf("  SKIPPED, nothing was measured: no PostgreSQL server answers at -postgres: %v", err)
		return nil
	}
	defer func() { err = errors.Join(err, drop()) }()
	defer b.stopAll() // before the schema is dropped
	p, _, err := b.startOn(ctx, base, b.db("postgres"), b.level)
	if err != nil {
		return err
	}
	peer, err := b.startRole(ctx, "bare", "-dir", b.dir)
	if err != nil {
		return err
	}
	if err := b.pgAppend(ctx, base, p); err != nil {
		return err
	}
	if err := b.historyOf(ctx, 10, p, peer); err != nil {
		return err
	}
	if err := b.pgPages(ctx, p); err != nil {
		return err
	}
	return b.interruptsOf(ctx, 10, base, p)
}

// openSchema makes an empty schema and returns the URL with it, and a function that drops it.
func (b *bench) openSchema(ctx context.Context) (base string, drop func() error, err error) {
	u, err := url.Parse(b.postgres)
	if err != nil || u.Host == "" {
		// The parser's error may quote a password.
		return "", nil, errors.New("it is postgres://user@host:port/database?options")
	}
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, b.postgres)
	if err != nil {
		return "", nil, err
	}
	name := "bench_" + strings.ToLower(rand.Text()[:12])
	var version, synced string
	err = conn.QueryRow(ctx, "SELECT current_setting('server_version'), current_setting('synchronous_commit')||', fsync '||current_setting('fsync')").Scan(&version, &synced)
	if err == nil {
		_, err = conn.Exec(ctx, "CREATE SCHEMA "+name)
	}
	if err != nil {
		return "", nil, errors.Join(err, conn.Close(ctx))
	}
	b.sayf("  server %s, synchronous_commit %s", version, synced)
	q := u.Query()
	q.Set("search_path", name)
	q.Set("application_name", "heardlog-"+name) // see cpuOf
	u.RawQuery = q.Encode()
	return u.String(), func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ioTimeout)
		defer cancel()
		_, err := conn.Exec(ctx, "DROP SCHEMA "+name+" CASCADE")
		return errors.Join(err, conn.Close(ctx))
	}, nil
}

// pgClients are the numbers of clients, and pgSessions the most sessions that pgbench opens: by
// default PostgreSQL allows a hundred.
var pgClients = []int{1, 64, 1000}

const pgSessions = 64

// pgAppend measures appends of one message, each client with an agent of its own.
func (b *bench) pgAppend(ctx context.Context, base string, p *process) error {
	callers := min(pgClients[len(pgClients)-1], b.live)
	agents, err := populate(ctx, p.addr, "pg", callers, nil, 32, "")
	if err != nil {
		return err
	}
	g := pgbench{script: filepath.Join(b.dir, "single-row-insert.sql"), url: base}
	if err := g.prepare(ctx); err != nil {
		return err
	}
	body := []byte(`{"role":"user","content":"` + sentence + `","source":"asr","timestamp":1780000000000,"metadata":{"publisher":"1001"}}`)
	for i, clients := range pgClients {
		clients = min(clients, callers)
		// A single client shares its commits with no other, so its target is lower.
		limit := []float64{0.5, 3, 3}[i]
		total := max(b.requests/3, clients)
		if clients == 1 {
			total = b.requests / 30
		}
		over := &contender{name: "heardlog", proc: p, load: load{addr: p.addr, clients: clients, total: total, request: func(i int) []byte {
			return request("POST", agoraPath+"/agents/"+agents.ids[i]+"/messages", p.addr, body, "")
		}}}
		var peer, overDB, peerDB []float64
		for round := range b.rounds + 1 { // the first is to be warm
			before := cpuOf(ctx, base, "heardlog")
			if err := interleave(ctx, 1, over); err != nil {
				return err
			}
			database := cpuOf(ctx, base, "heardlog") - before
			rate, cpu, err := g.run(ctx, min(clients, pgSessions), total)
			if err != nil {
				return err
			}
			if round == 0 {
				over.got = nil
				continue
			}
			appended := total + max(clients, total/4) // interleave begins with a quarter of a round
			peer = append(peer, rate)
			overDB, peerDB = append(overDB, micros(database)/float64(appended)), append(peerDB, micros(cpu))
		}
		b.atLeast(10, fmt.Sprintf("append, clients: %d, against pgbench", clients), ratio(over.rates(), peer), "x", limit,
			"%.0f/s (p50 %.0f, p99 %.0f µs, CPU %.0f + the database's %.0f µs); pgbench with %d sessions %.0f/s, its sessions' CPU %.0f µs, their start included",
			median(over.rates()), median(over.quantiles(.5)), median(over.quantiles(.99)), median(over.cpus()), median(overDB),
			min(clients, pgSessions), median(peer), median(peerDB))
	}
	return nil
}

// historyOf compares the history of 32 messages with the bare chi handler, as part 1 does, on
// another part's store.
func (b *bench) historyOf(ctx context.Context, part int, p, peer *process) error {
	agents, err := populate(ctx, p.addr, "history", 64, messagesBody(32), 32, "")
	if err != nil {
		return err
	}
	get := func(addr string) func(int) []byte {
		return func(i int) []byte {
			return request("GET", agoraPath+"/agents/"+agents.ids[i]+"/history", addr, nil, "")
		}
	}
	size, err := b.copyAnswer(ctx, p.addr, get(p.addr)(0), peer.addr, "/history")
	if err != nil {
		return err
	}
	own := &contender{name: "heardlog", proc: p, load: load{addr: p.addr, clients: 64, total: b.requests / 3, request: get(p.addr)}}
	other := &contender{name: "bare chi", proc: peer, load: load{addr: peer.addr, clients: 64, total: b.requests / 3, request: get(peer.addr)}}
	if err := interleave(ctx, b.rounds, own, other); err != nil {
		return err
	}
	b.atLeast(part, "history, requests/s against bare chi", ratio(own.rates(), other.rates()), "x", 0.3, "%.0f/s (p50 %.0f, p99 %.0f µs) against %.0f/s, %d bytes; CPU %.0f against %.0f µs",
		median(own.rates()), median(own.quantiles(.5)), median(own.quantiles(.99)), median(other.rates()), size, median(own.cpus()), median(other.cpus()))
	return nil
}

// pgPages compares the last page of a long ledger with the first. Only the newest messages are in
// memory.
func (b *bench) pgPages(ctx context.Context, p *process) error {
	const page = 100
	agents, err := populate(ctx, p.addr, "pgpages", 1, messagesBody(page), 32, "")
	if err != nil {
		return err
	}
	c, err := dial(ctx, p.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	path := "/v1/agents/" + agents.ids[0] + "/messages"
	ledger := page
	for ; ledger < b.requests/2; ledger += page {
		if err := wantOK(c, request("POST", path, p.addr, messagesBody(page), "")); err != nil {
			return err
		}
	}
	at := func(name string, after int) *contender {
		req := request("GET", fmt.Sprintf("%s?after_seq=%d&limit=%d", path, after, page), p.addr, nil, "")
		return &contender{name: name, proc: p, load: load{addr: p.addr, clients: 1, total: max(b.requests/60, 20), request: func(int) []byte { return req }}}
	}
	first, last := at("first page", 0), at("last page", ledger-page)
	if err := interleave(ctx, b.rounds, first, last); err != nil {
		return err
	}
	b.atMost(10, fmt.Sprintf("last page of %d messages, p50 against the first page's", page), ratio(last.quantiles(.5), first.quantiles(.5)), "x", 1.5,
		"%.0f against %.0f µs in a ledger of %d; p99 %.0f against %.0f µs", median(last.quantiles(.5)), median(first.quantiles(.5)), ledger,
		median(last.quantiles(.99)), median(first.quantiles(.99)))
	return nil
}

// pgbench runs PostgreSQL's load generator, with inserts of one row as long as a message.
type pgbench struct {
	script, url string
}

// prepare makes the table and the script. The table is simpler than Heardlog's: it has one index
// and no counters.
func (g pgbench) prepare(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, g.url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "CREATE TABLE single (no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, agent_no bigint NOT NULL, turn bigint NOT NULL, body text NOT NULL)")
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return err
	}
	// A message's text and its other fields.
	sql := "INSERT INTO single (agent_no, turn, body) VALUES (:client_id, 1, '" + strings.Repeat("x", 2*len(sentence)) + "');\n"
	return os.WriteFile(g.script, []byte(sql), 0o600)
}

var pgbenchRate = regexp.MustCompile(`tps = ([0-9.]+) \(without`)

// run returns the rate of inserts, and the CPU time of the database's sessions for each.
func (g pgbench) run(ctx context.Context, clients, total int) (rate float64, cpu time.Duration, err error) {
	u, err := url.Parse(g.url)
	if err != nil {
		return 0, 0, err
	}
	q := u.Query()
	schema := q.Get("search_path")
	q.Del("search_path") // libpq has no such parameter
	q.Del("application_name")
	u.RawQuery = q.Encode()
	cmd := exec.CommandContext(ctx, "pgbench", "-n", "-M", "prepared", "-f", g.script, "-c", strconv.Itoa(clients), "-j", strconv.Itoa(min(2, clients)),
		"-t", strconv.Itoa(max(1, total/clients)), u.String())
	cmd.Env = append(os.Environ(), "PGOPTIONS=-c search_path="+schema, "PGAPPNAME=pgbench-"+schema)
	ended := make(chan struct{})
	looked := make(chan time.Duration)
	go func() { // the sessions end with pgbench, so their CPU is read while they run
		var most time.Duration
		for {
			select {
			case <-ended:
				looked <- most
				return
			case <-time.After(50 * time.Millisecond):
				most = max(most, cpuOf(ctx, g.url, "pgbench"))
			}
		}
	}()
	out, err := cmd.CombinedOutput()
	close(ended)
	cpu = <-looked / time.Duration(total)
	if err != nil {
		return 0, 0, fmt.Errorf("pgbench: %w\n%s", err, out)
	}
	m := pgbenchRate.FindSubmatch(out)
	if m == nil {
		return 0, 0, fmt.Errorf("pgbench says no rate:\n%s", out)
	}
	rate, err = strconv.ParseFloat(string(m[1]), 64)
	return rate, cpu, err
}

// cpuOf returns the CPU time so far of the database's processes that serve a program's connections
// to this schema; 0 if the server is on another machine.
func cpuOf(ctx context.Context, base, program string) (sum time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, base)
	if err != nil {
		return 0
	}
	defer conn.Close(context.WithoutCancel(ctx))
	// The schema is in the name, because others may use the same server.
	rows, err := conn.Query(ctx, "SELECT pid FROM pg_stat_activity WHERE application_name = $1 || '-' || current_schema()", program)
	if err != nil {
		return 0
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return 0
	}
	for _, pid := range pids {
		// This file counts nanoseconds. /proc/PID/stat counts hundredths of a second, too coarse
		// for sessions that did little each. It covers one thread, which is all that a session has.
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
		if err != nil {
			return 0
		}
		spent, err := strconv.ParseInt(strings.Fields(string(b) + " x")[0], 10, 64)
		if err != nil {
			return 0
		}
		sum += time.Duration(spent)
	}
	return sum
}
