package heard

import (
	"embed"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// language holds how a language is spoken where it is written in digits, symbols and abbreviations.
// All words are in the form in which texts are compared: folded, without spaces.
type language struct {
	code     string
	frequent []string // its most frequent short words, in lower case

	count, other, order, many []numberRule

	words    map[string][]string // what is said for a written word
	units    map[string][]string // the same, only behind a number
	symbols  map[string][]string
	money    map[string]money
	months   [][]string
	clock    []pattern           // of {h} and {m}; {H} is the next hour, {M} the minutes to it
	date     []string            // of {d}, {D} (ordinal), {m} and {y}
	fraction []pattern           // of {n} and {D}
	suffix   map[string]bool     // behind the digits of an ordinal
	plural   map[string]bool     // behind the digits of a decade
	uhr      map[string]bool     // behind the digits of a time
	lists    map[string][]string // point, and, before, after, double, triple
	values   map[string]bool     // names of numbers, months and days
}

// money is how a currency and its hundredth are called.
type money struct{ unit, cent []string }

// pattern is a way to say two numbers, of which the second is key; "*" stands for any.
type pattern struct {
	key  string
	says []string
}

// numberRule is how numbers from base up to the next rule are said. In its forms, < stands for the
// number divided by div and > for the rest; a part in brackets is left out if there is no rest.
type numberRule struct {
	base, div uint64
	forms     []string
}

//go:embed languages/*.txt
var languageFiles embed.FS

// languages returns all languages, English first.
var languages = sync.OnceValue(func() []*language {
	codes := strings.Fields("en de fr es pt it nl pl tr vi ru hi zh ja ko ar")
	list := make([]*language, 0, len(codes))
	for _, code := range codes {
		text, err := languageFiles.ReadFile("languages/" + code + ".txt")
		if err != nil {
			continue
		}
		list = append(list, parseLanguage(code, string(text)))
	}
	return list
})

// frequentWords returns the frequent words of all languages, with the indexes of these.
var frequentWords = sync.OnceValue(func() map[string][]int {
	words := map[string][]int{}
	for i, l := range languages() {
		for _, w := range l.frequent {
			if !slices.Contains(words[w], i) {
				words[w] = append(words[w], i)
			}
		}
	}
	return words
})

// parseLanguage reads a table. languages/en.txt explains its lines.
func parseLanguage(code, text string) *language {
	l := &language{
		code: code, words: map[string][]string{}, units: map[string][]string{}, symbols: map[string][]string{}, money: map[string]money{},
		suffix: map[string]bool{}, plural: map[string]bool{}, uhr: map[string]bool{}, lists: map[string][]string{}, values: map[string]bool{},
	}
	for line := range strings.Lines(text) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest = strings.TrimSpace(rest)
		key, value, _ := strings.Cut(rest, " ")
		if left, right, ok := strings.Cut(rest, " = "); ok {
			key, value = left, right
		}
		switch kind {
		case "", "#":
		case "frequent":
			l.frequent = append(l.frequent, strings.Fields(rest)...)
		case "count":
			l.count = append(l.count, numberRules(rest)...)
		case "other":
			l.other = append(l.other, numberRules(rest)...)
		case "order":
			l.order = append(l.order, numberRules(rest)...)
		case "many":
			l.many = append(l.many, numberRules(rest)...)
		case "word":
			addReadings(l.words, key, value)
		case "unit":
			addReadings(l.units, key, value)
		case "symbol":
			l.symbols[key] = append(l.symbols[key], foldForms(value)...)
		case "money":
			unit, cent, _ := strings.Cut(value, ";")
			for _, k := range strings.Split(key, "|") {
				l.money[foldForm(k)] = money{foldForms(unit), foldForms(cent)}
			}
		case "month", "weekday":
			names := foldForms(strings.ReplaceAll(rest, " ", "|"))
			full := names[:1]
			if kind == "month" {
				full = foldForms(key)
				l.months = append(l.months, full)
				names = append(full[:len(full):len(full)], foldForms(strings.ReplaceAll(value, " ", "|"))...)
			}
			l.values[full[0]] = true
			for _, short := range names[len(full):] {
				l.words[short] = append(l.words[short], full...)
			}
		case "clock":
			l.clock = append(l.clock, pattern{key, foldForms(value)})
		case "fraction":
			l.fraction = append(l.fraction, pattern{key, foldForms(value)})
		case "date":
			l.date = append(l.date, foldForms(rest)...)
		case "suffix":
			addAll(l.suffix, rest)
		case "plural":
			addAll(l.plural, rest)
		case "uhr":
			addAll(l.uhr, rest)
		default:
			l.lists[kind] = append(l.lists[kind], foldForms(rest)...)
		}
	}
	for _, r := range slices.Concat(l.count, l.order) {
		for _, form := range r.forms {
			if name := strings.Trim(strings.TrimSuffix(form, "[>]"), "<"); !strings.ContainsAny(name, "<>[]") {
				l.values[name] = true
			}
		}
	}
	return l
}

func addAll(set map[string]bool, words string) {
	for _, w := range foldForms(strings.ReplaceAll(words, " ", "|")) {
		set[w] = true
	}
}

func addReadings(table map[string][]string, keys, value string) {
	for _, key := range strings.Split(keys, "|") {
		key = foldForm(key)
		table[key] = append(table[key], foldForms(value)...)
	}
}

// numberRules reads rules that are separated by semicolons.
func numberRules(line string) []numberRule {
	var list []numberRule
	for part := range strings.SplitSeq(line, ";") {
		key, forms, _ := strings.Cut(strings.TrimSpace(part), " ")
		base, div, explicit := strings.Cut(key, "/")
		r := numberRule{div: 1, forms: foldForms(forms)}
		r.base, _ = strconv.ParseUint(base, 10, 64)
		if explicit {
			r.div, _ = strconv.ParseUint(div, 10, 64)
		} else {
			for r.div <= r.base/10 {
				r.div *= 10
			}
		}
		list = append(list, r)
	}
	return list
}

// foldForms folds alternatives, which are separated by "|".
func foldForms(s string) []string {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	list := strings.Split(s, "|")
	for i := range list {
		list[i] = foldForm(list[i])
	}
	return list
}

// foldForm folds a form, in which < > [ ] { } have a meaning.
func foldForm(s string) string {
	var b strings.Builder
	brace := false
	for _, r := range s {
		if strings.ContainsRune("<>[]{}", r) || brace {
			b.WriteRune(r)
			brace = r == '{' || brace && r != '}'
			continue
		}
		x, y, kind := foldRune(r)
		switch {
		case kind == kindIgnore, kind == kindGap && !strings.ContainsRune("./", r):
			continue
		case kind == kindGap:
			x = r
		}
		b.WriteRune(x)
		if y != 0 {
			b.WriteRune(y)
		}
	}
	return b.String()
}

// maxForms is the maximum of forms of one number.
const maxForms = 24

// cardinals returns the ways to say a number of things.
func (l *language) cardinals(n uint64) []string {
	out := l.say(l.count, n, 0)
	if n < 10_000 {
		out = append(out, l.say(l.other, n, 0)...)
	}
	return out
}

// say returns the forms of a number by rules.
func (l *language) say(rules []numberRule, n uint64, depth int) []string {
	at := len(rules) - 1
	for at >= 0 && rules[at].base > n {
		at--
	}
	if at < 0 || depth > 12 {
		return nil
	}
	r := &rules[at]
	var out []string
	for _, form := range r.forms {
		out = append(out, l.fill(rules, r, form, n, depth)...)
	}
	return out[:min(len(out), maxForms)]
}

// fill returns a form of a rule with its numbers said.
func (l *language) fill(rules []numberRule, r *numberRule, form string, n uint64, depth int) []string {
	head, rest := n/r.div, n%r.div
	if !strings.ContainsAny(form, "<>") {
		if n != r.base {
			return nil
		}
		return []string{form}
	}
	if rest != 0 && !strings.Contains(form, ">") {
		return nil
	}
	out := []string{""}
	inside := false
	for i := 0; i < len(form); i++ {
		switch c := form[i]; {
		case c == '[':
			inside = true
		case c == ']':
			inside = false
		case inside && rest == 0:
		case c == '>' && rest == 0:
			return nil
		case c == '>':
			if rules[0].base == l.count[0].base || rest >= rules[0].base {
				out = join(out, l.say(rules, rest, depth+1))
			} else {
				out = join(out, l.say(l.count, rest, depth+1))
			}
		case c == '<' && head >= n && depth > 0:
			return nil // a rule without a divisor
		case c == '<':
			out = join(out, l.say(l.count, head, depth+1))
		default:
			end := i
			for end < len(form) && strings.IndexByte("[]<>", form[end]) < 0 {
				end++
			}
			out = join(out, []string{form[i:end]})
			i = end - 1
		}
	}
	return out
}

// join returns each of a followed by each of b, up to maxForms.
func join(a, b []string) []string {
	if len(a) == 1 && a[0] == "" {
		return b
	}
	out := make([]string, 0, min(len(a)*len(b), maxForms))
	for _, x := range a {
		for _, y := range b {
			if len(out) == maxForms {
				return out
			}
			out = append(out, x+y)
		}
	}
	return out
}

// maxGuess is how many bytes of a text are read to guess its language.
const maxGuess = 600

// maxUnknown is the length of a text that is compared in all languages if its own is unknown.
const maxUnknown = 120

// spokenIn returns the languages whose readings may relate two texts: those that they seem to be
// written in, and English. For a short text of which nothing tells the language, these are all.
// sure is whether the language is certain and has a table of numbers.
func spokenIn(generated, heard string) (list []*language, sure bool) {
	all := languages()
	text := head(generated) + " " + head(heard)
	votes := votes(text)
	most, best := 0, 0
	for i, n := range votes {
		if n > most {
			most, best = n, i
		}
	}
	for i, l := range all {
		if votes[i] > 0 && 2*votes[i] > most || i == 0 || most == 0 && len(generated) < maxUnknown {
			list = append(list, l)
		}
	}
	return list, most > 1 && 5*most > strings.Count(text, " ") && all[best].count != nil
}

// guessLanguage returns the language of a text as its code, or "" if it cannot tell.
func guessLanguage(text string) string {
	code, most := "", 0
	for i, n := range votes(head(text)) {
		if n > most {
			code, most = languages()[i].code, n
		}
	}
	return code
}

func head(text string) string {
	if len(text) > maxGuess {
		return strings.ToValidUTF8(text[:maxGuess], "")
	}
	return text
}

// votes counts for each language what speaks for it in a text: letters of its script, or, in the
// Latin script, its frequent words.
func votes(text string) []int {
	all := languages()
	votes := make([]int, len(all))
	latin := 0
	scripts := map[string]int{}
	for _, r := range text {
		if code := scriptLanguage(r); code != "" {
			scripts[code]++
		} else if unicode.IsLetter(r) {
			latin++
		}
	}
	kana, han := scripts["ja"], scripts["zh"]
	if kana > 0 {
		scripts["ja"] += han
		if 10*kana > han {
			delete(scripts, "zh")
		}
	} else if han > 0 {
		scripts["ja"] = han/2 + 1 // a few words may have no kana
	}
	known := frequentWords()
	for w := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) }) {
		for _, i := range known[w] {
			votes[i]++
		}
	}
	for i, l := range all {
		if n := scripts[l.code]; 2*n > latin {
			votes[i] += n
		}
	}
	return votes
}

// scriptLanguage returns the language that a letter of a script other than Latin is a sign of.
func scriptLanguage(r rune) string {
	switch {
	case unicode.Is(unicode.Han, r):
		return "zh"
	case unicode.In(r, unicode.Hiragana, unicode.Katakana):
		return "ja"
	case unicode.Is(unicode.Hangul, r):
		return "ko"
	case unicode.Is(unicode.Cyrillic, r):
		return "ru"
	case unicode.Is(unicode.Devanagari, r):
		return "hi"
	case unicode.Is(unicode.Arabic, r):
		return "ar"
	case unicode.Is(unicode.Thai, r):
		return "th"
	case unicode.Is(unicode.Greek, r):
		return "el"
	}
	return ""
}
