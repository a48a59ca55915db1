package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// A call of part 15: turns, words of an answer, and which of the answers are cut.
const (
	sizeTurns   = 20
	sizeWords   = 36
	sizeCut     = 5
	sizeClients = 4
)

// benchSize is part 15. It makes calls as a LiveKit agent does, and measures what one leaves
// behind: bytes of each table and index, bytes of write-ahead log, commits and CPU.
func (b *bench) benchSize(ctx context.Context) error {
	b.sayf("\n15. what a call of %d turns leaves in the database; %d calls, the list sent again each turn, a system prompt of 2,000 bytes", sizeTurns, b.sized)
	up, err := b.startRole(ctx, "upstream")
	if err != nil {
		return err
	}
	for _, named := range []bool{false, true} {
		if err := b.sizeSQLite(ctx, up, named); err != nil {
			return err
		}
	}
	for _, named := range []bool{false, true} {
		if err := b.sizePostgres(ctx, named); err != nil {
			return err
		}
	}
	return nil
}

// sizing is one run of calls.
type sizing struct {
	named bool // the caller has a name, and there is a webhook
	hooks *receiver
}

func (b *bench) startSizing(ctx context.Context, store, db string, up *process, named bool) (*process, *sizing, error) {
	s := &sizing{named: named}
	env := []string{"HEARDLOG_LLM_URL=http://" + up.addr + "/v1/chat/completions?words=" + strconv.Itoa(sizeWords)}
	if named {
		var err error
		if s.hooks, err = startReceiver(ctx); err != nil {
			return nil, nil, err
		}
		env = append(env, "HEARDLOG_WEBHOOK_URL=http://"+s.hooks.addr+"/")
	}
	p, _, err := b.startOn(ctx, store, db, b.level, env...)
	return p, s, err
}

// calls makes some calls, numbered from first.
func (s *sizing) calls(ctx context.Context, addr string, first, n int) error {
	next := make(chan int, n)
	for i := range n {
		next <- first + i
	}
	close(next)
	errs := make([]error, sizeClients)
	var wg sync.WaitGroup
	for w := range sizeClients {
		wg.Go(func() {
			c, err := dial(ctx, addr)
			if err != nil {
				errs[w] = err
				return
			}
			defer c.Close()
			for i := range next {
				if errs[w] = s.call(c, addr, i); errs[w] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// call makes one call.
func (s *sizing) call(c *conn, addr string, n int) error {
	r := rand.New(rand.NewPCG(uint64(n), 15))
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	prompt := "You are the receptionist of a small practice. "
	for len(prompt) < 2000 {
		prompt += words(rand.New(rand.NewPCG(uint64(len(prompt)), 1)), 12) + ". "
	}
	list := []message{{"system", prompt[:2000]}}
	extra := fmt.Sprintf("X-LiveKit-Job-ID: AJ_bench%08d\r\n", n)
	if s.named {
		extra += fmt.Sprintf("X-Heardlog-User: caller-%d\r\n", n%50)
	}
	agent := ""
	for turn := range sizeTurns {
		list = append(list, message{"user", "I " + words(r, 14) + "?"})
		body, err := json.Marshal(map[string]any{"model": "bench-1", "stream": true, "messages": list})
		if err != nil {
			return err
		}
		h, err := c.send(request("POST", "/v1/chat/completions", addr, body, extra))
		if err != nil {
			return err
		}
		c.body = c.body[:0]
		if err := c.read(h, func(p []byte) { c.body = append(c.body, p...) }); err != nil {
			return err
		}
		if h.status != 200 || h.agent == "" {
			return fmt.Errorf("status %d of agent %q: %.300s", h.status, h.agent, c.body)
		}
		agent = h.agent
		said := streamed(c.body)
		if turn%sizeCut == sizeCut-1 {
			said = said[:strings.LastIndexByte(said[:len(said)/2], ' ')]
			heard, err := json.Marshal(map[string]string{"heard": said})
			if err != nil {
				return err
			}
			if err := wantOK(c, request("POST", "/v1/agents/"+agent+"/interrupt", addr, heard, "")); err != nil {
				return err
			}
		}
		list = append(list, message{"assistant", said})
	}
	return wantOK(c, request("POST", "/v1/agents/"+agent+"/leave", addr, []byte("{}"), ""))
}

// streamed returns the text of an answer's stream.
func streamed(body []byte) string {
	var out strings.Builder
	for line := range strings.Lines(string(body)) {
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if ok && json.Unmarshal([]byte(data), &chunk) == nil && len(chunk.Choices) > 0 {
			out.WriteString(chunk.Choices[0].Delta.Content)
		}
	}
	return out.String()
}

// vocabulary is what callers and the fake LLM speak.
var vocabulary = strings.Fields(`about after again afternoon all also always another answer any anything appointment are
	ask available away back bad because been before began below best better between big book both bring building busy
	but calendar call came cancel card care change check clear clinic close come confirm could day days depends doctor
	does done door down each early earlier easy either else end enough evening ever every exactly fast few find fine
	first five follow for form found four free friday from full get give glad going good great had half happen happy
	has have hear help her here him his hold hope hour hours how however hundred idea if important in instead into is
	it just keep kind know last late later least leave left less let like line list little long look made make many
	march may maybe me mean medicine meet might minutes moment monday month more morning most move much must my name
	near need never new next nine no noon not nothing now number nurse of off office often old on once one only open
	or other our out over own pain paper part people perhaps phone place plan please possible practice prefer quarter
	question quick quite reach ready really reason receive remember repeat right room said same saturday say second
	see send seven several shall short should side since six small some something soon sorry sound speak start stay
	still street such sunday sure system take talk tell ten than thank that the their them then there they thing think
	third this those three through thursday time to today together tomorrow too two tuesday turn twelve twenty under
	understand until up us use usually very visit wait walk want was way we wednesday week weeks well were what when
	where whether which while who whole why will wish with without word work would write wrong year yes yesterday yet
	you your`)

func words(r *rand.Rand, n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = vocabulary[r.IntN(len(vocabulary))]
	}
	return strings.Join(out, " ")
}

// spoken returns the fake LLM's answer to a request: different words for each.
func spoken(request []byte, n int) []string {
	h := fnv.New64a()
	_, _ = h.Write(request)
	return strings.Fields(words(rand.New(rand.NewPCG(h.Sum64(), 2)), n))
}

// sizes of a database's tables and indexes, by name.
type tables map[string]float64

// perCall shows what calls have added, largest first.
func (b *bench) perCall(store string, before, after tables, calls int, limit float64) {
	sum, names := 0.0, make([]string, 0, len(after))
	for name := range after {
		after[name] = (after[name] - before[name]) / 1000 / float64(calls)
		sum += after[name]
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int { return int(1000 * (after[y] - after[x])) })
	var parts []string
	for _, name := range names {
		if after[name] >= 0.05 {
			parts = append(parts, fmt.Sprintf("%s %.2f", name, after[name]))
		}
	}
	b.atMost(15, store+", bytes of a call", sum, "kB", limit, "%s", strings.Join(parts, ", "))
}

func what(named bool) string {
	if named {
		return "caller named and one webhook"
	}
	return "no caller, no webhook"
}

func (b *bench) sizeSQLite(ctx context.Context, up *process, named bool) error {
	path := b.db("size-" + strconv.FormatBool(named))
	p, s, err := b.startSizing(ctx, "sqlite:"+path, path, up, named)
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=query_only(1)")
	if err != nil {
		return err
	}
	defer db.Close()
	read := func() (tables, error) {
		rows, err := db.QueryContext(ctx, "SELECT name, sum(pgsize) FROM dbstat GROUP BY name")
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		out := tables{}
		for rows.Next() {
			var name string
			var n float64
			if err := rows.Scan(&name, &n); err != nil {
				return nil, err
			}
			out[name] = n
		}
		return out, rows.Err()
	}
	measure := func() (t tables, cpu time.Duration, written float64, err error) {
		if t, err = read(); err == nil {
			if cpu, err = p.cpu(); err == nil {
				written, err = p.written()
			}
		}
		return t, cpu, written, err
	}
	warm := max(4, b.sized/10)
	if err := s.calls(ctx, p.addr, 0, warm); err != nil {
		return err
	}
	before, cpu0, written0, err := measure()
	if err != nil {
		return err
	}
	if err := s.calls(ctx, p.addr, warm, b.sized); err != nil {
		return err
	}
	s.settle()
	after, cpu1, written1, err := measure()
	if err != nil {
		return err
	}
	name := "SQLite, " + what(named)
	b.perCall(name, before, after, b.sized, sizeLimit(named))
	b.show(15, name+", written a turn", (written1-written0)/1000/float64(b.sized*sizeTurns), "kB", "log, checkpoints and the server's log file")
	b.show(15, name+", CPU a turn", micros(cpu1-cpu0)/float64(b.sized*sizeTurns), "µs", "with the HTTP of the stream")
	p.stop(true)
	return nil
}

func sizeLimit(named bool) float64 {
	if named {
		return 25
	}
	return 12
}

// settle waits until events are delivered.
func (s *sizing) settle() {
	if s.hooks != nil {
		time.Sleep(2 * time.Second)
	}
}

// written returns how many bytes a process has written to files so far.
func (p *process) written() (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			return strconv.ParseFloat(strings.TrimSpace(rest), 64)
		}
	}
	return 0, errors.New("/proc/PID/io has no write_bytes")
}

func (b *bench) sizePostgres(ctx context.Context, named bool) (err error) {
	base, drop, err := b.openSchema(ctx)
	if err != nil {
		b.sayf("  SKIPPED, nothing was measured: no PostgreSQL server answers at -postgres: %v", err)
		return nil
	}
	defer func() { err = errors.Join(err, drop()) }()
	defer b.stopAll()
	up, err := b.startRole(ctx, "upstream") // stopAll ends the one before
	if err != nil {
		return err
	}
	p, s, err := b.startSizing(ctx, base, b.db("size-pg-"+strconv.FormatBool(named)), up, named)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, base)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	type state struct {
		tables
		log, commits, writes, updates, inserts float64
		cpu                                    time.Duration
	}
	measure := func() (st state, err error) {
		time.Sleep(1500 * time.Millisecond) // sessions report what they did within a second
		st.tables = tables{}
		rows, err := conn.Query(ctx, `SELECT c.relname, pg_relation_size(c.oid)::float8 + coalesce(pg_total_relation_size(nullif(c.reltoastrelid, 0)), 0)
			FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'i')`)
		if err != nil {
			return st, err
		}
		var name string
		var n float64
		_, err = pgx.ForEachRow(rows, []any{&name, &n}, func() error {
			st.tables[name] = n
			return nil
		})
		if err == nil {
			err = conn.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8, (SELECT xact_commit::float8 FROM pg_stat_database WHERE datname = current_database()),
				pg_snapshot_xmax(pg_current_snapshot())::text::float8, -- a transaction has a number if it writes
				(SELECT n_tup_upd::float8 FROM pg_stat_user_tables WHERE schemaname = current_schema() AND relname = 'message'),
				(SELECT n_tup_ins::float8 FROM pg_stat_user_tables WHERE schemaname = current_schema() AND relname = 'message')`).Scan(&st.log, &st.commits, &st.writes, &st.updates, &st.inserts)
		}
		if err == nil {
			st.cpu, err = p.cpu()
		}
		st.cpu += cpuOf(ctx, base, "heardlog")
		return st, err
	}
	// As many calls before, and a vacuum, as autovacuum makes it all the time: the space of rows
	// that were updated is used again.
	warm := b.sized
	if err := s.calls(ctx, p.addr, 0, warm); err != nil {
		return err
	}
	s.settle()
	for _, sql := range []string{"VACUUM message", "VACUUM item", "CHECKPOINT"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	before, err := measure()
	if err != nil {
		return err
	}
	if err := s.calls(ctx, p.addr, warm, b.sized); err != nil {
		return err
	}
	s.settle()
	after, err := measure()
	if err != nil {
		return err
	}
	calls, turns := float64(b.sized), float64(b.sized*sizeTurns)
	name := "PostgreSQL, " + what(named)
	b.perCall(name, before.tables, after.tables, b.sized, sizeLimit(named))
	b.atMost(15, name+", log of a call", (after.log-before.log)/1000/calls, "kB", 50, "")
	b.atMost(15, name+", commits a turn", (after.writes-before.writes)/turns, "", 2.2, "that write; with reads and what servers ask now and then %.2f; %.2f updates of an inserted message",
		(after.commits-before.commits)/turns, (after.updates-before.updates)/(after.inserts-before.inserts))
	b.show(15, name+", CPU a turn", micros(after.cpu-before.cpu)/turns, "µs", "server and database")
	return nil
}
