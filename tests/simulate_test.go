package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/simulate"
)

// Every scripted call of every platform, against a whole server, leaves the record that it should.
func TestSimulatedCalls(t *testing.T) {
	t.Parallel()
	s := start(t)
	all, err := simulate.Builtin("all")
	if err != nil {
		t.Fatal(err)
	}
	played := map[string]bool{}
	for _, tr := range all {
		played[tr.Call.Platform] = true
		t.Run(tr.Name, func(t *testing.T) {
			t.Parallel()
			r, err := simulate.Play(t.Context(), simulate.Config{Server: s.url, Client: s.client}, tr)
			if err != nil {
				t.Fatal(err)
			}
			if !r.Match {
				var b strings.Builder
				if err := r.Print(&b); err != nil {
					t.Fatal(err)
				}
				t.Errorf("%s", &b)
			}
		})
	}
	for _, name := range simulate.Platforms() {
		if !played[name] {
			t.Errorf("no transcript plays %s", name)
		}
	}
}

// The transcript that the document shows is one, and plays.
func TestSimulatedCallOfDocument(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/guides/simulate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "```json\n")
	text, _, ok := strings.Cut(text, "```")
	if !ok {
		t.Fatal("docs/guides/simulate.md shows no transcript")
	}
	tr, err := simulate.Parse("docs/guides/simulate.md", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s := start(t)
	r, err := simulate.Play(t.Context(), simulate.Config{Server: s.url, Client: s.client}, tr)
	if err != nil || !r.Match {
		t.Errorf("%v: %+v", err, r)
	}
	for _, name := range simulate.Platforms() {
		if !strings.Contains(string(doc), "| `"+name+"` |") {
			t.Errorf("docs/guides/simulate.md does not say what is played of %s", name)
		}
	}
}

// A call played in real time lasts as long as its words and pauses; here at a hundred times the
// speed.
func TestSimulatedCallInTime(t *testing.T) {
	t.Parallel()
	s := start(t)
	list, err := simulate.Builtin("livekit-retry")
	if err != nil || len(list) != 1 {
		t.Fatalf("%d transcripts, %v", len(list), err)
	}
	begun := time.Now()
	r, err := simulate.Play(t.Context(), simulate.Config{Server: s.url, Client: s.client, Pace: 100}, list[0])
	if err != nil || !r.Match {
		t.Fatalf("%v: %+v", err, r)
	}
	// Eight words that are heard, and six for the caller's pauses.
	const spoken = 14 * 350 * time.Millisecond / 100
	if took := time.Since(begun); took < spoken {
		t.Errorf("it took %s, less than the %s that is spoken", took, spoken)
	}
}

// wrong is a transcript with one expectation in each line that the server cannot fulfil.
const wrong = `{"platform":"openai","properties":{"heardlog":{"mode":"reconcile"}}}
{"ask":"One?","answer":"One two three.","cut":2,"heard":"One two","want":{"interrupted":false}}
{"ask":"Two?","answer":"Four five six.","want":{"method":"vendor_text"}}
{"ask":"Three?","answer":"Seven.","want":{"ghosts":1}}
{"ask":"Four?","answer":"Eight nine.","want":{"heard":"Eight"}}
{"ask":"Five?","answer":"Ten.","want":{"generated":"Eleven."}}
{"ask":"Six?","answer":"Twelve.","want":{"none":true}}
`

// simulated runs the subcommand simulate.
func simulated(t *testing.T, c simulate.Command, out *bytes.Buffer) error {
	t.Helper()
	c.Listen = "127.0.0.1:0"
	return c.Play(t.Context(), out)
}

// The command reports differences column by column and fails.
func TestSimulatedCallDiffers(t *testing.T) {
	t.Parallel()
	s := start(t)
	name := filepath.Join(t.TempDir(), "wrong.jsonl")
	if err := os.WriteFile(name, []byte(wrong), 0o600); err != nil {
		t.Fatal(err)
	}
	var table, out bytes.Buffer
	if err := simulated(t, simulate.Command{Server: s.url, Platforms: []string{name}}, &table); !errors.Is(err, simulate.ErrDiffers) {
		t.Fatalf("the error is %v", err)
	}
	for _, want := range []string{
		"differs: interrupted (line 2)", "differs: method (line 3)", "differs: ghosts (line 4)", "differs: heard (line 5)",
		"differs: generated (line 6)", "differs: answer\n", "NOT AS EXPECTED",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(table.String())
	}
	if err := simulated(t, simulate.Command{JSON: true, Server: s.url, Platforms: []string{name}}, &out); !errors.Is(err, simulate.ErrDiffers) {
		t.Fatalf("the error is %v", err)
	}
	var r simulate.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	if r.Match || len(r.Rows) != 6 || r.Rows[3].Recorded.Heard != "Eight nine." || r.Rows[3].Expected.Heard != "Eight" || r.Requests != 6 {
		t.Errorf("%+v", r)
	}
}

// With credentials the command needs one; its agents are gone afterwards.
func TestSimulatedCallWithCredentials(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_CREDENTIALS=red=red-id:red-secret")
	var out bytes.Buffer
	if err := simulated(t, simulate.Command{Server: s.url, Platforms: []string{"pipecat"}}, &out); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("without a key: %v", err)
	}
	if err := simulated(t, simulate.Command{Server: s.url, Key: "red-id:red-secret", Platforms: []string{"pipecat"}}, &out); err != nil {
		t.Errorf("with the key: %v\n%s", err, &out)
	}
	if strings.Contains(out.String(), "red-secret") {
		t.Error("the key is shown")
	}
	var list struct{ Data struct{ Count int } }
	s.get(v1+"/agents", "Authorization", basic("red-id", "red-secret")).ok(&list)
	if list.Data.Count != 0 {
		t.Errorf("%d agents are left running", list.Data.Count)
	}
}
