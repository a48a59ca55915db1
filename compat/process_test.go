package compat_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for anything that a process should do at once. It is only used
// up on a failure or on a busy machine.
const patience = 2 * time.Minute

// eventually waits until cond holds. It is for state that can only be observed from outside, such
// as a row that another process stores.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		if cond() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %s still not: %s", patience, what)
		}
	}
}

// output is what a process wrote, line by line, readable while it writes.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{} // closed and replaced at each write, and closed for good at the end
	ended   bool
}

func newOutput() *output { return &output{changed: make(chan struct{})} }

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	return o.text.Write(b)
}

func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.ended = true
		close(o.changed)
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// find waits for the first whole line that match accepts.
func (o *output) find(match func(line string) bool) (string, bool) {
	late := time.After(patience)
	for {
		o.mu.Lock()
		text, changed, ended := o.text.String(), o.changed, o.ended
		o.mu.Unlock()
		for line := range strings.Lines(text) {
			if strings.HasSuffix(line, "\n") && match(strings.TrimSuffix(line, "\n")) {
				return strings.TrimSuffix(line, "\n"), true
			}
		}
		if ended {
			return "", false
		}
		select {
		case <-changed:
		case <-late:
			return "", false
		}
	}
}

// process is a running command.
type process struct {
	cmd    *exec.Cmd
	stdout *output
	stderr *output
	done   chan struct{} // closed when it ended
	err    error         // of Wait; read after done
}

// run starts a command with exactly this environment (and the PATH), and kills it at the end of the
// test.
func run(t testing.TB, name string, args []string, env ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(name, args...)}
	p.begin(t, env)
	t.Cleanup(func() {
		p.kill()
		p.sane(t)
	})
	return p
}

// sane checks the output for what no process may ever write.
func (p *process) sane(t testing.TB) {
	for line := range strings.Lines(p.stderr.String()) {
		for _, bad := range []string{"a handler panicked", "panic: ", "fatal error: ", "WARNING: DATA RACE", "http: superfluous"} {
			if strings.Contains(line, bad) {
				t.Errorf("%s wrote %.500s\n%.5000s", p.cmd.Path, line, p.stderr)
				return
			}
		}
	}
}

// runGroup is run for a command that starts others: the kill at the end of the test ends all of
// them.
func runGroup(t testing.TB, name string, args []string, env ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(name, args...)}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.begin(t, env)
	t.Cleanup(func() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // they may have ended by themselves
		<-p.done
	})
	return p
}

func (p *process) begin(t testing.TB, env []string) {
	t.Helper()
	p.stdout, p.stderr, p.done = newOutput(), newOutput(), make(chan struct{})
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "TZ=UTC"}, env...)
	p.cmd.Dir = t.TempDir()
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.cmd.Path, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		p.stdout.end()
		p.stderr.end()
		close(p.done)
	}()
}

// kill ends the process as a crash does, and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.done
}

func (p *process) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal: %v", err)
	}
}

// wait waits for the process to end by itself and returns its exit code, or -1 if a signal ended
// it.
func (p *process) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("the process did not end; it wrote:\n%s", p.stderr)
	}
	if exit, ok := errors.AsType[*exec.ExitError](p.err); ok {
		return exit.ExitCode()
	}
	if p.err != nil {
		t.Fatalf("wait: %v", p.err)
	}
	return 0
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// within returns a context with a deadline for one step of a test.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
