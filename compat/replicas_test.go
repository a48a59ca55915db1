package compat_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// database creates a schema for the test in PostgreSQL and returns the setting of a store in it.
// Without a server, or without psql, the test is skipped, or fails if CI is set.
func database(t *testing.T) string {
	t.Helper()
	base := os.Getenv("TEST_POSTGRES_URL")
	switch base {
	case "none":
		t.Skip("PostgreSQL is left out; make test-all runs it")
	case "":
		base = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
	}
	schema := fmt.Sprintf("compat_%d_%d", os.Getpid(), time.Now().UnixNano())
	sql := func(text string) error {
		out, err := exec.CommandContext(within(t, patience), "psql", "-q", "-X", "-v", "ON_ERROR_STOP=1", base, "-c", text).CombinedOutput()
		if err != nil {
			return fmt.Errorf("psql: %w: %s", err, out)
		}
		return nil
	}
	if err := sql("CREATE SCHEMA " + schema); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Log(err)
		t.Skip("no PostgreSQL server answers: start one on 127.0.0.1:5432, or set TEST_POSTGRES_URL; psql is needed too")
	}
	t.Cleanup(func() {
		out, err := exec.Command("psql", "-q", "-X", base, "-c", "SET client_min_messages = error", "-c", "DROP SCHEMA "+schema+" CASCADE").CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	sep := "?"
	if strings.Contains(base, "?") {
		sep = "&"
	}
	return "HEARDLOG_STORE=" + base + sep + "search_path=" + schema
}

// TestReplicasKilled runs three servers on one database and kills one of them repeatedly while
// clients write to all. Nothing acknowledged is lost or stored twice, no number is assigned twice,
// the other servers take over the agents, and answers that stream through them are complete. An
// answer that reaches its client to the end is the LLM's whole answer, also if the client has
// repeated a call elsewhere because a server was killed.
func TestReplicasKilled(t *testing.T) {
	t.Parallel()
	store := database(t)
	const agents, writers, callers, kills, each = 4, 8, 6, 6, 60
	words := make([]string, 150)
	for i := range words {
		words[i] = fmt.Sprint("word", i)
	}
	said := strings.Join(words, " ")
	llm := "HEARDLOG_LLM_URL=" + fakeLLM(t, "-delay-chunk", "10ms", "-answer", said) + "/v1"
	var servers [3]atomic.Pointer[server]
	for i := range servers {
		servers[i].Store(start(t, store, llm))
	}
	var talks []string // agents that speak through servers that live
	for n := range 4 {
		talks = append(talks, servers[n%3].Load().join(t, fmt.Sprint("talk ", n), nil))
	}
	var ids []string
	for n := range agents {
		ids = append(ids, servers[n%3].Load().join(t, fmt.Sprint("agent ", n), nil))
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	acked := make([][]string, writers)
	var total atomic.Int64
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				s, text := servers[(w+n)%3].Load(), fmt.Sprintf("%d/%d", w, n)
				status, body, err := s.try(context.WithoutCancel(ctx), "POST", "/v1/agents/"+ids[w%agents]+"/messages", object{"messages": []object{{"id": text, "role": "user", "content": text}}})
				switch {
				case err != nil: // it was killed
				case status == 200:
					acked[w] = append(acked[w], text)
					total.Add(1)
				case status != 503:
					t.Errorf("append: %d %s", status, body)
					return
				}
			}
		})
	}
	var answers atomic.Int64
	for n := range callers {
		id := servers[n%3].Load().join(t, fmt.Sprint("caller ", n), nil)
		wg.Go(func() {
			for q := 0; ctx.Err() == nil; q++ {
				// Call after call at another server; those that fail are repeated.
				at := n + q
				question, answer := fmt.Sprintf("question-%d/%d", n, q), fmt.Sprintf("answer %d/%d %s", n, q, strings.Join(words[:12], " "))
				// Its words first, then the question to them.
				for status := 0; q%2 == 0 && status != 200 && ctx.Err() == nil; at++ {
					status, _, _ = servers[at%3].Load().try(context.WithoutCancel(ctx), "POST", "/v1/agents/"+id+"/messages", object{"messages": []object{{"id": question, "role": "user", "content": question}}})
				}
				for ; ; at++ {
					s := speak(t, servers[at%3].Load(), id, object{"stream": true, "messages": []object{{"role": "user", "content": question}}, "fake": object{"answer": answer, "delay_chunk": "2ms"}}, "Idempotency-Key", question)
					if <-s.done; s.err != nil && ctx.Err() == nil {
						continue // it was killed, and the client knows
					} else if s.err != nil {
						return
					}
					if s.text != answer || s.finish != "stop" {
						t.Errorf("%s ended with %q after %q, and the LLM sent %q", question, s.finish, s.text, answer)
					}
					answers.Add(1)
					break
				}
			}
		})
	}
	for k := range kills {
		want := total.Load() + each
		eventually(t, "writes go on", func() bool { return total.Load() >= want })
		var streams []*stream
		for n, id := range talks {
			streams = append(streams, speak(t, servers[(k+1+n%2)%3].Load(), id, object{"stream": true, "messages": []object{{"role": "user", "content": fmt.Sprint("question ", k)}}}))
		}
		for _, s := range streams {
			<-s.began
		}
		servers[k%3].Load().kill()
		servers[k%3].Store(start(t, store, llm))
		for n, s := range streams {
			if <-s.done; s.err != nil || s.text != said {
				t.Errorf("kill %d: stream %d through a server that lives: %d of %d bytes: %v", k, n, len(s.text), len(said), s.err)
			}
		}
	}
	for n, id := range talks {
		list := servers[n%3].Load().ledger(t, id)
		if len(list) != 2*kills {
			t.Errorf("talk %d has %d messages, want %d", n, len(list), 2*kills)
		}
		for i, m := range list {
			if want := said; i%2 == 1 && m.Content != want {
				t.Errorf("talk %d: answer %d is stored with %d of %d bytes", n, i/2, len(m.Content), len(said))
			}
		}
	}
	want := total.Load() + each
	eventually(t, "writes go on", func() bool { return total.Load() >= want })
	stop()
	wg.Wait()
	t.Logf("%d answers were read to their end", answers.Load())
	for n, id := range ids {
		seen := map[string]int{}
		list := servers[n%3].Load().ledger(t, id)
		for i, m := range list {
			seen[m.Content]++
			if m.Seq != int64(i+1) {
				t.Fatalf("agent %d: message %d has seq %d", n, i, m.Seq)
			}
		}
		checkOrder(t, id, list)
		for w := n; w < writers; w += agents {
			for _, text := range acked[w] {
				if seen[text] != 1 {
					t.Errorf("%q was acknowledged and is there %d times", text, seen[text])
				}
			}
		}
		for text, times := range seen {
			if times > 1 {
				t.Errorf("%q is there %d times", text, times)
			}
		}
		servers[(n+1)%3].Load().call(t, 200, "POST", "/v1/agents/"+id+"/leave", nil, nil)
	}
}

// stream is an answer that is being read.
type stream struct {
	began, done chan struct{}
	text        string
	finish      string // finish_reason
	err         error  // nil if it was read to its end
}

// speak requests an answer through a server and reads it in the background. Headers are pairs of
// name and value.
func speak(t *testing.T, s *server, agent string, body object, headers ...string) *stream {
	out := &stream{began: make(chan struct{}), done: make(chan struct{})}
	begin := sync.OnceFunc(func() { close(out.began) })
	go func() {
		defer close(out.done)
		defer begin()
		b, err := json.Marshal(body)
		if err != nil {
			out.err = err
			return
		}
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/v1/agents/"+agent+"/chat/completions", bytes.NewReader(b))
		if err != nil {
			out.err = err
			return
		}
		for i := 0; i+1 < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		res, err := s.client.Do(req)
		if err != nil {
			out.err = err
			return
		}
		defer res.Body.Close()
		if res.StatusCode != 200 {
			out.err = fmt.Errorf("status %d", res.StatusCode)
			return
		}
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if data == "[DONE]" {
				return
			}
			var chunk struct {
				Choices []struct {
					Delta  struct{ Content string }
					Finish string `json:"finish_reason"`
				}
			}
			if !ok {
				continue
			}
			if out.err = json.Unmarshal([]byte(data), &chunk); out.err != nil {
				return
			}
			for _, choice := range chunk.Choices {
				out.text, out.finish = out.text+choice.Delta.Content, out.finish+choice.Finish
				begin()
			}
		}
		out.err = fmt.Errorf("the stream ended without its end")
	}()
	return out
}
