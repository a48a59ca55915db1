package compat_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// mirror is a receiver that keeps the latest agent.message event for each message.
type mirror struct {
	mu   sync.Mutex
	kept map[string]map[int64]told // by agent and seq
}

type told struct {
	sequence int64
	message
}

// ServeHTTP receives one event.
func (m *mirror) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender was killed within its request
	}
	var e struct {
		Payload struct {
			AgentID  string    `json:"agent_id"`
			Sequence int64     `json:"sequence"`
			Messages []message `json:"messages"`
		} `json:"payload"`
	}
	if json.Unmarshal(body, &e) != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.kept[e.Payload.AgentID]
	if of == nil {
		of = map[int64]told{}
		m.kept[e.Payload.AgentID] = of
	}
	for _, msg := range e.Payload.Messages {
		if e.Payload.Sequence > of[msg.Seq].sequence {
			of[msg.Seq] = told{e.Payload.Sequence, msg}
		}
	}
}

// history returns the mirror of an agent's history.
func (m *mirror) history(agent string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []told
	for _, t := range m.kept[agent] {
		if t.State == "final" {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b told) int { return cmp.Or(cmp.Compare(a.TurnID, b.TurnID), cmp.Compare(a.Seq, b.Seq)) })
	var out []string
	for _, t := range list {
		out = append(out, t.Role+": "+t.Content)
	}
	return out
}

// TestMirrorThroughKills checks that events commit with the changes that caused them: a receiver of
// agent.message gets exactly what a server that is killed repeatedly has stored.
func TestMirrorThroughKills(t *testing.T) {
	t.Parallel()
	m := &mirror{kept: map[string]map[int64]told{}}
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	env := []string{"HEARDLOG_STORE=sqlite:" + filepath.Join(t.TempDir(), "heardlog.db"), "HEARDLOG_LLM_URL=" + fakeLLM(t, "-delay-chunk", "2ms") + "/v1"}
	s := start(t, env...)
	s.call(t, 201, "POST", "/v1/webhooks/endpoints", object{"url": srv.URL, "events": []string{"agent.message"}}, nil)
	var agents []string
	for i := range 3 {
		agents = append(agents, s.join(t, fmt.Sprint("n", i), object{"llm": object{"greeting_message": "Hello"}}))
	}
	var n atomic.Int64
	for range 8 {
		ctx, stop := context.WithTimeout(t.Context(), patience)
		goal := n.Load() + 10 + rand.Int64N(60)
		var clients sync.WaitGroup
		for i, id := range agents {
			clients.Go(func() {
				for ctx.Err() == nil { // until the kill
					text := fmt.Sprint("word ", n.Add(1))
					path, body := "/messages", object{"role": "user", "content": text}
					switch i {
					case 1:
						path, body = "/chat/completions", object{"stream": true, "messages": []object{{"role": "user", "content": text}}}
					case 2:
						path, body = "/messages", object{"messages": []object{{"role": "user", "content": text}, {"role": "assistant", "content": "one two " + text}}}
					}
					if status, got, err := s.try(ctx, "POST", "/v1/agents/"+id+path, body); err != nil {
						return // killed
					} else if status != 200 {
						t.Errorf("%s: %d %s", path, status, got)
						return
					}
					if i == 2 {
						_, _, _ = s.try(ctx, "POST", "/v1/agents/"+id+"/interrupt", object{"heard": "one"})
					}
				}
			})
		}
		eventually(t, "something to do", func() bool { return n.Load() >= goal })
		s.kill()
		stop()
		clients.Wait()
		s = start(t, env...)
	}
	for _, id := range agents {
		var whole struct{ Contents []message }
		s.call(t, 200, "GET", "/v1/agents/"+id+"/history?limit=all", nil, &whole)
		var want []string
		for _, h := range whole.Contents {
			want = append(want, h.Role+": "+h.Content)
		}
		eventually(t, "the mirror of "+id, func() bool { return slices.Equal(want, m.history(id)) })
		t.Logf("%s: %d messages", id, len(want))
	}
	if n.Load() < 100 || !strings.Contains(strings.Join(m.history(agents[2]), "\n"), "assistant: one\n") {
		t.Errorf("too little happened: %d messages", n.Load())
	}
}
