package heard

import (
	"slices"
	"strconv"
	"strings"
)

// sums returns the ways to say an amount.
func (l *language) sums(v uint64, sum []string, digits, cents string, m money) []string {
	full := join(sum, m.unit)
	if strings.Trim(cents, "0") == "" {
		return append(full, join(m.unit, sum)...)
	}
	out := join(l.decimals(digits, cents), m.unit)
	if len(cents) == 1 {
		cents += "0"
	}
	n, ok := value(cents)
	if len(cents) != 2 || !ok {
		return out
	}
	small := l.cardinals(n)
	whole := l.cardinals(v)
	full = join(whole, m.unit)
	out = append(out, join(full, small)...)
	out = append(out, join(whole, small)...)
	for _, and := range append([]string{""}, l.lists["and"]...) {
		with := full
		if and != "" {
			with = join(full, []string{and})
			out = append(out, join(with, small)...)
		}
		out = append(out, join(join(with, small), m.cent)...)
	}
	if cents[0] == '0' {
		out = append(out, join(join(whole, l.zeros()), small)...)
		out = append(out, join(join(full, l.zeros()), small)...)
	}
	if v == 0 {
		out = append(out, join(small, m.cent)...)
	}
	return out
}

// value returns the value of digits, if they are few enough to be read as one number.
func value(digits string) (uint64, bool) {
	if len(digits) > maxCardinal {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

// maxCardinal is the maximum of digits of a number that is read as one number, maxDigits of one
// that is read digit by digit.
const (
	maxCardinal = 18
	maxDigits   = 64
)

func (l *language) zeros() []string { return l.say(l.count, 0, 0) }

// readDigits returns the ways to say a run of digits on its own.
func (l *language) readDigits(digits string) []string {
	var out []string
	if n, ok := value(digits); ok && (digits[0] != '0' || len(digits) <= 2) {
		out = append(out, l.cardinals(n)...)
		if len(digits) <= 2 {
			out = append(out, l.say(l.order, n, 0)...) // May 5, read as May fifth
		}
	}
	if len(digits) == 1 || len(digits) > maxDigits {
		return out
	}
	out = append(out, l.oneByOne(digits)...)
	if len(digits) > 2 && len(digits) <= maxCardinal {
		out = append(out, l.chunks(digits, 2)...)
	}
	if len(digits) > 3 && len(digits) <= maxCardinal {
		out = append(out, l.chunks(digits, 3)...)
	}
	return out
}

// oneByOne returns the ways to say a number digit by digit: with each name of the digits, and with
// two or three equal digits in one.
func (l *language) oneByOne(digits string) []string {
	var out []string
	for variant := range 5 {
		names := make([]string, len(digits))
		for i := range digits {
			says := l.say(l.count, uint64(digits[i]-'0'), 0)
			if len(says) == 0 {
				return nil
			}
			at := min(variant, len(says)-1)
			if variant > 2 { // the zeros only
				if at = 0; digits[i] == '0' {
					at = min(variant-2, len(says)-1)
				}
			}
			names[i] = says[at]
		}
		for _, text := range []string{strings.Join(names, ""), l.repeated(digits, names, 2, 3), l.repeated(digits, names, 3, 3), l.repeated(digits, names, 2, 2)} {
			if text != "" && !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}

// repeated returns the names of digits, with runs of at least least and at most most equal ones
// joined: double five.
func (l *language) repeated(digits string, names []string, least, most int) string {
	words := map[int][]string{2: l.lists["double"], 3: l.lists["triple"]}
	if len(words[least]) == 0 {
		return ""
	}
	var b strings.Builder
	for i := 0; i < len(digits); {
		same := 1
		for i+same < len(digits) && same < most && digits[i+same] == digits[i] {
			same++
		}
		if same < least || len(words[same]) == 0 {
			same = 1
		} else {
			b.WriteString(words[same][0])
		}
		b.WriteString(names[i])
		i += same
	}
	return b.String()
}

// chunks returns the ways to say a number in groups of digits: nineteen ninety-nine, nineteen oh
// five. The first or the last group may be shorter.
func (l *language) chunks(digits string, size int) []string {
	var out []string
	for _, first := range []int{len(digits) % size, size} {
		if first == 0 || len(out) > 0 && len(digits)%size == 0 {
			continue
		}
		list := []string{""}
		for at, to := 0, first; at < len(digits); at, to = to, min(to+size, len(digits)) {
			group := digits[at:to]
			n, _ := value(group)
			says := l.cardinals(n)
			if group[0] == '0' && len(group) > 1 {
				says = l.oneByOne(group)
			}
			list = join(list, says[:min(3, len(says))])
		}
		out = append(out, list...)
	}
	return out
}

// ordinals returns the ways to say a number with the ending of an ordinal behind it.
func (l *language) ordinals(digits string) []string {
	n, ok := value(digits)
	if !ok {
		return nil
	}
	return l.say(l.order, n, 0)
}

// plurals returns the ways to say a number with the ending of a decade behind it: the 1990s.
func (l *language) plurals(digits string) []string {
	n, ok := value(digits)
	if !ok {
		return nil
	}
	out := l.say(l.many, n, 0)
	if len(digits) == 4 {
		head, _ := value(digits[:2])
		if tail := l.say(l.many, n%100, 0); n%100 != 0 {
			out = append(out, join(l.cardinals(head), tail)...)
		}
		out = append(out, join(l.cardinals(head), l.say(l.many, 100, 0))...)
	}
	return out
}

// decimals returns the ways to say a number with digits behind the point.
func (l *language) decimals(whole, part string) []string {
	n, ok := value(whole)
	if !ok || part == "" || len(part) > maxDigits {
		return nil
	}
	says := l.oneByOne(part)
	if m, ok := value(part); ok && part[0] != '0' {
		says = append(says, l.cardinals(m)...)
	}
	heads := l.cardinals(n)
	out := make([]string, 0, maxForms)
	for _, head := range heads[:min(4, len(heads))] {
		for _, point := range l.lists["point"] {
			for _, tail := range says[:min(12, len(says))] {
				out = append(out, head+point+tail)
			}
		}
	}
	if part == "5" {
		out = append(out, join(heads, l.lists["half"])...)
	}
	return out
}

// fractions returns the ways to say the fractions that have names.
func (l *language) fractions(over, under string) []string {
	n, ok := value(over)
	d, ok2 := value(under)
	if !ok || !ok2 || n == 0 || n > 19 || d < 2 || d > 20 {
		return nil
	}
	var out []string
	for _, p := range l.fraction {
		if p.key == over+"/"+under || p.key == "*" {
			for _, form := range p.says {
				out = append(out, expand(form, map[string][]string{"{n}": l.cardinals(n), "{D}": l.say(l.order, d, 0)})...)
			}
		}
	}
	return out
}
