package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// answering is one answer on its way.
type answering struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	ctx    context.Context
	script *Script
	id     string
	model  string

	mu    sync.Mutex
	sent  int
	phase string
}

func (a *answering) progress() (int, string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sent, a.phase
}

func (a *answering) enter(phase string) {
	a.mu.Lock()
	a.phase = phase
	a.mu.Unlock()
}

// sleep waits and reports whether the client is still connected.
func (a *answering) sleep(d Duration) bool {
	if d <= 0 {
		return a.ctx.Err() == nil
	}
	t := time.NewTimer(time.Duration(d))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-a.ctx.Done():
		return false
	}
}

// hang waits for the client to go, sending comments if the script wants that.
func (a *answering) hang() {
	for a.script.Heartbeat > 0 {
		if !a.sleep(a.script.Heartbeat) {
			return
		}
		_, _ = a.w.Write([]byte(": still thinking\n\n"))
		_ = a.rc.Flush()
	}
	<-a.ctx.Done()
}

func (a *answering) run(stream bool) {
	s := a.script
	if !a.sleep(s.DelayFirst) {
		return
	}
	if s.Hang && (s.Heartbeat == 0 || !stream) {
		a.hang()
		return
	}
	if s.Status >= 300 {
		a.fail()
		return
	}
	if !stream {
		a.whole()
		return
	}
	typ := s.Type
	if typ == "" {
		typ = "text/event-stream"
	}
	a.w.Header().Set("Content-Type", typ)
	a.w.WriteHeader(http.StatusOK)
	if s.DelayBody > 0 || s.Hang {
		_ = a.rc.Flush()
	}
	a.enter("first")
	if s.Hang {
		a.hang()
		return
	}
	if !a.sleep(s.DelayBody) {
		return
	}
	for i, e := range a.events() {
		if i > 0 && !a.sleep(s.DelayChunk) {
			return
		}
		switch {
		case s.CutAfter > 0 && i == s.CutAfter:
			a.reset()
		case s.CloseAfter > 0 && i == s.CloseAfter:
			return
		case s.HangAfter > 0 && i == s.HangAfter:
			_ = a.rc.Flush()
			a.hang()
			return
		case s.ErrorAfter > 0 && i == s.ErrorAfter:
			e = "data: {\"error\":{\"message\":\"the model is overloaded\",\"type\":\"server_error\",\"code\":503}}\n\n"
		}
		a.enter("stream") // before the client has the data and may leave
		if _, err := a.w.Write([]byte(e)); err != nil {
			<-a.ctx.Done() // the server finds out, too
			return
		}
		if s.DelayChunk > 0 || len(s.RawPieces) > 0 || i%32 == 31 {
			if err := a.rc.Flush(); err != nil {
				<-a.ctx.Done()
				return
			}
		}
		a.mu.Lock()
		a.sent = i + 1
		a.mu.Unlock()
		if s.ErrorAfter > 0 && i == s.ErrorAfter {
			return
		}
	}
	if n := len(a.events()); s.CutAfter >= n && s.CutAfter > 0 {
		a.reset()
	}
	if n := len(a.events()); s.HangAfter >= n && s.HangAfter > 0 {
		_ = a.rc.Flush()
		a.hang()
	}
}

// reset breaks the connection as a crash does: with a TCP reset.
func (a *answering) reset() {
	_ = a.rc.Flush()
	conn, _, err := a.rc.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
	panic(http.ErrAbortHandler)
}

func (a *answering) fail() {
	if a.script.RetryAfter != "" {
		a.w.Header().Set("Retry-After", a.script.RetryAfter)
	}
	a.w.Header().Set("X-Ratelimit-Remaining-Requests", "0")
	if a.script.Status < 400 {
		a.w.Header().Set("Location", "/elsewhere")
	}
	if a.script.Body == "" {
		writeError(a.w, a.script.Status, "the fake was told to fail")
		return
	}
	typ := a.script.Type
	if typ == "" {
		typ = "application/json"
	}
	a.w.Header().Set("Content-Type", typ)
	a.w.WriteHeader(a.script.Status)
	_, _ = a.w.Write([]byte(a.script.Body))
}

func (a *answering) whole() {
	if a.script.Body != "" {
		typ := a.script.Type
		if typ == "" {
			typ = "application/json"
		}
		a.w.Header().Set("Content-Type", typ)
		_, _ = a.w.Write([]byte(a.script.Body))
		return
	}
	message := fmt.Sprintf(`{"role":"assistant","content":%s}`, quote(a.text()))
	finish := "stop"
	if a.script.ToolName != "" {
		message = fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"id":"call_%s","type":"function","function":{"name":%s,"arguments":%s}}]}`,
			a.id, quote(a.script.ToolName), quote(a.script.ToolArgs))
		finish = "tool_calls"
	}
	a.w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(a.w, `{"id":"%s","object":"chat.completion","created":1780000000,"model":%s,"choices":[{"index":0,"message":%s,"finish_reason":"%s"}],"usage":%s}`,
		a.id, quote(a.model), message, finish, usage)
}

const usage = `{"prompt_tokens":10,"completion_tokens":10,"total_tokens":20}`

func (a *answering) text() string {
	if a.script.Chunks != nil {
		return strings.Join(a.script.Chunks, "")
	}
	return a.script.Answer
}

// events returns the stream, event by event.
func (a *answering) events() []string {
	if a.script.RawPieces != nil {
		return a.script.RawPieces
	}
	if a.script.Raw != "" {
		return []string{a.script.Raw}
	}
	var out []string
	finish := "stop"
	switch {
	case a.script.ToolName != "":
		finish = "tool_calls"
		out = append(out, a.chunk(fmt.Sprintf(`{"role":"assistant","tool_calls":[{"index":0,"id":"call_%s","type":"function","function":{"name":%s,"arguments":""}}]}`,
			a.id, quote(a.script.ToolName)), "null"))
		half := len(a.script.ToolArgs) / 2
		for _, part := range []string{a.script.ToolArgs[:half], a.script.ToolArgs[half:]} {
			out = append(out, a.chunk(fmt.Sprintf(`{"tool_calls":[{"index":0,"function":{"arguments":%s}}]}`, quote(part)), "null"))
		}
	default:
		words := a.script.Chunks
		if words == nil {
			words = strings.SplitAfter(a.script.Answer, " ")
		}
		for i, word := range words {
			role := ""
			if i == 0 {
				role = `"role":"assistant",`
			}
			out = append(out, a.chunk(fmt.Sprintf(`{%s"content":%s}`, role, quote(word)), "null"))
		}
	}
	out = append(out, a.chunk("{}", `"`+finish+`"`))
	if a.script.Usage {
		out = append(out, fmt.Sprintf("data: {\"id\":\"%s\",\"object\":\"chat.completion.chunk\",\"created\":1780000000,\"model\":%s,\"choices\":[],\"usage\":%s}\n\n", a.id, quote(a.model), usage))
	}
	if !a.script.NoDone {
		out = append(out, "data: [DONE]\n\n")
	}
	return out
}

func (a *answering) chunk(delta, finish string) string {
	return fmt.Sprintf("data: {\"id\":\"%s\",\"object\":\"chat.completion.chunk\",\"created\":1780000000,\"model\":%s,\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]}\n\n",
		a.id, quote(a.model), delta, finish)
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(b)
}
