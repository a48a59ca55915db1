package compat_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// spokenCall stores a call of 40 s with what goes wrong in calls: an answer that the caller cut, a
// silence, a tool that gives no result. It returns when it began.
func spokenCall(t *testing.T, s *server, id string) {
	t.Helper()
	start := time.Now().Add(-time.Minute).UnixMilli()
	at := func(second float64) int64 { return start + int64(1000*second) }
	s.call(t, http.StatusOK, "POST", "/v1/agents/"+id+"/messages", object{"messages": []object{
		{"role": "assistant", "content": "Central station, how can I help?", "timestamp": at(1)},
		{"role": "user", "content": "Can I change my booking?", "timestamp": at(6)},
		{"role": "assistant", "content": "You can change it until six.", "timestamp": at(7), "metadata": object{
			"interrupted": true, "interrupt_timestamp": at(10), "original": "You can change it until six. There is a fee of twenty-five euros unless you travel before noon."}},
		{"role": "user", "content": "Wait. What about tonight?", "timestamp": at(12)},
		{"role": "assistant", "content": "", "timestamp": at(13), "tool_calls": []object{{"id": "c1", "type": "function", "function": object{"name": "look_up_seats", "arguments": `{"date":"tonight"}`}}}},
		{"role": "assistant", "content": "Tonight there are three seats left.", "timestamp": at(17)},
		{"role": "user", "content": "Thanks, bye.", "timestamp": at(25)},
	}}, nil)
}

// TestPageAxis: words that were not heard take no time, nothing is drawn after the end, silence and
// tools have their place, and the playhead walks through the transcript.
func TestPageAxis(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join(t, "desk", nil)
	spokenCall(t, s, id)
	s.call(t, http.StatusOK, "POST", "/v1/agents/"+id+"/leave", nil, nil)
	b := openTab(t, s.url+"/calls/"+id)
	b.shows(".timeline .silence", "5.0 s silence")
	b.shows(".timeline .tool", "look_up_seats no result")
	b.shows(".timeline .bar.unheard", "12 words")
	const width = `document.querySelector(".timeline .bar.unheard").getBoundingClientRect().width`
	before := value[float64](b, width)
	b.clicks("[aria-label='Zoom in']")
	b.waits(`document.querySelector(".axis .clock").textContent.length > 0 && document.querySelectorAll(".ticks span").length > 2`)
	if after := value[float64](b, width); after != before {
		t.Errorf("the words that took no time are %v pixels wide, and %v after zooming in", before, after)
	}
	const after = `(() => {
		const end = document.querySelector(".map > div").getBoundingClientRect().right + 1;
		return [...document.querySelectorAll(".map > div i")].filter(e => e.getBoundingClientRect().right > end + 10).length;
	})()`
	if n := value[int](b, after); n > 0 {
		t.Errorf("%d parts of the map stand after the end", n)
	}
	if covered := value[[]string](b, coveredBars); len(covered) > 0 {
		t.Errorf("on the axis these bars are covered: %q", covered)
	}
	b.do(chromedp.KeyEvent("n"))
	b.waits(`document.querySelector(".transcript .on del")`)
	b.do(chromedp.KeyEvent("n"))
	b.waits(`document.querySelector(".transcript .on").textContent.includes("three seats")`)
	b.do(chromedp.Evaluate[chromedp.Void](`document.activeElement.blur()`), chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent(" "))
	b.waits(`document.querySelector(".transcript .now") && parseFloat(document.getElementById("at").textContent.slice(2)) > 1.2`)
	b.do(chromedp.KeyEvent(" "))
	b.waits(`new URLSearchParams(location.search).get("t") > 1`)
	b.accessible()
	// The address leads back to the same time.
	at := value[string](b, `document.getElementById("at").textContent`)
	b.do(chromedp.Reload())
	b.waits(`document.getElementById("at")?.textContent === ` + quote(at))
}

// TestPageFigures: the list and the call show the same figures for every call of a varied set, and
// what is not known is unknown, not 0 %.
func TestPageFigures(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1", "HEARDLOG_LLM_MODEL=fake-1", "HEARDLOG_LLM_PRICES=fake-1=2.5:10")
	trainCall(t, s)
	spokenCall(t, s, s.join(t, "spoken", nil))
	s.ask(t, s.join(t, "heard", nil), question, nil)
	failed := s.join(t, "failed", nil)
	s.call(t, http.StatusServiceUnavailable, "POST", "/v1/agents/"+failed+"/chat/completions", object{"messages": []object{{"role": "user", "content": "Hello?"}}, "fake": object{"status": 503}}, nil)
	s.join(t, "silent", nil)
	if code := run(t, program(t, "api"), []string{"simulate", "-server", s.url, "all"}).wait(t); code != 0 {
		t.Fatalf("simulate ends with %d", code)
	}
	b := openTab(t, s.url+"/")
	b.waits(`document.querySelectorAll("[data-id]").length > 20`)
	const row = `[...document.querySelectorAll("[data-id]")].map(r => [r.dataset.id, r.querySelector(".cut").innerText, r.querySelector(".gone").innerText, r.querySelector(".first").innerText].join("|").replace(/\s+/g, " "))`
	rows := value[[]string](b, row)
	unknown := 0
	for _, r := range rows {
		id, shown, _ := strings.Cut(r, "|")
		if strings.Contains(shown, "unknown") {
			unknown++
		}
		b.do(chromedp.Navigate(s.url + "/calls/" + id))
		b.waits(`document.querySelector(".stats")`)
		call := value[string](b, `["cut off by the caller", "never heard", "to first word"].map(name => [...document.querySelectorAll(".stats div")].find(d => d.innerText.includes(name)).querySelector("dd").innerText).join("|").replace(/\s+/g, " ")`)
		if got, want := strings.ReplaceAll(call, "|–", "|– no first word"), strings.ReplaceAll(shown, " |", "|"); got != want {
			t.Errorf("call %s: the list shows %q, the call %q", id, want, got)
		}
	}
	if len(rows) < 20 || unknown == 0 {
		t.Errorf("%d calls, of which %d have a share that is not known", len(rows), unknown)
	}
	// The line above the list says it of all calls that have ended, with the figures of the report.
	var report struct {
		Totals struct{ Calls, Answers, Interruptions int }
		Pend   int `json:"pending_calls"`
	}
	eventually(t, "all ended calls are in the report", func() bool {
		s.call(t, http.StatusOK, "GET", "/v1/reports?since=168h&interval=hour", nil, &report)
		return report.Totals.Calls > 15 && report.Pend == 0
	})
	b.do(chromedp.Navigate(s.url + "/"))
	b.shows("main > .answer", fmt.Sprintf("In %d calls of the last 7 days, ", report.Totals.Calls))
	b.shows("main > .answer", fmt.Sprintf("the caller cut in on %d of %d answers.", report.Totals.Interruptions, report.Totals.Answers))
	b.clicks("main > .answer a[href*=interrupted]")
	b.waits(`new URLSearchParams(location.search).get("interrupted") === "true" && document.querySelector("[data-id]")`)
}

// TestPageAddress: filters, views and the keyboard are in the address, back undoes one choice, and
// what finds nothing offers to take away what was asked for.
func TestPageAddress(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.join(t, "first", object{"channel": "c", "labels": object{"campaign": "spring"}})
	s.join(t, "second", nil)
	b := openTab(t, s.url+"/")
	rows := func(n string) { b.t.Helper(); b.waits(`document.querySelectorAll("[data-id]").length === ` + n) }
	rows("2")
	b.do(chromedp.KeyEvent("f"))
	b.waits(`document.querySelector("#filters:popover-open")`)
	b.types("#filters [aria-label=label]", "campaign=spring\n")
	b.waits(`location.search === "?label=campaign%3Dspring"`)
	rows("1")
	b.shows(".token", "campaign = spring")
	b.do(chromedp.Reload())
	rows("1")
	b.do(chromedp.Evaluate[chromedp.Void](`history.back()`))
	rows("2")
	b.do(chromedp.KeyEvent("j"), chromedp.KeyEvent("j"))
	b.waits(`document.querySelectorAll("[data-id]")[1].classList.contains("on")`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.shows("h1", "first")
	b.shows(".step", "Newer")
	b.do(chromedp.KeyEvent("k"))
	b.shows("h1", "second")
	b.do(chromedp.KeyEvent(kb.Escape))
	rows("2")
	b.do(chromedp.KeyEvent("6")) // the model failed
	b.waits(`location.search === "?failed=true"`)
	b.shows("main", "No call fits.")
	b.clicks(".empty button")
	rows("2")
	b.do(chromedp.KeyEvent("?"))
	b.shows("dialog", "next call")
	b.do(chromedp.KeyEvent(kb.Escape))
	b.types(".jump input", "overview\n")
	b.shows("h1", "Overview")
	b.do(chromedp.Navigate(s.url + "/calls/none"))
	b.shows("main", "There is no such call.")
	b.accessible()
}

// TestPageEmpty: a server without a call says what to do, and what it says works without an LLM.
func TestPageEmpty(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := openTab(t, s.url+"/")
	b.shows(".empty", "No call yet")
	b.shows(".empty", "This server has no LLM yet")
	b.accessible()
	for path, text := range map[string]string{"/overview": "No call has ended", "/callers": "No caller is known yet", "/webhooks": "There is no endpoint yet"} {
		b.do(chromedp.Navigate(s.url + path))
		b.shows("main", text)
		b.accessible()
	}
}

// TestPageColours: the colours of texts stand out from what is behind them by 4.5 to 1, those of
// marks and of the borders of fields by 3 to 1, in light and dark.
func TestPageColours(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, setup := range map[string][]step{"light": nil, "dark": {dark}} {
		b := openTab(t, s.url+"/", setup...)
		b.waits(`document.querySelector("main h1, main .empty")`)
		for _, c := range []struct {
			on, behind string
			least      float64
		}{
			{"ink", "page", 4.5}, {"second", "page", 4.5}, {"third", "page", 4.5}, {"third", "soft", 4.5}, {"third", "focus-fill", 4.5}, {"heard", "heard-fill", 4.5}, {"caller", "caller-fill", 4.5},
			{"lost", "lost-fill", 4.5}, {"lost", "focus-fill", 4.5}, {"lost", "page", 4.5}, {"amber", "amber-fill", 4.5}, {"amber", "page", 4.5}, {"ink", "heard-fill", 4.5}, {"ink", "lost-fill", 4.5}, {"focus", "page", 4.5},
			{"heard-mark", "card", 3}, {"caller-mark", "card", 3}, {"lost-mark", "card", 3}, {"field", "card", 3}, {"field", "page", 2.9},
		} {
			ratio := value[float64](b, `(() => {
				const light = name => {
					const e = document.body.appendChild(document.createElement("i"));
					e.style.color = "var(--" + name + ")";
					const [r, g, b] = getComputedStyle(e).color.match(/[\d.]+/g).map(c => c / 255).map(c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
					e.remove();
					return .2126 * r + .7152 * g + .0722 * b;
				}, [a, z] = [light(`+quote(c.on)+`), light(`+quote(c.behind)+`)].sort((a, b) => b - a);
				return (a + .05) / (z + .05);
			})()`)
			if ratio < c.least {
				t.Errorf("%s: %s on %s stands out by %.2f, want %v", name, c.on, c.behind, ratio, c.least)
			}
		}
	}
}
