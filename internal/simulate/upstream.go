package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// maxUpstreamBody limits a request's body at the upstream, in bytes.
const maxUpstreamBody = 16 << 20

// script is the upstream's answer to one request.
type script struct {
	answer  string
	tool    *Tool
	callID  string
	cut     int           // after so many words it waits to be cancelled; -1 = never
	opening string        // the platform's first chunk; "" = none
	pace    time.Duration // between two words

	arrived chan struct{} // closed when the request has arrived
	left    chan struct{} // closed when its answer has ended or was cancelled
	once    sync.Once
}

// upstream is the scripted LLM of a simulation. It finds the script of a request by its
// X-Request-Id, which the server passes on, so that overlapping requests get their own answers.
type upstream struct {
	server *http.Server
	url    string

	mu      sync.Mutex
	scripts map[string]*script
	seen    []seen
	odd     int // requests that the simulation did not make
	ended   chan error
}

// seen is a request that arrived.
type seen struct {
	id      string
	members map[string]json.RawMessage
}

// newUpstream starts an upstream on addr, a host:port; port 0 means any.
func newUpstream(ctx context.Context, addr string) (*upstream, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("the simulated LLM cannot listen: %w", err)
	}
	u := &upstream{scripts: map[string]*script{}, url: "http://" + l.Addr().String() + "/v1/chat/completions", ended: make(chan error, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", u.chat)
	u.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { u.ended <- u.server.Serve(l) }()
	return u, nil
}

// close stops the upstream and its open answers.
func (u *upstream) close() error {
	err := u.server.Close()
	if e := <-u.ended; !errors.Is(e, http.ErrServerClosed) {
		return errors.Join(err, e)
	}
	return err
}

// expect sets the answer to the request with an id.
func (u *upstream) expect(id string, s *script) {
	s.arrived, s.left = make(chan struct{}), make(chan struct{})
	u.mu.Lock()
	defer u.mu.Unlock()
	u.scripts[id] = s
}

// answered returns the number of requests whose answer has ended.
func (u *upstream) answered() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for _, s := range u.scripts {
		select {
		case <-s.left:
			n++
		default:
		}
	}
	return n
}

// prompt returns the messages of the request with an id: their texts and raw tool calls, each on a
// line.
func (u *upstream) prompt(id string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var b strings.Builder
	for _, s := range u.seen {
		if s.id != id {
			continue
		}
		var list []struct {
			Content   any             `json:"content"`
			ToolCalls json.RawMessage `json:"tool_calls"`
		}
		_ = json.Unmarshal(s.members["messages"], &list) // a body without a list shows nothing
		for _, m := range list {
			fmt.Fprintf(&b, "%v\n%s\n", m.Content, m.ToolCalls)
		}
	}
	return b.String()
}

func (u *upstream) chat(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxUpstreamBody))
	if err != nil {
		http.Error(w, "unreadable", http.StatusBadRequest)
		return
	}
	var in struct{ Stream bool }
	members := map[string]json.RawMessage{}
	bad := errors.Join(json.Unmarshal(body, &members), json.Unmarshal(body, &in)) != nil
	id := r.Header.Get("X-Request-Id")
	u.mu.Lock()
	s := u.scripts[id]
	if s == nil || bad {
		u.odd++
	} else {
		u.seen = append(u.seen, seen{id, members})
	}
	u.mu.Unlock()
	if s == nil || bad {
		http.Error(w, `{"error":{"message":"no request of the simulation","type":"invalid_request_error","param":null,"code":null}}`, http.StatusBadRequest)
		return
	}
	first := false
	s.once.Do(func() { first = true; close(s.arrived) })
	if first { // a second try of the server is answered too
		defer close(s.left)
	}
	s.serve(w, r, in.Stream)
}

func (s *script) serve(w http.ResponseWriter, r *http.Request, stream bool) {
	if !stream {
		s.whole(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	words, hangs := split(s.answer), s.cut >= 0
	if hangs {
		words = words[:s.cut]
	}
	event := func(data string) bool {
		_, err := io.WriteString(w, "data: "+data+"\n\n")
		return errors.Join(err, rc.Flush()) == nil
	}
	ok := s.opening == "" || s.cut == 0 || event(s.opening)
	for i, word := range words {
		if !ok || i > 0 && !pause(r.Context(), s.pace) {
			return
		}
		ok = event(s.chunk(fmt.Sprintf(`{"role":"assistant","content":%s}`, quote(word)), "null"))
	}
	if hangs {
		<-r.Context().Done()
		return
	}
	finish := `"stop"`
	if s.tool != nil {
		finish = `"tool_calls"`
		args := s.arguments()
		half := len(args) / 2
		ok = ok && event(s.chunk(fmt.Sprintf(`{"role":"assistant","tool_calls":[{"index":0,"id":%s,"type":"function","function":{"name":%s,"arguments":%s}}]}`,
			quote(s.callID), quote(s.tool.Name), quote(args[:half])), "null"))
		ok = ok && event(s.chunk(fmt.Sprintf(`{"tool_calls":[{"index":0,"function":{"arguments":%s}}]}`, quote(args[half:])), "null"))
	}
	if ok && event(s.chunk("{}", finish)) {
		_ = event("[DONE]") // a client that has left by now has the answer
	}
}

func (s *script) whole(w http.ResponseWriter, r *http.Request) {
	if s.cut >= 0 {
		<-r.Context().Done()
		return
	}
	message, finish := map[string]any{"role": "assistant", "content": s.answer}, "stop"
	if s.tool != nil {
		message["tool_calls"], finish = s.calls(), "tool_calls"
	}
	b, err := json.Marshal(map[string]any{
		"id": "chatcmpl-simulated", "object": "chat.completion", "created": 1780000000, "model": "simulated",
		"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": finish}},
		"usage":   map[string]any{"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20},
	})
	if err != nil {
		http.Error(w, "unwritable", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}

func (s *script) arguments() string {
	if len(s.tool.Arguments) == 0 {
		return "{}"
	}
	return string(s.tool.Arguments)
}

// calls returns the tool_calls of the answer; nil for none.
func (s *script) calls() json.RawMessage {
	if s.tool == nil {
		return nil
	}
	return json.RawMessage(fmt.Sprintf(`[{"id":%s,"type":"function","function":{"name":%s,"arguments":%s}}]`, quote(s.callID), quote(s.tool.Name), quote(s.arguments())))
}

func (s *script) chunk(delta, finish string) string {
	return fmt.Sprintf(`{"id":"chatcmpl-simulated","object":"chat.completion.chunk","created":1780000000,"model":"simulated","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`, delta, finish)
}

// pause waits and reports whether to go on; it returns at once if d is not positive.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func quote(s string) string {
	b, err := json.Marshal(strings.ToValidUTF8(s, "\uFFFD"))
	if err != nil {
		return `""`
	}
	return string(b)
}
