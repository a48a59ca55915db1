package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// kvTarget is how many operations a second the embedded store is to do at 64 clients.
const kvTarget = 10_000

// kvValue is what is stored under each key: JSON of 64 bytes.
var kvValue = `"` + strings.Repeat("v", 62) + `"`

// benchKV is part 14: sets and reads of keys and values, against Redis that has what it
// acknowledges on disk, as Heardlog does, and against memcached, which has no disk. The same client
// loads all three over their own protocols. Redis's own tool, redis-benchmark, runs beside it;
// memcached comes without one.
func (b *bench) benchKV(ctx context.Context) error {
	const clients = 64
	b.sayf("\n14. keys and values of %d bytes, %d clients", len(kvValue), clients)
	for _, name := range []string{"redis-server", "redis-benchmark", "memcached"} {
		if _, err := exec.LookPath(name); err != nil {
			b.sayf("  SKIPPED: %s is not installed", name)
			return nil
		}
	}
	own, _, err := b.startServer(ctx, b.db("kv"), b.level)
	if err != nil {
		return err
	}
	redis, err := b.startTool(ctx, "redis-server", func(port string) []string {
		return []string{"--port", port, "--bind", "127.0.0.1", "--dir", b.dir, "--appendonly", "yes", "--appendfsync", "always", "--save", ""}
	})
	if err != nil {
		return err
	}
	memcached, err := b.startTool(ctx, "memcached", func(port string) []string {
		return []string{"-p", port, "-l", "127.0.0.1", "-U", "0", "-u", "nobody"}
	})
	if err != nil {
		return err
	}
	key := func(n int) string { return fmt.Sprintf("k%04d", n%5000) }
	body := []byte(`{"value":` + kvValue + `}`)
	way := func(name string, p *process, read func(*conn, []byte) error, each func(n int) []byte) *contender {
		return &contender{name: name, proc: p, load: load{addr: p.addr, clients: clients, total: b.requests, read: read, each: func(_, n int) []byte { return each(n) }}}
	}
	sets := []*contender{
		way("heardlog", own, nil, func(n int) []byte { return request("PUT", "/v1/kv/bench/"+key(n), own.addr, body, "") }),
		way("Redis", redis, wantLine("+OK"), func(n int) []byte { return resp("SET", key(n), kvValue) }),
		way("memcached", memcached, wantLine("STORED"), func(n int) []byte {
			return fmt.Appendf(nil, "set %s 0 0 %d\r\n%s\r\n", key(n), len(kvValue), kvValue)
		}),
	}
	gets := []*contender{
		way("heardlog", own, wantOK, func(n int) []byte { return request("GET", "/v1/kv/bench/"+key(n), own.addr, nil, "") }),
		way("Redis", redis, wantValue("$"+strconv.Itoa(len(kvValue)), ""), func(n int) []byte { return resp("GET", key(n)) }),
		way("memcached", memcached, wantValue("VALUE ", "END"), func(n int) []byte { return fmt.Appendf(nil, "get %s\r\n", key(n)) }),
	}
	sums := way("heardlog", own, wantOK, func(n int) []byte {
		return request("POST", "/v1/kv/sums/"+key(n%64)+"/increment", own.addr, []byte("{}"), "")
	})
	tools := map[string][]float64{}
	for range b.rounds {
		if err := interleave(ctx, 1, sets...); err != nil {
			return err
		}
		if err := interleave(ctx, 1, gets...); err != nil {
			return err
		}
		if err := interleave(ctx, 1, sums); err != nil {
			return err
		}
		rates, err := redisBenchmark(ctx, redis.addr, clients, b.requests)
		if err != nil {
			return err
		}
		for name, rate := range rates {
			tools[name] = append(tools[name], rate)
		}
	}
	for _, c := range []struct {
		what, tool string
		list       []*contender
	}{{"set", "SET", sets}, {"get", "GET", gets}} {
		own, redis, memcached := c.list[0], c.list[1], c.list[2]
		b.atLeast(14, c.what+" on the embedded store", median(own.rates()), "/s", kvTarget, "p50 %.1f, p99 %.1f ms, CPU %.0f µs; Redis %.0f/s, CPU %.0f µs, by redis-benchmark %.0f/s; memcached %.0f/s, CPU %.0f µs",
			median(own.quantiles(.5))/1000, median(own.quantiles(.99))/1000, median(own.cpus()), median(redis.rates()), median(redis.cpus()), median(tools[c.tool]), median(memcached.rates()), median(memcached.cpus()))
		b.show(14, c.what+", rate against Redis", ratio(own.rates(), redis.rates()), "x", "against memcached %.2f x", ratio(own.rates(), memcached.rates()))
	}
	b.atLeast(14, "increment on the embedded store", median(sums.rates()), "/s", kvTarget, "p50 %.1f, p99 %.1f ms, CPU %.0f µs", median(sums.quantiles(.5))/1000, median(sums.quantiles(.99))/1000, median(sums.cpus()))
	return nil
}

// startTool starts a program that is installed on a free port, and waits until it accepts
// connections.
func (b *bench) startTool(ctx context.Context, name string, args func(port string) []string) (*process, error) {
	addr, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(b.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	p := &process{name: name, addr: addr, log: log, cmd: exec.CommandContext(ctx, name, args(port)...)}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	b.running = append(b.running, p)
	for start := time.Now(); time.Since(start) < time.Minute; {
		c, err := dial(ctx, addr)
		if err == nil {
			return p, c.Close()
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil, fmt.Errorf("%s was not ready within a minute", name)
}

// resp returns a command in Redis's protocol.
func resp(args ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

// line reads a line of an answer, without its end.
func (c *conn) line() ([]byte, error) {
	b, err := c.r.ReadSlice('\n')
	return bytes.TrimSuffix(b, []byte("\r\n")), err
}

// wantLine returns what sends a command and wants a line as its answer.
func wantLine(want string) func(*conn, []byte) error {
	return func(c *conn, command []byte) error {
		if err := c.SetDeadline(time.Now().Add(ioTimeout)); err != nil {
			return err
		}
		if _, err := c.Write(command); err != nil {
			return err
		}
		got, err := c.line()
		if err == nil && string(got) != want {
			err = fmt.Errorf("the answer is %.100q, not %q", got, want)
		}
		return err
	}
}

// wantValue returns what sends a command and wants a head, the value, and, if it is not "", an end.
func wantValue(head, end string) func(*conn, []byte) error {
	return func(c *conn, command []byte) error {
		if err := c.SetDeadline(time.Now().Add(ioTimeout)); err != nil {
			return err
		}
		if _, err := c.Write(command); err != nil {
			return err
		}
		for i, want := range []string{head, kvValue, end} {
			if i == 2 && end == "" {
				break
			}
			got, err := c.line()
			if err != nil {
				return err
			}
			if !bytes.HasPrefix(got, []byte(want)) {
				return fmt.Errorf("the answer has %.100q, not %q", got, want)
			}
		}
		return nil
	}
}

// redisBenchmark runs Redis's own tool and returns its rates by command.
func redisBenchmark(ctx context.Context, addr string, clients, total int) (map[string]float64, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "redis-benchmark", "-h", host, "-p", port, "-c", strconv.Itoa(clients), "-n", strconv.Itoa(total),
		"-d", strconv.Itoa(len(kvValue)), "-r", "5000", "-t", "set,get", "--csv").Output()
	if err != nil {
		return nil, fmt.Errorf("redis-benchmark: %w", err)
	}
	rates := map[string]float64{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSpace(line), ",")
		if len(fields) < 2 {
			continue
		}
		rate, err := strconv.ParseFloat(strings.Trim(fields[1], `"`), 64)
		if err == nil {
			rates[strings.Trim(fields[0], `"`)] = rate
		}
	}
	if rates["SET"] == 0 || rates["GET"] == 0 {
		return nil, fmt.Errorf("redis-benchmark wrote %.300q", out)
	}
	return rates, nil
}
