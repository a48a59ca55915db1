package hosted_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/hosted"
)

var update = flag.Bool("update", false, "write the golden files")

// shown returns a call as text.
func shown(c hosted.Call) string {
	var b strings.Builder
	cost := "-"
	if c.CostUSD != nil {
		cost = fmt.Sprint(*c.CostUSD)
	}
	fmt.Fprintf(&b, "%s %s agent=%s key=%s name=%q\n%d to %d ended=%q failed=%v caller=%q cost=%s\nrecording=%s labels=%v\n", c.Platform, c.ID, c.AgentID(), c.Key, c.Name,
		c.StartMS, c.EndMS, c.EndReason, c.Failed, c.Caller, cost, c.RecordingURL, c.Labels)
	for _, m := range c.Messages {
		fmt.Fprintf(&b, "%d-%d %s %q", m.StartMS, m.EndMS, m.Role, m.Text)
		if m.Original != "" || m.Interrupted {
			fmt.Fprintf(&b, " of %q cut=%v", m.Original, m.Interrupted)
		}
		fmt.Fprintf(&b, " by %q", m.Method)
		for _, t := range m.ToolCalls {
			fmt.Fprintf(&b, " calls %s=%s(%s)", t.ID, t.Name, t.Arguments)
		}
		if m.ToolCallID != "" {
			fmt.Fprintf(&b, " of call %s %s failed=%v", m.ToolCallID, m.ToolName, m.Failed)
		}
		if m.Model != "" || m.Latency != nil {
			fmt.Fprintf(&b, " model=%s latency=%v", m.Model, m.Latency)
		}
		b.WriteByte('\n')
	}
	if c.Omitted.N > 0 {
		fmt.Fprintf(&b, "left out: %s\n", &c.Omitted)
	}
	return b.String()
}

// TestRead reads payloads that compat/python/harness/hosted.py has made with the platforms' own
// packages, and others that were written by hand.
func TestRead(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) < 7 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			body, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			platform, _, _ := strings.Cut(filepath.Base(file), ".")
			c, finished, err := hosted.Read(platform, body)
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("finished=%v\n%s", finished, shown(c))
			golden := strings.TrimSuffix(file, ".json") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestReadLoose leaves out what is wrong, and keeps the rest.
func TestReadLoose(t *testing.T) {
	t.Parallel()
	c, finished, err := hosted.Read("vapi", []byte(`{"id":"a","startedAt":7,"endedAt":"yesterday","cost":"much","customer":{"number":5},"endedReason":{},
		"artifact":{"recordingUrl":"javascript:alert(1)","messages":[4,{"role":"bot","message":["x"],"time":"?"},{"role":"user","message":"Hi","time":true},{"role":"cat","message":"x"}]}}`))
	if err != nil || !finished || len(c.Messages) != 1 || c.Messages[0].Text != "Hi" || c.RecordingURL != "" || c.CostUSD != nil {
		t.Errorf("%v %v %s", finished, err, shown(c))
	}
	if c.Omitted.N != 10 {
		t.Errorf("%d: %s", c.Omitted.N, &c.Omitted)
	}
	for body, code := range map[string]fault.Code{`[]`: fault.BadRequest, `{`: fault.BadRequest, `{"status":"ended"}`: fault.Missing} {
		if _, _, err := hosted.Read("vapi", []byte(body)); !fault.Is(err, code) {
			t.Errorf("%s: %v", body, err)
		}
	}
	c, _, err = hosted.Read("vapi", []byte(`{"id":"a","startedAt":"2026-05-28T20:26:40Z","messages":[{"role":"user","message":"Hi","secondsFromStart":2.5}]}`))
	if err != nil || len(c.Messages) != 1 || c.Messages[0].StartMS != c.StartMS+2500 {
		t.Errorf("a message without a time: %v %s", err, shown(c))
	}
	if _, _, err := hosted.Read("nobody", []byte(`{}`)); !fault.Is(err, fault.NotFound) {
		t.Errorf("an unknown platform: %v", err)
	}
}

// TestReadUnfinished passes over what is not about the end of a call.
func TestReadUnfinished(t *testing.T) {
	t.Parallel()
	for platform, bodies := range map[string][]string{
		"vapi":       {`{"message":{"type":"status-update","call":{"id":"a"}}}`, `{"id":"a","status":"in-progress"}`},
		"retell":     {`{"event":"call_started","call":{"call_id":"a"}}`, `{"call_id":"a","call_status":"ongoing"}`},
		"elevenlabs": {`{"type":"post_call_audio","data":{"conversation_id":"a"}}`, `{"conversation_id":"a","status":"processing"}`},
		"livekit":    {`{"job_id":"a"}`},
		"twilio":     {`{"CallSid":"a","CallStatus":"ringing"}`, `{"sid":"a","status":"in-progress"}`},
	} {
		for _, body := range bodies {
			if c, finished, err := hosted.Read(platform, []byte(body)); finished || err != nil || c.ID != "a" {
				t.Errorf("%s %s: %v %v %q", platform, body, finished, err, c.ID)
			}
		}
	}
}

// TestWithheld: a withheld number names no caller.
func TestWithheld(t *testing.T) {
	t.Parallel()
	for platform, body := range map[string]string{
		"vapi":       `{"id":"a","customer":{"number":"Anonymous"}}`,
		"retell":     `{"call_id":"a","from_number":"anonymous"}`,
		"elevenlabs": `{"conversation_id":"a","user_id":"u1","metadata":{"phone_call":{"external_number":"+266696687"}}}`,
		"twilio":     `{"CallSid":"a","CallStatus":"completed","From":"+266696687"}`,
	} {
		c, finished, err := hosted.Read(platform, []byte(body))
		if err != nil || !finished || c.Caller != "" {
			t.Errorf("%s: %v %v caller %q", platform, finished, err, c.Caller)
		}
	}
}

// FuzzRead reads anything without a panic, and the same twice alike.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, platform := range hosted.Platforms() {
			a, _, errA := hosted.Read(platform, body)
			b, _, errB := hosted.Read(platform, body)
			if (errA == nil) != (errB == nil) {
				t.Fatalf("%s: %v and %v", platform, errA, errB)
			}
			one, _ := json.Marshal(a)
			two, _ := json.Marshal(b)
			if string(one) != string(two) {
				t.Fatalf("%s:\n%s\n%s", platform, one, two)
			}
			if errA == nil && a.EndMS != 0 && a.EndMS < a.StartMS {
				t.Fatalf("%s: %d ends at %d", platform, a.StartMS, a.EndMS)
			}
		}
	})
}
