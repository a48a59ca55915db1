package heard

import (
	"slices"
	"strconv"
	"strings"
)

// maxWritten is the maximum length of an abbreviation or a unit, in bytes.
const maxWritten = 12

// read marks the words that are said otherwise in some of the languages.
func (s *speech) read(langs []*language) {
	s.langs = langs
	s.kept = map[int32][]choice{}
	for at := 0; at < len(s.text); at = s.wordEnd(at) {
		if s.marks[at]&(markDigits|markSymbol) != 0 {
			continue
		}
		if s.hasReading(int32(at)) {
			s.marks[at] |= markReading
			s.choices = true
		}
	}
}

// hasReading reports whether the word, or words, that start at a place are said otherwise.
func (s *speech) hasReading(at int32) bool {
	found := false
	s.written(at, func(to int32, _ []string) bool {
		found = true
		return false
	})
	return found || s.dropsAnd(at)
}

// written calls f with each end of an abbreviation or a unit that starts at a place, and with what
// is said for it.
func (s *speech) written(at int32, f func(to int32, says []string) bool) {
	number := s.behindNumber(at)
	for to := s.wordEnd(int(at)); to-int(at) <= maxWritten; to = s.wordEnd(to) {
		key := s.text[at:to]
		for _, l := range s.langs {
			if says := l.words[key]; says != nil && !f(int32(to), says) {
				return
			}
			if says := l.units[key]; number && says != nil && !f(int32(to), says) {
				return
			}
		}
		if to >= len(s.text) || s.end[to-1] != s.start[to] {
			return // only what is written together
		}
	}
}

// behindNumber reports whether a number, or a unit or a symbol behind one, is before a place.
func (s *speech) behindNumber(at int32) bool {
	if at == 0 {
		return false
	}
	c := s.text[at-1]
	return '0' <= c && c <= '9' || s.marks[at-1]&markSymbol != 0
}

// dropsAnd reports whether the word at a place is the "and" of a British number.
func (s *speech) dropsAnd(at int32) bool {
	if s.text[at:s.wordEnd(int(at))] != "and" {
		return false
	}
	before := s.text[max(0, at-8):at]
	return strings.HasSuffix(before, "hundred") || strings.HasSuffix(before, "thousand") || strings.HasSuffix(before, "million") || strings.HasSuffix(before, "billion")
}

// choicesAt returns the other ways to hear what starts at the byte.
func (s *speech) choicesAt(n int32) []choice {
	if list, ok := s.kept[n]; ok {
		return list
	}
	list := choices{s: s}
	for _, k := range s.skipsAt(n) {
		list.add(k.to, "")
	}
	m := s.marks[n]
	if m&markReading != 0 {
		if s.dropsAnd(n) {
			list.add(n+3, "")
		}
		s.written(n, func(to int32, says []string) bool {
			list.add(to, says...)
			return true
		})
	}
	if m&markSymbol != 0 {
		list.symbol(n)
	}
	if m&markDigits != 0 {
		for _, l := range s.langs {
			list.number(l, n)
		}
	}
	s.kept[n] = list.all
	return list.all
}

// choices collects the ways to hear what starts at a place of a speech.
type choices struct {
	s   *speech
	all []choice
}

func (c *choices) add(to int32, texts ...string) {
	for _, text := range texts {
		c.all = append(c.all, choice{text, to})
		c.s.said += len(text) + 8
	}
}

// symbol adds the ways to say a symbol, and with a currency the amount behind it.
func (c *choices) symbol(n int32) {
	s := c.s
	to := int32(s.wordEnd(int(n)))
	name := s.text[n:to]
	if name != "." || !s.insideNumber(n) {
		c.add(to, "") // but 3.5 is not 35
	}
	if name == "," {
		c.add(to, ".")
	}
	for _, l := range s.langs {
		c.add(to, l.symbols[name]...)
		if m, ok := l.money[name]; ok {
			c.add(to, m.unit...)
			if int(to) < len(s.text) && s.marks[to]&markDigits != 0 {
				c.amount(l, to, m, to)
			}
		}
	}
	s.written(n, func(to int32, says []string) bool {
		c.add(to, says...)
		return true
	})
}

// number adds the ways to say the number whose digits start at n, alone and with what is joined to
// it.
func (c *choices) number(l *language, n int32) {
	s := c.s
	e := s.digitsEnd(n)
	digits := s.text[n:e]
	c.add(e, l.readDigits(digits)...)
	word := s.wordAfter(e)
	switch {
	case l.suffix[word]:
		c.add(e+int32(len(word)), l.ordinals(digits)...)
	case l.plural[word]:
		c.add(e+int32(len(word)), l.plurals(digits)...)
	}
	if to, whole := s.grouped(n, e); to > e {
		if v, ok := value(whole); ok {
			c.add(to, l.cardinals(v)...)
		}
	}
	for _, sep := range []byte{'.', ','} {
		if from, to, ok := s.connected(e, sep); ok {
			c.add(to, l.decimals(digits, s.text[from:to])...)
			if sep == '.' && to-from == 2 {
				c.clock(l, digits, s.text[from:to], to)
			}
		}
	}
	if from, to, ok := s.connected(e, ':'); ok {
		c.clock(l, digits, s.text[from:to], to)
	}
	if at := e + int32(len(word)); l.uhr[word] && int(at) < len(s.text) && s.marks[at]&markDigits != 0 {
		to := s.digitsEnd(at) // 9h30
		c.clock(l, digits, s.text[at:to], to)
	}
	if from, to, ok := s.connected(e, '/'); ok {
		c.add(to, l.fractions(digits, s.text[from:to])...)
	}
	c.dates(l, n, e)
	c.percent(l, n)
	c.amount(l, n, money{}, n)
}

// amount adds the ways to say a sum of money whose digits start at n. The currency is m, or stands
// behind the digits. to is at least the end of the currency's symbol, if that is in front.
func (c *choices) amount(l *language, n int32, m money, from int32) {
	s := c.s
	e := s.digitsEnd(n)
	digits, cents, end := s.text[n:e], "", e
	if to, whole := s.grouped(n, e); to > e {
		digits, end = whole, to
	}
	for _, sep := range []byte{'.', ','} {
		if f, t, ok := s.connected(end, sep); ok && (t-f < 3 || m.unit != nil) {
			cents, end = s.text[f:t], t
			break
		}
	}
	v, ok := value(digits)
	if !ok {
		return
	}
	sum := l.cardinals(v)
	if cents != "" && (len(cents) != 2 || m.unit == nil) {
		sum = append(sum[:len(sum):len(sum)], l.decimals(digits, cents)...)
	}
	// Five million dollars: the magnitude comes first.
	big := end
	var scales []string
	if int(big) < len(s.text) {
		to := int32(s.wordEnd(int(big)))
		if scales = l.scales(s.text[big:to]); scales != nil {
			big = to
		}
	}
	if m.unit == nil {
		at := big
		if int(at) >= len(s.text) {
			return
		}
		to := int32(s.wordEnd(int(at)))
		if m, ok = l.money[s.text[at:to]]; !ok {
			if scales != nil {
				c.add(big, join(append(sum, l.decimals(digits, cents)...), scales)...)
			}
			return
		}
		if scales != nil {
			big = to
		} else {
			end = to
		}
	}
	if scales != nil {
		sum := join(append(sum, l.decimals(digits, cents)...), scales)
		c.add(big, join(sum, m.unit)...)
		c.add(big, sum...)
	}
	c.add(end, l.sums(v, sum, digits, cents, m)...)
}

// percent adds the ways to say a percentage in languages that say the sign first.
func (c *choices) percent(l *language, n int32) {
	before := l.lists["percent"]
	if before == nil {
		return
	}
	s := c.s
	e := s.digitsEnd(n)
	says, end := l.readDigits(s.text[n:e]), e
	for _, sep := range []byte{'.', ','} {
		if f, t, ok := s.connected(e, sep); ok {
			says, end = l.decimals(s.text[n:e], s.text[f:t]), t
		}
	}
	if int(end) < len(s.text) && s.text[end] == '%' {
		c.add(end+1, join(before, says)...)
	}
}

// scales returns what is said for a magnitude behind a number, such as million or bn.
func (l *language) scales(word string) []string {
	var out []string
	for _, scale := range l.lists["scale"] {
		if scale == word || slices.Contains(l.units[word], scale) || slices.Contains(l.words[word], scale) {
			out = append(out, scale)
		}
	}
	return out
}

// clock adds the ways to say a time of day.
func (c *choices) clock(l *language, hour, minute string, to int32) {
	h, ok := value(hour)
	m, ok2 := value(minute)
	if !ok || !ok2 || len(hour) > 2 || len(minute) != 2 || h > 24 || m > 59 {
		return
	}
	end := to
	if int(to) < len(c.s.text) {
		if e := int32(c.s.wordEnd(int(to))); l.uhr[c.s.text[to:e]] {
			end = e
		}
	}
	minutes := l.cardinals(m)
	if m < 10 {
		minutes = append(join(l.zeros(), minutes), minutes...)
	}
	hours := func(h uint64) []string {
		out := l.cardinals(h)
		if h > 12 {
			out = append(out, l.cardinals(h-12)...)
		} else if h == 0 {
			out = append(out, l.cardinals(12)...)
		}
		return append(out, l.lists["hour"+strconv.FormatUint(h%12, 10)]...)
	}
	left := l.cardinals(60 - m)
	var out []string
	for _, p := range l.clock {
		if p.key != minute && p.key != "*" || p.key == "*" && m == 0 {
			continue
		}
		for _, form := range p.says {
			if strings.Contains(form, "{M}") && m <= 30 {
				continue
			}
			out = append(out, expand(form, map[string][]string{
				"{h}": hours(h), "{H}": hours((h + 1) % 24), "{m}": minutes, "{M}": left,
				"{O}": append(l.say(l.order, h, 0), l.say(l.order, h%12, 0)...), "{P}": l.say(l.order, h%12+1, 0),
			})...)
		}
	}
	c.add(to, out...)
	if end > to {
		c.add(end, out...)
	}
	if names := l.lists["hour"+strconv.FormatUint(h%12, 10)]; names != nil && m == 0 && int(end) < len(c.s.text) {
		for _, half := range [...]string{"am", "pm", "a.m", "p.m"} { // 12:00 p.m. is noon
			if to := end + int32(len(half)); strings.HasPrefix(c.s.text[end:], half) && c.s.marks[to]&markWord != 0 {
				c.add(to, names...)
			}
		}
	}
	if int(end) < len(c.s.text) && c.s.marks[end]&markReading != 0 {
		return // a.m. or p.m.
	}
	for _, part := range l.lists["after"] {
		c.add(end, join(out, []string{part})...)
	}
	for _, part := range l.lists["before"] {
		c.add(end, join([]string{part}, out)...)
	}
}

// expand returns a form with its places filled.
func expand(form string, places map[string][]string) []string {
	out := []string{""}
	for form != "" {
		at := strings.IndexByte(form, '{')
		if at < 0 {
			return join(out, []string{form})
		}
		if at > 0 {
			out = join(out, []string{form[:at]})
		}
		end := at + strings.IndexByte(form[at:], '}') + 1
		out = join(out, places[form[at:end]])
		form = form[end:]
	}
	return out
}

// dates adds the ways to say a date in numbers: 9.1.2024, 1/9/2024, 2024-01-09, 9/1.
func (c *choices) dates(l *language, n, e int32) {
	s := c.s
	for _, sep := range []byte{'.', '/', '-'} {
		from, to, ok := s.connected(e, sep)
		if !ok {
			continue
		}
		parts := []string{s.text[n:e], s.text[from:to]}
		if f, t, ok := s.connected(to, sep); ok {
			parts, to = append(parts, s.text[f:t]), t
		}
		switch {
		case len(parts) == 3 && len(parts[0]) == 4:
			c.date(l, parts[2], parts[1], parts[0], to)
		case len(parts) == 3:
			c.date(l, parts[0], parts[1], parts[2], to)
			c.date(l, parts[1], parts[0], parts[2], to)
		case sep != '-':
			c.date(l, parts[0], parts[1], "", to)
			c.date(l, parts[1], parts[0], "", to)
		}
	}
}

func (c *choices) date(l *language, day, month, year string, to int32) {
	d, _ := value(day)
	m, _ := value(month)
	if d < 1 || d > 31 || m < 1 || m > 12 || len(day) > 2 || len(month) > 2 || len(l.months) != 12 {
		return
	}
	places := map[string][]string{
		"{d}": l.cardinals(d), "{D}": l.say(l.order, d, 0), "{m}": l.months[m-1], "{M}": l.say(l.order, m, 0),
	}
	if l.order == nil {
		places["{D}"] = places["{d}"]
	}
	for _, form := range l.date {
		hasYear := strings.Contains(form, "{y}")
		switch {
		case year == "" && !hasYear:
			c.add(to, expand(form, places)...)
		case year != "" && hasYear:
			places["{y}"] = l.readDigits(year)
			c.add(to, expand(form, places)...)
		case year != "":
			out := expand(form, places)
			years := l.readDigits(year)
			for _, x := range out[:min(len(out), 6)] {
				for _, y := range years[:min(len(years), 12)] {
					c.add(to, x+y)
				}
			}
		}
	}
}

// grouped returns the end of a number whose thousands are set apart by points, and its digits.
func (s *speech) grouped(n, e int32) (to int32, digits string) {
	if e-n > 3 {
		return e, ""
	}
	if f, t, ok := s.connected(e, ','); ok && e-n < 3 && (t-f == 5 || t-f == 7) {
		return t, s.text[n:e] + s.text[f:t] // 1,25,000 in India
	}
	to, digits = e, s.text[n:e]
	for len(digits) < maxCardinal {
		if f, t, ok := s.connected(to, '.'); ok && t-f == 3 {
			digits, to = digits+s.text[f:t], t
			continue
		}
		if int(to) < len(s.text) && s.marks[to]&markDigits != 0 && s.digitsEnd(to)-to == 3 {
			if gap := s.src[s.end[to-1]:s.start[to]]; gap == " " || gap == "\u00a0" || gap == "\u202f" || gap == "'" || gap == "’" {
				digits += s.text[to : to+3]
				to += 3
				continue
			}
		}
		break
	}
	return to, digits
}

// digitsEnd returns where the run of digits that starts at n ends.
func (s *speech) digitsEnd(n int32) int32 {
	e := n
	for int(e) < len(s.text) && '0' <= s.text[e] && s.text[e] <= '9' && (e == n || s.marks[e]&markDigits == 0) {
		e++
	}
	return e
}

// wordAfter returns the word that starts at n if in the source it directly follows what is before
// it.
func (s *speech) wordAfter(n int32) string {
	if int(n) >= len(s.text) || s.end[n-1] != s.start[n] {
		return ""
	}
	return s.text[n:s.wordEnd(int(n))]
}

// connected reports whether the symbol c is at n with digits after it, and where these start and
// end.
func (s *speech) connected(n int32, c byte) (from, to int32, ok bool) {
	if int(n)+1 >= len(s.text) || s.text[n] != c || s.marks[n]&markSymbol == 0 || s.marks[n+1]&markDigits == 0 {
		return 0, 0, false
	}
	return n + 1, s.digitsEnd(n + 1), true
}

// insideNumber reports whether the byte is between two digits.
func (s *speech) insideNumber(n int32) bool {
	return n > 0 && '0' <= s.text[n-1] && s.text[n-1] <= '9' && s.marks[n+1]&markDigits != 0
}
