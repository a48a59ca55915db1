package heard_test

import (
	"math"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory/heard"
)

func TestEstimate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, generated string
		ms              int64
		want            string
	}{
		{"nothing", "Hello there.", 0, ""},
		{"negative", "Hello there.", -1, ""},
		{"less than a word", "Hello there.", 500, ""},
		{"two syllables are 522 ms", "Hello there.", 523, "Hello"},
		{"three syllables are 783 ms", "Hello there.", 784, "Hello there."},
		{"no text", "", 1000, ""},
		{"as long as it can be", "Hello there.", math.MaxInt64, "Hello there."},
		{"a second", "one two three four five six", 1000, "one two three"},
		{"silent e", "take the lake there now", 1000, "take the lake"},
		{"table has two", "table talk", 600, "table"},
		{"spelled out", "HTTP is old", 1200, "HTTP"},
		{"number", "21 is old enough", 800, "21"},
		{"money", "$5 is fine by me", 800, "$5"},
		{"chinese", "你好我是你的助手", 1000, "你好我"},
		{"korean", "안녕하세요 여러분", 1400, "안녕하세요"},
		{"russian", "Привет мой друг", 600, "Привет"},
		{"markup takes no time", "**Hello** <break time=\"1s\"/> there you", 784, "**Hello** <break time=\"1s\"/> there"},
		{"directions take no time", "[laughs] Hello there", 523, "[laughs] Hello"},
		{"invalid", "Hello\xff there", 523, "Hello"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := heard.Estimate(tt.generated, tt.ms); got != tt.want {
				t.Errorf("Estimate(%q, %d) = %q, want %q", tt.generated, tt.ms, got, tt.want)
			}
		})
	}
}

// TestEstimateGrows: more time never gives less text, every estimate can be aligned, and enough
// time gives it all.
func TestEstimateGrows(t *testing.T) {
	t.Parallel()
	for _, text := range texts() {
		last := ""
		for ms := int64(0); ms < 60_000; ms += 130 {
			got := heard.Estimate(text, ms)
			if !strings.HasPrefix(got, last) {
				t.Fatalf("%d ms: %q, before it %q", ms, got, last)
			}
			if aligned, ok := heard.Align(text, got); !ok || aligned != got {
				t.Fatalf("%q aligns as %q, %v", got, aligned, ok)
			}
			last = got
		}
		if last != text {
			t.Errorf("a minute of %q gives %q", text, last)
		}
	}
}

func FuzzEstimate(f *testing.F) {
	for _, text := range texts() {
		f.Add(text, int64(2000))
	}
	f.Add("0123 $4.50 12345678901234567890 ½ ^ . -3 #4", int64(5000))
	f.Fuzz(func(t *testing.T, text string, ms int64) {
		if got := heard.Estimate(text, ms); !strings.HasPrefix(text, got) {
			t.Fatalf("%q is no prefix of %q", got, text)
		}
	})
}

// TestVoice estimates with a known language, with a guessed one, and at a measured rate.
func TestVoice(t *testing.T) {
	t.Parallel()
	const (
		english  = "We can help you with that on Monday morning if you like."
		spanish  = "Podemos ayudarle con eso el lunes por la mañana si usted quiere."
		german   = "Wir können Ihnen am Montag dabei helfen, wenn Sie das möchten."
		japanese = "月曜日の午前中にお手伝いできます。"
	)
	for _, tt := range []struct {
		name, text string
		voice      heard.Voice
		ms         int64
		want       string
	}{
		{"english", english, heard.Voice{}, 2000, "We can help you with that on"},
		{"the same, slower", english, heard.Voice{Rate: 2}, 2000, "We can help you"},
		{"the same, faster", english, heard.Voice{Rate: 6}, 2000, "We can help you with that on Monday morning if"},
		{"no rate of a voice", english, heard.Voice{Rate: 1000}, 2000, "We can help you with that on"},
		{"spanish is faster", spanish, heard.Voice{}, 2000, "Podemos ayudarle con eso"},
		{"said to be spanish", spanish, heard.Voice{Language: "es-MX"}, 2000, "Podemos ayudarle con eso"},
		{"german", german, heard.Voice{}, 2000, "Wir können Ihnen am"},
		{"japanese", japanese, heard.Voice{}, 2000, "月曜日の午"},
		{"said to be japanese", "午前中", heard.Voice{Language: "ja"}, 1000, "午前"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := tt.voice.Estimate(tt.text, tt.ms); got != tt.want {
				t.Errorf("%+v.Estimate(%q, %d) = %q, want %q", tt.voice, tt.text, tt.ms, got, tt.want)
			}
		})
	}
}

// TestMeasure: at the rate that was measured on a text, its time gives all of it, and half the time
// about half.
func TestMeasure(t *testing.T) {
	t.Parallel()
	for _, text := range texts() {
		for _, ms := range []int64{4000, 7000, 12000} {
			rate := heard.Voice{}.Measure(text, ms)
			if rate == 0 {
				continue
			}
			v := heard.Voice{Rate: rate}
			if got := v.Estimate(text, ms+1); got != text {
				t.Errorf("%d ms at %.2f: %q of %q", ms, rate, got, text)
			}
			if half := v.Measure(v.Estimate(text, ms/2), ms/2); half < 0.6*rate || half > rate {
				t.Errorf("half of %d ms at %.2f has %.2f: %q", ms, rate, half, v.Estimate(text, ms/2))
			}
		}
	}
	for _, tt := range []struct {
		text string
		ms   int64
	}{{"", 2000}, {"Hello.", 2000}, {"Hello there, my old friend.", 900}, {"Hello there, my old friend.", 60_000}, {strings.Repeat("Hello there. ", 99), 2000}} {
		if rate := (heard.Voice{}).Measure(tt.text, tt.ms); rate != 0 {
			t.Errorf("Measure(%.20q, %d) = %v", tt.text, tt.ms, rate)
		}
	}
}
