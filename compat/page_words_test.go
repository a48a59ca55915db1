package compat_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// spoken reports of the newest answer, heard+unheard, when its words were spoken, and that the
// caller interrupted it after heard, as Vapi does.
func (s *server) spoken(t *testing.T, id string) {
	t.Helper()
	var list struct {
		Messages []struct{ Timestamp int64 }
	}
	s.call(t, http.StatusOK, "GET", "/v1/agents/"+id+"/messages", nil, &list)
	at := list.Messages[len(list.Messages)-1].Timestamp + 100
	words := strings.Fields(heard + unheard)[:10]
	ends := make([]int, len(words))
	for i := range ends {
		ends[i] = 300 * (i + 1)
	}
	event := func(o object) {
		s.call(t, http.StatusOK, "POST", "/v1/agents/"+id+"/evidence/vapi", object{"message": o}, nil)
	}
	event(object{"type": "assistant.speechStarted", "timestamp": at, "text": heard + unheard, "timing": object{"type": "word-alignment", "words": words, "wordsEndTimesMs": ends}})
	event(object{"type": "user-interrupted", "timestamp": at + 300*int64(len(strings.Fields(heard))) + 50})
}

// TestPageWords: words whose times a platform has reported stand on the axis at these times, and
// the pages show what the answers cost.
func TestPageWords(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1", "HEARDLOG_LLM_MODEL=fake-1", "HEARDLOG_LLM_PRICES=fake-1=2.5:10000")
	id := s.join(t, "desk", nil)
	s.ask(t, id, question, object{"answer": heard + unheard})
	s.spoken(t, id)
	s.ask(t, id, "Wait, which one?", object{"answer": "The nine o'clock to Lund."})

	b := openTab(t, s.url+"/calls/"+id+"?m=2")
	b.shows("aside .proofs", "The platform reported when each word was played. The last ended at 0:")
	b.shows("aside dd", "unheard")
	b.shows(".stats dd", "unheard")
	for value[bool](b, `!document.querySelector("[aria-label='Zoom in']").disabled`) {
		b.clicks("[aria-label='Zoom in']")
	}
	b.shows(".timeline .word", "platform")
	const place = `(() => {
		const at = [...document.querySelectorAll(".word")].map(e => e.getBoundingClientRect().left), even = at.slice(1).map((x, i) => x - at[i]);
		return at.length === 8 && Math.max(...even) - Math.min(...even) < 1;
	})()`
	if !value[bool](b, place) {
		t.Errorf("the words do not stand where they were spoken: %s", value[string](b, `document.querySelector(".timeline").outerHTML`))
	}
	if covered := value[[]string](b, coveredBars); len(covered) > 0 {
		t.Errorf("on the axis these bars are covered: %q: %s", covered, value[string](b, `[...document.querySelectorAll(".lane.agent .bar")].map(e => e.className + " " + e.style.cssText).join(" / ")`))
	}
	b.accessible()
	b.do(chromedp.Navigate(s.url + "/"))
	b.clicks("main .end button")
	b.shows(".calls thead th", "Cost")
	b.shows(".calls td small", "unheard")
	b.accessible()
	b.do(chromedp.Navigate(s.url + "/overview"))
	b.shows(".answer", "No call has ended")
	b.accessible()
}

// TestPageScripts: texts that are written from the right, and those without spaces, are drawn in
// their direction and fit their place, on a phone and on a desk.
func TestPageScripts(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1", "HEARDLOG_LLM_MODEL=fake-1")
	id := s.join(t, "مكتب-١", object{"channel": "c", "labels": object{"城市": "北京"}, "heardlog": object{"scope": object{"user_id": "田中"}}})
	const arabic, chinese = "يغادر القطار في الساعة التاسعة من الرصيف رقم 2.", "好的，已经为您预订了靠窗的座位，十二号车厢。"
	s.ask(t, id, "متى يغادر القطار؟", object{"answer": arabic + " هل أحجز لك مقعداً؟"})
	s.call(t, http.StatusOK, "POST", "/v1/agents/"+id+"/interrupt", object{"heard": arabic}, nil)
	s.ask(t, id, "我想要靠窗的座位", object{"answer": chinese + strings.Repeat("还需要别的吗？", 3)})
	s.call(t, http.StatusOK, "POST", "/v1/agents/"+id+"/interrupt", object{"heard": chinese}, nil)
	for name, setup := range map[string][]step{"desk": nil, "phone": {chromedp.EmulateViewport(390, 844)}} {
		b := openTab(t, s.url+"/calls/"+id+"?m=2", setup...)
		b.shows("aside", "The model was told next")
		b.shows(".transcript del", "هل أحجز")
		b.shows(".transcript del", "还需要别的吗")
		directions := value[string](b, `[...document.querySelectorAll(".transcript .text")].map(e => getComputedStyle(e).direction).join(" ")`)
		if directions != "rtl rtl ltr ltr" {
			t.Errorf("%s: the directions are %s", name, directions)
		}
		if value[bool](b, `[...document.querySelectorAll(".transcript .chips")].some(e => getComputedStyle(e).direction !== "ltr")`) {
			t.Errorf("%s: English words beside Arabic ones are written from the right", name)
		}
		if covered := value[[]string](b, coveredBars); len(covered) > 0 {
			t.Errorf("%s: on the axis these bars are covered: %q", name, covered)
		}
		b.accessible()
		b.do(chromedp.Navigate(s.url + "/"))
		b.shows(".calls td.words", chinese)
		b.accessible()
		if value[bool](b, `document.documentElement.scrollWidth > innerWidth`) {
			t.Errorf("%s: the list is wider than the window", name)
		}
	}
}
