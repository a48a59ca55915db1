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
