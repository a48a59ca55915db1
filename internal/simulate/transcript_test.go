package simulate_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/cli"
	"github.com/heardlog/heardlog/internal/simulate"
)

const head = `{"platform":"livekit"}` + "\n"

// TestParse checks that errors in a transcript name the line and the member.
func TestParse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"a call", "# a comment\n\n" + head + `{"ask":"a","answer":"b"}`, ""},
		{"nothing", "# only this\n", "is empty"},
		{"no steps", head, "no steps"},
		{"no call", `{"ask":"a","answer":"b"}`, `line 1: json: unknown field "ask"`},
		{"another platform", `{"platform":"pager"}`, `line 1: platform: must be one of agora,`},
		{"window", `{"platform":"agora","window":1025}`, "window: 1025 is not from 0 to 1024"},
		{"an LLM", `{"platform":"agora","properties":{"llm":{}}}`, "properties.llm: is the simulated"},
		{"a window of what is new", `{"platform":"agora","window":5,"new":true}`, "window: cannot be combined with new"},
		{"a cut in one piece", `{"platform":"openai","whole":true}` + "\n" + `{"ask":"a","answer":"b c","cut":1}`, "line 2: cut: only 0 is possible"},
		{"another address", `{"platform":"agora","address":"phone"}`, `address: must be one of`},
		{"properties that are none", `{"platform":"agora","properties":{"heardlog":1}}`, "properties.heardlog: is not an object"},
		{"no JSON", head + "ask a", "line 2: invalid character"},
		{"two objects", head + `{"ask":"a","answer":"b"} {}`, "more than one"},
		{"unknown member", head + `{"ask":"a","reply":"b"}`, `unknown field "reply"`},
		{"unknown member of want", head + `{"ask":"a","answer":"b","want":{"ghost":1}}`, `unknown field "ghost"`},
		{"two kinds", head + `{"ask":"a","say":"b"}`, "has 2 of ask"},
		{"no kind", head + `{"answer":"b"}`, "has 0 of ask"},
		{"no answer", head + `{"ask":"a"}`, "answer: is required"},
		{"cut behind the end", head + `{"ask":"a","answer":"b c","cut":3}`, "cut: 3 is not from 0 to the 2 words"},
		{"cut twice", head + `{"ask":"a","answer":"b c","cut":1,"cut_ms":400}`, "cut_ms: cannot be combined with cut"},
		{"cut before time", head + `{"ask":"a","answer":"b c","cut_ms":-1}`, "cut_ms: -1 is below 0"},
		{"overlap of nothing", head + `{"ask":"a","answer":"b","overlap":true}`, "overlap: needs cut"},
		{"a cut tool", head + `{"ask":"a","answer":"b","tool":{"name":"f"},"cut":1}`, "tool: cannot"},
		{"a tool without name", head + `{"ask":"a","tool":{}}`, "tool.name: is required"},
		{"arguments", head + `{"ask":"a","tool":{"name":"f","arguments":[]}}`, "tool.arguments: is not an object"},
		{"a result of nothing", head + `{"ask":"a","answer":"b"}` + "\n" + `{"result":"x","answer":"c"}`, "line 3: result: no tool was called"},
		{"a discarded want", head + `{"ask":"a","answer":"b","discard":true,"want":{"ghosts":1}}`, "want: a discarded"},
		{"a cut filler", head + `{"say":"a","cut":1}`, "say, event and interrupt have no answer"},
		{"an event that is none", head + `{"event":[1]}`, "event: is not an object"},
		{"from nowhere", head + `{"ask":"a","answer":"b","from":"twilio"}`, "from: belongs to event"},
		{"a wanted event", head + `{"event":{},"want":{}}`, "want: belongs"},
		{"long line", head + `{"ask":"` + strings.Repeat("x", simulate.MaxLine) + `","answer":"b"}`, "at most 65536"},
		{"long", head + strings.Repeat("#\n", simulate.MaxTranscript/2), "at most 1048576"},
		{"many steps", head + strings.Repeat(`{"ask":"a","answer":"b"}`+"\n", simulate.MaxSteps+1), "line 1002: is step 1001; at most 1000"},
		{"no text", head + "{\"ask\":\"\xff\",\"answer\":\"b\"}", "not UTF-8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := simulate.Parse("call", []byte(tt.text))
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %q", err, tt.want)
			}
		})
	}
}

// playCommand is the grammar of one subcommand.
type playCommand struct{ simulate.Command }

func (p *playCommand) Run(ctx context.Context, out *bytes.Buffer) error {
	if p.Server == "" {
		p.Server = "http://127.0.0.1:1"
	}
	p.Key = "id:hidden"
	return p.Play(ctx, out)
}

// command parses and runs the subcommand simulate.
func command(ctx context.Context, args []string, out *bytes.Buffer) error {
	var c struct {
		Simulate playCommand `cmd:""`
	}
	return cli.Run(ctx, &c, append([]string{"simulate"}, args...), "", out, nil, out)
}

// TestCommandArguments checks that the command names what is wrong with its arguments, and what to
// do if no server answers.
func TestCommandArguments(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"none", nil, "name one platform"},
		{"two", []string{"livekit", "vapi"}, "name one platform"},
		{"unknown", []string{"pager"}, `"pager" is not a platform that can be simulated: agora,`},
		{"no file", []string{"none.jsonl"}, "no such file"},
		{"server", []string{"-server", "localhost:8080", "vapi"}, "-server:"},
		{"pace", []string{"-pace", "-1", "vapi"}, "-pace: -1 is not from 0 to 100"},
		{"no server", []string{"-server", "http://127.0.0.1:1", "vapi"}, "start one, or name it with --server"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := command(t.Context(), tt.args, &out)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want %q", err, tt.want)
			}
			if strings.Contains(out.String(), "hidden") {
				t.Errorf("the key is shown:\n%s", &out)
			}
		})
	}
	var out bytes.Buffer
	if err := command(t.Context(), []string{"-print", "livekit"}, &out); err != nil || !strings.Contains(out.String(), `"platform":"livekit"`) {
		t.Errorf("-print: %v\n%s", err, &out)
	}
}

// TestBuiltin checks that built-in transcripts are found by platform and by name, and that no name
// hides a platform.
func TestBuiltin(t *testing.T) {
	t.Parallel()
	all, err := simulate.Builtin("all")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, platform := range simulate.Platforms() {
		list, err := simulate.Builtin(platform)
		if err != nil || len(list) == 0 {
			t.Errorf("%s: %d transcripts, %v", platform, len(list), err)
		}
		n += len(list)
	}
	if n != len(all) {
		t.Errorf("the platforms have %d transcripts, there are %d", n, len(all))
	}
	for _, tr := range all {
		one, err := simulate.Builtin(tr.Name)
		if err != nil || len(one) != 1 || !strings.HasPrefix(tr.Name, tr.Call.Platform+"-") || tr.Call.About == "" {
			t.Errorf("%s: %d transcripts, %v", tr.Name, len(one), err)
		}
	}
}
