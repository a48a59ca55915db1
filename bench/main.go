// Command bench measures Heardlog against what it is built on, in one run on one machine, and
// prints ratios: against a bare chi handler, the disk's fdatasync, one transaction an append,
// pgbench, httputil.ReverseProxy, Redis and memcached. docs/internals/performance.md has the
// results.
//
//	go run .              # everything, about fifteen minutes
//	go run . -quick       # a few seconds a part, for orientation
//	go run . -only 1,2
//	go run . -only 11,12 -against ../heardlog-old
//	go run . recall -data FILE  # what recall finds of conversations with questions
//
// It builds the server and runs it, and what it is compared with, as processes of their own, so
// that each one's CPU and memory can be read. The load comes from this process, over loopback.
// Rounds are interleaved and medians taken. Linux only: it reads /proc.
//
// The module imports nothing of the server: any server's binary can be measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	report
	sizes
	bin     string // the server
	against string // a second server, measured in turn with the first; "" for none
	dir     string // on the disk that is measured
	level   string // the server's log level
	rounds  int
	running []*process

	postgres string // URL of part 10's server
}

// sizes hold how much load there is.
type sizes struct {
	requests int // of a round, histories and appends
	calls    int // of a round, proxied
	paced    int // of a round, proxied in an open loop
	streams  int // in all, for the long run
	live     int // streams at once
	gapUS    int // between two of their chunks
	cancels  int // of each kind
	agents   int // for the restart
	events   int // of a round, deliveries waiting
	wakes    int // of a round, events that come one by one
	silent   int // endpoints of a project that never answer
	watchers int // of an agent
	long     int // messages of a memory longer than the process keeps
	sized    int // calls whose size is measured
	crowd    int // running agents among which one is cold
	sockets  int // of the realtime relay
}

func full() sizes {
	return sizes{requests: 30_000, calls: 6_000, paced: 600, streams: 20_000, live: 1000, gapUS: 250_000, cancels: 200, agents: 10_000, events: 10_000, wakes: 800, silent: 100, watchers: 1000, long: 99_000, sized: 200, crowd: 100_000, sockets: 1000}
}

func quick() sizes {
	return sizes{requests: 1_000, calls: 300, paced: 60, streams: 200, live: 50, gapUS: 50_000, cancels: 10, agents: 200, events: 400, wakes: 40, silent: 10, watchers: 100, long: 12_000, sized: 8, crowd: 400, sockets: 50}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 && args[0] == "recall" {
		return benchRecall(ctx, args[1:], out)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	role := flags.String("role", "", "used by bench itself for the processes that it starts")
	upstream := flags.String("upstream", "", "used by bench itself")
	only := flags.String("only", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "parts to run: 1 history, 2 append, 3 proxy, 4 restart with many agents, 5 latency budget of a voice turn, 6 many streams, 7 webhooks, 8 the context of a long memory, 9 readers of a live tail, 10 PostgreSQL, 11 append of pairs, 12 conversation through the proxy, 13 fairness between projects, 14 keys and values, which needs redis-server, redis-benchmark and memcached, 15 size of a call, 16 append to an agent that is not in memory, 17 realtime relay")
	short := flags.Bool("quick", false, "a short run, for orientation")
	server := flags.String("server", "", "the server's binary; empty builds one")
	against := flags.String("against", "", "binary of another server, such as an older version: both are measured, round by round in turn, and shown side by side")
	postgres := flags.String("postgres", defaultPostgres(), "URL of the PostgreSQL server of part 10, which makes a schema of its own there and drops it")
	dir := flags.String("dir", "", "folder for the databases, on the disk to be measured; empty makes a temporary one")
	level := flags.String("log", "warn", "log level of the server; info writes one line a request")
	rounds := flags.Int("rounds", 5, "interleaved rounds of each comparison")
	agents := flags.Int("agents", 0, "running agents of part 4; 0 = the default")
	streams := flags.Int("streams", 0, "streams in all of part 6; 0 = the default")
	strict := flags.Bool("strict", false, "exit with an error if a target is missed")
	if err := flags.Parse(args); err != nil {
		return err
	}
	files, err := raiseFiles()
	if err != nil {
		return err
	}
	if *role != "" {
		return serveRole(ctx, out, *role, *upstream, *dir)
	}
	b := &bench{report: report{out: out, both: *against != ""}, sizes: full(), bin: *server, dir: *dir, level: *level, rounds: *rounds, postgres: *postgres}
	if *short {
		b.sizes, b.rounds = quick(), min(*rounds, 2)
	}
	if *agents > 0 {
		b.agents = *agents
	}
	if *streams > 0 {
		b.streams = *streams
	}
	if b.against, err = absolute(*against); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(b.dir, "heardlog-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	b.dir = tmp
	defer b.stopAll()
	if b.bin == "" {
		if b.bin, err = build(ctx, tmp); err != nil {
			return err
		}
	}
	return b.all(ctx, *only, files, *strict)
}

func (b *bench) all(ctx context.Context, only string, files uint64, strict bool) error {
	parts := []part{
		(*bench).benchHistory, (*bench).benchAppend, (*bench).benchProxy, (*bench).benchRestart,
		(*bench).benchBudget, (*bench).benchMany, (*bench).benchWebhooks, (*bench).benchContext,
		(*bench).benchTail, (*bench).benchPostgres, (*bench).benchPairs, (*bench).benchConversation,
		(*bench).benchFair, (*bench).benchKV, (*bench).benchSize, (*bench).benchCold, (*bench).benchRelay,
	}
	var which []int
	for s := range strings.SplitSeq(only, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 1 || n > len(parts) {
			return fmt.Errorf("-only %q: parts are 1 to %d", only, len(parts))
		}
		which = append(which, n)
	}
	start := time.Now()
	sync, err := b.fdatasync()
	if err != nil {
		return err
	}
	b.sayf("%d cores, %s, %s, fdatasync of 4 KiB p50 %.0f µs p99 %.0f µs, %d files, server log at level %s into a file",
		runtime.NumCPU(), kernel(), runtime.Version(), micros(sync.at(.5)), micros(sync.at(.99)), files, b.level)
	for i, part := range parts {
		if !slices.Contains(which, i+1) {
			continue
		}
		measure := part
		if b.against != "" {
			measure = func(b *bench, ctx context.Context) error { return b.measureBoth(ctx, part) }
		}
		if err := measure(b, ctx); err != nil {
			return fmt.Errorf("part %d: %w", i+1, err)
		}
		b.stopAll()
	}
	missed, err := b.table()
	b.sayf("took %s", time.Since(start).Round(time.Second))
	if err == nil && strict && missed > 0 {
		err = fmt.Errorf("%d targets missed", missed)
	}
	return err
}

// stopAll stops all processes that were started.
func (b *bench) stopAll() {
	for _, p := range slices.Backward(b.running) {
		p.stop(true)
	}
	b.running = nil
}

// db returns the path of a new database.
func (b *bench) db(name string) string { return filepath.Join(b.dir, name, "heardlog.db") }

// kernel returns the system's name and version.
func kernel() string {
	v, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	return runtime.GOOS + " " + strings.TrimSpace(string(v))
}
