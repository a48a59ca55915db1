package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/heardlog/heardlog/memory/redis"
)

// durability is how a Redis of the bench's own keeps what it is given.
type durability struct {
	name string
	args []string
}

var durabilities = []durability{
	{"appendfsync always", []string{"--appendonly", "yes", "--appendfsync", "always"}}, // what docs/redis.md recommends
	{"nothing on disk", []string{"--appendonly", "no"}},
}

// benchRedis is part 11: appends on Redis, over HTTP and at the driver, against redis-benchmark writing the same bytes to the same server within the same seconds; histories against the bare
// chi handler; interrupts through another server. It starts Redis servers of its own; where redis-server or redis-benchmark is not to be had it is left out, and says so.
func (b *bench) benchRedis(ctx context.Context) error {
	b.sayf("\n11. Redis")
	for _, program := range []string{"redis-server", "redis-benchmark", "redis-cli"} {
		if _, err := exec.LookPath(program); err != nil {
			b.sayf("  SKIPPED, nothing was measured: %s is not on this machine", program)
			return nil
		}
	}
	for _, d := range durabilities {
		if err := b.redisWith(ctx, d); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		b.stopAll()
	}
	return nil
}

func (b *bench) redisWith(ctx context.Context, d durability) error {
	server, err := b.startRedis(ctx, d)
	if err != nil {
		return err
	}
	base := "redis://" + server.addr
	p, _, err := b.startOn(ctx, base, b.db("redis"), b.level)
	if err != nil {
		return err
	}
	if err := b.redisAppend(ctx, d, server, base, p); err != nil {
		return err
	}
	if d.name != durabilities[0].name {
		return nil // what follows does not write, or waits for other things
	}
	peer, err := b.startRole(ctx, "bare", "-dir", b.dir)
	if err != nil {
		return err
	}
	if err := b.historyOf(ctx, 11, p, peer); err != nil {
		return err
	}
	return b.interruptsOf(ctx, 11, base, p)
}

// startRedis starts a Redis server and waits until it answers.
func (b *bench) startRedis(ctx context.Context, d durability) (*process, error) {
	addr, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.dir, "redis-")
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	args := append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--daemonize", "no"}, d.args...)
	p := &process{name: "redis", addr: addr, log: log, cmd: exec.CommandContext(ctx, "redis-server", args...)}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	b.running = append(b.running, p)
	for deadline := time.Now().Add(ioTimeout); ; {
		probed, err := redis.Probe(ctx, "redis://"+addr)
		if err == nil {
			b.sayf("  %s, %s", probed.Version, d.name)
			return p, nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return nil, fmt.Errorf("redis-server does not answer; its log is %s: %w", log.Name(), err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// redisScript does at least what an append has to: look at the agent, write the message, its places by revision and turn, and the agent's head.
const redisScript = `local n = redis.call('HINCRBY', KEYS[1], 'n', 1) redis.call('HSET', KEYS[2], n, ARGV[1]) redis.call('ZADD', KEYS[3], n, n) ` +
	`redis.call('ZADD', KEYS[4], n, n) return redis.call('HSET', KEYS[1], 'v', n, 'r', n, 't', n)`

// redisClients are the callers of an append.
var redisClients = []int{1, 64, 1000}

// redisAppend measures appends of one message, each caller with an agent of its own, against two that redis-benchmark makes: one write of as many bytes, which is the least that storing them can
// cost, and a script that does as much as ours.
func (b *bench) redisAppend(ctx context.Context, d durability, server *process, base string, p *process) error {
	s, err := redis.Open(ctx, redis.Options{URL: base})
	if err != nil {
		return err
	}
	defer s.Close()
	callers := min(redisClients[len(redisClients)-1], b.live)
	agents, err := populate(ctx, p.addr, "redis", callers, nil, 32, "")
	if err != nil {
		return err
	}
	g, err := newRedisBenchmark(ctx, server, callers)
	if err != nil {
		return err
	}
	body := []byte(`{"role":"user","content":"` + sentence + `","source":"asr","timestamp":1780000000000,"metadata":{"publisher":"1001"}}`)
	done := 0
	for _, clients := range redisClients {
		if clients = min(clients, callers); clients == done {
			break // a short run has fewer callers
		}
		done = clients
		total := max(b.requests/3, clients)
		if clients == 1 {
			total = b.requests / 30
		}
		over := &contender{name: "heardlog", proc: p, load: load{addr: p.addr, clients: clients, total: total, request: func(i int) []byte {
			return request("POST", agoraPath+"/agents/"+agents.ids[i]+"/messages", p.addr, body, "")
		}}}
		var got [4]redisRounds            // over HTTP, at the driver, one write, script
		for round := range b.rounds + 1 { // the first to be warm
			for i, run := range []func() (float64, error){
				func() (float64, error) {
					err := interleave(ctx, 1, over)
					if err != nil {
						return 0, err
					}
					return over.got[len(over.got)-1].rate, nil
				},
				func() (float64, error) { return appendAt(ctx, s, agents.ids[:clients], total) },
				func() (float64, error) { return g.run(ctx, clients, total, g.write) },
				func() (float64, error) { return g.run(ctx, clients, total, g.script) },
			} {
				before, err := server.cpu()
				if err != nil {
					return err
				}
				rate, err := run()
				if err != nil {
					return err
				}
				after, err := server.cpu()
				if err != nil {
					return err
				}
				writes := total
				switch i {
				case 0:
					writes += max(clients, total/4) // interleave's, to be warm
				case 2, 3:
					writes = max(total, fewest)
				}
				if round > 0 {
					got[i].rates = append(got[i].rates, rate)
					got[i].cpus = append(got[i].cpus, micros(after-before)/float64(writes))
				}
			}
			if round == 0 {
				over.got = nil
			}
		}
		of := fmt.Sprintf("redis-benchmark's script %s, its one write %s", got[3], got[2])
		b.atLeast(11, fmt.Sprintf("%s, append over HTTP, clients: %d, against redis-benchmark's script", d.name, clients), ratio(got[0].rates, got[3].rates), "x", 0.3,
			"%s (p50 %.0f, p99 %.0f µs, our CPU %.0f µs); %s", got[0], median(over.quantiles(.5)), median(over.quantiles(.99)), median(over.cpus()), of)
		b.atLeast(11, fmt.Sprintf("%s, append at the driver, callers: %d, against redis-benchmark's script", d.name, clients), ratio(got[1].rates, got[3].rates), "x", 0.5,
			"%.2f × its one write; %s; %s", ratio(got[1].rates, got[2].rates), got[1], of)
	}
	return nil
}

// redisRounds are the rates of the rounds of one load and the CPU of the Redis server for each write, in µs.
type redisRounds struct{ rates, cpus []float64 }

func (r redisRounds) String() string {
	return fmt.Sprintf("%.0f/s (CPU of Redis %.0f µs)", median(r.rates), median(r.cpus))
}

// redisBenchmark runs Redis' own load generator.
type redisBenchmark struct {
	port          string
	agents        int
	write, script []string // commands
}

func newRedisBenchmark(ctx context.Context, server *process, agents int) (*redisBenchmark, error) {
	_, port, err := net.SplitHostPort(server.addr)
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "redis-cli", "-p", port, "SCRIPT", "LOAD", redisScript).Output()
	if err != nil {
		return nil, fmt.Errorf("redis-cli: %w", err)
	}
	row := strings.Repeat("x", 2*len(sentence)) // a message's text and what stands around it
	const of = "single:__rand_int__"            // redis-benchmark puts a number there, another each time
	return &redisBenchmark{
		port: port, agents: agents,
		write:  []string{"RPUSH", of + ":m", row},
		script: []string{"EVALSHA", strings.TrimSpace(string(out)), "4", of + ":h", of + ":b", of + ":r", of + ":t", row},
	}, nil
}

// fewest is how often redis-benchmark writes at least: it counts in ms, and says inf of what takes none.
const fewest = 500

// run gives the rate at which so many connections, each with one command under way, are answered.
func (g *redisBenchmark) run(ctx context.Context, clients, total int, command []string) (float64, error) {
	args := append([]string{"-p", g.port, "-c", strconv.Itoa(clients), "-n", strconv.Itoa(max(total, fewest)), "-r", strconv.Itoa(g.agents), "--csv"}, command...)
	out, err := exec.CommandContext(ctx, "redis-benchmark", args...).Output()
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark: %w\n%s", err, out)
	}
	rows, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil || len(rows) != 2 || len(rows[1]) < 2 || rows[0][1] != "rps" {
		return 0, fmt.Errorf("redis-benchmark says no rate: %w\n%s", err, out)
	}
	return strconv.ParseFloat(rows[1][1], 64)
}
