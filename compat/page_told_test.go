package compat_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// ask sends the caller's words to the LLM. fake is what the fake LLM is to do.
func (s *server) ask(t *testing.T, id, words string, fake object) {
	t.Helper()
	s.call(t, http.StatusOK, "POST", "/v1/agents/"+id+"/chat/completions", object{"messages": []object{{"role": "user", "content": words}}, "fake": fake}, nil)
}

// listen is ask as a stream, which takes as long as the fake LLM does to write.
func (s *server) listen(t *testing.T, id, words, answer string) {
	t.Helper()
	body, _ := json.Marshal(object{"stream": true, "messages": []object{{"role": "user", "content": words}}, "fake": object{"answer": answer, "delay_chunk": "150ms"}})
	resp, err := s.client.Post(s.url+"/v1/agents/"+id+"/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
}

// TestPageTold: of an answer the page shows what the model was given, what is new and gone since
// the turn before, what was left out and why, and the request as a command that works.
func TestPageTold(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1", "HEARDLOG_LLM_MODEL=fake-1")
	id := s.join(t, "desk", object{"heardlog": object{"policy": object{"max_messages": 3}}})
	s.ask(t, id, question, nil)
	s.call(t, http.StatusOK, "POST", "/v1/agents/"+id+"/interrupt", object{"heard": heard}, nil)
	s.ask(t, id, "It's noisy here, isn't it?", nil)
	s.ask(t, id, "And back?", nil)
	b := openTab(t, s.url+"/calls/"+id)
	b.clicks(".transcript li:nth-child(2) button")
	b.shows(".told li.new", "It's noisy here")
	b.shows(".told li.new", heard)
	b.shows(".told li.gone mark", strings.TrimSpace(unheard))
	b.shows(".told li.same", question)
	b.shows(".told li.same", "Left out: 7 words nobody heard")
	if told := value[string](b, `[...document.querySelectorAll(".told li:not(.gone)")].map(e => e.textContent).join()`); strings.Contains(told, strings.TrimSpace(unheard)) {
		t.Errorf("the page shows that the model was given words that nobody heard: %s", told)
	}
	b.do(chromedp.Evaluate[chromedp.Void](`navigator.clipboard.writeText = text => { window.copied = text }`))
	b.do(chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll("aside button")].find(e => e.textContent === "Copy as curl").click()`))
	bash := exec.CommandContext(within(t, patience), "bash", "-c", value[string](b, `window.copied`)+" -sS --fail-with-body")
	bash.Env = []string{"PATH=" + os.Getenv("PATH"), "LLM_API_KEY=none"}
	if out, err := bash.CombinedOutput(); err != nil || !strings.Contains(string(out), `"choices"`) {
		t.Errorf("the copied command: %v\n%s", err, out)
	}
	b.clicks(".transcript li:nth-child(6) button")
	b.shows("aside summary", "What the model was given")
	b.shows("aside .link", "Compare with the turn before")
	b.do(chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll("aside .link")].find(e => e.textContent === "Compare with the turn before").click()`))
	b.shows(".told li.gone", question)
	b.shows(".told li.new", "And back?")
	b.shows("aside summary", "Left out: ")
	b.shows(".left li", "beyond the policy's limit")
	b.shows(".left li", question)
}

// TestPageSearch: a search finds words that were heard and words that were only generated, and its
// address leads back to it.
func TestPageSearch(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1", "HEARDLOG_LLM_MODEL=fake-1")
	trainCall(t, s)
	s.ask(t, s.join(t, "other", nil), "Something else", nil)
	b := openTab(t, s.url+"/")
	b.waits(`document.querySelectorAll(".calls [data-id]").length === 2`)
	for _, words := range []string{"PLATFORM two", "book a seat"} {
		b.types("main [type=search]", words+"\n")
		b.waits(`new URLSearchParams(location.search).get("q") === ` + quote(words) + ` && document.querySelectorAll(".calls [data-id]").length === 1`)
		b.shows(".calls tbody th", "desk")
	}
	b.do(chromedp.Reload())
	b.waits(`document.querySelectorAll(".calls [data-id]").length === 1 && document.querySelector("main [type=search]").value === "book a seat"`)
	b.types("main [type=search]", "nobody said this\n")
	b.shows("main", "No call fits")
}

// TestPagePictures draws the pictures of the documents: with PICTURES=docs/pictures it writes them.
func TestPagePictures(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1", "HEARDLOG_LLM_MODEL=fake-1", "HEARDLOG_LLM_PRICES=fake-1=2.5:10")
	props := func(user, campaign string) object {
		return object{"channel": "room-1", "labels": object{"campaign": campaign}, "heardlog": object{"scope": object{"user_id": user}}}
	}
	s.listen(t, s.join(t, "night-line", props("+46 70 174 06 12", "autumn")), "Are you open?", "We open at eight.")
	refund := s.join(t, "desk-2", props("+49 30 123456", "autumn"))
	s.listen(t, refund, "Where is my refund?", "Your refund of forty euros will arrive on Friday, if you confirm it.")
	s.call(t, http.StatusOK, "POST", "/v1/agents/"+refund+"/interrupt", object{"heard": "Your refund of"}, nil)
	s.call(t, http.StatusOK, "POST", "/v1/agents/"+refund+"/leave", nil, nil)
	id := s.join(t, "desk-1", props("+1 555 0134", "spring"))
	s.listen(t, id, question, heard+unheard)
	s.spoken(t, id)
	s.listen(t, id, "Wait, which one?", "The nine o'clock to Lund. Do you want a seat by the window?")
	s.listen(t, id, "نعم، من فضلك.", "Booked: seat twelve A, coach two.")

	chosen := s.url + "/calls/" + id + "?m=4"
	for name, view := range map[string]struct {
		url, shows string
		setup      []step
	}{
		"calls.png":     {s.url + "/", "Booked", nil},
		"call.png":      {chosen, "What the model was given", nil},
		"call-dark.png": {chosen, "What the model was given", []step{dark}},
		"phone.png":     {s.url + "/", "Booked", []step{chromedp.EmulateViewport(390, 844)}},
		"overview.png":  {s.url + "/overview?since=24h", "Answers that were cut off", nil},
	} {
		b := openTab(t, view.url, view.setup...)
		b.shows("main", view.shows)
		if value[bool](b, `document.documentElement.scrollWidth > innerWidth`) {
			t.Errorf("%s: the page is wider than the window", name)
		}
		b.accessible()
		b.picture(name)
	}
}

// TestPageAccessible checks every view in light and dark and on a phone, and that the keyboard
// reaches everything that can be clicked.
func TestPageAccessible(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1", "HEARDLOG_LLM_MODEL=fake-1")
	s.call(t, http.StatusOK, "POST", "/v1/agents/"+trainCall(t, s)+"/leave", nil, nil)
	s.call(t, http.StatusCreated, "POST", "/v1/webhooks/endpoints", object{"url": receiver(t), "events": []string{"agent.*"}}, nil)
	spokenCall(t, s, s.join(t, "spoken", object{"heardlog": object{"scope": object{"user_id": "anna"}}}))
	id := trainCall(t, s)
	views := map[string]string{
		"/": "which one?", "/calls/" + id + "?m=3": "The model was told next", "/overview": "Answers that were cut off",
		"/callers": "anna", "/callers/anna": "What the next call is told", "/webhooks": "Deliveries", "/demo": "The same agent, twice",
	}
	for name, setup := range map[string][]step{"light": nil, "dark": {dark}, "phone": {chromedp.EmulateViewport(390, 844)}} {
		b := openTab(t, s.url+"/", setup...)
		for path, text := range views {
			b.do(chromedp.Navigate(s.url + path))
			b.shows("main", text)
			b.accessible()
			if value[bool](b, `document.documentElement.scrollWidth > innerWidth`) {
				t.Errorf("%s, %s: the page is wider than the window", path, name)
			}
			if out := value[[]string](b, `[...document.querySelectorAll("a, button:enabled, input:enabled, select, summary, [role=button]")].filter(e => e.tabIndex < 0).map(e => e.outerHTML)`); len(out) > 0 {
				t.Errorf("%s, %s: the keyboard does not reach %q", path, name, out)
			}
		}
	}
}
