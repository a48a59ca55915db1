package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/uuid"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/sqlite"
	"github.com/heardlog/heardlog/memory/window"
	"github.com/heardlog/heardlog/memory/window/tokens"
)

// Of part 8: how long a memory is whose context is made, and what of it an LLM may be given.
const (
	contextMessages = 1000
	contextTokens   = 4000
)

// benchContext is part 8: the context of a long memory under a budget of tokens, by the rules alone and through the service on SQLite, by the estimate and by exact
// counts, asked again and right after an append.
func (b *bench) benchContext(ctx context.Context) (err error) {
	b.sayf("\n8. context of a memory of %d messages with a window of %d tokens", contextMessages, contextTokens)
	store, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(b.dir, "context.db")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	s := memory.NewService(memory.Config{Store: store, Now: time.Now, NewID: uuid.NewString, Counter: tokens.New(0).For})
	a, err := s.Join(ctx, memory.JoinRequest{Project: "p", Name: "context", Properties: []byte("{}")})
	if err != nil {
		return err
	}
	var list []window.Message
	var batch []memory.Message
	for i := range contextMessages / 2 {
		q, r := question(i), reply(i)
		batch = append(batch, memory.Message{Role: memory.User, Source: memory.SourceASR, Content: q}, memory.Message{Role: memory.Assistant, Source: memory.SourceLLM, Content: r, Method: memory.AssumedFull})
		list = append(list, window.Message{Role: window.User, Text: q, Chars: len(q)}, window.Message{Role: window.Assistant, Text: r, Chars: len(r)})
	}
	if _, err := s.Append(ctx, "p", a.ID, batch); err != nil {
		return err
	}
	limit := contextTokens
	runs := max(200, b.calls)
	for _, count := range []struct {
		name, tokens string
		most         float64 // µs
	}{{"the estimate", window.Estimate, 50}, {"exact tokens", "gpt-4o", 1000}} {
		own := window.Policy{Preset: "full", MaxTokens: &limit, Tokens: count.tokens}
		full := own.Full()
		c, err := tokens.New(0).For(count.tokens)
		if err != nil {
			return err
		}
		kept := 0
		pure, allocs := b.timed(runs, nil, func() error {
			kept = len(full.Read(list, c, window.Extras{}).Entries)
			return nil
		})
		if kept < 50 || kept >= contextMessages {
			return fmt.Errorf("the window holds %d messages", kept)
		}
		b.atMost(8, "the rules alone, by "+count.name+", p50", micros(pure.at(.5)), "µs", count.most, "p99 %.0f µs; %d messages kept; %.0f allocations, %.1f KB", micros(pure.at(.99)), kept, allocs.n, allocs.kb)
		read := func() error {
			got, err := s.Context(ctx, "p", a.ID, memory.ContextRequest{Policy: &own})
			if err == nil && got.Dropped == 0 {
				err = errors.New("nothing was dropped")
			}
			return err
		}
		again, allocs := b.timed(runs, nil, read)
		if again == nil {
			return errors.New("the context failed")
		}
		b.atMost(8, "through service and store, by "+count.name+", p50", micros(again.at(.5)), "µs", count.most, "p99 %.0f µs; %.0f allocations, %.1f KB", micros(again.at(.99)), allocs.n, allocs.kb)
		after, allocs := b.timed(max(50, runs/20), func() error {
			_, err := s.Append(ctx, "p", a.ID, []memory.Message{{Role: memory.User, Source: memory.SourceASR, Content: question(7)}})
			return err
		}, read)
		if after == nil {
			return errors.New("the context after an append failed")
		}
		b.atMost(8, "right after an append, by "+count.name+", p50", micros(after.at(.5)), "µs", count.most, "p99 %.0f µs; %.0f allocations, %.1f KB; the append is not counted in", micros(after.at(.99)), allocs.n, allocs.kb)
	}
	return b.benchLong(ctx, s, limit)
}

// benchLong is part 8 of a memory that is far longer than any window: its context, read anew, and appends where the policy cuts on write.
func (b *bench) benchLong(ctx context.Context, s *memory.Service, limit int) error {
	for _, row := range []struct {
		name   string
		policy window.Policy
		append bool
	}{
		{"right after an append", window.Policy{Preset: "full", MaxTokens: &limit}, false},
		{"an append that cuts", window.Policy{Preset: "ossa", Apply: window.OnWrite}, true},
	} {
		a, err := s.Join(ctx, memory.JoinRequest{Project: "p", Name: uuid.NewString(), Properties: []byte("{}"), Settings: memory.Settings{Memory: memory.Memory{Policy: &row.policy}}})
		if err != nil {
			return err
		}
		say := func(n int) error {
			batch := make([]memory.Message, n)
			for i := range batch {
				batch[i] = memory.Message{Role: memory.User, Source: memory.SourceASR, Content: question(i)}
			}
			_, err := s.Append(ctx, "p", a.ID, batch)
			return err
		}
		if _, err := s.Append(ctx, "p", a.ID, []memory.Message{{Role: memory.System, Source: memory.SourceMessage, Content: "Be brief."}}); err != nil { // which holds the memory's beginning where it is
			return err
		}
		for n := 0; n < b.long; n += memory.MaxBatch {
			if err := say(min(memory.MaxBatch, b.long-n)); err != nil {
				return err
			}
		}
		runs := max(50, b.calls/20)
		one := func() error { return say(1) }
		var times samples
		var allocs allocated
		if row.append {
			times, allocs = b.timed(runs, nil, one)
		} else {
			times, allocs = b.timed(runs, one, func() error {
				_, err := s.Context(ctx, "p", a.ID, memory.ContextRequest{})
				return err
			})
		}
		if times == nil {
			return errors.New("the long memory failed")
		}
		b.atMost(8, fmt.Sprintf("of %d messages, %s, p50", b.long, row.name), micros(times.at(.5)), "µs", 5000, "p99 %.0f µs; %.0f allocations, %.1f KB", micros(times.at(.99)), allocs.n, allocs.kb)
	}
	return nil
}

// allocated is what a call takes of memory.
type allocated struct{ n, kb float64 }

// timed runs do some times, with before in front of each if not nil, and times do alone; nil samples tell that one of them failed.
func (b *bench) timed(n int, before, do func() error) (samples, allocated) {
	var from, to runtime.MemStats
	times := make(samples, 0, n)
	var sum allocated
	for range n {
		if before != nil && before() != nil {
			return nil, sum
		}
		start := time.Now()
		if err := do(); err != nil {
			b.sayf("  %v", err)
			return nil, sum
		}
		times = append(times, time.Since(start))
	}
	const counted = 20 // apart: reading the counters stops the world
	for range counted {
		if before != nil && before() != nil {
			return nil, sum
		}
		runtime.ReadMemStats(&from)
		if do() != nil {
			return nil, sum
		}
		runtime.ReadMemStats(&to)
		sum.n += float64(to.Mallocs-from.Mallocs) / counted
		sum.kb += float64(to.TotalAlloc-from.TotalAlloc) / 1024 / counted
	}
	return times, sum
}
