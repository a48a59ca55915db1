package platform_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/platform"
)

// TestEvents reads every fixture: testdata/events/PLATFORM.EVENT[-variant].json beside what is to
// be read of it, EVENT.golden. The fixtures are made up; each place where a platform may put
// something secret holds a CANARY. go test ./platform -update writes the golden files.
func TestEvents(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/events/*.json")
	if err != nil || len(files) < 28 {
		t.Fatalf("%d fixtures, %v", len(files), err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(filepath.Base(file), ".")
		event, err := platform.Read(name, body)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		seen[name+" "+event.Type] = true
		got, err := json.MarshalIndent(told(t, event), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(got, []byte("CANARY")) {
			t.Errorf("%s: what was read holds a secret: %s", file, got)
		}
		golden := strings.TrimSuffix(file, ".json") + ".golden"
		if flag.Lookup("update").Value.String() == "true" {
			if err := os.WriteFile(golden, append(got, '\n'), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
	for _, name := range platform.Names() {
		for _, event := range platform.Types(name) {
			if !seen[name+" "+event] && name+event != "agora1002" && name+event != "agora1004" && !strings.HasSuffix(event, "_required") && event != "call_analyzed" {
				t.Errorf("no fixture for %s %s", name, event)
			}
		}
	}
}

// told gives an event without the fields that say nothing.
func told(t *testing.T, event platform.Event) any {
	t.Helper()
	b, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return dense(v)
}

func dense(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if e = dense(e); e == nil || e == "" || e == false || e == 0.0 {
				delete(v, k)
			} else {
				v[k] = e
			}
		}
	case []any:
		for i := range v {
			v[i] = dense(v[i])
		}
	}
	return v
}

var _ = flag.Bool("update", false, "write the golden files")

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		platform, body string
		code           fault.Code
		words          string
	}{
		"platform":  {"acme", `{}`, fault.NotFound, "agora, elevenlabs, livekit, openai-realtime, pipecat, retell, telnyx, twilio, vapi"},
		"not JSON":  {"vapi", `{"a":}`, fault.BadRequest, "JSON"},
		"no object": {"vapi", `"x"`, fault.BadRequest, "object"},
		"empty":     {"vapi", ``, fault.BadRequest, "JSON"},
		"no type":   {"vapi", `{"message":{}}`, fault.Missing, "message.type or type"},
	} {
		if _, err := platform.Read(tt.platform, []byte(tt.body)); fault.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTolerance: values of another type than documented are read where they can be, and are nothing
// where they cannot.
func TestTolerance(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		platform, body string
		check          func(e platform.Evidence) bool
	}{
		"duration as text":      {"twilio", `{"type":"interrupt","durationUntilInterruptMs":"460"}`, func(e platform.Evidence) bool { return e.HeardMS != nil && *e.HeardMS == 460 && e.Heard == nil }},
		"duration with letters": {"twilio", `{"type":"interrupt","durationUntilInterruptMs":"soon"}`, func(e platform.Evidence) bool { return e.HeardMS == nil && e.Cut }},
		"utterance as number":   {"twilio", `{"type":"interrupt","utteranceUntilInterrupt":7}`, func(e platform.Evidence) bool { return e.Heard == nil }},
		"seconds":               {"vapi", `{"type":"user-interrupted","timestamp":1780000013}`, func(e platform.Evidence) bool { return e.AtMS == 1780000013000 }},
		"seconds as text":       {"vapi", `{"type":"user-interrupted","timestamp":"1780000013.5"}`, func(e platform.Evidence) bool { return e.AtMS == 1780000013500 }},
		"milliseconds":          {"vapi", `{"type":"user-interrupted","timestamp":1780000013500}`, func(e platform.Evidence) bool { return e.AtMS == 1780000013500 }},
		"no time":               {"vapi", `{"type":"user-interrupted","timestamp":-5}`, func(e platform.Evidence) bool { return e.AtMS == 0 }},
		"a date":                {"vapi", `{"type":"user-interrupted","timestamp":"2026-05-28T20:31:40Z"}`, func(e platform.Evidence) bool { return e.AtMS == 0 }},
		"number far too large":  {"openai-realtime", `{"type":"conversation.item.truncate","item_id":"i","audio_end_ms":1e300}`, func(e platform.Evidence) bool { return e.HeardMS != nil && *e.HeardMS >= 0 }},
		"words in seconds": {"openai-realtime", `{"type":"conversation.item.truncate","audio_end_ms":1,"words":[{"word":"a","start":0.5,"end":"1.25"},{"word":"b"},7]}`,
			func(e platform.Evidence) bool {
				return len(e.Words) == 1 && e.Words[0] == platform.Word{Text: "a", StartMS: 500, EndMS: 1250}
			}},
		"lists of unlike lengths": {"vapi", `{"type":"assistant.speechStarted","text":"a b","timestamp":1780000013500,"timing":{"type":"word-alignment","words":["a","b"],"wordsEndTimesMs":[5]}}`,
			func(e platform.Evidence) bool { return len(e.Words) == 1 && e.StartMS == 1780000013500 }},
		"more words than there are": {"vapi", `{"type":"assistant.speechStarted","text":"a b","timing":{"type":"word-progress","wordsSpoken":99}}`,
			func(e platform.Evidence) bool { return *e.Heard == "a b" }},
		"fewer than none": {"vapi", `{"type":"assistant.speechStarted","text":"a b","timing":{"type":"word-progress","wordsSpoken":-9}}`,
			func(e platform.Evidence) bool { return *e.Heard == "" }},
	} {
		event, err := platform.Read(tt.platform, []byte(tt.body))
		if err != nil || len(event.Evidence) != 1 || !tt.check(event.Evidence[0]) {
			t.Errorf("%s: %+v, %v", name, event.Evidence, err)
		}
	}
}

// TestExtraIsTheTable: what is stripped is what the profiles say.
func TestExtraIsTheTable(t *testing.T) {
	t.Parallel()
	var table []string
	for _, p := range platform.Profiles() {
		table = append(table, p.Strip...)
	}
	slices.Sort(table)
	context := []byte(`{"presence":{}}`)
	for _, name := range append(table, "messages", "model", "metadata", "user", "tools", "store", "") {
		if got, want := platform.PlatformOnly(name, context, false), slices.Contains(table, name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if platform.PlatformOnly("context", []byte(`{"page":1}`), false) || platform.PlatformOnly("context", []byte(`"x"`), false) || platform.PlatformOnly("context", context, true) || platform.PlatformOnly("turn_id", []byte("1"), true) {
		t.Error("another's context, or the engine's own fields for the engine's LLM, are stripped")
	}
	if !platform.PlatformOnly("call", []byte("{}"), true) {
		t.Error("a call object goes to an engine's LLM")
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	if _, err := platform.NewSet([]platform.Own{{Name: "vapi", Header: "X"}}); err == nil {
		t.Error("an own profile may have the name of a platform")
	}
	names := map[string]bool{}
	for _, p := range platform.Profiles() {
		for _, s := range p.Sources {
			if names[s.Name] || s.Name == "" || s.Header+s.Path == "" {
				t.Errorf("%+v", s)
			}
			names[s.Name] = true
		}
	}
	long := strings.Repeat("x", 300)
	for text, want := range map[string]string{
		"vapi.call:c-1": "vapi.call:c-1", "acme:a:b": "acme:a:b", "vapi.call:" + long: "vapi.call:sha256-", "openai.user:ann": "openai.user:sha256-",
		"": "", "x": "", ":x": "", "x:": "", "a b:c": "", "a:b c": "", "a:\x00": "", "a:é": "",
	} {
		k, ok := platform.ParseKey(text)
		if ok != (want != "") || !strings.HasPrefix(k.Text, want) || len(k.Text) > 200 {
			t.Errorf("%q: %q, %v", text, k.Text, ok)
		}
	}
}

// FuzzRead: whatever is sent, reading it ends without a panic and gives no more than its bounds
// allow.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/events/*.json")
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
	names := platform.Names()
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, name := range names {
			event, err := platform.Read(name, body)
			if err == nil && len(event.Evidence) > platform.MaxRows {
				t.Errorf("%s: %d rows", name, len(event.Evidence))
			}
			for _, e := range event.Evidence {
				if len(e.Words) > platform.MaxWords || e.AtMS < 0 || e.HeardMS != nil && *e.HeardMS < 0 {
					t.Errorf("%s: %+v", name, e)
				}
			}
		}
	})
}
