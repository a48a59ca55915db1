package compat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// tab is a page in a headless Chromium of its own.
type tab struct {
	t   testing.TB
	ctx context.Context
}

// openTab opens an address. Without Chromium it skips the test.
func openTab(t testing.TB, url string, setup ...step) *tab {
	t.Helper()
	browser := needChromium(t)
	alloc, endAlloc := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(browser), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1440, 900), chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))...)
	t.Cleanup(endAlloc)
	ctx, end := chromedp.NewContext(alloc)
	t.Cleanup(end)
	b := &tab{t, ctx}
	b.do(append(setup, chromedp.Navigate(url))...)
	return b
}

// A step is something done on a page.
type step = chromedp.Action[chromedp.Void]

func (b *tab) do(steps ...step) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body.innerText`))
		b.t.Fatalf("%v; the page shows:\n%s", err, text)
	}
}

// value returns the value of an expression.
func value[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression[:min(len(expression), 200)], err)
	}
	return v
}

// waits until an expression is true.
func (b *tab) waits(expression string) {
	b.t.Helper()
	step := chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(patience))
	for range 3 { // a page that is just being replaced takes its context with it
		err := chromedp.Do(b.ctx, step)
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "Cannot find context") {
			break
		}
	}
	b.do(step)
}

// shows waits until an element of a selector holds a text.
func (b *tab) shows(selector, text string) {
	b.t.Helper()
	b.waits(`[...document.querySelectorAll(` + quote(selector) + `)].some(e => e.textContent.includes(` + quote(text) + `))`)
}

// clicks clicks the first element of a selector, once it is there and enabled.
func (b *tab) clicks(selector string) {
	b.t.Helper()
	b.do(chromedp.WaitEnabled(chromedp.CSS(selector)), chromedp.Click(chromedp.CSS(selector)))
}

// types writes into a field, in place of what is in it.
func (b *tab) types(selector, text string) {
	b.t.Helper()
	b.do(chromedp.WaitEnabled(chromedp.CSS(selector)), chromedp.Evaluate[chromedp.Void](`document.querySelector(`+quote(selector)+`).value = ""`), chromedp.SendKeys(chromedp.CSS(selector), text))
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// accessible fails the test for each rule of WCAG 2.1 AA that axe finds broken.
func (b *tab) accessible() {
	b.t.Helper()
	axe, err := os.ReadFile("clients-node/node_modules/axe-core/axe.min.js")
	if err != nil {
		if os.Getenv("CI") != "" {
			b.t.Fatalf("axe-core is missing; run `npm ci --ignore-scripts` in compat/clients-node: %v", err)
		}
		b.t.Log("axe-core is missing, so accessibility was NOT checked: run npm ci --ignore-scripts in compat/clients-node")
		return
	}
	b.do(chromedp.Evaluate[chromedp.Void](string(axe)))
	// What is fading in has less contrast for a moment.
	value[bool](b, `Promise.all(document.getAnimations().filter(a => a.effect.getTiming().iterations !== Infinity).map(a => a.finished.catch(() => {}))).then(() => true)`)
	broken := value[[]string](b, `axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]})
		.then(r => r.violations.map(v => v.id + ": " + v.nodes.map(n => n.html + " " + n.failureSummary).join("; ")))`)
	for _, rule := range broken {
		b.t.Errorf("axe: %s", rule)
	}
}

// picture checks that the page is drawn. It writes the picture to the folder in PICTURES, if that
// is set.
func (b *tab) picture(name string) {
	b.t.Helper()
	shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	drawn, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		b.t.Fatal(err)
	}
	colours := map[color.Color]bool{}
	for y := range drawn.Bounds().Dy() {
		for x := range drawn.Bounds().Dx() {
			colours[drawn.At(x, y)] = true
		}
	}
	if len(colours) < 20 {
		b.t.Errorf("%s has only %d colours", name, len(colours))
	}
	if dir := os.Getenv("PICTURES"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name), shot, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
}

// dark makes the page believe that its viewer prefers dark colours.
var dark = chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
	_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
	})
	return err
})

const (
	question = "When is my train?"
	heard    = "The train leaves at nine from platform two."
	unheard  = " Shall I book a seat for you?"
	hostile  = `<script>alert(1)</script><img src=x onerror=alert(2)> which one?`
)

// trainCall plays a call in which one answer is interrupted and the caller says something hostile.
func trainCall(t *testing.T, s *server) (id string) {
	t.Helper()
	id = s.join(t, "desk", object{"channel": "room-1", "llm": object{"greeting_message": "Central station, how can I help?"}})
	s.call(t, http.StatusOK, "POST", "/v1/agents/"+id+"/chat/completions", object{"messages": []object{{"role": "user", "content": question}}}, nil)
	s.call(t, http.StatusOK, "POST", "/v1/agents/"+id+"/interrupt", object{"heard": heard}, nil)
	s.call(t, http.StatusOK, "POST", "/v1/agents/"+id+"/chat/completions", object{"messages": []object{{"role": "user", "content": hostile}}}, nil)
	return id
}

// coveredBars lists the texts of bars on the time axis that overlap the next one of their lane or
// are narrower than 3 pixels.
const coveredBars = `(() => {
	const bars = [...document.querySelectorAll(".timeline .bar")].map(e => ({text: e.textContent, ...e.getBoundingClientRect().toJSON()}));
	return bars.filter(a => a.width < 3 || bars.some(b => b !== a && b.top === a.top && b.left >= a.left && b.left < a.right - 1)).map(a => a.text);
})()`

// TestPageCall finds a call in the list, opens it, and looks at what was heard of an answer.
func TestPageCall(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1", "HEARDLOG_LLM_MODEL=fake-1")
	id := trainCall(t, s)
	b := openTab(t, s.url+"/")
	b.shows(".calls td.words", "which one?")
	b.shows(".calls tbody .gone", "%")
	b.accessible()
	b.clicks(".tabs a[href='/?interrupted=true']")
	b.waits(`location.search === "?interrupted=true" && document.querySelectorAll(".calls [data-id]").length === 1`)
	b.clicks(".calls tbody th a")
	b.shows(".transcript .said", hostile)
	b.shows(".transcript del", strings.TrimSpace(unheard))
	b.shows("main", "There is no time axis")
	b.shows(".badge", "live")
	if missing := value[[]string](b, `performance.getEntriesByType("resource").filter(e => e.responseStatus >= 400).map(e => e.name)`); len(missing) > 0 {
		t.Errorf("the page asks for what is not there: %q", missing)
	}
	if injected := value[int](b, `document.querySelectorAll("main img, main script").length`); injected > 0 {
		t.Errorf("what the caller said made %d elements", injected)
	}
	b.clicks(".transcript li:nth-child(3) button")
	b.shows("aside .proofs", "Agora reported the words that were heard.")
	b.shows("aside .spoken", heard)
	b.shows("aside .spoken del", strings.TrimSpace(unheard))
	b.accessible()
	at := value[string](b, `location.href`)
	if want := s.url + "/calls/" + id + "?m=3&in=interrupted%3Dtrue"; at != want {
		t.Errorf("the address is %s, want %s", at, want)
	}
	// The address leads back to the same view, on a phone and in the dark.
	phone := openTab(t, at, dark, chromedp.EmulateViewport(390, 844))
	phone.shows("aside .proofs", "Agora reported the words that were heard.")
	if value[bool](phone, `document.documentElement.scrollWidth > innerWidth`) {
		t.Error("the page is wider than a phone")
	}
	if value[bool](phone, `new Set([...document.querySelectorAll("header > *")].filter(e => e.offsetHeight).map(e => Math.round(e.offsetTop / 24))).size > 1`) {
		t.Error("the navigation takes more than a line on a phone")
	}
	phone.accessible()
}

// TestPageLive: a call grows on the page, and does so again after the server was killed.
func TestPageLive(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join(t, "desk", nil)
	b := openTab(t, s.url+"/calls/"+id)
	say := func(s *server, text string) {
		s.call(t, http.StatusOK, "POST", "/v1/agents/"+id+"/messages", []object{{"role": "user", "content": text}}, nil)
	}
	b.shows(".badge", "live")
	say(s, "the first words")
	b.shows(".transcript .said", "the first words")
	s.kill()
	b.shows(".badge", "reconnecting")
	again := start(t, "HEARDLOG_STORE=sqlite:"+s.store, "HEARDLOG_ADDR="+strings.TrimPrefix(s.url, "http://"))
	say(again, "after the restart")
	b.shows(".transcript .said", "after the restart")
	if said := value[int](b, `document.querySelectorAll(".transcript li").length`); said != 2 {
		t.Errorf("the page shows %d messages, want 2", said)
	}
	again.call(t, http.StatusOK, "POST", "/v1/agents/"+id+"/leave", nil, nil)
	b.waits(`!document.querySelector(".badge")`)
}

// TestPageSignIn: with credentials the pages ask for one, and keep it where no script can read it.
func TestPageSignIn(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_CREDENTIALS=acme=alice:wonderland")
	b := openTab(t, s.url+"/")
	b.shows("h1", "Sign in")
	b.accessible()
	b.types("[name=credential]", "alice:guess\n")
	b.shows("[role=alert]", "not valid")
	b.types("[name=credential]", "alice:wonderland\n")
	b.shows("header", "project acme")
	if cookies := value[string](b, `document.cookie`); cookies != "" {
		t.Errorf("scripts can read the cookie %q", cookies)
	}
	b.do(chromedp.Reload())
	b.shows("header", "project acme")
	b.clicks(".project button")
	b.shows("h1", "Sign in")
}

// TestPageWebhooks: a failed delivery is explained and sent again, and an endpoint is tested.
func TestPageWebhooks(t *testing.T) {
	t.Parallel()
	status := new(atomic.Int32)
	status.Store(http.StatusServiceUnavailable)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
		_, _ = io.WriteString(w, hostile)
	}))
	t.Cleanup(hook.Close)
	s := start(t)
	s.call(t, http.StatusCreated, "POST", "/v1/webhooks/endpoints", object{"url": hook.URL, "events": []string{"agent.*"}}, nil)
	id := s.join(t, "desk", nil)
	b := openTab(t, s.url+"/webhooks")
	b.shows(".card .url", hook.URL)
	b.shows(".card .chip", "failing")
	b.clicks(".by-call summary")
	b.clicks(".delivery")
	b.shows("aside .attempts b", "503")
	b.shows(".answer", "not delivered")
	b.shows("aside .attempts pre", hostile)
	b.shows("aside pre", id)
	b.shows("aside .attempts pre", "webhook-signature: v1,")
	b.accessible()
	status.Store(http.StatusOK)
	b.clicks("aside .actions button")
	b.shows("aside .chip", "delivered")
	b.clicks(".card .actions button")
	b.shows("aside code", "webhook.test")
	b.shows("aside .chip", "delivered")
	b.shows(".card .chip", "healthy")
	if injected := value[int](b, `document.querySelectorAll("main img, main script").length`); injected > 0 {
		t.Errorf("what the receiver answered made %d elements", injected)
	}
}

// TestPageCaller: what is known of a caller stands beside its proof, and is corrected and erased.
func TestPageCaller(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1", "HEARDLOG_LLM_MODEL=fake-1", "HEARDLOG_CREDENTIALS=acme=alice:wonderland")
	auth := []string{"Authorization", "Bearer wonderland"}
	id := s.join(t, "desk", object{"heardlog": object{"scope": object{"user_id": "anna"}}}, auth...)
	s.call(t, http.StatusOK, "POST", "/v1/agents/"+id+"/chat/completions", object{"messages": []object{{"role": "user", "content": "I am allergic to peanuts."}}}, nil, auth...)
	s.call(t, http.StatusOK, "POST", "/v1/users/anna/facts/extract", object{"agent_id": id, "answer": `[{"op":"add","kind":"profile","subject":"caller",
		"attribute":"allergy","content":"Is allergic to peanuts","speaker":"user","from_seq":1,"to_seq":1,"quote":"allergic to peanuts"}]`}, nil, auth...)
	var key struct {
		Secret string `json:"secret"`
	}
	s.call(t, http.StatusCreated, "POST", "/v1/keys", object{"name": "looker", "scopes": []string{"read"}}, &key, auth...)

	reader := openTab(t, s.url+"/callers/anna", chromedp.EmulateViewport(390, 844))
	reader.types("[name=credential]", key.Secret+"\n")
	reader.shows(".proof q", "allergic to peanuts")
	reader.accessible()
	if value[bool](reader, `document.documentElement.scrollWidth > innerWidth`) {
		t.Error("the page is wider than a phone")
	}
	if n := value[int](reader, `document.querySelectorAll("main .fact button, main form, main .consent").length`); n != 0 {
		t.Errorf("who may only read sees %d buttons and forms", n)
	}
	if nav := value[string](reader, `[...document.querySelectorAll("#pages a:not([hidden])")].map(a => a.textContent).join(" ")`); strings.Contains(nav, "Webhooks") || strings.Contains(nav, "Demo") {
		t.Errorf("who may only read is led to %q", nav)
	}

	b := openTab(t, s.url+"/callers")
	b.types("[name=credential]", "alice:wonderland\n")
	b.clicks(".list tbody th a")
	b.shows(".proof q", "allergic to peanuts")
	b.shows(".told-next", "Is allergic to peanuts")
	b.accessible()
	b.clicks(".facts [aria-expanded]")
	b.types(".facts [name=content]", "Is allergic to hazelnuts\n")
	b.shows(".fact", "hazelnuts")
	b.shows(".told-next", "hazelnuts")
	b.types("[name=confirm]", "anna\n")
	b.shows("[role=status]", "Erased: 1 call")
	s.call(t, http.StatusNotFound, "GET", "/v1/users/anna", nil, nil, auth...)
}

// TestPageOverview: the charts show a call, and lead to the calls behind a number.
func TestPageOverview(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1", "HEARDLOG_LLM_MODEL=fake-1")
	s.call(t, http.StatusOK, "POST", "/v1/agents/"+trainCall(t, s)+"/leave", nil, nil)
	b := openTab(t, s.url+"/overview?since=24h", chromedp.EmulateViewport(390, 844))
	b.shows(".figure a", "1 of ")
	b.shows(".answer", "Too few answers to compare")
	b.shows(".look", "never heard")
	b.waits(`document.querySelector("main select").classList.contains("set")`)
	b.waits(`document.querySelector(".figure path.unheard").getAttribute("d").startsWith("M")`)
	b.accessible()
	if value[bool](b, `document.documentElement.scrollWidth > innerWidth`) {
		t.Error("the page is wider than a phone")
	}
	b.do(chromedp.EmulateViewport(1440, 900))
	b.do(chromedp.Click(chromedp.CSS(".figure a[href*=interrupted]")))
	b.shows(".calls td.words", "which one?")
	b.clicks("#pages a[href='/overview']")
	b.waits(`document.querySelector("main select")?.value === "168h"`)
	if value[bool](b, `document.querySelector("main select").classList.contains("set")`) {
		t.Error("the usual time of the overview is marked as if it was chosen")
	}
}

// TestPageListReads: of a long call the list reads the newest messages alone, and shows its shape.
func TestPageListReads(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1", "HEARDLOG_LLM_MODEL=fake-1")
	id := trainCall(t, s)
	long := make([]object, 300)
	for i := range long {
		long[i] = object{"role": "user", "content": "more words"}
	}
	s.call(t, http.StatusOK, "POST", "/v1/agents/"+id+"/messages", append(long, object{"role": "user", "content": "the last words"}), nil)
	b := openTab(t, s.url+"/")
	b.shows(".calls td.words", "the last words")
	b.waits(`document.querySelector(".calls .shape .unheard")?.getBoundingClientRect().width > 0`)
	read := value[[]string](b, `performance.getEntriesByType("resource").map(e => e.name).filter(n => n.includes("/messages"))`)
	want := s.url + "/v1/agents/" + id + "/messages?after_seq="
	for _, url := range read {
		after, ok := strings.CutPrefix(url, want)
		if n, err := strconv.Atoi(after); !ok || err != nil || n < 300 {
			t.Errorf("the list reads %s", url)
		}
	}
	if len(read) == 0 {
		t.Error("the list reads no messages")
	}
}
