package kv

import (
	"strings"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
)

// glob is a pattern of keys as Redis has it: * stands for any characters, ? for one, [abc], [a-z]
// and [^a-z] for one of a set or outside of it, and a backslash before a character for itself.
type glob []part

// part is a star, or what one character must be.
type part struct {
	star, any, not bool
	spans          [][2]rune // from, to
}

func (p *part) has(r rune) bool {
	for _, s := range p.spans {
		if s[0] <= r && r <= s[1] {
			return !p.not
		}
	}
	return p.any || p.not
}

func parseGlob(pattern string) (glob, error) {
	var g glob
	rest := []rune(pattern)
	next := func() rune { // the next character, which a backslash may hide
		if rest[0] == '\\' && len(rest) > 1 {
			rest = rest[1:]
		}
		r := rest[0]
		rest = rest[1:]
		return r
	}
	for len(rest) > 0 {
		switch rest[0] {
		case '*':
			rest = rest[1:]
			if len(g) == 0 || !g[len(g)-1].star {
				g = append(g, part{star: true})
			}
		case '?':
			rest = rest[1:]
			g = append(g, part{any: true})
		case '[':
			p := part{}
			if rest = rest[1:]; len(rest) > 0 && (rest[0] == '^' || rest[0] == '!') {
				p.not, rest = true, rest[1:]
			}
			for len(rest) > 0 && rest[0] != ']' {
				span := [2]rune{next()}
				if span[1] = span[0]; len(rest) > 1 && rest[0] == '-' && rest[1] != ']' {
					rest = rest[1:]
					span[1] = next()
				}
				if span[0] > span[1] {
					return nil, fault.At(fault.Invalid, "pattern", "%c-%c in [ ] is in the wrong order", span[0], span[1])
				}
				p.spans = append(p.spans, span)
			}
			if len(rest) == 0 || len(p.spans) == 0 {
				return nil, fault.At(fault.Invalid, "pattern", `a [ has no ], or nothing between them; \[ stands for the character`)
			}
			rest = rest[1:]
			g = append(g, p)
		default:
			r := next()
			g = append(g, part{spans: [][2]rune{{r, r}}})
		}
	}
	return g, nil
}

// match reports whether a key matches. Only the last star that was met can need another try.
func (g glob) match(key string) bool {
	at, star, again := 0, -1, 0 // in g; the last star, and where in key the part after it begins
	for i := 0; i < len(key); {
		r, size := utf8.DecodeRuneInString(key[i:])
		switch {
		case at < len(g) && g[at].star:
			star, again = at, i
			at++
		case at < len(g) && g[at].has(r):
			at++
			i += size
		case star >= 0:
			_, size := utf8.DecodeRuneInString(key[again:])
			again += size
			at, i = star+1, again
		default:
			return false
		}
	}
	for at < len(g) && g[at].star {
		at++
	}
	return at == len(g)
}

// prefixOf returns the characters with which all keys that match a pattern begin.
func prefixOf(pattern string) string {
	if end := strings.IndexAny(pattern, `*?[\`); end >= 0 {
		return pattern[:end]
	}
	return pattern
}
