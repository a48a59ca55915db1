package turn_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/turns"
)

// rawLLM is an upstream that answers every call with these bytes and closes the connection. It
// returns its base URL.
func rawLLM(t *testing.T, response string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, response)
		_ = conn.Close()
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/v1"
}

// The forms of a response. Only the first ends, without an error, wherever the upstream stops.
const (
	untilClose = "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nConnection: close\r\n\r\n%s"
	withLength = "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: 100000\r\n\r\n%s"
)

// Events of a stream.
const (
	evRole = `data: {"id":"c1","choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}` + "\n\n"
	evAt   = `data: {"id":"c1","choices":[{"index":0,"delta":{"content":"At "},"finish_reason":null}]}` + "\n\n"
	evNine = `data: {"id":"c1","choices":[{"index":0,"delta":{"content":"nine."},"finish_reason":null}]}` + "\n\n"
	evStop = `data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	evDone = "data: [DONE]\n\n"
	evTool = `data: {"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t1","function":{"name":"book","arguments":"{\"se"}}]},"finish_reason":null}]}` + "\n\n"
)

// TestTruncated ends answers at every place where an upstream can stop. Without an end mark the
// answer is not whole: the ledger says so, the client's stream ends as an error, and the turn
// failed.
func TestTruncated(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		form, body string
		sent       string // of the answer
	}{
		"between events":         {untilClose, evRole + evAt, "At "},
		"before the words":       {untilClose, evRole, ""},
		"within a JSON line":     {untilClose, evAt + evNine[:70], "At "},
		"within a finish_reason": {untilClose, evAt + evStop[:len(evStop)-8], "At "},
		"within DONE":            {untilClose, evAt + "data: [DO", "At "},
		"without a blank line":   {untilClose, evAt + strings.TrimRight(evNine, "\n"), "At "},
		"within a tool call":     {untilClose, evTool, ""},
		"before its length":      {withLength, evRole + evAt, "At "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := rawLLM(t, fmt.Sprintf(tt.form, "text/event-stream", tt.body))
			b := newBench(t, fake.Script{}, func(_ *memory.LLMSettings, c *turn.Config) {
				c.Defaults.URL, c.Metrics = url, prometheus.NewRegistry()
			})
			w := httptest.NewRecorder()
			if err := b.serve(t, t.Context(), w, true); err == nil || !strings.Contains(err.Error(), turn.ErrAborted.Error()) {
				t.Errorf("the connection is not aborted: %v", err)
			}
			events := strings.Split(strings.TrimSuffix(w.Body.String(), "\n\n"), "\n\n")
			want := `data: {"error":{"message":"the LLM broke off its answer","type":"upstream_error","param":null,"code":"upstream_truncated"}}`
			if last := events[len(events)-1]; last != want {
				t.Errorf("the stream ends in %q", last)
			}
			for _, e := range events[:len(events)-1] {
				if !strings.Contains(evRole+evAt+evTool, e+"\n\n") {
					t.Errorf("the client got a part of an event: %q", e)
				}
			}
			m := b.newest(t)
			if !m.CutGenerated || m.SentText() != tt.sent || m.Interrupted || m.Failure == nil || m.Failure.Error != string(fault.UpstreamTruncated) || m.Failure.Code != 502 {
				t.Errorf("the ledger has %+v %+v", m, m.Failure)
			}
			rows := turns.Of([]memory.Message{m})
			if last := rows[len(rows)-1]; last.EndType != turns.EndError || last.EndMetadata()["error"] != "upstream_truncated" {
				t.Errorf("the turn ended as %+v", last)
			}
		})
	}
}

// TestWholeWithOneMark checks that either mark ends an answer, whatever comes after it.
func TestWholeWithOneMark(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"finish_reason alone":    untilClose + evAt + evNine + evStop,
		"DONE alone":             untilClose + evAt + evNine + evDone,
		"finish_reason, no line": untilClose + evAt + evNine + strings.TrimRight(evStop, "\n"),
		"DONE, no line":          untilClose + evAt + evNine + strings.TrimRight(evDone, "\n"),
		"cut usage":              untilClose + evAt + evNine + evStop + `data: {"id":"c1","choices":[],"usa`,
		"broken after the end":   withLength + evAt + evNine + evStop,
		"words after DONE":       untilClose + evAt + evNine + evDone + evNine + evStop,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			form, events, _ := strings.Cut(body, "%s\r\n")
			url := rawLLM(t, strings.Replace(form, "%s", "", 1)+"text/event-stream\r\n"+strings.Replace(events, "%s", "", 1))
			b := newBench(t, fake.Script{}, func(_ *memory.LLMSettings, c *turn.Config) { c.Defaults.URL = url })
			w := httptest.NewRecorder()
			if err := b.serve(t, t.Context(), w, true); err != nil {
				t.Error(err)
			}
			if strings.Contains(w.Body.String(), "error") {
				t.Errorf("the client got %s", w.Body)
			}
			if m := b.answer(t); m.CutGenerated || m.Failure != nil || m.Content != "At nine." {
				t.Errorf("the ledger has %+v %+v", m, m.Failure)
			}
		})
	}
}

// TestTruncatedWhole cuts answers in one piece: the client gets a 502, and nothing is taken for an
// answer.
func TestTruncatedWhole(t *testing.T) {
	t.Parallel()
	const body = `{"id":"c1","choices":[{"index":0,"message":{"role":"assistant","content":"At ni`
	for name, form := range map[string]string{"at the end of the connection": untilClose, "before its length": withLength} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := rawLLM(t, fmt.Sprintf(form, "application/json", body))
			b := newBench(t, fake.Script{}, func(_ *memory.LLMSettings, c *turn.Config) { c.Defaults.URL = url })
			w := httptest.NewRecorder()
			if err := b.serve(t, t.Context(), w, false); fault.CodeOf(err) != fault.UpstreamTruncated {
				t.Errorf("%v", err)
			}
			if m := b.newest(t); m.State != memory.Empty || !m.CutGenerated || m.Failure == nil || m.Failure.Error != string(fault.UpstreamTruncated) {
				t.Errorf("the ledger has %+v %+v", m, m.Failure)
			}
		})
	}
}

// TestTruncatedFallsOver has the first upstream cut its answer before anything of it can be passed
// on: the second answers instead.
func TestTruncatedFallsOver(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		typ, body string
		stream    bool
	}{
		"stream": {"text/event-stream", evAt[:60], true},
		"whole":  {"application/json", `{"id":"c1","choices":[{"ind`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := rawLLM(t, fmt.Sprintf(untilClose, tt.typ, tt.body))
			b := newBench(t, fake.Script{Answer: "At ten."}, func(_ *memory.LLMSettings, c *turn.Config) {
				c.Fallbacks = []turn.Fallback{{Upstream: memory.Upstream{Name: "second", URL: c.Defaults.URL}}}
				c.Defaults.URL = url
			})
			w := httptest.NewRecorder()
			if err := b.serve(t, t.Context(), w, tt.stream); err != nil {
				t.Error(err)
			}
			if m := b.answer(t); m.Content != "At ten." || m.Failure != nil || m.Made().Upstream != "second" {
				t.Errorf("the ledger has %+v %+v", m, m.Failure)
			}
		})
	}
}

// TestTruncatedLeft has the client leave before the upstream breaks off: that is an interruption.
func TestTruncatedLeft(t *testing.T) {
	t.Parallel()
	url := rawLLM(t, fmt.Sprintf(untilClose, "text/event-stream", evAt))
	b := newBench(t, fake.Script{}, func(_ *memory.LLMSettings, c *turn.Config) { c.Defaults.URL = url })
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	w := &goner{ResponseRecorder: httptest.NewRecorder(), leave: leave}
	if err := b.serve(t, ctx, w, true); fault.CodeOf(err) != fault.Canceled {
		t.Errorf("%v", err)
	}
	if m := b.newest(t); m.Failure != nil {
		t.Errorf("the ledger has %+v %+v", m, m.Failure)
	}
}

// goner is a client that leaves while it is written to.
type goner struct {
	*httptest.ResponseRecorder
	leave context.CancelFunc
}

// Write implements http.ResponseWriter.
func (g *goner) Write([]byte) (int, error) {
	g.leave()
	return 0, io.ErrClosedPipe
}

// TestLimited checks that an answer that the model could not end as it wanted is told apart from a
// whole one, and is no failure.
func TestLimited(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"length", "content_filter"} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprint(reason, stream), func(t *testing.T) {
				t.Parallel()
				typ, body := "text/event-stream", evAt+strings.Replace(evStop, "stop", reason, 1)+evDone
				if !stream {
					typ, body = "application/json", `{"id":"c1","choices":[{"index":1,"message":{"content":"No."},"finish_reason":"stop"},{"index":0,"message":{"content":"At "},"finish_reason":"`+reason+`"}]}`
				}
				url := rawLLM(t, fmt.Sprintf(untilClose, typ, body))
				reg := prometheus.NewRegistry()
				b := newBench(t, fake.Script{}, func(_ *memory.LLMSettings, c *turn.Config) { c.Defaults.URL, c.Metrics = url, reg })
				if err := b.serve(t, t.Context(), httptest.NewRecorder(), stream); err != nil {
					t.Error(err)
				}
				m := b.answer(t)
				if m.Content != "At " || m.FinishRsn != reason || m.Failure != nil || !strings.Contains(string(m.AppendMetadata(nil)), `"finish_reason":"`+reason+`"`) {
					t.Errorf("the ledger has %+v, its metadata %s", m, m.AppendMetadata(nil))
				}
				row := turns.Of([]memory.Message{m})[0]
				if row.EndType != turns.EndOK || row.EndMetadata()["finish_reason"] != reason {
					t.Errorf("the turn ended as %+v", row)
				}
				want := "# HELP heardlog_answers_total Answers by how they ended. client_closed means that the client went away (499), which is not a fault of the upstream.\n" +
					"# TYPE heardlog_answers_total counter\nheardlog_answers_total{outcome=\"" + reason + "\"} 1\n"
				if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "heardlog_answers_total"); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
