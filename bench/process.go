package main

import (
	"bufio"
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
	"syscall"
	"time"
)

// process is a server under load, in a process of its own so that its CPU and memory can be read.
type process struct {
	name string
	addr string
	cmd  *exec.Cmd
	log  *os.File
}

// userHZ is the unit of CPU times in /proc, 100 on every Linux.
const userHZ = 100

// cpu returns user and system time so far.
func (p *process) cpu() (time.Duration, error) {
	if p == nil {
		return 0, nil
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 13 {
		return 0, fmt.Errorf("/proc/PID/stat: %q", b)
	}
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	sys, err2 := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+sys) * time.Second / userHZ, errors.Join(err1, err2)
}

// memory returns a field of /proc/PID/status in MB: VmRSS, or VmHWM for the peak.
func (p *process) memory(field string) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/PID/status has no %s", field)
}

// build builds the server.
func build(ctx context.Context, dir string) (string, error) {
	bin := filepath.Join(dir, "heardlog")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", bin, "./cmd/api")
	cmd.Dir = ".." // the server's module; this one imports nothing of it
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the server: %w\n%s", err, out)
	}
	return bin, nil
}

// freePort returns a free address; the server does not print its own at level warn.
func freePort(ctx context.Context) (string, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// startServer starts the server on a database file, waits until it is ready, and returns how long
// that took.
func (b *bench) startServer(ctx context.Context, db, level string) (*process, time.Duration, error) {
	return b.startOn(ctx, "sqlite:"+db, db, level)
}

// startOn is startServer on any store; the log is beside db. env holds more settings, as
// NAME=value.
func (b *bench) startOn(ctx context.Context, store, db, level string, env ...string) (*process, time.Duration, error) {
	addr, err := freePort(ctx)
	if err != nil {
		return nil, 0, err
	}
	if err := os.MkdirAll(filepath.Dir(db), 0o700); err != nil {
		return nil, 0, err
	}
	log, err := os.OpenFile(db+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, 0, err
	}
	p := &process{name: "heardlog", addr: addr, log: log, cmd: exec.CommandContext(ctx, b.bin)}
	p.cmd.Stderr = log
	p.cmd.Env = append(os.Environ(), "HEARDLOG_ADDR="+addr, "HEARDLOG_STORE="+store, "HEARDLOG_LOG_LEVEL="+level, "HEARDLOG_LOG_FORMAT=json",
		"HEARDLOG_WEBHOOK_URL=", "HEARDLOG_CREDENTIALS=", "HEARDLOG_RATE_LIMIT=0", "HEARDLOG_MAX_AGENTS=0", "HEARDLOG_MAX_MESSAGES=0")
	p.cmd.Env = append(p.cmd.Env, env...)
	start := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, 0, errors.Join(err, log.Close())
	}
	b.running = append(b.running, p)
	for time.Since(start) < time.Minute {
		c, err := dial(ctx, addr)
		if err == nil {
			status, err := c.do(request("GET", "/readyz", addr, nil, ""))
			_ = c.Close()
			if err == nil && status == 200 {
				return p, time.Since(start), nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil, 0, fmt.Errorf("the server was not ready within a minute; its log is %s", log.Name())
}

// startRole starts this program again in another role, which prints its address.
func (b *bench) startRole(ctx context.Context, role string, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: role, cmd: exec.CommandContext(ctx, self, append([]string{"-role", role}, args...)...)}
	p.cmd.Env = append(os.Environ(), roleVariable+"=1")
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	b.running = append(b.running, p)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s did not say its address: %w", role, err)
	}
	p.addr = strings.TrimSpace(line)
	return p, nil
}

// stop ends a process; with kill at once, as a power cut would.
func (p *process) stop(kill bool) {
	if p.cmd.ProcessState != nil {
		return
	}
	sig := os.Signal(syscall.SIGTERM)
	if kill {
		sig = syscall.SIGKILL
	}
	_ = p.cmd.Process.Signal(sig) // it may have ended by itself
	_ = p.cmd.Wait()              // an end by a signal is expected
	if p.log != nil {
		_ = p.log.Close()
	}
}
