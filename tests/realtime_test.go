package tests

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/heardlog/heardlog/realtime/realtimetest"
)

// socket is a client of the relay.
type socket struct {
	t    testing.TB
	ws   *websocket.Conn
	done chan struct{}

	mu     sync.Mutex
	events []map[string]any
	err    error
}

// connect opens a socket to the relay at a path below /v1.
func (s *server) connect(path string, headers ...string) *socket {
	s.t.Helper()
	c, err := s.tryRealtime(path, headers...)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *server) tryRealtime(path string, headers ...string) (*socket, error) {
	s.t.Helper()
	opts := &websocket.DialOptions{HTTPHeader: http.Header{}}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Sec-WebSocket-Protocol" {
			opts.Subprotocols = append(opts.Subprotocols, headers[i+1])
			continue
		}
		opts.HTTPHeader.Set(headers[i], headers[i+1])
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	ws, _, err := websocket.Dial(ctx, s.url+v1+path, opts)
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(32 << 20)
	c := &socket{t: s.t, ws: ws, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		for {
			_, frame, err := ws.Read(context.Background())
			if err != nil {
				c.mu.Lock()
				c.err = err
				c.mu.Unlock()
				return
			}
			var e map[string]any
			_ = json.Unmarshal(frame, &e)
			c.mu.Lock()
			c.events = append(c.events, e)
			c.mu.Unlock()
		}
	}()
	s.t.Cleanup(func() { _ = ws.CloseNow(); <-c.done })
	return c, nil
}

func (c *socket) send(e map[string]any) {
	c.t.Helper()
	raw, err := json.Marshal(e)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.ws.Write(context.Background(), websocket.MessageText, raw); err != nil {
		c.t.Fatalf("send %v: %v", e["type"], err)
	}
}

func (c *socket) all() []map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// await waits for the nth event of a type, from 1, and returns it.
func (c *socket) await(kind string, n int) map[string]any {
	c.t.Helper()
	var out map[string]any
	if !realtimetest.Wait(patience, func() bool {
		left := n
		for _, e := range c.all() {
			if e["type"] == kind {
				if left--; left == 0 {
					out = e
					return true
				}
			}
		}
		return false
	}) {
		var kinds []any
		for _, e := range c.all() {
			kinds = append(kinds, e["type"])
		}
		c.t.Fatalf("no %s (%d) among %v", kind, n, kinds)
	}
	return out
}

func (c *socket) count(kind string) (n int) {
	for _, e := range c.all() {
		if e["type"] == kind {
			n++
		}
	}
	return n
}

// closed waits until the socket is closed and returns the code.
func (c *socket) closed() websocket.StatusCode {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(patience):
		c.t.Fatal("the socket stays open")
	}
	return websocket.CloseStatus(c.err)
}

// hangUp closes the socket.
func (c *socket) hangUp() { _ = c.ws.Close(websocket.StatusNormalClosure, "") }

// speak sends a second of audio and commits it.
func (c *socket) speak() {
	c.send(map[string]any{"type": "input_audio_buffer.append", "audio": base64.StdEncoding.EncodeToString(make([]byte, 4800))})
	c.send(map[string]any{"type": "input_audio_buffer.commit"})
}

func (c *socket) write(text string) {
	c.send(map[string]any{"type": "conversation.item.create", "item": map[string]any{
		"type": "message", "role": "user", "content": []any{map[string]any{"type": "input_text", "text": text}},
	}})
}

// entry is a message of the ledger with what realtime calls set beside the rest.
type entry struct {
	message
	Status  string         `json:"status"`
	Usage   map[string]any `json:"usage"`
	Failure map[string]any `json:"failure"`
}

func (e *entry) source() any { return e.Metadata["source"] }

func (e *entry) interrupted() bool { return e.Metadata["interrupted"] == true }

func (s *server) entries(id string, headers ...string) []entry {
	s.t.Helper()
	var out struct{ Messages []entry }
	s.get(agent(id, "/messages?limit=1000"), headers...).ok(&out)
	return out.Messages
}

// stored waits until the ledger of an agent is as ok wants it.
func (s *server) stored(id string, ok func([]entry) bool) []entry {
	s.t.Helper()
	return s.storedAs(id, nil, ok)
}

func (s *server) storedAs(id string, headers []string, ok func([]entry) bool) []entry {
	s.t.Helper()
	var list []entry
	if !realtimetest.Wait(10*time.Second, func() bool { list = s.entries(id, headers...); return ok(list) }) {
		raw, _ := json.MarshalIndent(list, "", " ")
		s.t.Fatalf("the ledger is not as expected: %s", raw)
	}
	return list
}

func said(list []entry) string {
	var b strings.Builder
	for _, e := range list {
		b.WriteString(e.Role + ": " + e.Content + "\n")
	}
	return b.String()
}

func TestRealtimeCall(t *testing.T) {
	t.Parallel()
	for _, beta := range []bool{false, true} {
		name := map[bool]string{false: "current", true: "beta"}[beta]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			late := make(chan struct{})
			fake := realtimetest.New(t, realtimetest.Config{
				Late: late,
				Hear: func(int) string { return "When is my train?" },
				Answer: func([]realtimetest.Item, map[string]any) realtimetest.Reply {
					return realtimetest.Reply{Words: realtimetest.Paced("The train leaves at nine from platform two.")}
				},
			})
			s := start(t, "HEARDLOG_REALTIME_URL="+fake.URL+"?model=gpt-realtime", "HEARDLOG_REALTIME_API_KEY=sk-up", "HEARDLOG_LLM_PRICES=gpt-realtime=4:16:0.4")
			id := s.join("realtime", nil)
			headers := []string{"X-Agent-Id", id}
			if beta {
				headers = append(headers, "OpenAI-Beta", "realtime=v1")
			}
			c := s.connect("/realtime?model=gpt-realtime-2", headers...)
			c.await("session.created", 1)
			if h := fake.Headers[0]; h.Get("Authorization") != "Bearer sk-up" || fake.Queries[0] != "model=gpt-realtime-2" {
				t.Errorf("upstream got %q and %q", h.Get("Authorization"), fake.Queries[0])
			}
			c.speak()
			c.send(map[string]any{"type": "response.create"})
			done := c.await("response.done", 1)
			s.stored(id, func(list []entry) bool { return len(list) == 2 && list[1].Content != "" })
			item := done["response"].(map[string]any)["output"].([]any)[0].(map[string]any)["id"].(string)
			c.send(map[string]any{"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": 1100})
			c.await("conversation.item.truncated", 1)
			close(late)
			list := s.stored(id, func(list []entry) bool { return list[0].Content != "" && list[1].interrupted() })
			if list[0].Role != "user" || list[0].Content != "When is my train?" || list[0].source() != "asr" {
				t.Errorf("the caller: %+v", list[0])
			}
			a := list[1]
			if a.Content != "The train" || a.Generated != "The train leaves at nine from platform two." || a.Evidence.Method != "audio_ms" || a.TurnID != list[0].TurnID || a.ID != item {
				t.Errorf("the answer: %+v", a)
			}
			if a.Usage["total_tokens"] != 130.0 || a.Metadata["rate_limits"] == nil {
				t.Errorf("usage %v, metadata %v", a.Usage, a.Metadata)
			}
			if items := fake.Last().Items(); items[1].Text != "" {
				t.Errorf("the fake kept the transcript %q", items[1].Text)
			}
			c.hangUp()
			var out struct{ Status string }
			s.get(agent(id)).ok(&out)
			if out.Status != "RUNNING" {
				t.Errorf("a named agent is %s after the socket", out.Status)
			}
		})
	}
}
