package handlers_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// slowDisk is a memory whose disk stores a turn's start when the test says so.
type slowDisk struct {
	turn.Turns
	kept chan struct{} // closed when it has
	err  error         // what it has failed with then
}

func (s slowDisk) Durable(*agents.Turn) error {
	<-s.kept
	return s.err
}

func (s slowDisk) Settle(ctx context.Context, t *agents.Turn, a agents.Answer) (memory.Message, error) {
	if err := s.Durable(t); err != nil {
		return memory.Message{}, err
	}
	return s.Turns.Settle(ctx, t, a)
}

// TestChatWaitsForTheDisk checks that the LLM is called while the disk works, and that the client
// gets nothing before the disk is done: no answer, no error, no filler.
func TestChatWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script map[string]any
		more   string
		status int
		want   string
	}{
		"stream":          {map[string]any{"answer": "At two."}, `,"stream":true`, 200, "[DONE]"},
		"whole":           {map[string]any{"answer": "At two."}, "", 200, "At two."},
		"upstream error":  {map[string]any{"status": 429}, "", 429, "error"},
		"broken stream":   {map[string]any{"answer": "At two.", "cut_after": 1}, `,"stream":true`, 200, "broke off"},
		"failure message": {map[string]any{"status": 500}, `,"stream":true`, 200, "Say that again."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := slowDisk{kept: make(chan struct{})}
			p := newProxy(t, func(c *turn.Config) {
				disk.Turns = c.Turns
				c.Turns = &disk
			})
			agent := p.join(func(l *memory.LLMSettings) {
				script(tt.script)(l)
				if name == "failure message" {
					l.FailureMessage = tt.want
				}
			})
			var once sync.Once
			release := func() { once.Do(func() { close(disk.kept) }) }
			defer release()
			answered := make(chan *http.Response, 1)
			go func() { answered <- p.post(t.Context(), agent, say("when is my train?", tt.more)) }()
			ctx, stop := context.WithTimeout(t.Context(), patience)
			defer stop()
			if _, err := p.llm.WaitRequests(ctx, 1); err != nil {
				t.Fatalf("the LLM was not asked while the disk was at it: %v", err)
			}
			select {
			case res := <-answered:
				t.Fatalf("status %d before the caller's words were kept", res.StatusCode)
			// Long after the answer is there; that it is not passed on cannot be seen sooner.
			case <-time.After(100 * time.Millisecond):
			}
			release()
			select {
			case res := <-answered:
				body, _ := io.ReadAll(res.Body) // a broken stream is aborted
				if res.StatusCode != tt.status || !strings.Contains(string(body), tt.want) {
					t.Errorf("status %d, want %d with %q:\n%s", res.StatusCode, tt.status, tt.want, body)
				}
			case <-ctx.Done():
				t.Fatal("no answer came")
			}
		})
	}
}

// TestChatTurnLost checks that a failing disk gives the client an error and nothing of the answer,
// and ends the LLM's call.
func TestChatTurnLost(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{"stream": `,"stream":true`, "whole": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := slowDisk{kept: make(chan struct{}), err: fault.New(fault.Unavailable, "the disk is full")}
			p := newProxy(t, func(c *turn.Config) {
				disk.Turns = c.Turns
				c.Turns = &disk
			})
			agent := p.join(script(map[string]any{"answer": "At two. At three.", "delay_chunk": "30s"}))
			answered := make(chan *http.Response, 1)
			go func() { answered <- p.post(t.Context(), agent, say("when is my train?", more)) }()
			ctx, stop := context.WithTimeout(t.Context(), patience)
			defer stop()
			if _, err := p.llm.WaitRequests(ctx, 1); err != nil {
				t.Fatal(err)
			}
			close(disk.kept)
			if name == "stream" { // an answer in one piece is waited for, whatever the disk says
				if _, err := p.llm.WaitCancels(ctx, 1); err != nil {
					t.Errorf("the LLM's call was not ended: %v", err)
				}
			}
			select {
			case res := <-answered:
				if body, err := io.ReadAll(res.Body); res.StatusCode != http.StatusServiceUnavailable || err != nil || !strings.Contains(string(body), "the disk is full") {
					t.Errorf("status %d, %v:\n%s", res.StatusCode, err, body)
				}
			case <-ctx.Done():
				t.Error("no answer came")
			}
		})
	}
}
