package compat_test

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/png"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestPageDemo: a stranger asks, cuts in, asks what was said, hangs up and calls again. The left
// model believes what was not heard, the right one does not.
func TestPageDemo(t *testing.T) {
	t.Parallel()
	hooks := receiver(t)
	s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t, "-delay-chunk", "20ms")+"/v1", "HEARDLOG_LLM_MODEL=fake-1",
		"HEARDLOG_WEBHOOK_URL="+hooks, "HEARDLOG_WEBHOOK_SECRET=demo-secret")
	s.call(t, http.StatusCreated, "POST", "/v1/webhooks/endpoints", object{"url": hooks, "secret": "demo-secret", "events": []string{"agent.interrupted"}}, nil)
	b := openTab(t, s.url+"/demo", chromedp.EmulateViewport(1240, 900))
	b.types("[name=text]", "Can I change my booking?\n")
	film := &film{tab: b}
	for !value[bool](b, `parseInt(document.querySelector(".strip [role=status]")?.textContent.match(/\d+/)) >= 13`) {
		film.add(25)
	}
	b.clicks(".barge")
	b.shows(".direct .told tr.wrong mark", "then it is free.")
	b.shows(".heardlog .told h3", "is told next")
	heard := value[string](b, `document.querySelector(".heardlog .told tr.right td").textContent`)
	if !strings.HasPrefix("You can change it until six. There is a fee of twenty-five euros unless", heard) || len(heard) < 50 {
		t.Errorf("the right model is told %q", heard)
	}
	b.shows(".hooks tr", "Caller cut in: what was heard")
	b.shows(".hooks pre", `"heard": "`+heard)

	film.add(250)
	b.types("[name=text]", "What did you tell me about a fee?\n")
	b.shows(".direct .asked", "I told you: “You can change it until six.")
	b.shows(".direct .asked", "then it is free.”")
	b.shows(".heardlog .asked", "You stopped me after “There is a fee")
	b.shows(".direct .verdict", "words that you never heard")
	b.shows(".heardlog .verdict", "ends where you cut in")
	b.accessible()
	b.picture("demo.png")
	film.add(500)

	b.clicks(".say button:last-child") // hang up
	b.shows(".hooks .chip", "4 signed and delivered")
	b.shows(".hooks pre", `"contents"`)
	film.add(300)
	b.clicks(".say button")
	b.shows(".heardlog .asked", "That was in your last call. You stopped me after “There is a fee")
	b.shows(".direct .asked", "I have told you nothing yet.")
	b.shows(".heardlog .verdict", "what you heard in your last call")
	film.add(500)
	film.write("demo.gif")
	// It can be started again while it speaks.
	b.types("[name=text]", "And before noon?\n")
	b.shows(".heardlog", "Before noon the change is free.")
	b.clicks(".demo-head .actions button:last-child")
	b.waits(`!document.querySelector(".strip, [role=alert]")`)
	b.types("[name=text]", "Can I change my booking?\n")
	b.shows(".heardlog", "then it is free.")
	b.waits(`!document.querySelector("[role=alert]")`)
	if wide := value[bool](b, `document.documentElement.scrollWidth > innerWidth`); wide {
		t.Error("the page is wider than the window")
	}
}

// film collects pictures of a page, if PICTURES names a folder for them.
type film struct {
	tab  *tab
	gif  gif.GIF
	last []byte
}

// add takes a picture that is shown for so many hundredths of a second.
func (f *film) add(hundredths int) {
	if os.Getenv("PICTURES") == "" {
		return
	}
	f.tab.t.Helper()
	shot, err := chromedp.Run(f.tab.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		f.tab.t.Fatal(err)
	}
	if bytes.Equal(shot, f.last) {
		f.gif.Delay[len(f.gif.Delay)-1] += hundredths
		return
	}
	drawn, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		f.tab.t.Fatal(err)
	}
	f.last = shot
	f.gif.Image, f.gif.Delay = append(f.gif.Image, inPalette(drawn)), append(f.gif.Delay, hundredths)
}

// inPalette returns a picture in its 256 most frequent colours.
func inPalette(m image.Image) *image.Paletted {
	count := map[color.Color]int{}
	for y := range m.Bounds().Dy() {
		for x := range m.Bounds().Dx() {
			count[m.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return cmp.Compare(count[b], count[a]) })
	out := image.NewPaletted(m.Bounds(), colours[:min(256, len(colours))])
	draw.Draw(out, m.Bounds(), m, image.Point{}, draw.Src)
	return out
}

// write writes the film.
func (f *film) write(name string) {
	if len(f.gif.Image) == 0 {
		return
	}
	f.tab.t.Helper()
	var out bytes.Buffer
	if err := gif.EncodeAll(&out, &f.gif); err != nil {
		f.tab.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(os.Getenv("PICTURES"), name), out.Bytes(), 0o644); err != nil {
		f.tab.t.Fatal(err)
	}
}

// receiver runs the example of a webhook receiver, which verifies signatures, and returns its URL.
func receiver(t testing.TB) string {
	t.Helper()
	p := run(t, program(t, "receiver"), []string{"-addr", "127.0.0.1:0", "-secret", "demo-secret"})
	line, ok := p.stdout.find(func(l string) bool { return strings.HasPrefix(l, "http://") })
	if !ok {
		t.Fatalf("the receiver does not say where it listens:\n%s", p.stderr)
	}
	return strings.TrimSpace(line)
}
