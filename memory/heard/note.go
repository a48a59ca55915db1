package heard

import (
	"strings"
	"unicode/utf8"
)

// maxNote is the maximum length of a note at the end of a text, in bytes.
const maxNote = 80

// WithoutNote returns a text without the note that a platform put at its end to say that the answer
// was cut: "[interrupted]", "(cut off)", "*interrupted by user*". A text without one is returned as
// it is.
func WithoutNote(text string) string {
	bare := strings.TrimRightFunc(text, func(r rune) bool {
		_, _, kind := foldRune(r)
		return (kind == kindGap || kind == kindIgnore) && !strings.ContainsRune(")]}>*_）】", r)
	})
	last, size := utf8.DecodeLastRuneInString(bare)
	from := max(0, len(bare)-maxNote)
	at := -1
	switch last {
	case ')', ']', '}', '>', '）', '】':
		open := map[rune]string{')': "(", ']': "[", '}': "{", '>': "<", '）': "（", '】': "【"}[last]
		at = strings.LastIndex(bare[from:], open)
	case '*', '_':
		inner := strings.TrimRight(bare, "*_")
		at = strings.LastIndexByte(inner[min(from, len(inner)):], byte(last))
		size = len(bare) - len(inner)
	}
	if at < 0 || !saysCut(bare[from+at:len(bare)-size]) {
		return text
	}
	return strings.TrimRight(bare[:from+at], " \t\n*_-–—")
}

// saysCut reports whether a note states that speech was cut.
func saysCut(note string) bool {
	note = strings.ToLower(note)
	for _, stem := range [...]string{
		"interrupt", "cut off", "cut-off", "cutoff", "cut short", "truncat", "barge", "stopped", "hung up", "unfinished", "incomplete",
		"unterbroch", "abgebroch", "abgeschnitten", "interromp", "coupé", "interrump", "cortad", "interrott", "onderbrok", "afgebrok",
		"przerwan", "прерван", "перебит", "kesildi", "kesinti", "बाधित", "टोका", "रोका", "打断", "打斷", "中断", "中斷", "遮ら", "割り込み", "중단", "끊", "مقاطع", "قاطع",
	} {
		if strings.Contains(note, stem) {
			return true
		}
	}
	return false
}
