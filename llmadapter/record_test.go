package llmadapter_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"context"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/llmadapter"
)

func TestRecordChunks(t *testing.T) {
	t.Parallel()
	delta := func(d string) string { return `{"choices":[{"index":0,"delta":` + d + `}]}` }
	for name, tt := range map[string]struct {
		in    []string
		text  string
		calls string
	}{
		"content":        {[]string{delta(`{"role":"assistant"}`), delta(`{"content":"a\u00e9"}`), delta(`{"content":"\n"}`), delta(`{"content":null}`)}, "aé\n", ""},
		"content parts":  {[]string{delta(`{"content":[{"type":"text","text":"a"}]}`)}, "a", ""},
		"not spoken":     {[]string{delta(`{"reasoning":"r","reasoning_content":"r"}`), `{"object":"chat.completion.custom_metadata","choices":[{"delta":{"content":"x"}}]}`}, "", ""},
		"no index":       {[]string{`{"choices":[{"delta":{"content":"a"}}]}`}, "a", ""},
		"second choice":  {[]string{`{"choices":[{"index":1,"delta":{"content":"b"}}]}`}, "", ""},
		"split call":     {[]string{delta(`{"tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"f","arguments":""}}]}`), delta(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]}`), delta(`{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}`)}, "", `[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]`},
		"two calls":      {[]string{delta(`{"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"2","function":{"name":"g","arguments":"{}"}}]}`)}, "", `[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"2","type":"function","function":{"name":"g","arguments":"{}"}}]`},
		"without index":  {[]string{delta(`{"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]}`), delta(`{"tool_calls":[{"id":"2","function":{"name":"g","arguments":{"a":1}}}]}`)}, "", `[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"2","type":"function","function":{"name":"g","arguments":"{\"a\":1}"}}]`},
		"name repeated":  {[]string{delta(`{"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":"{"}}]}`), delta(`{"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":"}"}}]}`)}, "", `[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]`},
		"name in pieces": {[]string{delta(`{"tool_calls":[{"index":0,"id":"1","function":{"name":"get_"}}]}`), delta(`{"tool_calls":[{"index":0,"function":{"name":"it","arguments":"{}"}}]}`)}, "", `[{"id":"1","type":"function","function":{"name":"get_it","arguments":"{}"}}]`},
		"garbage":        {[]string{"", "{", `{"choices":7}`, `{"choices":[7]}`, `{"choices":[{"delta":"x"}]}`, "hello", `{"choices":[{"delta":{"content":"a`}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r llmadapter.Record
			for _, c := range tt.in {
				r.Chunk([]byte(c))
			}
			if name != "garbage" && r.Generated() != tt.text {
				t.Errorf("text %q, want %q", r.Generated(), tt.text)
			}
			if diff := cmp.Diff(tt.calls, string(r.ToolCalls())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRecordTooLarge reads texts and tool calls larger than what is kept: the first bytes are kept,
// and the answer is not complete.
func TestRecordTooLarge(t *testing.T) {
	t.Parallel()
	const most = llmadapter.MaxAnswer
	for name, text := range map[string]string{
		"letters": strings.Repeat("x", most+100), "runes": strings.Repeat("ü", most), "escapes": strings.Repeat("\n", most+100),
	} {
		body := strings.ReplaceAll(text, "\n", `\n`)
		want := text[:most]
		streams := map[string][]string{
			"one event":   {body},
			"two events":  {body[:most/2], body[most/2:]},
			"many events": {"", body[:most-1000], body[most-1000 : most], body[most:]},
		}
		for split, pieces := range streams {
			var events strings.Builder
			for _, p := range pieces {
				events.WriteString(`data: {"id":"c","choices":[{"index":0,"delta":{"content":"` + p + `"}}]}` + "\n\n")
			}
			r := llmadapter.Relay{Now: time.Now}
			if err := run(&r, strings.NewReader(events.String()+"data: [DONE]\n\n")); err != nil {
				t.Fatal(err)
			}
			got := r.Record.Generated()
			// The JSON of an event with escapes has less text.
			if r.Record.Complete() || !strings.HasPrefix(want, got) || name != "escapes" && len(got) != most || len(got) < most/2 {
				t.Errorf("%s, %s: kept %d of %d bytes, complete %v", name, split, len(got), len(want), r.Record.Complete())
			}
		}
		var u llmadapter.Record
		if !u.Unary([]byte(`{"choices":[{"message":{"content":"`+body+`"},"finish_reason":"stop"}]}`)) || u.Generated() != want || u.Complete() {
			t.Errorf("%s, in one piece: kept %d bytes, complete %v", name, len(u.Generated()), u.Complete())
		}
	}
	call := `[{"index":0,"id":"1","type":"function","function":{"name":"f","arguments":"` + strings.Repeat("x", most) + `"}}]`
	var s, u llmadapter.Record
	s.Chunk([]byte(`{"choices":[{"delta":{"tool_calls":` + call + `}}]}`))
	u.Unary([]byte(`{"choices":[{"message":{"tool_calls":` + call + `}}]}`))
	for _, r := range []*llmadapter.Record{&s, &u} {
		if got := r.ToolCalls(); r.Complete() || !r.Cut() || len(got) < most || !json.Valid(got) {
			t.Errorf("kept %d bytes of a tool call", len(got))
		}
	}
	var r llmadapter.Record
	r.Chunk([]byte(`{"choices":[{"delta":{"content":"<think>` + strings.Repeat("t", most) + `</think>"}}]}`))
	r.Chunk([]byte(`{"choices":[{"delta":{"content":"Hi."},"finish_reason":"stop"}]}`))
	if r.Generated() != "Hi." || !r.Complete() || len(r.WithThoughts()) != most {
		t.Errorf("%q, %d bytes with thoughts", r.Generated(), len(r.WithThoughts()))
	}
}

// TestRecordAnswer checks which of several choices is the answer, and that nothing counts after
// [DONE].
func TestRecordAnswer(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`[{"index":1,"message":{"content":"b"}},{"index":0,"message":{"content":"a"}}]`: "a",
		`[{"index":1,"message":{"content":"b"}},{"message":{"content":"a"}}]`:           "a",
		`[{"message":{"content":"a"}},{"index":0,"message":{"content":"b"}}]`:           "a",
		`[{"index":2,"message":{"content":"a"}},{"index":1,"message":{"content":"b"}}]`: "a",
	} {
		var r llmadapter.Record
		if !r.Unary([]byte(`{"choices":`+in+`}`)) || r.Generated() != want {
			t.Errorf("%s: %q", in, r.Generated())
		}
	}
	r := llmadapter.Relay{Now: time.Now}
	if err := run(&r, strings.NewReader(one+done+two+"data: {\"error\":\"late\"}\n\n")); err != nil || r.Record.Generated() != "One. " || !r.Record.Complete() {
		t.Errorf("%v: %q", err, r.Record.Generated())
	}
}

// What is kept of a chunk must not change when its memory is used again.
func TestRecordCopies(t *testing.T) {
	t.Parallel()
	var r llmadapter.Record
	b := []byte(`{"id":"abc","choices":[{"delta":{"content":"hello","tool_calls":[{"index":0,"id":"call","type":"kind","function":{"name":"name","arguments":"args"}}]},"finish_reason":"stop"}],"usage":{"a":1},"error":{"m":1}}`)
	r.Chunk(b)
	for i := range b {
		b[i] = 'X'
	}
	if r.ID != "abc" || r.Generated() != "hello" || r.Finish != "stop" || string(r.Usage) != `{"a":1}` || string(r.Error) != `{"m":1}` ||
		string(r.ToolCalls()) != `[{"id":"call","type":"kind","function":{"name":"name","arguments":"args"}}]` {
		t.Errorf("%+v %s", r, r.ToolCalls())
	}
}

func TestRecordUnary(t *testing.T) {
	t.Parallel()
	var r llmadapter.Record
	if !r.Unary([]byte(`{"id":"c","choices":[{"message":{"content":"Hi.","tool_calls":[{"id":"1"}]},"finish_reason":"stop"}],"usage":{"t":1}}`)) {
		t.Fatal("not taken for an answer")
	}
	if r.Generated() != "Hi." || string(r.ToolCalls()) != `[{"id":"1"}]` || !r.Complete() || r.ID != "c" || string(r.Usage) != `{"t":1}` {
		t.Errorf("%+v", r)
	}
	for _, bad := range []string{"", "<html>", "{}", `{"choices":[]}`, "[]"} {
		if new(llmadapter.Record).Unary([]byte(bad)) {
			t.Errorf("%q was taken for an answer", bad)
		}
	}
	var e llmadapter.Record
	if !e.Unary([]byte(`{"error":{"message":"no"}}`)) || e.Complete() {
		t.Errorf("%+v", e)
	}
}

// FuzzRecordHead reads a chunk after one that begins in the same way, and after one that does not.
// The result must be the same.
func FuzzRecordHead(f *testing.F) {
	const end = `[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}`
	for _, seed := range [][3]string{
		{`{"id":"a","model":"m","choices":`, end, `[{"delta":{"content":"y"},"finish_reason":"stop"}],"usage":{"n":1}}`},
		{`{"id":"","object":"chat.completion.custom_metadata","choices":`, end, end},
		{`{"usage":{"n":2},"choices":`, end, `[],"usage":null}`},
		{`{"error":{"n":2},"choices":`, end, end},
		{`{"choices":[{"delta":{"content":"z"}}],"choices":`, end, `[],"object":"chat.completion.custom_metadata"}`},
		{`{ "id" : "a" , "choices" : `, end, end},
		{`{"id":"a\"choices\":","n":1.5,"choices":`, end, `[],"error":"broke"}`},
		{`{"id":"a","choices":`, end, ``},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, head, one, two string) {
		if !strings.HasPrefix(head, "{") {
			return
		}
		var same, other llmadapter.Record
		same.Chunk([]byte(head + one))
		other.Chunk([]byte("{ " + head[1:] + one)) // says the same in other bytes
		same.Chunk([]byte(head + two))
		other.Chunk([]byte(head + two))
		if same.Generated() != other.Generated() || same.ID != other.ID || same.Finish != other.Finish || same.Done != other.Done ||
			!bytes.Equal(same.Usage, other.Usage) || !bytes.Equal(same.Error, other.Error) || !bytes.Equal(same.ToolCalls(), other.ToolCalls()) {
			t.Errorf("read as\n%q %+v\nand as\n%q %+v", same.Generated(), same, other.Generated(), other)
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"id":"a","choices":[{"index":0,"delta":{"content":"x","tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":"{"}}]},"finish_reason":null}],"usage":null}`))
	f.Add([]byte(`{"choices":[{"delta":{"audio":{"transcript":"x"}}}]}`))
	f.Fuzz(func(_ *testing.T, b []byte) {
		var r llmadapter.Record
		r.Chunk(b)
		r.ToolCalls()
		new(llmadapter.Record).Unary(b)
	})
}

// The limits of a call, on a clock of their own.
func TestWatch(t *testing.T) {
	t.Parallel()
	limits := llmadapter.Limits{FirstToken: 3 * time.Second, Idle: 5 * time.Second, Total: 12 * time.Second}
	for name, tt := range map[string]struct {
		stream bool
		events []time.Duration // gaps before each event
		finish string          // of the last event
		done   bool
		want   error
		after  time.Duration
	}{
		"first token":         {true, nil, "", false, llmadapter.ErrFirstTokenTimeout, 3 * time.Second},
		"idle":                {true, []time.Duration{time.Second, 4 * time.Second}, "", false, llmadapter.ErrIdleTimeout, 10 * time.Second},
		"idle right at first": {true, []time.Duration{0}, "", false, llmadapter.ErrIdleTimeout, 5 * time.Second},
		"metadata":            {true, []time.Duration{-1}, "", false, llmadapter.ErrFirstTokenTimeout, 3 * time.Second},
		"total":               {true, []time.Duration{2 * time.Second, 4 * time.Second, 4 * time.Second}, "", false, llmadapter.ErrTotalTimeout, 12 * time.Second},
		"whole":               {false, nil, "", false, llmadapter.ErrTotalTimeout, 12 * time.Second},
		"finished":            {true, []time.Duration{time.Second}, "stop", false, llmadapter.ErrGrace, time.Second + llmadapter.FinishGrace},
		"done":                {true, []time.Duration{time.Second}, "stop", true, llmadapter.ErrGrace, time.Second + llmadapter.DoneGrace},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				start := time.Now()
				w := llmadapter.NewWatch(limits, tt.stream, time.Now, cancel)
				defer w.Stop()
				r := &llmadapter.Record{}
				for i, gap := range tt.events {
					time.Sleep(gap) // fake time: this is the schedule of the test
					if gap < 0 {    // not the answer yet
						r.Chunk([]byte(`{"object":"chat.completion.custom_metadata","choices":[]}`))
						r.Chunk([]byte(`{"choices":[],"prompt_filter_results":[]}`))
						r.Chunk([]byte(`{"choices":[{"delta":{"role":"assistant","content":""}}]}`))
					} else {
						r.Chunk([]byte(`{"choices":[{"delta":{"content":"word "}}]}`))
					}
					if i == len(tt.events)-1 {
						r.Finish, r.Done = tt.finish, tt.done
					}
					w.Event(r)
				}
				<-ctx.Done()
				if got := time.Since(start); !errors.Is(context.Cause(ctx), tt.want) || got != tt.after {
					t.Errorf("%v after %v, want %v after %v", context.Cause(ctx), got, tt.want, tt.after)
				}
			})
		})
	}
}

func TestWatchStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		w := llmadapter.NewWatch(llmadapter.Limits{Total: time.Second}, true, time.Now, cancel)
		w.Stop()
		w.Event(&llmadapter.Record{})
		time.Sleep(time.Hour) // fake time
		if ctx.Err() != nil {
			t.Error("a stopped watch ended the call")
		}
		cancel(nil)
	})
}
