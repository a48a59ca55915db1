package memory_test

import (
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory"
)

func TestFirstSentenceEnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{ // want "" = none yet
		{"", ""},
		{"Hello", ""},
		{"Hello.", ""},
		{"Hello. ", "Hello."},
		{"Hello. How are you?", "Hello."},
		{"Hello! How", "Hello!"},
		{"Really?! Yes", "Really?!"},
		{"Really?", ""},
		{"Hello\n", "Hello\n"},
		{"\n\n Hello\nyou", "\n\n Hello\n"},
		{"Hello.\nyou", "Hello."},
		{"Hello, you", ""},
		{"... Hello. You", "... Hello."},
		{"Mr. Smith is here. Come", "Mr. Smith is here."},
		{"Ask Dr. Brown, e.g. now. Yes", "Ask Dr. Brown, e.g. now."},
		{"J. R. Smith came. He", "J. R. Smith came."},
		{"So am I. You?", "So am I."},
		{"It is 3.5 miles. Go", "It is 3.5 miles."},
		{"It is 3.", ""},
		{"It costs $3. Take it", "It costs $3."},
		{"See example.com now. Ok", "See example.com now."},
		{"The U.S. economy grew. So", "The U.S. economy grew."},
		{"I live in the U.S. You do", "I live in the U.S."},
		{"I live in the U.S. ", ""},
		{"Come at 9 a.m. tomorrow. Ok", "Come at 9 a.m. tomorrow."},
		{"C.. ! 0", "C.."}, // a later terminator does not overtake one that is still open
		{"C.. ! ", ""},
		{"Pens, etc. and more. Yes", "Pens, etc. and more."},
		{"No. I can't", "No."},
		{"No. 5 is free. Go", "No. 5 is free."},
		{"No. ", ""},
		{"Well... I think so", "Well..."},
		{"Well... maybe so. Yes", "Well... maybe so."},
		{"Well… maybe so! Yes", "Well… maybe so!"},
		{"1. Open the door. 2. Go", "1. Open the door."},
		{"He said “Go!” Then", "He said “Go!”"},
		{"**Done.** Next", "**Done.**"},
		{"(Yes.) No", "(Yes.)"},
		{"你好。", ""},
		{"你好。我是", "你好。"},
		{"你好！」我", "你好！」"},
		{"नमस्ते। आप", "नमस्ते।"},
		{"كيف حالك؟ انا", "كيف حالك؟"},
		{"Hi!\xe2\x80", ""}, // half of a closing quote may be coming
		{"Hi!\xe2\x80\x9d Yes", "Hi!”"},
		{"Ask z.B. Herrn Brown. Ja", "Ask z.B. Herrn Brown."},
	} {
		t.Run(tt.text, func(t *testing.T) {
			t.Parallel()
			want := len(tt.want)
			if want == 0 {
				want = -1
			}
			if got := memory.FirstSentenceEnd(tt.text); got != want {
				t.Errorf("FirstSentenceEnd(%q) = %d, want %d", tt.text, got, want)
			}
		})
	}
}

func FuzzFirstSentenceEnd(f *testing.F) {
	for _, text := range texts() {
		f.Add(text)
	}
	f.Add("Well... no. 5! Mr. X etc. and 1.\n2. p.m. \xe2\x80\x9d…")
	f.Fuzz(func(t *testing.T, text string) {
		found := -1
		for i := range min(len(text), 400) + 1 { // as it streams in, byte by byte
			got := memory.FirstSentenceEnd(text[:i])
			if got > i || got == 0 || got < -1 {
				t.Fatalf("FirstSentenceEnd(%q) = %d", text[:i], got)
			}
			if found >= 0 && got != found {
				t.Fatalf("FirstSentenceEnd(%q) = %d, was %d before the last byte", text[:i], got, found)
			}
			found = got
		}
	})
}

func TestFirstSentenceEndLong(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"a. ", "etc. ", "1.", "... ", ".", "Mr. ", "a... "} {
		long := strings.Repeat(s, memory.MaxText/len(s))
		if got := memory.FirstSentenceEnd(long); got > 5 {
			t.Errorf("%q…: %d", s, got)
		}
	}
}
