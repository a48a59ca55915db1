package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

const (
	nameSaid   = "Hi 👋, I am Anna Müller from Köln."
	nameStored = "Hi 👋, I am [person-1] from [location-1]."
	nameAnswer = "Hello Anna, shall I call John Miller now?"
	nameReply  = "Hello [person-1], shall I call [person-2] now?"
)

// names are what a detector finds, and what a server that has one must not keep.
var names = regexp.MustCompile(`Anna Müller|Anna|John Miller|Köln|Zoë`)

var typesOf = map[string]string{"Köln": "LOCATION"}

// detector is a detector of names, in both forms.
type detector struct {
	*httptest.Server
	calls  atomic.Int64
	broken atomic.Value // of func(w http.ResponseWriter, r *http.Request); nil answers

	mu    sync.Mutex
	texts []string
}

func newDetector(t *testing.T) *detector {
	t.Helper()
	d := &detector{}
	d.works()
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.calls.Add(1)
		if f := d.broken.Load().(func(http.ResponseWriter, *http.Request)); f != nil {
			f(w, r)
			return
		}
		if r.Header.Get("Authorization") != "Bearer detector-token" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		var in struct {
			Text     []string `json:"text"`
			Texts    []string `json:"texts"`
			Language string   `json:"language"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Language != "en" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		d.mu.Lock()
		d.texts = append(d.texts, append(in.Text, in.Texts...)...)
		d.mu.Unlock()
		if r.URL.Path == "/analyze" {
			_ = json.NewEncoder(w).Encode(foundIn(in.Text, "entity_type"))
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"spans": foundIn(in.Texts, "type")})
	}))
	t.Cleanup(d.Close)
	return d
}

// foundIn returns what a detector finds in texts. Offsets count code points, and some overlap.
func foundIn(texts []string, kind string) [][]map[string]any {
	out := make([][]map[string]any, len(texts))
	for i, text := range texts {
		out[i] = []map[string]any{}
		for _, m := range names.FindAllStringIndex(text, -1) {
			from, to := utf8.RuneCountInString(text[:m[0]]), utf8.RuneCountInString(text[:m[1]])
			name := typesOf[text[m[0]:m[1]]]
			if name == "" {
				name = "PERSON"
			}
			out[i] = append(out[i], map[string]any{"start": from, "end": to, kind: name, "score": 0.85}, map[string]any{"start": from + 1, "end": to, kind: "NICKNAME", "score": 0.6})
			out[i] = append(out[i], map[string]any{"start": from, "end": to + min(1, utf8.RuneCountInString(text[m[1]:])), kind: "WRONG", "score": 0.2})
		}
	}
	return out
}

func (d *detector) works() { d.broken.Store((func(http.ResponseWriter, *http.Request))(nil)) }

func (d *detector) breaks(f func(w http.ResponseWriter, r *http.Request)) { d.broken.Store(f) }

// asked returns the texts that the detector has seen.
func (d *detector) asked() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string{}, d.texts...)
}

// setting returns an entry of HEARDLOG_REDACT with the detector.
func (d *detector) setting(path string, more map[string]any) map[string]any {
	set := map[string]any{"url": d.URL + path, "form": "presidio", "min_score": 0.5, "timeout_ms": 2000, "token": "detector-token", "pseudonyms": true}
	if path != "/analyze" {
		set["form"] = "plain"
	}
	for k, v := range more {
		set[k] = v
	}
	return map[string]any{"types": []string{"card"}, "detector": set}
}

func redactSetting(entries ...map[string]any) string {
	b, err := json.Marshal(entries)
	if err != nil {
		panic(err)
	}
	return "HEARDLOG_REDACT=" + string(b)
}

// detecting is a server with a detector and an upstream.
func detecting(t *testing.T, d *detector, path string, more map[string]any, env ...string) (*server, *fake.LLM) {
	t.Helper()
	llm, base := upstream(t, fake.Script{Answer: nameAnswer})
	return start(t, append([]string{"HEARDLOG_LLM_URL=" + base, redactSetting(d.setting(path, more)), "HEARDLOG_LOG_LEVEL=debug"}, env...)...), llm
}

// TestNames: names reach the LLM in the request that brings them, and the caller in the answer, and
// nothing else, whatever way they come in and in whatever form the detector speaks.
func TestNames(t *testing.T) {
	t.Parallel()
	needsFile(t)
	for _, path := range []string{"/analyze", "/find"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			d := newDetector(t)
			s, llm := detecting(t, d, path, nil)
			h, ear := newHook(t), &eavesdropper{base: s.client.Transport}
			s.hookTo(h, map[string]any{"events": []string{"*"}})
			id := s.join("n", nil)
			tail := s.tail(id)
			for _, stream := range []bool{true, false} {
				got := s.chat(agent(id, "/chat/completions"), nameSaid, stream).ok(nil)
				if !strings.Contains(string(got.body), "Anna") || !strings.Contains(sentUp(llm), nameSaid) {
					t.Errorf("the model was not asked, or the caller not answered, as before: %s %s", sentUp(llm), got.body)
				}
			}
			if up := sentUp(llm); strings.Count(up, "Müller") != 1 || !strings.Contains(up, nameReply) {
				t.Errorf("the memory shows the model: %s", up)
			}
			named := map[string]any{"role": "user", "content": nameSaid + " My card is 4111 1111 1111 1111.", "id": "m1"}
			first, again := s.say(id, named), s.say(id, named)
			if want := nameStored + " My card is [card]."; again[0].Seq != first[0].Seq || again[0].Content != want {
				t.Errorf("%+v %+v, want %q", first, again, want)
			}
			calls := []any{map[string]any{"id": "c1", "type": "function", "function": map[string]any{"name": "book", "arguments": `{"guest":{"Anna":"Anna Müller"},"to":"Köln"}`}}}
			s.say(id, map[string]any{"role": "assistant", "content": nil, "tool_calls": calls}, map[string]any{"role": "tool", "tool_call_id": "c1", "content": `{"booked_for":"Anna Müller"}`})
			s.say(id, map[string]any{"role": "assistant", "content": "Anna.", "metadata": map[string]any{"note": "for Anna", "n": 1}})
			s.post(agent(id, "/speak"), `{"text":"Hello Anna Müller"}`).ok(nil)
			for _, call := range [][3]string{
				{"POST", v1 + "/memories", `{"memory_type":"human","content":"Anna Müller","metadata":{"user_id":"u"}}`},
				{"PUT", agent(id, "/summary"), `{"summary":"Anna Müller calls from Köln."}`},
				{"PUT", agent(id, "/working-memory/k"), `{"value":{"name":"Anna Müller"}}`},
				{"PUT", v1 + "/saved-conversations/c", `{"text":"Anna Müller"}`},
				{"POST", v1 + "/users/u/facts", `{"content":"Her name is Anna Müller."}`},
				{"PATCH", agent(id), `{"labels":{"caller":"Anna Müller"}}`},
				{"PUT", v1 + "/vectors/docs/d1", `{"content":"Anna Müller lives in Köln"}`},
				{"PUT", v1 + "/knowledge/k", `{}`},
				{"PUT", v1 + "/knowledge/k/entries/e", `{"content":"Anna Müller lives in Köln"}`},
				{"PUT", v1 + "/patterns/p", `{"type":"user_preferences","content":"Anna likes tea"}`},
			} {
				if got := s.do(call[0], call[1], call[2]); got.status > 204 {
					t.Errorf("%s: %d %s", call, got.status, got.body)
				}
			}
			s.post(agent(id, "/think"), `{"text":"ask Anna Müller"}`).ok(nil)
			var seen strings.Builder
			seen.WriteString(tail.answers(3, nameReply))
			s.client.Transport = ear
			for _, what := range []string{"", "/history?limit=all", "/turns", "/messages?limit=1000", "/working-memory/k"} {
				s.get(agent(id, what))
			}
			s.get(v1 + "/memories?user_id=u")
			s.get(v1 + "/users/u/facts")
			s.get(v1 + "/saved-conversations/c")
			s.post(v1+"/vectors/docs/search", `{"query":"lives"}`).ok(nil)
			s.post(agent(id, "/context"), `{}`).ok(nil)
			s.post(agent(id, "/leave"), nil).ok(nil)
			for e, ok := tail.next(); ok; e, ok = tail.next() {
				seen.Write(e.data)
			}
			var hooked strings.Builder
			for ended := false; !ended; {
				c := h.next(t)
				hooked.Write(c.body)
				ended = strings.Contains(string(c.body), `"eventType":103`)
			}
			metrics := string(s.get("/metrics").body)
			s.stop()
			ear.mu.Lock()
			places := map[string]string{"the log": s.log.String(), "an answer": ear.all.String(), "the tail": seen.String(), "a webhook": hooked.String(), "the metrics": metrics}
			ear.mu.Unlock()
			places["the files"] = s.files()
			for where, text := range places {
				if at := names.FindStringIndex(text); at != nil {
					t.Errorf("%s holds a name: …%q…", where, text[max(0, at[0]-160):min(len(text), at[1]+40)])
				}
				if where != "the log" && where != "the metrics" && !strings.Contains(text, "[person-1]") {
					t.Errorf("%s holds no pseudonym: the test proves nothing", where)
				}
			}
			if !strings.Contains(places["an answer"], `guest`) || strings.Contains(places["the log"]+places["an answer"], "detector-token") {
				t.Error("a name of a member was changed, or the token is shown")
			}
			for _, text := range d.asked() {
				if strings.Contains(text, "4111") {
					t.Errorf("the detector got a card number: %q", text)
				}
			}
		})
	}
}

// TestNamesAfterRestart: a platform that sends its list again with the original words causes no new
// messages, also on a server that has started again, and each name keeps its number.
func TestNamesAfterRestart(t *testing.T) {
	t.Parallel()
	needsFile(t)
	d := newDetector(t)
	s, _ := detecting(t, d, "/analyze", nil)
	id := s.join("n", nil)
	list := []any{user(nameSaid)}
	send := func() {
		s.post(agent(id, "/chat/completions"), map[string]any{"model": "m", "messages": list}).ok(nil)
	}
	send()
	list = append(list, assistant(nameAnswer), user("Zoë wants to talk to Anna."))
	send()
	s = s.again()
	calls := d.calls.Load()
	list = append(list, assistant("Hello Anna, shall I call John"), user("Zoë, not Anna Müller!"))
	send()
	if n := d.calls.Load() - calls; n > 4 {
		t.Errorf("the detector was called %d times", n)
	}
	var got []string
	for _, m := range s.ledger(id) {
		if !m.Ghost && m.State == "final" {
			got = append(got, m.Role+": "+strings.TrimSpace(m.Content))
		}
	}
	want := []string{
		"user: " + nameStored, "assistant: " + nameReply, "user: [person-3] wants to talk to [person-1].", "assistant: Hello [person-1], shall I call [person-2]",
		"user: [person-3], not [person-1]!", "assistant: " + nameReply,
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("the ledger holds %q, want %q", got, want)
	}
}

// TestNamesHeard: what was heard of an answer is found in its redacted form.
func TestNamesHeard(t *testing.T) {
	t.Parallel()
	s, _ := detecting(t, newDetector(t), "/analyze", nil)
	id := s.join("n", nil)
	for heard, want := range map[string]string{
		"Hello An": "Hello", "Hello Anna, shall I": "Hello [person-1], shall I", "Hello Anna, shall I call Jo": "Hello [person-1], shall I call",
		"Hello Anna, shall I call John": "Hello [person-1], shall I call [person-2]", "Hello Anna, shall I call John Miller": "Hello [person-1], shall I call [person-2]",
	} {
		s.chat(agent(id, "/chat/completions"), "x", true).ok(nil)
		s.interrupt(id, map[string]any{"heard": heard}).ok(nil)
		if m := s.last(id); strings.TrimSpace(m.Content) != want || m.Generated != nameReply {
			t.Errorf("heard %q: %q of %q", heard, m.Content, m.Generated)
		}
	}
	s.chat(agent(id, "/chat/completions"), "x", true).ok(nil)
	var words []any // 300 ms each; the caller cuts in within the name
	for i, w := range strings.Fields(nameAnswer) {
		words = append(words, map[string]any{"word": w, "start_ms": i * 300, "end_ms": i*300 + 290})
	}
	s.post(agent(id, "/evidence/openai-realtime"), map[string]any{"type": "conversation.item.truncate", "audio_end_ms": 1800, "words": words}).ok(nil)
	if m := s.last(id); strings.TrimSpace(m.Content) != "Hello [person-1], shall I call" {
		t.Errorf("heard by word times: %q", m.Content)
	}
}

// badDetectors are answers of a detector that cannot be used.
var badDetectors = map[string]func(w http.ResponseWriter, r *http.Request){
	"hangs": func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() },
	"fails": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	"redirects": func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/else", http.StatusTemporaryRedirect)
	},
	"no JSON":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
	"one list": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`[]`)) },
	"out of range": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`[[{"entity_type":"PERSON","start":0,"end":999}]]`))
	},
	"backwards": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`[[{"entity_type":"PERSON","start":3,"end":1}]]`))
	},
	"without an end": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`[[{"entity_type":"PERSON","start":3}]]`))
	},
	"bad type": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`[[{"entity_type":"] Anna","start":0,"end":1}]]`))
	},
	"huge": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`[[` + strings.Repeat(`{"entity_type":"PERSON","start":0,"end":1},`, 100_000) + `{}]]`))
	},
}

// TestNamesUnchecked: if the detector fails, texts are refused where the client can be told, and
// withheld where the words were said already; with on_failure open they are stored.
func TestNamesUnchecked(t *testing.T) {
	t.Parallel()
	for how, broken := range badDetectors {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			d := newDetector(t)
			s, llm := detecting(t, d, "/analyze", map[string]any{"timeout_ms": 150})
			id := s.join("n", nil)
			s.say(id, user("Anna is here."))
			s.do("PUT", v1+"/knowledge/k", `{}`)
			d.breaks(broken)
			s.post(agent(id, "/messages"), map[string]any{"messages": []any{user("Zoë is here.")}}).refused(http.StatusServiceUnavailable, "ServiceUnavailable", "detector")
			for _, call := range [][3]string{
				{"POST", v1 + "/memories", `{"memory_type":"human","content":"Zoë"}`},
				{"POST", v1 + "/join", `{"name":"other","properties":{"labels":{"caller":"Zoë"}}}`},
				{"PUT", agent(id, "/summary"), `{"summary":"Zoë calls."}`},
				{"PUT", agent(id, "/working-memory/k"), `{"value":{"name":"Zoë"}}`},
				{"PUT", v1 + "/saved-conversations/c", `{"text":"Zoë"}`},
				{"POST", v1 + "/users/u/facts", `{"content":"Her name is Zoë."}`},
				{"PATCH", agent(id), `{"labels":{"caller":"Zoë"}}`},
				{"PUT", v1 + "/vectors/docs/d1", `{"content":"Zoë lives in Köln"}`},
				{"PUT", v1 + "/knowledge/k/entries/e", `{"content":"Zoë lives in Köln"}`},
				{"PUT", v1 + "/patterns/p", `{"type":"user_preferences","content":"Zoë likes tea"}`},
			} {
				s.do(call[0], call[1], call[2]).refused(http.StatusServiceUnavailable, "ServiceUnavailable", "detector")
			}
			s.say(id, user("Anna is here.")) // it was checked
			got := s.chat(agent(id, "/chat/completions"), nameSaid, true).ok(nil)
			if !strings.Contains(string(got.body), "Anna") || !strings.Contains(sentUp(llm), nameSaid) {
				t.Errorf("the turn did not go on: %s %s", got.body, sentUp(llm))
			}
			if got := fmt.Sprintf("%q", texts(s.ledger(id))); got != `["0 user: [person-1] is here." "0 user: [person-1] is here." "0 user: [withheld]" "0 assistant: [withheld]"]` {
				t.Errorf("the ledger holds %s", got)
			}
			if m := string(s.get("/metrics").body); !strings.Contains(m, `heardlog_unchecked_texts_total{result="withheld"} 2`) || strings.Contains(m, `heardlog_unchecked_texts_total{result="refused"} 0`) {
				t.Errorf("the metrics do not count the texts: %s", regexp.MustCompile(`(?m)^heardlog_(unchecked|detector).*`).FindAllString(m, -1))
			}
			d.works()
			if n := strings.Count(s.log.String(), "not checked for names"); n != 1 || names.MatchString(s.log.String()) {
				t.Errorf("%d lines in the log: %s", n, s.log)
			}
		})
	}
	t.Run("open", func(t *testing.T) {
		t.Parallel()
		d := newDetector(t)
		d.breaks(badDetectors["fails"])
		s, _ := detecting(t, d, "/find", map[string]any{"on_failure": "open"})
		id := s.join("n", nil)
		s.say(id, user("Zoë, 4111 1111 1111 1111."))
		if got := fmt.Sprintf("%q", texts(s.ledger(id))); got != `["0 user: Zoë, [card]."]` {
			t.Errorf("the ledger holds %s", got)
		}
		if m := string(s.get("/metrics").body); !strings.Contains(m, `heardlog_unchecked_texts_total{result="stored"} 1`) {
			t.Error("the metrics do not count the text")
		}
	})
}

// TestNamesOfProjects: a detector that hangs costs its own project alone, and that no longer than
// its deadline, until it is left alone.
func TestNamesOfProjects(t *testing.T) {
	t.Parallel()
	slow, quick := newDetector(t), newDetector(t)
	slow.breaks(badDetectors["hangs"])
	a, b := slow.setting("/analyze", map[string]any{"timeout_ms": 1500}), quick.setting("/find", nil)
	a["project"], b["project"] = "a", "b"
	s := start(t, "HEARDLOG_CREDENTIALS=a=k-a:secret-of-a,b=k-b:secret-of-b,c=k-c:secret-of-c", redactSetting(a, b))
	ids := map[string]string{}
	as := func(project string) string { return basic("k-"+project, "secret-of-"+project) }
	for _, p := range []string{"a", "b", "c"} {
		ids[p] = s.join("n", nil, "Authorization", as(p))
	}
	var wait sync.WaitGroup
	for i := range 40 {
		wait.Go(func() {
			s.post(agent(ids["a"], "/messages"), map[string]any{"messages": []any{user(fmt.Sprintf("Anna %d", i))}}, "Authorization", as("a")).
				refused(http.StatusServiceUnavailable, "ServiceUnavailable", "detector")
		})
	}
	waitFor(t, "the calls of the slow detector", func() bool { return slow.calls.Load() >= 16 })
	for i := range 5 {
		began := time.Now()
		for _, p := range []string{"b", "c"} {
			s.post(agent(ids[p], "/messages"), map[string]any{"messages": []any{user(fmt.Sprintf("Anna %d", i))}}, "Authorization", as(p)).ok(nil)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("an append of another project took %v", took)
		}
	}
	wait.Wait()
	if n := slow.calls.Load(); n > 16+5 {
		t.Errorf("the slow detector was called %d times; it has 16 places, and is left alone when some have failed", n)
	}
	refused := func() {
		s.post(agent(ids["a"], "/messages"), map[string]any{"messages": []any{user("Zoë")}}, "Authorization", as("a")).refused(http.StatusServiceUnavailable, "ServiceUnavailable", "detector")
	}
	refused() // perhaps the probe
	began := time.Now()
	refused()
	if took := time.Since(began); took > time.Second {
		t.Errorf("a detector that is left alone costs %v", took)
	}
	if got := texts(s.ledger(ids["c"], "Authorization", as("c"))); !strings.Contains(got[0], "Anna 0") || quick.calls.Load() == 0 {
		t.Errorf("project c has no detector, and b has one: %q", got[0])
	}
}

// TestNamesUpstream: with upstream "redacted" the LLM sees no names either, and is not asked if
// they cannot be found. A join names no detector.
func TestNamesUpstream(t *testing.T) {
	t.Parallel()
	d := newDetector(t)
	s, llm := detecting(t, d, "/find", nil)
	id := s.join("n", map[string]any{"heardlog": map[string]any{"redact": map[string]any{"upstream": "redacted"}}})
	s.chat(agent(id, "/chat/completions"), nameSaid, true).ok(nil)
	s.post(agent(id, "/chat/completions"), map[string]any{"model": "m", "messages": []any{user(nameSaid), assistant(nameAnswer), user("Zoë, please")}}).ok(nil)
	if up := sentUp(llm); names.MatchString(up) || !strings.Contains(up, "[person-3], please") || !strings.Contains(up, nameStored) {
		t.Errorf("the model was shown %s", up)
	}
	asked := len(llm.Requests())
	d.breaks(badDetectors["fails"])
	if got := s.chat(agent(id, "/chat/completions"), "Anna?", false); got.status != http.StatusServiceUnavailable || len(llm.Requests()) != asked {
		t.Errorf("without the detector: %d %s", got.status, got.body)
	}
	other := newDetector(t)
	s.post(v1+"/join", map[string]any{"name": "bad", "properties": map[string]any{"heardlog": map[string]any{"redact": map[string]any{"detector": map[string]any{"url": other.URL}}}}})
	if n := other.calls.Load(); n > 0 {
		t.Errorf("a join had a detector called %d times", n)
	}
}

// TestNamesAndSpreadNumber: a message with a name and a part of a number, which the next one
// completes, loses both, and a client's list with the words as they were said is recognized after a
// restart.
func TestNamesAndSpreadNumber(t *testing.T) {
	t.Parallel()
	needsFile(t)
	d := newDetector(t)
	s, _ := detecting(t, d, "/find", nil)
	id := s.join("spread", map[string]any{"llm": map[string]any{"on_question": "keep"}})
	const first, second = "I am Anna, my card is 4929 1234", "5678 9015"
	s.say(id, user(first))
	s.say(id, user(second))
	want := []string{"0 user: I am [person-1], my card is [card]", "0 user: [card]"}
	stored := func() (out []string) {
		for _, m := range s.history(id).Contents {
			if m.Role == "user" {
				out = append(out, "0 user: "+fmt.Sprint(m.Content))
			}
		}
		return out
	}
	if got := stored(); strings.Join(got, "|") != strings.Join(want, "|") {
		t.Fatalf("stored %q", got)
	}
	s = s.again()
	list := []map[string]any{{"role": "user", "content": first}, {"role": "user", "content": second}, {"role": "user", "content": "Did you get it?"}}
	s.post(agent(id, "/chat/completions"), map[string]any{"messages": list}, "X-Heardlog-Mode", "reconcile").ok(nil)
	if got := stored(); strings.Join(got, "|") != strings.Join(append(want, "0 user: Did you get it?"), "|") {
		t.Errorf("stored after a restart: %q", got)
	}
}

// TestNamesWithoutDetector: what is stored stays as it is while a client sends it again and the
// detector is away, and a turn whose LLM is to see no names is refused before anything is stored.
func TestNamesWithoutDetector(t *testing.T) {
	t.Parallel()
	needsFile(t)
	d := newDetector(t)
	s, _ := detecting(t, d, "/analyze", nil)
	id := s.join("n", nil)
	shy := s.join("shy", map[string]any{"heardlog": map[string]any{"redact": map[string]any{"upstream": "redacted"}}})
	list := []any{}
	ask := func(text string) answer {
		list = append(list, user(text))
		return s.post(agent(id, "/chat/completions"), map[string]any{"model": "m", "messages": list})
	}
	ask(nameSaid).ok(nil)
	list = append(list, assistant(nameAnswer))
	ask("Yes, call Anna.").ok(nil)
	list = append(list, assistant(nameAnswer))
	before := s.spoken(id)
	s = s.again()
	d.breaks(badDetectors["fails"])
	ask("Is Zoë there?").ok(nil)
	if got := s.spoken(id); strings.Join(got[:4], "|") != strings.Join(before, "|") || len(got) != 6 || got[4] != "user: [withheld]" {
		t.Errorf("stored before %q, now %q", before, got)
	}
	turn := map[string]any{"model": "m", "messages": []any{user("I am Anna.")}}
	if got := s.post(agent(shy, "/chat/completions"), turn); got.status != http.StatusServiceUnavailable || len(s.spoken(shy)) > 0 {
		t.Errorf("%d %s, stored %q", got.status, got.body, s.spoken(shy))
	}
	s.post(agent(id, "/interrupt"), map[string]any{"heard": "Hello Anna"})
	d.works()
	s.post(agent(shy, "/chat/completions"), turn).ok(nil)
	if got := s.spoken(shy); len(got) != 2 || got[0] != "user: I am [person-1]." {
		t.Errorf("stored %q", got)
	}
}
