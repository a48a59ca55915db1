package heard_test

import (
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory/heard"
)

func TestNormalize(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"no words", " ... ", "..."},
		{"case and punctuation", "Well, YES: of course!", "well yes of course"},
		{"apostrophes", "Don't, don’t and 'don't'", "dont dont and dont"},
		{"accents", "Café au lait", "cafe au lait"},
		{"markup", "**Hi** <break/> [you](https://example.com) 🍕", "hi you"},
		{"symbols", "5 % & more", "5 more"},
		{"numbers", "21st of 1,000, at 9:30 or 3.5", "21 st of 1000 at 9 30 or 3 5"},
		{"no spaces", "你好 abc", "你 好 abc"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := heard.Normalize(tt.text); got != tt.want {
				t.Errorf("Normalize(%q) = %q, want %q", tt.text, got, tt.want)
			}
		})
	}
}

// FuzzNormalize checks that the short cut for plain prose and the scanner agree. The emoji makes
// the second text take the long way.
func FuzzNormalize(f *testing.F) {
	for _, text := range texts() {
		f.Add(text)
	}
	f.Add("It's 1,000 o'clock, 'isn't it'? 21st. A.b 3.5 http www. 1. one\n2. two")
	f.Add("a'1 1'a 'a a' ' 0'0")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.TrimSpace(text) == "" {
			return
		}
		got, long := heard.Normalize(text), heard.Normalize(text+" 🙂")
		if got != long && got != strings.TrimSpace(text) {
			t.Errorf("Normalize(%q) = %q; the long way: %q", text, got, long)
		}
	})
}

func BenchmarkNormalize(b *testing.B) {
	plain := strings.Repeat("Sure, I can help you with that today. ", 6)
	for name, text := range map[string]string{"plain": plain, "scanned": plain + "🙂"} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				heard.Normalize(text)
			}
		})
	}
}
