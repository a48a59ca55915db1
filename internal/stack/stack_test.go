package stack_test

import (
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/stack"
)

// deep uses n times about 1 KB of stack.
func deep(n int) byte {
	var room [1 << 10]byte
	room[n%len(room)] = byte(n)
	if n > 0 {
		room[0] += deep(n - 1)
	}
	return room[0] + room[n%len(room)]
}

// TestSmall is not parallel: it measures the whole process. A caller that ran something deep waits with the stack that it had before.
func TestSmall(t *testing.T) {
	const callers, kb = 256, 60
	for name, run := range map[string]func(func()){"lent": new(stack.Pool).Run, "own": func(do func()) { do() }} {
		release := make(chan struct{})
		var ready, over sync.WaitGroup
		before := stacks()
		ready.Add(callers)
		for range callers {
			over.Go(func() {
				run(func() { deep(kb) })
				ready.Done()
				<-release
			})
		}
		ready.Wait()
		each := (stacks() - before) / callers >> 10
		close(release)
		over.Wait()
		if small := each < 32; small != (name == "lent") {
			t.Errorf("%s: %d KB of stack for each that waits", name, each)
		}
	}
}

func stacks() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}

// TestRun checks that calls within calls, and many at once, each run once.
func TestRun(t *testing.T) {
	t.Parallel()
	var p stack.Pool
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			ran := 0
			p.Run(func() {
				p.Run(func() { ran++ })
				runtime.Gosched()
				ran++
			})
			if ran != 2 {
				t.Errorf("ran %d of 2", ran)
			}
		})
	}
	all.Wait()
	p.Free()
	ran := false
	if p.Run(func() { ran = true }); !ran {
		t.Error("nothing runs after Free")
	}
}

// TestPanic checks that a panic reaches the caller, and that the pool works on.
func TestPanic(t *testing.T) {
	t.Parallel()
	var p stack.Pool
	for range 3 {
		func() {
			defer func() {
				if got := recover(); got != "mine" {
					t.Errorf("recovered %v", got)
				}
			}()
			p.Run(func() { panic("mine") })
		}()
		ran := false
		if p.Run(func() { ran = true }); !ran {
			t.Fatal("nothing runs after a panic")
		}
	}
}

// TestFree is not parallel: it counts the process's goroutines.
func TestFree(t *testing.T) {
	before := runtime.NumGoroutine()
	var p stack.Pool
	p.Run(func() { p.Run(func() {}) })
	if now := runtime.NumGoroutine(); now < before+2 {
		t.Fatalf("%d goroutines, before %d: no stack is kept", now, before)
	}
	p.Free()
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, before %d", runtime.NumGoroutine(), before)
		}
	}
}
