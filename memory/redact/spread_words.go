package redact

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// set returns the words of a text as a set.
func set(words string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(words) {
		out[w] = true
	}
	return out
}

// fillers are words that stand before and behind the parts of a number and mean nothing.
var fillers = set(`um uh er erm ah hm hmm mm mhm huh yes yeah yep ok okay right sure well so and then it its s is that thats now the
	next rest ja jo und dann äh ähm hm also jetzt genau so weiter oui et puis euh ensuite alors donc c est sí sì si y luego entonces eh
	bueno e poi allora ecco sim depois então pois en dan dus`)

// cues are words that urge a speaker to go on with a number.
var cues = set(`rest remaining remainder continue continues digits next further weiter restlichen ziffern suite chiffres resto
	dígitos continúe continua continue prosegua cifre siga verder cijfers`)

// listens are words of a listener who waits for the rest of a number, beside fillers and numbers.
var listens = set(`go on ahead please i m am listening got have noted you re me you're uh-huh mm-hm mhm-hm alright great perfect good thanks
	thank first last here yup sorry pardon bitte habe ich notiert gut danke verstanden allez oui-oui d'accord accord je vous note adelante
	vale prego va bene perfetto certo pode dizer ga door moment one`)

// urges reports whether a listener only waits for the rest of a number, which began with part, or
// repeats of it.
func urges(s, part string) bool {
	said := digitsIn(part)
	for _, n := range runs(s) {
		if len(n.name) > 1 && strings.Contains(said, n.name) {
			return true
		}
	}
	only := true
	for _, w := range wordsOf(s[:clipEnd(s, 0)]) {
		if cues[w.name] {
			return true
		}
		only = only && (fillers[w.name] || listens[w.name] || digitWords[w.name] != "")
	}
	return only && len(s) < maxEdge
}

// isAside reports whether a text has few words and no number, such as "hold on".
func isAside(s string) bool {
	return len(s) <= maxEdge && len(wordsOf(s)) <= maxAside && !strings.ContainsFunc(s, unicode.IsDigit)
}

// namesCode reports whether a text ends with the word for a code, as "my PIN is" does and "What is
// your PIN?".
func namesCode(s string) bool {
	from := max(0, len(s)-askedWords)
	for from > 0 && !utf8.RuneStart(s[from]) {
		from--
	}
	s = s[from:]
	s = s[:trimmedEnd(s)]
	m := code.FindAllStringIndex(s, -1)
	return len(m) > 0 && !openCode.MatchString(s) && len(tokenize(s[m[len(m)-1][0]:])) == 0
}

// trimmedEnd returns the length of a text without the marks at its end.
func trimmedEnd(s string) int { return len(strings.TrimRight(s, " .,;:!?-–…\n")) }

// clipEnd returns where the piece of a text that is searched from start on ends.
func clipEnd(s string, start int) int {
	end := start + maxEdge
	if end >= len(s) {
		return len(s)
	}
	if at := strings.LastIndexByte(s[start:end], ' '); at > 0 {
		return start + at
	}
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return end
}

// clipStart returns where the piece at the end of a text that is searched starts.
func clipStart(s string) int {
	start := len(s) - maxEdge
	if start <= 0 {
		return 0
	}
	if at := strings.IndexByte(s[start:], ' '); at >= 0 {
		return start + at + 1
	}
	for !utf8.RuneStart(s[start]) {
		start++
	}
	return start
}

// addressParts returns the lines of a speaker that the address in a line may have begun in.
func (r *Redactor) addressParts(lines []Line, last int) chain {
	if !r.types[Email] || !continuesAddress(lines[last].Text) {
		return chain{}
	}
	c := chain{parts: []fragment{{last, 0, clipEnd(lines[last].Text, 0)}}, together: " "}
	for i, asides := last-1, 0; i >= 0 && last-i <= MaxLines && len(c.parts) < maxParts; i-- {
		l, next := &lines[i], c.parts[len(c.parts)-1]
		if l.Speaker != lines[last].Speaker {
			continue
		}
		if at := lines[next.line].AtMS; l.AtMS > 0 && at-l.AtMS > maxPauseMS {
			break
		}
		if !leadsAddress(next.of(lines)) && !trailsAddress(l.Text) {
			if asides++; asides > maxAsides || !isAside(l.Text) {
				break
			}
			continue
		}
		p := fragment{i, clipStart(l.Text), trimmedEnd(l.Text)}
		if strings.HasPrefix(next.of(lines), "@") || strings.HasSuffix(p.of(lines), "@") {
			c.together = ""
		}
		c.parts = append(c.parts, p)
	}
	slices.Reverse(c.parts)
	c.search(r.only(Email), 0)
	return c
}

// continuesAddress reports whether a text begins as the rest of an address may.
func continuesAddress(s string) bool {
	if leadsAddress(s) {
		return true
	}
	s = s[:clipEnd(s, 0)]
	if !strings.Contains(strings.TrimRight(s, ". "), ".") && !slices.ContainsFunc(dotWords, func(w string) bool { return strings.Contains(s, w) }) {
		return false
	}
	words := firstWords(s, maxParts+1)
	for i, w := range words {
		if i > 2 && !slices.Contains(joinWords, words[i-1].name) || i == maxParts {
			return false
		}
		if slices.Contains(dotWords, w.name) || i > 0 && s[words[i-1].end:w.start] == "." {
			return true
		}
	}
	return false
}

// leadsAddress and trailsAddress report whether a text begins or ends with what joins the parts of
// an address.
func leadsAddress(s string) bool {
	words := firstWords(s, 1)
	return strings.HasPrefix(s, "@") || len(words) > 0 && joinsAddress(words[0].name)
}

func trailsAddress(s string) bool {
	words := wordsOf(s[clipStart(s):])
	return strings.HasSuffix(s, "@") || len(words) > 0 && joinsAddress(words[len(words)-1].name)
}

func joinsAddress(word string) bool {
	return slices.Contains(atWords, word) || slices.Contains(joinWords, word)
}
