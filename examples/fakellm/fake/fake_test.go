package fake_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

func call(t *testing.T, ctx context.Context, url, body string, header ...string) (int, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

// Flags hold for all calls, headers for one, the body's member wins.
func TestScripts(t *testing.T) {
	t.Parallel()
	llm := fake.New(fake.Options{Script: fake.Script{Answer: "flag"}})
	srv := httptest.NewServer(llm)
	t.Cleanup(srv.Close)
	const ask = `{"messages":[{"role":"user","content":"hi"}]`
	for name, tt := range map[string]struct {
		body   string
		header []string
		status int
		want   string
	}{
		"flag":      {ask + `}`, nil, 200, `"content":"flag"`},
		"header":    {ask + `}`, []string{"X-Fake-Answer", "head"}, 200, `"content":"head"`},
		"body":      {ask + `,"fake":{"answer":"body"}}`, []string{"X-Fake-Answer", "head"}, 200, `"content":"body"`},
		"status":    {ask + `}`, []string{"X-Fake-Status", "429"}, 429, `"error"`},
		"streamed":  {ask + `,"stream":true}`, []string{"X-Fake-Answer", "a b"}, 200, "data: [DONE]\n\n"},
		"usage":     {ask + `,"stream":true,"stream_options":{"include_usage":true}}`, nil, 200, `"choices":[],"usage":{`},
		"raw":       {ask + `,"stream":true}`, []string{"X-Fake-Raw", `"data: x\n\n"`}, 200, "data: x\n\n"},
		"tool":      {ask + `,"stream":true,"fake":{"tool_name":"f","tool_args":"{}"}}`, nil, 200, `"name":"f"`},
		"bad body":  {`{`, nil, 400, "error"},
		"no words":  {`{"messages":[]}`, nil, 400, "error"},
		"bad value": {ask + `}`, []string{"X-Fake-Status", "many"}, 400, "error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, body, err := call(t, t.Context(), srv.URL+"/v1/chat/completions", tt.body, tt.header...)
			if err != nil || status != tt.status || !strings.Contains(body, tt.want) {
				t.Errorf("%d %s %v", status, body, err)
			}
		})
	}
}

// Answers fit the question, requests and cancels are shown.
func TestRecords(t *testing.T) {
	t.Parallel()
	llm := fake.New(fake.Options{})
	srv := httptest.NewServer(llm)
	t.Cleanup(srv.Close)
	for ask, want := range map[string]string{"the train?": "platform two", "hello": "You said: hello"} {
		if _, body, err := call(t, t.Context(), srv.URL+"/chat/completions", `{"messages":[{"role":"user","content":"`+ask+`"}]}`); err != nil || !strings.Contains(body, want) {
			t.Errorf("%s: %s %v", ask, body, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = llm.WaitRequests(ctx, 3)
		cancel()
	}()
	if _, _, err := call(t, ctx, srv.URL+"/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"fake":{"hang":true}}`); err == nil {
		t.Fatal("an answer came")
	}
	cancels, err := llm.WaitCancels(t.Context(), 1)
	if err != nil || cancels[0].N != 3 || cancels[0].Phase != "headers" {
		t.Errorf("%+v %v", cancels, err)
	}
	res, err := http.Get(srv.URL + "/requests") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var seen []fake.Seen
	if err := json.NewDecoder(res.Body).Decode(&seen); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{1, 2, 3}, []int{seen[0].N, seen[1].N, seen[2].N}); diff != "" || len(seen) != 3 {
		t.Error(diff)
	}
}

// What the fake says of its own words follows from the prompt: all of it, up to where it was
// stopped, or what a memory of another call holds.
func TestWhatItSaid(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(fake.New(fake.Options{}))
	t.Cleanup(srv.Close)
	const whole = "You can change it until six. There is a fee of twenty-five euros unless you travel before noon, then it is free."
	for name, tt := range map[string]struct{ before, want string }{
		"all of it": {`{"role":"assistant","content":"` + whole + `"},`, "I told you: “" + whole + "”"},
		"a part": {
			`{"role":"assistant","content":"You can change it until six. There is a fee of twenty-five euros"},`,
			"You stopped me after “There is a fee of twenty-five euros”. I was about to say: “unless you travel before noon, then it is free.”",
		},
		"in another call": {
			`{"role":"system","content":"<memory>\n\"2026-11-23, agent, heard: You can change it\"\n</memory>"},`,
			"That was in your last call. You stopped me after “You can change it”. I was about to say: “until six. There is a fee of twenty-five euros unless you travel before noon, then it is free.”",
		},
		"nothing": {"", "I have told you nothing yet."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, got, err := call(t, t.Context(), srv.URL+"/v1/chat/completions", `{"messages":[`+tt.before+`{"role":"user","content":"What did you tell me about a fee?"}]}`)
			if err != nil {
				t.Fatal(err)
			}
			var answer struct {
				Choices []struct{ Message struct{ Content string } }
			}
			if err := json.Unmarshal([]byte(got), &answer); err != nil {
				t.Fatal(err)
			}
			if said := answer.Choices[0].Message.Content; said != tt.want {
				t.Errorf("it says %s\nwant     %s", said, tt.want)
			}
		})
	}
}
