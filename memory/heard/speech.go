package heard

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Marks on the bytes of a speech.
const (
	markWord   uint8 = 1 << iota // a word begins here
	markDigits                   // a run of digits begins here
	markSymbol                   // a symbol begins here that may be spoken or not
	// With markSymbol: it is one only because of what follows it, so no cut ends with it.
	markContext
	markSkip    // an optional stretch begins here
	markReading // the word beginning here has other readings
	markRune    // a rune of the source begins here

	markChoice = markDigits | markSymbol | markSkip | markReading
)

// speech is a text in the form in which it is compared: folded letters and digits, and the few
// symbols that are spoken, with nothing between. White space and punctuation are removed, so that
// "e-mail", "e mail" and "email" are equal. Words are marks on the bytes.
type speech struct {
	src  string
	text string
	// start and end are, for each byte of text, where its rune starts and ends in src. end is -1 on
	// all but the rune's last byte.
	start, end []int32
	marks      []uint8 // one more than text has bytes; the last is markWord
	skips      []skipStretch
	words      int  // words, symbols not counted
	choices    bool // some byte has one of markChoice

	sure  bool               // whether the language of the text is known, and how it counts
	langs []*language        // whose readings the choices have; set by read
	kept  map[int32][]choice // the choices at places, once made
	said  int                // bytes of these choices
}

// skipStretch is a stretch of text that a voice may leave out: code blocks, [stage directions],
// list numbers.
type skipStretch struct{ from, to int32 }

// How far ahead the end of a construct is searched, in bytes. Anything longer is text.
const (
	maxTag       = 512
	maxLinkURL   = 2048
	maxDirection = 48
)

// speechScanner builds a speech.
type speechScanner struct {
	speech

	i         int      // where we are in src
	buf       []byte   // text so far
	last      runeKind // kind of the last rune, kindGap if a word cannot go on
	lastRune  rune     // last rune put
	lastAt    int32    // where its bytes begin in buf
	prev      rune     // last source rune, kept or not
	lineStart bool     // only white space since the line began
	bracket   int      // index of the latest '[' of this line, -1 = none
	dirFrom   int32    // where the open stage direction begins in buf
	dirEnd    int      // index of its ']', -1 = none open
	fenceFrom int32    // where the open code block begins in buf, -1 = none open
}

// newSpeech folds a text; it takes time and memory in proportion to its length.
func newSpeech(src string) *speech {
	n := len(src) + len(src)/8
	s := &speechScanner{
		speech:    speech{src: src, start: make([]int32, 0, n), end: make([]int32, 0, n), marks: make([]uint8, 0, n+1)},
		buf:       make([]byte, 0, n),
		lineStart: true, bracket: -1, dirEnd: -1, fenceFrom: -1,
	}
	for s.i < len(src) {
		s.next()
	}
	s.text = string(s.buf)
	s.marks = append(s.marks, markWord)
	slices.SortStableFunc(s.skips, func(a, b skipStretch) int { return int(a.from) - int(b.from) })
	for _, k := range s.skips {
		s.marks[k.from] |= markSkip
	}
	return &s.speech
}

// next takes one rune, or one construct that is not spoken.
func (s *speechScanner) next() {
	c := s.src[s.i]
	if n := s.markup(c); n > 0 {
		s.i += n
		s.last, s.prev, s.lineStart = kindGap, 0, false
		return
	}
	r, size := rune(c), 1
	if c >= utf8.RuneSelf {
		r, size = utf8.DecodeRuneInString(s.src[s.i:])
	}
	a, b, kind := foldRune(r)
	at, to := s.i, s.i+size
	s.i = to
	if n := len(s.buf); n > 0 && r >= 0x1100 && s.last != kindGap {
		if joined, ok := composeRunes(s.lastRune, r); ok {
			from := s.start[s.lastAt]
			s.truncate(s.lastAt)
			s.put(joined, from, int32(to))
			s.prev = r
			return
		}
	}
	switch kind {
	case kindIgnore:
		if n := len(s.end); n > 0 && s.last != kindGap {
			s.end[n-1] = int32(to) // an accent goes with its letter
		}
		return
	case kindGap:
		s.gap(r, at, to)
	case kindSymbol:
		if r != s.prev {
			s.symbol(a, at, to, 0)
		}
	case kindDigit:
		if s.last != kindDigit {
			s.mark(markWord | markDigits)
			s.words++
		}
		s.put(a, int32(at), int32(to))
	case kindAlone:
		s.mark(markWord)
		s.words++
		s.put(a, int32(at), int32(to))
	case kindMark:
		kind = s.last
		if kind == kindGap || kind == kindSymbol { // it has no letter to belong to
			s.mark(markWord)
			kind = kindLetter
		}
		s.put(a, int32(at), int32(to))
	case kindLetter:
		if s.last != kindLetter {
			s.mark(markWord)
			s.words++
		}
		s.put(a, int32(at), int32(to))
		if b != 0 {
			s.end[len(s.end)-1] = -1
			s.put(b, int32(at), int32(to))
			s.marks[len(s.buf)-1] &^= markRune
		}
	}
	s.prev = r
	if kind != kindGap {
		s.last, s.lineStart = kind, false
	}
}

// gap handles a rune that is not compared, unless its neighbours make it a symbol.
func (s *speechScanner) gap(r rune, at, to int) {
	s.prev = r
	switch r {
	case '\n', '\r':
		s.lineStart, s.bracket, s.last = true, -1, kindGap
		return
	case ' ', '\t':
		s.last = kindGap
		return
	}
	defer func() { s.lineStart = false }()
	following, _ := utf8.DecodeRuneInString(s.src[to:])
	_, _, then := foldRune(following)
	switch r {
	case '\'', '’', 'ʼ', '`', '´': // don't: one word
		if s.last == kindLetter && then == kindLetter && r != '`' {
			return
		}
	case ',':
		if s.last == kindDigit && groupOfThree(s.src[to:]) {
			return
		}
		if s.last == kindDigit && then == kindDigit {
			s.symbol(r, at, to, markContext)
			return
		}
	case '_':
		if s.last == kindLetter && then == kindLetter {
			s.symbol(r, at, to, markContext)
			return
		}
	case '.':
		if s.last != kindGap && s.last != kindSymbol && (then == kindLetter || then == kindDigit) || s.last == kindGap && then == kindDigit {
			s.symbol(r, at, to, markContext)
			return
		}
	case ':', '/':
		if s.last == kindDigit && then == kindDigit || r == '/' && s.last != kindGap && s.last != kindSymbol && then == kindLetter {
			s.symbol(r, at, to, markContext)
			return
		}
	case '-', '–', '—', '−', '~', '〜', '～':
		if s.joins(r, then, following) {
			s.symbol('-', at, to, markContext)
			return
		}
	case '#':
		if (then == kindDigit || then == kindLetter) && s.last == kindGap {
			s.symbol(r, at, to, markContext)
			return
		}
	}
	if r == ']' && at == s.dirEnd {
		s.skip(s.dirFrom)
		s.dirEnd = -1
	}
	s.last = kindGap
}

// joins reports whether a dash, with the rune following behind it, may be spoken: it is a minus, it
// joins two numbers, or letters and a number, or it stands for a range of words.
func (s *speechScanner) joins(dash rune, then runeKind, following rune) bool {
	number := then == kindDigit || strings.ContainsRune("$€£¥₹", following)
	switch s.last {
	case kindDigit:
		return number || then == kindLetter
	case kindLetter:
		return then == kindDigit || dash == '–' && then == kindLetter
	}
	return number && s.last != kindSymbol
}

// markup returns the length of the silent construct that starts with c, or 0.
func (s *speechScanner) markup(c byte) int {
	rest := s.src[s.i:]
	switch c {
	case '<':
		if n := thoughtLen(rest); n > 0 {
			return n
		}
		return tagLen(rest)
	case '&':
		return s.entity(rest)
	case ']':
		if s.bracket >= 0 && strings.HasPrefix(rest, "](") {
			return linkTargetLen(rest)
		}
	case '[':
		s.bracket = s.i
		if s.dirEnd < s.i {
			s.direction(rest)
		}
	case '`', '~':
		if s.lineStart && (strings.HasPrefix(rest, "```") || strings.HasPrefix(rest, "~~~")) {
			return s.fence(rest)
		}
	case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		if s.lineStart {
			s.listNumber(rest)
		}
	case 'h', 'H':
		if s.last == kindGap {
			return schemeLen(rest)
		}
	}
	return 0
}

// tagLen returns the length of an XML-like tag or comment at the start of s, or 0; "<3" and "a < b"
// are not tags.
func tagLen(s string) int {
	if strings.HasPrefix(s, "<!--") {
		if i := strings.Index(s[4:min(len(s), 4+maxTag)], "-->"); i >= 0 {
			return 4 + i + 3
		}
		return 0
	}
	i := 1
	if i < len(s) && (s[i] == '/' || s[i] == '?' || s[i] == '!') {
		i++
	}
	if i >= len(s) || (s[i]|0x20) < 'a' || (s[i]|0x20) > 'z' {
		return 0
	}
	for ; i < len(s) && i < maxTag; i++ {
		switch s[i] {
		case '>':
			return i + 1
		case '<':
			return 0
		}
	}
	return 0
}

// thoughtLen returns the length of the block of reasoning at the start of s, or 0. A block without
// an end goes on to the end of the text.
func thoughtLen(s string) int {
	for _, name := range [...]string{"think", "thinking", "reasoning"} {
		if len(s) < len(name)+2 || !strings.EqualFold(s[1:len(name)+2], name+">") {
			continue
		}
		end := "</" + name + ">"
		for i := len(name) + 2; ; i++ {
			at := strings.IndexByte(s[i:], '<')
			if at < 0 {
				return len(s)
			}
			if i += at; len(s)-i >= len(end) && strings.EqualFold(s[i:i+len(end)], end) {
				return i + len(end)
			}
		}
	}
	return 0
}

// linkTargetLen returns the length of the "](target)" at the start of s.
func linkTargetLen(s string) int {
	depth := 0 // addresses of encyclopaedias hold one more pair
	for i := 1; i < len(s) && i < maxLinkURL; i++ {
		switch s[i] {
		case '(':
			if depth++; depth > 2 {
				return 0
			}
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		case '\n':
			return 0
		}
	}
	return 0
}

// schemeLen returns the length of "https://" and a "www." after it, which voices leave out.
func schemeLen(s string) int {
	n := 0
	for _, scheme := range [...]string{"https://", "http://"} {
		if len(s) >= len(scheme) && strings.EqualFold(s[:len(scheme)], scheme) {
			n = len(scheme)
			break
		}
	}
	if n > 0 && len(s) >= n+4 && strings.EqualFold(s[n:n+4], "www.") {
		n += 4
	}
	return n
}

// entity reads the XML entities that SSML must use; &amp; is the symbol &, the others are not
// spoken.
func (s *speechScanner) entity(rest string) int {
	for _, e := range [...]string{"&amp;", "&lt;", "&gt;", "&quot;", "&apos;", "&#39;", "&nbsp;"} {
		if !strings.HasPrefix(rest, e) {
			continue
		}
		if e == "&amp;" {
			s.symbol('&', s.i, s.i+len(e), 0)
		}
		return len(e)
	}
	return 0
}

// direction opens a stage direction such as [laughs], which some voices act out and do not say. The
// text of a link is not one.
func (s *speechScanner) direction(rest string) {
	end := strings.IndexAny(rest[:min(len(rest), maxDirection)], "]\n")
	if end > 0 && rest[end] == ']' && !strings.HasPrefix(rest[end:], "](") {
		s.dirFrom, s.dirEnd = int32(len(s.buf)), s.i+end
	}
}

// fence handles the line that opens or closes a code block, with its language. Code may be left
// out. A line that is incomplete, or continues with code, is not a fence.
func (s *speechScanner) fence(rest string) int {
	line, _, ended := strings.Cut(rest, "\n")
	if info := strings.TrimLeft(line, "`~"); strings.ContainsRune(info, '`') || !ended && strings.TrimSpace(info) != "" {
		return 0
	}
	if s.fenceFrom < 0 {
		s.fenceFrom = int32(len(s.buf))
	} else {
		s.skip(s.fenceFrom)
		s.fenceFrom = -1
	}
	return len(line) // the line break is taken next, and begins a line
}

// listNumber makes the "1." or "1)" of a list optional.
func (s *speechScanner) listNumber(rest string) {
	i := 0
	for i < len(rest) && i < 4 && '0' <= rest[i] && rest[i] <= '9' {
		i++
	}
	if i+1 < len(rest) && (rest[i] == '.' || rest[i] == ')') && rest[i+1] == ' ' {
		from := int32(len(s.buf))
		s.skips = append(s.skips, skipStretch{from, from + int32(i)})
		s.choices = true
	}
}

func (s *speechScanner) skip(from int32) {
	if to := int32(len(s.buf)); to > from {
		s.skips = append(s.skips, skipStretch{from, to})
		s.choices = true
	}
}

func (s *speechScanner) symbol(r rune, at, to int, extra uint8) {
	s.mark(markWord | markSymbol | extra)
	s.put(r, int32(at), int32(to))
	s.last, s.prev = kindSymbol, r
}

// mark begins the next rune with marks.
func (s *speechScanner) mark(m uint8) {
	s.marks = append(s.marks, m)
	s.choices = s.choices || m&markChoice != 0
}

// put appends a rune that stands for src[at:to]. Marks set before it belong to its first byte.
func (s *speechScanner) put(r rune, at, to int32) {
	s.lastRune, s.lastAt = r, int32(len(s.buf))
	s.buf = utf8.AppendRune(s.buf, r)
	for len(s.start) < len(s.buf) {
		s.start = append(s.start, at)
		s.end = append(s.end, -1)
	}
	s.end[len(s.end)-1] = to
	for len(s.marks) < len(s.buf) {
		s.marks = append(s.marks, 0)
	}
	s.marks[s.lastAt] |= markRune
}

// truncate takes back the last rune but keeps the marks of its first byte.
func (s *speechScanner) truncate(n int32) {
	s.buf, s.start, s.end, s.marks = s.buf[:n], s.start[:n], s.end[:n], s.marks[:n+1]
}

// groupOfThree reports whether s starts with exactly three digits, as after the comma of "1,000".
func groupOfThree(s string) bool {
	for i := range 4 {
		if digit := i < len(s) && '0' <= s[i] && s[i] <= '9'; digit != (i < 3) {
			return false
		}
	}
	return true
}

// wordEnd returns the end of the word that has the byte at.
func (s *speech) wordEnd(at int) int {
	at++
	for at < len(s.text) && s.marks[at]&markWord == 0 {
		at++
	}
	return at
}

// cut is a place in the source where it may be cut off.
type cut struct {
	at    int  // offset in src
	limit int  // offset in src of what is compared next
	whole bool // it is the end of a word
}

// cutAt returns the cut after n bytes of text. It is never inside a rune, and never after a symbol
// that is one only because of what follows, so that the text before it folds to the same bytes on
// its own.
func (s *speech) cutAt(n int32) cut {
	c := cut{whole: s.marks[n]&markWord != 0}
	for n > 0 && s.end[n-1] < 0 {
		n--
	}
	for n > 0 && s.marks[n-1]&markContext != 0 { // context symbols are single bytes
		n--
	}
	c.limit = len(s.src)
	if int(n) < len(s.start) {
		c.limit = int(s.start[n])
	}
	if n > 0 {
		c.at = int(s.end[n-1])
	}
	return c
}

// attached returns the punctuation directly after a cut: up to white space or the next compared
// rune.
func (s *speech) attached(c cut) string {
	for i, r := range s.src[c.at:c.limit] {
		if unicode.IsSpace(r) || unicode.IsLetter(r) || unicode.IsNumber(r) {
			return s.src[c.at : c.at+i]
		}
	}
	return s.src[c.at:c.limit]
}
