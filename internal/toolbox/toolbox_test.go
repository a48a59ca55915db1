package toolbox_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/toolbox"
	"github.com/heardlog/heardlog/llmadapter"
)

// run returns a result that names the tool and what it was called with.
func run(_ context.Context, name string, arguments []byte) string {
	return name + string(arguments)
}

// TestOffer checks which tools a request has afterwards, and which requests get none.
func TestOffer(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{ // want: names of tools, "" = none are offered
		`{"messages":[]}`:                            "remember recall forget",
		`{"messages":[],"tools":[]}`:                 "remember recall forget",
		`{"messages":[],"tool_choice":"auto"}`:       "remember recall forget",
		`{"messages":[],"tool_choice":"required"}`:   "",
		`{"messages":[],"n":2}`:                      "",
		`{"messages":[],"functions":[{"name":"f"}]}`: "",
		`{"messages":[],"tools":[{"function":{"name":"recall"}},{"function":{"name":"book"}}]}`: "recall book remember forget",
	} {
		b := toolbox.Offer([]byte(body), &llmadapter.Recipient{}, run)
		if want == "" {
			if b != nil {
				t.Errorf("%s: offers %s", body, b.Body())
			}
			continue
		}
		var names []string
		for _, tool := range peek.At(b.Body(), "tools").List() {
			names = append(names, tool.At("function", "name").Text())
		}
		if got := strings.Join(names, " "); got != want || !peek.Valid(b.Body()) {
			t.Errorf("%s: offers %q, want %q", body, got, want)
		}
	}
}

// TestWhole checks that the client gets the answer that follows the tools, and its own calls alone.
func TestWhole(t *testing.T) {
	t.Parallel()
	const (
		ours  = `{"id":"c1","function":{"name":"recall","arguments":"{\"query\":\"x\"}"}}`
		other = `{"id":"c2","function":{"name":"book","arguments":"{}"}}`
		last  = `{"choices":[{"message":{"content":"At nine."}}]}`
	)
	for calls, want := range map[string]string{
		ours:               last,
		other:              `{"choices":[{"message":{"content":"Well.","tool_calls":[` + other + `]}}]}`,
		ours + "," + other: `{"choices":[{"message":{"content":"Well.","tool_calls":[` + other + `]}}]}`,
	} {
		b := toolbox.Offer([]byte(`{"messages":[{"role":"user","content":"When?"}]}`), &llmadapter.Recipient{}, run)
		asked := ""
		got, err := b.Whole(t.Context(), []byte(`{"choices":[{"message":{"content":"Well.","tool_calls":[`+calls+`]}}]}`), func(body []byte) ([]byte, error) {
			asked = peek.At(body, "messages", "2", "content").Text()
			return []byte(last), nil
		})
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v", calls, got, err)
		}
		if calls == ours && asked != `recall{"query":"x"}` {
			t.Errorf("the next request has the result %q", asked)
		}
	}
}

// TestStream checks that a client sees one answer with one ID where the model had called a tool,
// and that a model that calls tools without end fails.
func TestStream(t *testing.T) {
	t.Parallel()
	const (
		calls = `data: {"id":"a","choices":[{"index":0,"delta":{"role":"assistant","content":"Well, "}}]}` + "\n\n" +
			`data: {"id":"a","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"recall","arguments":"{}"}}]}}]}` + "\n\n" +
			`data: {"id":"a","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}` + "\n\ndata: [DONE]\n\n"
		says = `data: {"id":"b","choices":[{"index":0,"delta":{"content":"at nine."}}]}` + "\n\n" +
			`data: {"id":"b","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	)
	for name, tt := range map[string]struct{ next, want, err string }{
		"once":    {next: says, want: "Well, at nine."},
		"for all": {next: calls, want: "Well, Well, Well, ", err: "without end"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := toolbox.Offer([]byte(`{"messages":[]}`), &llmadapter.Recipient{}, run)
			stream := b.Stream(t.Context(), llmadapter.NewEvents(strings.NewReader(calls)), func([]byte) (llmadapter.Source, error) {
				return llmadapter.NewEvents(strings.NewReader(tt.next)), nil
			})
			var out []byte
			var err error
			for err == nil {
				var events []llmadapter.Event
				events, err = stream.Next()
				for _, e := range events {
					out = append(out, e.Raw...)
				}
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			if err == nil != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			said := ""
			for line := range strings.SplitSeq(string(out), "\n") {
				data, ok := strings.CutPrefix(line, "data: {")
				if !ok {
					continue
				}
				data = "{" + data
				said += peek.At([]byte(data), "choices", "0", "delta", "content").Text()
				if id := peek.At([]byte(data), "id").Text(); id != "a" || strings.Contains(data, "recall") {
					t.Errorf("the client got %s", data)
				}
			}
			if said != tt.want {
				t.Errorf("said %q, want %q", said, tt.want)
			}
		})
	}
}

// TestSentBack checks that the LLM gets back, with the results, what it sent with its calls, in a
// stream and in one piece, and that a client gets its own calls of the same response whole.
func TestSentBack(t *testing.T) {
	t.Parallel()
	const (
		own   = `{"index":0,"id":"c1","type":"function","function":{"name":"recall","arguments":""},"extra_content":{"google":{"thought_signature":"s1"}}}`
		other = `{"index":1,"id":"c2","type":"function","function":{"name":"book","arguments":"{\"day\":"}}`
		rest  = `{"index":1,"function":{"arguments":"\"Monday\"}"}}`
	)
	event := func(delta, finish string) string {
		return `data: {"id":"a","choices":[{"index":0,"delta":` + delta + `,"finish_reason":` + finish + `}]}` + "\n\n"
	}
	thought := event(`{"role":"assistant","reasoning_content":"I look it up."}`, "null")
	for name, tt := range map[string]struct {
		stream string
		back   []string // the second request has these
		client []string // the client has these
	}{
		"own": {
			stream: thought + event(`{"tool_calls":[`+own+`]}`, "null") + event(`{}`, `"tool_calls"`),
			back:   []string{`"thought_signature":"s1"`, `"reasoning_content":"I look it up."`, `"arguments":"{}"`, `"tool_call_id":"c1"`},
			client: []string{`"content":"At nine."`},
		},
		"mixed": {
			stream: thought + event(`{"tool_calls":[`+own+`,`+other+`]}`, "null") + event(`{"tool_calls":[`+rest+`]}`, "null") + event(`{}`, `"tool_calls"`),
			client: []string{`"tool_calls":[{"index":0,"id":"c2","type":"function","function":{"name":"book","arguments":"{\"day\":\"Monday\"}"}}]`, `"finish_reason":"tool_calls"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := toolbox.Offer([]byte(`{"messages":[]}`), &llmadapter.Recipient{Thoughts: llmadapter.ThoughtsCalls}, run)
			asked := ""
			stream := b.Stream(t.Context(), llmadapter.NewEvents(strings.NewReader(tt.stream)), func(body []byte) (llmadapter.Source, error) {
				asked = string(body)
				return llmadapter.NewEvents(strings.NewReader(event(`{"content":"At nine."}`, `"stop"`))), nil
			})
			got := ""
			for err := error(nil); err == nil; {
				var events []llmadapter.Event
				events, err = stream.Next()
				for _, e := range events {
					got += string(e.Raw)
				}
			}
			for _, want := range tt.back {
				if !strings.Contains(asked, want) {
					t.Errorf("the LLM does not get %s back: %s", want, asked)
				}
			}
			for _, want := range tt.client {
				if !strings.Contains(got, want) || strings.Contains(got, "recall") {
					t.Errorf("the client does not get %s: %s", want, got)
				}
			}
		})
	}
}
