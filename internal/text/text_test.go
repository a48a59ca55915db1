package text_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
)

func TestCleanText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want, err string }{ // err: substring, "" = accepted
		{"empty", "", "", ""},
		{"plain", "Hällo 你好 🙂\n\t\x01", "Hällo 你好 🙂\n\t\x01", ""},
		{"lone byte", "a\xffb", "a\ufffdb", ""},
		{"two lone bytes", "a\xff\xfeb", "a\ufffd\ufffdb", ""},
		{"cut rune of two", "caf\xc3", "caf\ufffd", ""},
		{"cut rune of three", "\xe4\xbd", "\ufffd", ""},
		{"cut rune of four", "\xf0\x9f\x99x", "\ufffdx", ""},
		{"cut rune, then a whole one", "\xe4\xbd你", "\ufffd你", ""},
		{"stray continuation", "\x80\x80", "\ufffd\ufffd", ""},
		{"overlong", "\xc0\xaf", "\ufffd\ufffd", ""},
		{"overlong of three", "\xe0\x80\xaf", "\ufffd\ufffd\ufffd", ""},
		{"past the last rune", "\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd", ""},
		{"lone high surrogate", "a\xed\xa0\x80b", "a\ufffdb", ""},
		{"lone low surrogate", "a\xed\xb0\x80b", "a\ufffdb", ""},
		{"surrogates in the wrong order", "\xed\xb8\x80\xed\xa0\xbd", "\ufffd\ufffd", ""},
		{"surrogate pair", "\xed\xa0\xbd\xed\xb8\x80", "😀", ""},
		{"cut surrogate", "\xed\xa0", "\ufffd\ufffd", ""},
		{"last rune before the surrogates", "\ud7ff", "\ud7ff", ""},
		{"nul", "ab\x00c", "ab\ufffdc", ""},
		{"nul written overlong", "\xc0\x80", "\ufffd\ufffd", ""},
		{"longest", strings.Repeat("x", 100), strings.Repeat("x", 100), ""},
		{"too long", strings.Repeat("x", 101), "", "content: is 101 bytes long, allowed are at most 100"},
		{"too long after the repair", strings.Repeat("\xff", 40), "", "is 120 bytes long"},
		{"shorter after the repair", strings.Repeat("\xed\xa0\xbd\xed\xb8\x80", 25), strings.Repeat("😀", 25), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := text.Clean("content", tt.in, 100)
			checkInvalid(t, err, tt.err)
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestCleanTextFromJSON shows what reaches CleanText of the ways in which JSON can carry a broken
// text.
func TestCleanTextFromJSON(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want, err string }{
		{`"\ud800"`, "\ufffd", ""},
		{`"a\udc00b"`, "a\ufffdb", ""},
		{`"\ud83d\ude00"`, "😀", ""},
		{`"\ud83dx"`, "\ufffdx", ""},
		{"\"a\xffb\"", "a\ufffdb", ""},
		{`"a\u0000b"`, "a\ufffdb", ""},
	} {
		var s string
		if err := json.Unmarshal([]byte(tt.in), &s); err != nil {
			t.Fatalf("%s: %v", tt.in, err)
		}
		got, err := text.Clean("messages[0].content", s, 256<<10)
		checkInvalid(t, err, tt.err)
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.in, got, tt.want)
		}
	}
}

// TestCleanKey: a key is repaired as a text is, but for NUL, which could make two keys one.
func TestCleanKey(t *testing.T) {
	t.Parallel()
	if got, err := text.CleanKey("user", "a\xffb", 10); err != nil || got != "a\ufffdb" {
		t.Errorf("%q, %v", got, err)
	}
	_, err := text.CleanKey("user", "ab\x00c", 10)
	checkInvalid(t, err, "user: must not contain NUL (U+0000), found at byte 2")
	_, err = text.CleanKey("user", "abc", 2)
	checkInvalid(t, err, "user: is 3 bytes long")
}

func TestValidName(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, err string }{
		{"one", "a", ""},
		{"typical", "msg_01J9-a.b:c/7", ""},
		{"inner space", "order 66", ""},
		{"letters of any script", "сообщение-你好-é", ""},
		{"symbols", "<&>#€🙂", ""},
		{"longest, in characters", strings.Repeat("你", 128), ""},
		{"empty", "", "id: has 0 characters, allowed are 1 to 128"},
		{"too long", strings.Repeat("x", 128+1), "has 129 characters"},
		{"space before", " a", "must not begin or end with a space"},
		{"space after", "a ", "must not begin or end with a space"},
		{"line break", "a\nb", "U+000A at byte 1"},
		{"nul", "a\x00", "U+0000"},
		{"escape", "\x1b[2J", "U+001B"},
		{"delete", "a\x7f", "U+007F"},
		{"no-break space", "a\u00a0", "U+00A0"},
		{"direction override", "a\u202eb", "U+202E"},
		{"zero width", "a\u200bb", "U+200B"},
		{"invalid", "a\xff", "not valid UTF-8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			checkInvalid(t, text.ValidName("id", tt.in, 128), tt.err)
		})
	}
}

// checkInvalid wants fault.Invalid with the text, or no error for "".
func checkInvalid(t *testing.T, err error, text string) {
	t.Helper()
	switch {
	case text == "" && err != nil:
		t.Fatalf("error %v", err)
	case text != "" && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), text)):
		t.Fatalf("error %v (%s), want %s with %q", err, fault.CodeOf(err), fault.Invalid, text)
	}
}

func FuzzCleanText(f *testing.F) {
	for _, s := range []string{"a", "\xff", "\xed\xa0\xbd\xed\xb8\x80", "\xe4\xbd", "\xf0\x9f\x99", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := text.Clean("content", s, 1000)
		if err != nil {
			if !fault.Is(err, fault.Invalid) || got != "" {
				t.Fatalf("%q, %v", got, err)
			}
			return
		}
		if !utf8.ValidString(got) || strings.Contains(got, "\x00") || len(got) > 1000 {
			t.Fatalf("CleanText(%q) = %q", s, got)
		}
		if utf8.ValidString(s) && !strings.Contains(s, "\x00") && got != s {
			t.Fatalf("valid %q became %q", s, got)
		}
		if again, err := text.Clean("content", got, 1000); err != nil || again != got {
			t.Fatalf("again: %q, %v", again, err)
		}
	})
}
