package tests

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// fillers are the properties of an agent that fills its pauses.
func fillers(rule string, phrases ...string) map[string]any {
	return map[string]any{
		"enable":  true,
		"trigger": map[string]any{"mode": "fixed_time", "fixed_time_config": map[string]any{"response_wait_ms": 100}},
		"content": map[string]any{"mode": "static", "static_config": map[string]any{"phrases": phrases, "selection_rule": rule}},
	}
}

// thinking starts an upstream that answers each call as the script says once it gets a word from
// think.
func thinking(t *testing.T, script fake.Script) (llm *fake.LLM, base string, think chan struct{}) {
	t.Helper()
	llm, think = fake.New(fake.Options{Script: script}), make(chan struct{}, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-think:
			llm.ServeHTTP(w, r)
		case <-t.Context().Done():
		}
	}))
	t.Cleanup(srv.Close)
	return llm, srv.URL + "/v1", think
}

// filled asks an agent whose model answers once the client has something, and returns the stream.
func (s *server) filled(id, text string, think chan<- struct{}) (string, error) {
	s.t.Helper()
	resp, err := s.client.Post(s.url+agent(id, "/chat/completions"), "application/json", strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"`+text+`"}]}`))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 1)
	if _, err := io.ReadFull(resp.Body, first); err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatal(resp.StatusCode, err)
	}
	think <- struct{}{}
	rest, err := io.ReadAll(resp.Body)
	return string(first) + string(rest), err
}

// says returns the content of the first event, and the rest of the stream.
func says(t *testing.T, stream string) (first, rest string) {
	t.Helper()
	first, rest, _ = strings.Cut(stream, "\n\n")
	var chunk struct {
		ID, Object, Model string
		Choices           []struct {
			Delta        struct{ Role, Content string }
			FinishReason *string `json:"finish_reason"`
		}
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(first, "data: ")), &chunk); err != nil {
		t.Fatalf("%v: %q", err, stream)
	}
	if chunk.Object != "chat.completion.chunk" || chunk.Model == "" || len(chunk.Choices) != 1 || chunk.Choices[0].Delta.Role != "assistant" || chunk.Choices[0].FinishReason != nil {
		t.Errorf("the chunk is %s", first)
	}
	return chunk.Choices[0].Delta.Content, rest
}

// TestFiller: a phrase is sent while the LLM thinks, before its own bytes, and is never treated as
// its words.
func TestFiller(t *testing.T) {
	t.Parallel()
	llm, base, think := thinking(t, fake.Script{Answer: "At nine."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", map[string]any{"filler_words": fillers("round_robin", "Let me see.", "One moment.")})
	for i, want := range []string{"Let me see. ", "One moment. ", "Let me see. "} {
		got, err := s.filled(id, "When?", think)
		phrase, rest := says(t, got)
		if err != nil || phrase != want {
			t.Errorf("turn %d: %q, want %q; %v", i, phrase, want, err)
		}
		if strings.Count(rest, "data: ") != 4 || !strings.HasSuffix(rest, "data: [DONE]\n\n") || strings.Contains(rest, `"id":""`) {
			t.Errorf("behind the filler came %q", rest)
		}
		if e := s.lastAnswer(id); e.Content != "At nine." || e.Filler != strings.TrimSpace(want) || e.Upstream != "primary" {
			t.Errorf("the ledger has %+v", e)
		}
	}
	seen := llm.Requests()
	if b := string(seen[len(seen)-1].Body); strings.Contains(b, "Let me see") || strings.Contains(b, "One moment") {
		t.Errorf("the model is told of the filler: %s", b)
	}
	if h := strings.Join(texts(s.history(id).Contents), "\n"); strings.Contains(h, "Let me see") {
		t.Errorf("history: %s", h)
	}
	// A whole answer has none.
	think <- struct{}{}
	if got := string(s.chat(agent(id, "/chat/completions"), "When?", false).ok(nil).body); strings.Contains(got, "One moment") || s.lastAnswer(id).Filler != "" {
		t.Errorf("%s", got)
	}
}

// TestNoFiller: nothing is said in front of an LLM that is quick enough, nor where fillers are off.
func TestNoFiller(t *testing.T) {
	t.Parallel()
	off := fillers("shuffle", "Let me see.")
	delete(off, "enable")
	late := fillers("shuffle", "Let me see.")
	quick := fillers("shuffle", "Let me see.") // due in the middle of the answer
	quick["trigger"] = map[string]any{"fixed_time_config": map[string]any{"response_wait_ms": 3000}}
	late["trigger"] = map[string]any{"fixed_time_config": map[string]any{"response_wait_ms": 10000}}
	for name, tt := range map[string]struct {
		filler any
		chunk  time.Duration
	}{
		"off":       {off, 400 * time.Millisecond},
		"late":      {late, 400 * time.Millisecond},
		"no phrase": {fillers("shuffle"), 400 * time.Millisecond},
		"quick":     {quick, 1200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, base := upstream(t, fake.Script{Answer: "At nine. Or ten.", DelayChunk: fake.Duration(tt.chunk)})
			s := start(t, "HEARDLOG_LLM_URL="+base)
			id := s.join(name, map[string]any{"filler_words": tt.filler})
			if got := string(s.chat(agent(id, "/chat/completions"), "When?", true).ok(nil).body); strings.Contains(got, "Let me see") || s.lastAnswer(id).Filler != "" {
				t.Error(got)
			}
		})
	}
}

// TestNoFillerWithin: a filler that is due while an event arrives comes in front of it.
func TestNoFillerWithin(t *testing.T) {
	t.Parallel()
	long := ": " + strings.Repeat("x", 100<<10)
	_, base := upstream(t, fake.Script{RawPieces: []string{long, "\n\ndata: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"Nine.\"}}]}\n\ndata: [DONE]\n\n"}, DelayChunk: fake.Duration(time.Second)})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	f := fillers("shuffle", "Let me see.")
	f["trigger"] = map[string]any{"fixed_time_config": map[string]any{"response_wait_ms": 100}}
	got := string(s.chat(agent(s.join("n", map[string]any{"filler_words": f}), "/chat/completions"), "When?", true).ok(nil).body)
	if filler, rest, _ := strings.Cut(got, "\n\n"); !strings.Contains(filler, "Let me see.") || !strings.HasPrefix(rest, long+"\n\ndata: {\"id\":\"c\"") {
		t.Errorf("%d bytes, end in %q", len(got), got[max(0, len(got)-300):])
	}
}

// TestFillerThen: what may come behind a filler.
func TestFillerThen(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script  fake.Script
		failure string
		content string
		words   []string
		whole   bool // the stream ends in good order
	}{
		"comments":       {fake.Script{RawPieces: []string{": hm\n\n", "data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"Nine.\"}}]}\n\n", "data: [DONE]\n\n"}}, "", "Nine.", []string{": hm", "Nine.", "[DONE]"}, true},
		"a role alone":   {fake.Script{Chunks: []string{"", "Nine."}}, "", "Nine.", []string{"Nine.", "[DONE]"}, true},
		"a tool call":    {fake.Script{ToolName: "book", ToolArgs: `{"a":1}`}, "", "", []string{"book", "[DONE]"}, true},
		"a whole answer": {fake.Script{Body: `{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"Nine."},"finish_reason":"stop"}]}`, Type: "application/json", Raw: `{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"Nine."},"finish_reason":"stop"}]}`}, "", "Nine.", []string{"Nine.", "[DONE]"}, true},
		"an error":       {fake.Script{Status: 400}, "", "", []string{`"error"`}, false},
		"a message":      {fake.Script{Status: 400}, "Sorry.", "Sorry.", []string{"Sorry.", "[DONE]"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, base, think := thinking(t, tt.script)
			s := start(t, "HEARDLOG_LLM_URL="+base)
			id := s.join("n", map[string]any{"filler_words": fillers("shuffle", "Let me see."), "llm": map[string]any{"failure_message": tt.failure}})
			got, err := s.filled(id, "When?", think)
			if (err == nil) != tt.whole || strings.Count(got, "Let me see. ") != 1 {
				t.Errorf("%v: %q", err, got)
			}
			for _, w := range tt.words {
				if !strings.Contains(got, w) {
					t.Errorf("%q is not in %q", w, got)
				}
			}
			if e := s.lastAnswer(id); e.Filler != "Let me see." || e.Content != tt.content {
				t.Errorf("the ledger has %+v", e)
			}
		})
	}
}

// TestFillerFallsOver: a filler is no answer: another upstream may still give that.
func TestFillerFallsOver(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Hang: true})
	_, spare := upstream(t, fake.Script{Answer: "At nine."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_LLM_FIRST_TOKEN_TIMEOUT=2s", fallbacks(t, map[string]any{"name": "spare", "url": spare}))
	id := s.join("n", map[string]any{"filler_words": fillers("shuffle", "Let me see.")})
	phrase, rest := says(t, string(s.chat(agent(id, "/chat/completions"), "When?", true).ok(nil).body))
	if phrase != "Let me see. " || !strings.Contains(rest, "nine.") {
		t.Errorf("%q, %q", phrase, rest)
	}
	if e := s.lastAnswer(id); e.Upstream != "spare" || e.Filler != "Let me see." || e.Content != "At nine." {
		t.Errorf("the ledger has %+v", e)
	}
}

// TestFillerLeft: a client that disconnects after the filler has heard the filler and nothing of
// the answer.
func TestFillerLeft(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Hang: true})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	for name, interrupt := range map[string]bool{"leaves": false, "interrupts": true} {
		id := s.join(name, map[string]any{"filler_words": fillers("shuffle", "Let me see.")})
		resp := s.open(id, `{"stream":true,"messages":[{"role":"user","content":"When?"}]}`)
		b := make([]byte, 1024)
		if n, err := resp.Body.Read(b); err != nil || !strings.Contains(string(b[:n]), "Let me see") {
			t.Fatalf("%v: %q", err, b[:n])
		}
		if interrupt {
			s.post(agent(id, "/interrupt"), nil).ok(nil)
			if rest, err := io.ReadAll(resp.Body); err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
				t.Errorf("%v: %q", err, rest)
			}
		}
		_ = resp.Body.Close()
		tl := s.tail(id, "Last-Event-ID", "0")
		tl.message("the answer", func(m message) bool { return m.Role == "assistant" })
		if e := s.lastAnswer(id); e.Filler != "Let me see." || e.Content != "" {
			t.Errorf("%s: the ledger has %+v", name, e)
		}
	}
}

// TestFillerShuffle: every phrase comes before one comes again.
func TestFillerShuffle(t *testing.T) {
	t.Parallel()
	_, base, think := thinking(t, fake.Script{Answer: "x"})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	phrases := []string{"One.", "Two.", "Three."}
	id := s.join("n", map[string]any{"filler_words": fillers("shuffle", phrases...)})
	for range 2 {
		var got []string
		for range phrases {
			stream, err := s.filled(id, "x", think)
			if err != nil {
				t.Error(err)
			}
			phrase, _ := says(t, stream)
			got = append(got, strings.TrimSpace(phrase))
		}
		slices.Sort(got)
		if diff := cmp.Diff([]string{"One.", "Three.", "Two."}, got); diff != "" {
			t.Error(diff)
		}
	}
}

// TestFillersRefused: mistakes name the field.
func TestFillersRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	for phrase, words := range map[string]string{" ": "phrases[1]: must not be blank", strings.Repeat("x", 2049): "2048"} {
		s.post(v1+"/join", map[string]any{"name": "n", "properties": map[string]any{"filler_words": fillers("shuffle", "ok", phrase)}}).
			refused(http.StatusBadRequest, "InvalidFieldValue", "properties.filler_words.content.static_config.phrases[1]", words)
	}
}

// TestFillerEchoed: if a platform's list holds the filler in front of our answer, or alone, only
// the words after it count as heard. The filler is not stored, and the model does not get it.
func TestFillerEchoed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		echo    string // "" for none
		content string // of the answer, afterwards
		cut     bool
		told    string // "" where nothing of it is
	}{
		"in full":           {"Let me see. At nine from platform two.", "At nine from platform two.", false, "At nine from platform two."},
		"without marks":     {"let me see at nine from platform two", "At nine from platform two.", false, "at nine from platform two"},
		"cut":               {"Let me see. At nine", "At nine", true, "At nine"},
		"without filler":    {"At nine from platform two.", "At nine from platform two.", false, "At nine from platform two."},
		"nothing but it":    {"Let me see.", "", true, ""},
		"cut in the filler": {"Let me", "", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			llm, base, think := thinking(t, fake.Script{Answer: "At nine from platform two."})
			s := start(t, "HEARDLOG_LLM_URL="+base)
			id := s.join("n", map[string]any{"filler_words": fillers("shuffle", "Let me see."), "heardlog": map[string]any{"mode": "reconcile"}})
			if _, err := s.filled(id, "When?", think); err != nil {
				t.Error(err)
			}
			think <- struct{}{}
			s.post(agent(id, "/chat/completions"), map[string]any{"messages": []any{
				user("When?"), map[string]any{"role": "assistant", "content": tt.echo}, user("And back?"),
			}}).ok(nil)
			var page struct {
				Messages []struct {
					Role, Content, Filler string
					Metadata              struct{ Interrupted bool }
				}
			}
			s.get(agent(id, "/messages")).ok(&page)
			if n := len(page.Messages); n != 4 {
				t.Fatalf("the ledger has %d entries: %+v", n, page.Messages)
			}
			if a := page.Messages[1]; a.Role != "assistant" || a.Filler != "Let me see." || a.Content != tt.content || a.Metadata.Interrupted != tt.cut {
				t.Errorf("the answer is %+v", a)
			}
			seen := llm.Requests()
			var sent struct {
				Messages []struct{ Role, Content string }
			}
			if err := json.Unmarshal(seen[len(seen)-1].Body, &sent); err != nil {
				t.Fatal(err)
			}
			var told []string
			for _, m := range sent.Messages {
				if m.Role == "assistant" {
					told = append(told, m.Content)
				}
			}
			if strings.Join(told, "|") != tt.told {
				t.Errorf("the model is told %q", told)
			}
		})
	}
}
