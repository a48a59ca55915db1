package redact

import (
	"math/bits"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Line is what one message of a conversation says.
type Line struct {
	Speaker string
	Text    string
	AtMS    int64 // Unix ms; 0 = not known
}

// Piece is a piece of a text, and the name that replaces it.
type Piece struct{ Text, Name string }

// MaxLines is how many lines before a new one may have the beginning of its number.
const MaxLines = 24

// Limits of a number that is spread over several messages.
const (
	maxParts   = 8              // messages
	maxPauseMS = 2 * 60 * 1000  // between two of them
	maxFillers = 4              // words before and behind each part
	maxAsides  = 2              // other messages of the speaker in between
	maxAside   = 4              // words of such a message
	maxEdge    = 256            // bytes of a message that are searched
	minEcho    = 3              // digits of a part that others repeat
	maxRepeats = 5              // parts that begin with what was said before
	askedWords = maxToCode + 20 // bytes behind the word for a code
)

// Continues reports whether a text begins as the rest of a number or an address does. It costs
// little: Spread finds nothing that ends in a message of which Continues is false.
func (r *Redactor) Continues(s string) bool {
	return r != nil && (r.lead(s) >= 0 || r.types[Email] && continuesAddress(s))
}

// Spread finds the numbers and addresses that are spread over several lines of one speaker. It
// returns the pieces of each line that belong to one, or nil if there are none. Other lines between
// these parts do not matter if they are short or repeat a part; a repeated part is a piece too. A
// card or an IBAN, which has check digits, may have any lines of others in between.
func (r *Redactor) Spread(lines []Line) [][]Piece {
	if r == nil || len(lines) < 2 {
		return nil
	}
	var out [][]Piece
	numbers := make([]func() []span, len(lines)) // of each line, searched once
	for i := range lines {
		numbers[i] = sync.OnceValue(func() []span { return runs(lines[i].Text) })
	}
	for i := range lines {
		if !r.Continues(lines[i].Text) {
			continue
		}
		for _, c := range [3]chain{r.numberParts(lines, i), r.addressParts(lines, i), r.moreOfPhone(lines, i)} {
			if c.join(lines) {
				if out == nil {
					out = make([][]Piece, len(lines))
				}
				c.addTo(out, lines, numbers)
			}
		}
	}
	return out
}

// Knowing returns the redactor with pieces that are replaced wherever a text has them.
func (r *Redactor) Knowing(pieces []Piece) *Redactor {
	if r == nil || len(pieces) == 0 {
		return r
	}
	out := *r
	out.pieces = slices.Concat(r.pieces, pieces)
	return &out
}

// appendPieces appends where a text has pieces, as words of their own.
func appendPieces(out []span, s string, pieces []Piece) []span {
	for _, p := range pieces {
		for at := 0; p.Text != ""; {
			n := strings.Index(s[at:], p.Text)
			if n < 0 {
				break
			}
			start := at + n
			at = start + len(p.Text)
			before, _ := utf8.DecodeLastRuneInString(s[:start])
			after, _ := utf8.DecodeRuneInString(s[at:])
			if !inWord(before) && !inWord(after) {
				out = append(out, span{start, at, p.Name})
			}
		}
	}
	return out
}

func inWord(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) }

// chain is lines of one speaker that may have the parts of one number.
type chain struct {
	parts    []fragment
	types    []*Redactor // what is searched for, each from the part of the same index in from on
	from     []int
	together string // what joins the parts

	found  []found
	digits []Piece // of what was found: the digits alone
}

// found is a piece of a line.
type found struct {
	line int
	Piece
}

// fragment is a stretch of the text of a line.
type fragment struct{ line, start, end int }

func (p fragment) of(lines []Line) string { return lines[p.line].Text[p.start:p.end] }

// numberParts returns the lines of a speaker that the number at the beginning of a line may have
// begun in.
func (r *Redactor) numberParts(lines []Line, last int) chain {
	start := r.lead(lines[last].Text)
	if start < 0 {
		return chain{}
	}
	c := chain{parts: []fragment{{last, start, clipEnd(lines[last].Text, start)}}, together: " "}
	asked := 0 // parts from the end before which others did not just listen
	k := last
	for i, asides := last-1, 0; i >= 0 && last-i <= MaxLines && len(c.parts) < maxParts; i-- {
		l := &lines[i]
		if l.Speaker != lines[last].Speaker {
			if r.types[Secret] && i == last-1 && namesCode(l.Text) { // "What is your PIN?"
				c.parts = append(c.parts, fragment{i, clipStart(l.Text), trimmedEnd(l.Text)})
				break
			}
			if asked == 0 && !urges(l.Text, c.parts[len(c.parts)-1].of(lines)) {
				asked = len(c.parts)
			}
			continue
		}
		if l.AtMS > 0 && lines[k].AtMS-l.AtMS > maxPauseMS {
			break
		}
		end := r.trail(l.Text)
		if end < 0 && r.types[Secret] && namesCode(l.Text) {
			c.parts = append(c.parts, fragment{i, clipStart(l.Text), trimmedEnd(l.Text)})
			break
		}
		if end < 0 {
			if asides++; asides > maxAsides || !isAside(l.Text) {
				break
			}
			continue
		}
		begin := r.lead(l.Text)
		c.parts = append(c.parts, fragment{i, max(begin, clipStart(l.Text)), end})
		if k = i; begin < 0 {
			break
		}
	}
	slices.Reverse(c.parts)
	c.search(r.only(Card, IBAN), 0)
	if asked > 0 {
		asked = len(c.parts) - asked
	}
	c.search(r.only(Phone, Secret), asked)
	return c
}

// moreOfPhone returns a line that is a number alone, as the rest of a telephone number whose parts
// in the two lines of the speaker before were replaced when they were long enough for one.
func (r *Redactor) moreOfPhone(lines []Line, last int) chain {
	const mask = "[" + Phone + "]"
	start, end := r.lead(lines[last].Text), r.trail(lines[last].Text)
	if !r.types[Phone] || start < 0 || end < 0 {
		return chain{}
	}
	for i, before := last-1, 0; i >= 0 && last-i <= MaxLines; i-- {
		text := strings.TrimSpace(lines[i].Text[:trimmedEnd(lines[i].Text)])
		switch {
		case lines[i].Speaker != lines[last].Speaker:
			if before == 0 && !urges(text, "") {
				return chain{}
			}
			continue
		case lines[i].AtMS > 0 && lines[last].AtMS-lines[i].AtMS > maxPauseMS:
			return chain{}
		case before == 0 && text == mask:
			before++
			continue
		case before == 1 && strings.HasSuffix(text, mask):
			if len(runs(lines[last].Text)) != 1 {
				return chain{}
			}
			c := chain{parts: []fragment{{i, 0, 0}, {last, start, end}}}
			c.add(lines, c.parts[1], Phone)
			return c
		}
		break
	}
	return chain{}
}

// search adds what is searched for in the parts from the given one on.
func (c *chain) search(r *Redactor, from int) {
	if r != nil && len(c.parts)-from > 1 {
		c.types, c.from = append(c.types, r), append(c.from, from)
	}
}

// only returns a redactor of those of the types that r has, or nil if it has none.
func (r *Redactor) only(types ...string) *Redactor {
	var out *Redactor
	for _, t := range types {
		if r.types[t] {
			if out == nil {
				out = &Redactor{types: map[string]bool{}}
			}
			out.types[t] = true
		}
	}
	return out
}

// join searches the joined parts. It reports whether something was found.
func (c *chain) join(lines []Line) bool {
	if len(c.found) > 0 {
		return true
	}
	for i, r := range c.types {
		parts := c.parts[c.from[i]:]
		ends := repeats(lines, parts)
		var which []int // parts that begin with a repetition
		for p, end := range ends {
			if end > 0 && len(which) < maxRepeats {
				which = append(which, p)
			}
		}
		for dropped := range maxRepeats + 1 { // as few as possible
			for set := range uint(1) << len(which) {
				if bits.OnesCount(set) == dropped && c.find(lines, parts, r, func(p int) int {
					if n := slices.Index(which, p); n >= 0 && set>>n&1 != 0 {
						return ends[p]
					}
					return 0
				}) {
					return true
				}
			}
		}
	}
	return false
}

// find searches the joined parts with r, without those beginnings that end where without says.
func (c *chain) find(lines []Line, parts []fragment, r *Redactor, without func(int) int) bool {
	var b strings.Builder
	starts := make([]int, len(parts)) // of the parts in the joined text
	cut := slices.Clone(parts)
	for i := range cut {
		if end := without(i); end > 0 {
			cut[i].start = end
		}
		if b.Len() > 0 && cut[i].start < cut[i].end {
			b.WriteString(c.together)
		}
		starts[i] = b.Len()
		b.WriteString(cut[i].of(lines))
	}
	joined := b.String()
	for _, s := range r.spans(joined) {
		covers, over := make([]bool, len(cut)), 0
		for i, p := range cut {
			covers[i] = s.start < starts[i]+p.end-p.start && s.end > starts[i] || p.start > parts[i].start && i > 0 && covers[i-1]
			if covers[i] {
				over++
			}
		}
		if over < 2 && (s.name != Secret || s.start < starts[1]) {
			continue // it stands in one line
		}
		c.digits = append(c.digits, Piece{digitsIn(joined[s.start:s.end]), s.name})
		for i, p := range cut {
			if from, to := max(s.start, starts[i]), min(s.end, starts[i]+p.end-p.start); from < to {
				c.add(lines, fragment{p.line, p.start + from - starts[i], p.start + to - starts[i]}, s.name)
			}
			if covers[i] { // what it repeats is a piece too
				c.add(lines, fragment{p.line, parts[i].start, p.start}, s.name)
			}
		}
	}
	return len(c.found) > 0
}

func (c *chain) add(lines []Line, p fragment, name string) {
	if text := strings.Trim(p.of(lines), " .,;:-"); text != "" {
		c.found = append(c.found, found{p.line, Piece{text, name}})
	}
}

// addTo adds what was found to the pieces of the lines, with what other lines repeat of it.
func (c *chain) addTo(out [][]Piece, lines []Line, numbers []func() []span) {
	add := func(line int, p Piece) {
		if !slices.Contains(out[line], p) {
			out[line] = append(out[line], p)
		}
	}
	for _, f := range c.found {
		add(f.line, f.Piece)
	}
	for i := c.parts[0].line; i <= c.parts[len(c.parts)-1].line; i++ {
		for _, n := range numbers[i]() {
			for _, d := range c.digits {
				if len(n.name) >= minEcho && strings.Contains(d.Text, n.name) {
					start := n.start
					for d.Name == IBAN && start > 0 && alnum(lines[i].Text[start-1]) { // the country's code
						start--
					}
					add(i, Piece{lines[i].Text[start:n.end], d.Name})
				}
			}
		}
	}
}

// repeats returns, for each part that begins with the end of the part before, where that ends.
func repeats(lines []Line, parts []fragment) []int {
	ends := make([]int, len(parts))
	for i := 1; i < len(parts); i++ {
		before, s := runs(parts[i-1].of(lines)), parts[i].of(lines)
		if len(before) == 0 {
			continue
		}
		digits := ""
		for j, t := range tokenize(s) {
			if j > 0 && !t.glued {
				break
			}
			if digits += t.digits; len(digits) > 1 && strings.HasSuffix(before[len(before)-1].name, digits) {
				ends[i] = parts[i].start + t.end
			}
		}
	}
	return ends
}

// runs returns the numbers of a text, with their digits as names. Groups of digits are one number.
func runs(s string) []span {
	var out []span
	for _, t := range tokenize(s) {
		if n := len(out); n > 0 && t.glued {
			out[n-1].end, out[n-1].name = t.end, out[n-1].name+t.digits
			continue
		}
		out = append(out, span{t.start, t.end, t.digits})
	}
	return out
}

func digitsIn(s string) string {
	var b strings.Builder
	for _, t := range tokenize(s) {
		b.WriteString(t.digits)
	}
	return b.String()
}

// lead returns where the number at the beginning of a text starts, or -1 if it begins otherwise.
func (r *Redactor) lead(s string) int {
	if !r.types[Card] && !r.types[IBAN] && !r.types[Phone] && !r.types[Secret] {
		return -1
	}
	s = s[:clipEnd(s, 0)]
	words := firstWords(s, 2)
	if len(words) > 0 && fillers[words[0].name] {
		words = firstWords(s, maxFillers+2)
	}
	for i, w := range words {
		next := ""
		if i+1 < len(words) {
			next = words[i+1].name
		}
		if r.isNumber(w.name, next) || r.types[IBAN] && len(w.name) == 4 && next != "" && r.isNumber(next, "") && !fillers[w.name] {
			start := w.start
			for start > 0 && (s[start-1] == '+' || s[start-1] == '(') {
				start--
			}
			return start
		}
		if i == maxFillers || !fillers[w.name] {
			return -1
		}
	}
	return -1
}

// trail returns where the number at the end of a text ends, or -1 if it ends otherwise.
func (r *Redactor) trail(s string) int {
	from := clipStart(s)
	words := wordsOf(s[from:])
	for i, w := range slices.Backward(words) {
		before := ""
		if i > 0 {
			before = words[i-1].name
		}
		if r.isNumber(w.name, before) {
			return from + w.end
		}
		if len(words)-1-i == maxFillers || !fillers[w.name] {
			return -1
		}
	}
	return -1
}

// isNumber reports whether a word, in small letters, is a number or a part of an IBAN. beside is
// the word beside it.
func (r *Redactor) isNumber(word, beside string) bool {
	if word == "um" { // a filler in English, one in Portuguese
		return slices.Contains([]string{"um", "dois", "três", "quatro", "cinco", "seis", "sete", "oito", "nove"}, beside)
	}
	if r.types[IBAN] && len(word) <= 34 && strings.ContainsAny(word, "0123456789") {
		return true
	}
	for p := range strings.SplitSeq(word, "-") {
		if digitWords[p] == "" && timesOf[p] == 0 && p != "plus" && strings.TrimFunc(p, isDigit) != "" {
			return false
		}
	}
	return strings.Trim(word, "-") != ""
}
