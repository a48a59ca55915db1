package compat_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTailThroughKills runs EventSources whose connections break after any byte against a server
// that is killed repeatedly while clients append, speak, interrupt and stream. In the end each has
// received everything in the ledger, in order, and nothing twice.
func TestTailThroughKills(t *testing.T) {
	t.Parallel()
	env := []string{"HEARDLOG_STORE=sqlite:" + filepath.Join(t.TempDir(), "heardlog.db"), "HEARDLOG_LLM_URL=" + fakeLLM(t, "-delay-chunk", "1ms") + "/v1"}
	s := start(t, env...)
	id := s.join(t, "n", object{"llm": object{"greeting_message": "Hello"}})
	path := "/v1/agents/" + id
	var base atomic.Value
	base.Store(s.url)
	plain := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(plain.CloseIdleConnections)
	ctx, stop := context.WithTimeout(t.Context(), 4*patience)
	defer stop()
	var readers sync.WaitGroup
	got := make([][]sseEvent, 3)
	for i := range got {
		es := &eventSource{url: func() string { return base.Load().(string) + path + "/events?after=0" }, client: plain, events: make(chan sseEvent)}
		if i > 0 { // the first one is cut by the kills alone
			es.cut = func() int64 { return rand.Int64N(4000) }
		}
		readers.Go(func() {
			if err := es.run(ctx); err != nil {
				t.Errorf("an EventSource ended with %v", err)
			}
		})
		readers.Go(func() {
			for e := range es.events {
				if e.name != "state" && e.name != "dropped" {
					got[i] = append(got[i], e)
				}
			}
		})
	}
	var n atomic.Int64
	for round := range 5 {
		goal := n.Load() + 20
		killed, over := context.WithCancel(ctx)
		var clients sync.WaitGroup
		for i := range 4 {
			clients.Go(func() {
				for killed.Err() == nil {
					text := fmt.Sprint("word ", n.Add(1))
					call, body := "/messages", object{"messages": []object{{"role": "user", "content": text}, {"role": "assistant", "content": "one two " + text}}}
					switch i {
					case 1:
						call, body = "/chat/completions", object{"stream": true, "messages": []object{{"role": "user", "content": text}}}
					case 2:
						call, body = "/interrupt", object{"heard": "one"}
					case 3:
						call, body = "/speak", object{"text": text, "priority": "APPEND"}
					}
					if status, got, err := s.try(killed, "POST", path+call, body); err != nil {
						return // killed
					} else if status >= 500 {
						t.Errorf("%s: %d %s", call, status, got)
						return
					}
				}
			})
		}
		eventually(t, "something to do", func() bool { return n.Load() >= goal })
		if round%2 == 0 {
			s.kill()
		} else {
			s.signal(t, syscall.SIGTERM)
			s.wait(t)
		}
		over()
		clients.Wait()
		s = start(t, env...)
		base.Store(s.url)
	}
	s.call(t, 200, "POST", path+"/leave", nil, nil)
	readers.Wait()
	final := tailFrom(t, s, plain, path+"/events?after=0")
	var ledger struct {
		Messages []json.RawMessage `json:"messages"`
	}
	s.call(t, 200, "GET", path+"/messages?limit=1000", nil, &ledger)
	var want, told []string
	for _, m := range ledger.Messages {
		want = append(want, string(m))
	}
	for _, e := range final {
		if e.name == "message" {
			told = append(told, e.data)
		}
	}
	slices.Sort(want)
	slices.Sort(told)
	if d := cmp.Diff(want, told); d != "" || len(want) < 50 {
		t.Errorf("of %d messages the tail tells others (-ledger +tail):\n%s", len(want), d)
	}
	for i, list := range got {
		t.Logf("reader %d: %d events, %d final", i, len(list), len(final))
		wantOnce(t, list)
		wantAll(t, list, final)
	}
}

// tailFrom reads a tail to its end.
func tailFrom(t *testing.T, s *server, c *http.Client, path string) (out []sseEvent) {
	t.Helper()
	req, err := http.NewRequestWithContext(within(t, patience), http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	es := &eventSource{events: make(chan sseEvent)}
	go func() {
		defer close(es.events)
		es.read(bufio.NewReader(resp.Body))
	}()
	for e := range es.events {
		out = append(out, e)
	}
	return out
}

// wantOnce checks that IDs increase.
func wantOnce(t *testing.T, list []sseEvent) {
	t.Helper()
	var last [3]int64
	for _, e := range list {
		at := [3]int64{0, 1 << 60, 1 << 60}
		for i, p := range strings.SplitN(e.id, ".", 3) {
			n, err := strconv.ParseInt(p, 10, 64)
			if err != nil {
				t.Fatalf("id %q", e.id)
			}
			if i != 1 || n != 0 {
				at[i] = n
			}
		}
		if slices.Compare(at[:], last[:]) <= 0 {
			t.Fatalf("%s %s came behind %v", e.id, e.name, last)
		}
		last = at
	}
}

// wantAll checks that list has all of final, in its order. An answer is no longer provisional once
// the agent has ended.
func wantAll(t *testing.T, list, final []sseEvent) {
	t.Helper()
	plain := func(e sseEvent) [3]string {
		rev, _, _ := strings.Cut(e.id, ".")
		return [3]string{rev, e.name, strings.Replace(e.data, `,"provisional":true`, "", 1)}
	}
	i := 0
	for _, want := range final {
		found := false
		for i < len(list) && !found {
			found = plain(list[i]) == plain(want)
			i++
		}
		if !found {
			t.Fatalf("%s %s was not told: %.200s", want.id, want.name, want.data)
		}
	}
}
