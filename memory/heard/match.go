package heard

import (
	"sort"
)

// Limits on the work of one alignment: bytes compared, beyond reading the texts, and the cost of
// one lookup of readings. Real texts need a small part of it. The limits stop texts of numbers that
// can be read in very many ways.
const (
	matchBudget = 2 << 20
	choiceCost  = 128
)

// choice is one way to hear a stretch of a speech: as text, instead of its own bytes up to to.
type choice struct {
	text string
	to   int32
}

// cursor is a place in a speech: before the byte at pos or, if rest is not empty, inside a choice
// made at pos.
type cursor struct {
	pos, to int32
	rest    string
}

func (c cursor) take(alt choice) cursor {
	if alt.text == "" {
		return cursor{pos: alt.to}
	}
	return cursor{pos: c.pos, to: alt.to, rest: alt.text}
}

// next returns the byte at the cursor; there must be one.
func (c cursor) next(s *speech) byte {
	if c.rest != "" {
		return c.rest[0]
	}
	return s.text[c.pos]
}

func (c cursor) advance() cursor {
	switch len(c.rest) {
	case 0:
		return cursor{pos: c.pos + 1}
	case 1:
		return cursor{pos: c.to}
	}
	c.rest = c.rest[1:]
	return c
}

func (c cursor) choosing(s *speech) bool { return c.rest == "" && s.marks[c.pos]&markChoice != 0 }

func (c cursor) atEnd(s *speech) bool { return c.rest == "" && int(c.pos) == len(s.text) }

// pair is a place in both texts.
type pair struct{ g, h cursor }

// matcher finds one speech in another, taking for each number and symbol of both the reading that
// fits.
type matcher struct {
	g, h   *speech
	budget int
	stack  []step
	// Places with choices that were visited: what follows from them is done, or is on the stack.
	// Most are in plain, by their two offsets.
	plain map[uint64]struct{}
	seen  map[pair]struct{}
}

// step is something still to try: go on from a place or, with choose, make each of its choices.
type step struct {
	pair
	choose bool
}

func newMatcher(g, h *speech) *matcher {
	return &matcher{
		g: g, h: h, budget: matchBudget + len(g.text) + len(h.text),
		plain: map[uint64]struct{}{}, seen: map[pair]struct{}{},
	}
}

// visit marks a place as visited and reports whether it is new.
func (m *matcher) visit(p pair) bool {
	if p.g.rest != "" || p.h.rest != "" {
		n := len(m.seen)
		m.seen[p] = struct{}{}
		return len(m.seen) > n
	}
	n := len(m.plain)
	m.plain[uint64(p.g.pos)<<32|uint64(p.h.pos)] = struct{}{}
	return len(m.plain) > n
}

// prefix returns how much of g is heard if g begins with h.
func (m *matcher) prefix() (end int32, ok bool) {
	end, _, ok = m.from(0)
	return end, ok
}

// from matches all of h with g from start on and returns where in g it ends. If both have the same
// bytes to the end of h, that is the result, also inside a word, so that text cut from g is always
// found where it was cut. Otherwise it is the first end of a word that some choice of readings
// leads to, or the farthest place inside a word. The latest choice is undone first.
func (m *matcher) from(start int32) (end int32, whole, ok bool) {
	first := pair{g: cursor{pos: start}}
	if end, whole = m.walk(first); end >= 0 {
		m.forget()
		return end, whole, true
	}
	for len(m.stack) > 0 && m.budget > 0 {
		s := m.stack[len(m.stack)-1]
		m.stack = m.stack[:len(m.stack)-1]
		if s.choose {
			m.choose(s.pair)
			continue
		}
		at, word := m.walk(s.pair)
		// At start, h is all optional and was left out: no match to prefer.
		if word && at > start && at >= end {
			m.forget()
			return at, true, true
		}
		end = max(end, at)
	}
	return end, false, end >= 0
}

// forget drops what is left on the stack, and with it what was noted as done or to be done.
func (m *matcher) forget() {
	if len(m.stack) == 0 {
		return // all that was noted is done
	}
	m.stack = m.stack[:0]
	// Clearing takes time by the largest size they ever had.
	m.plain, m.seen = map[uint64]struct{}{}, map[pair]struct{}{}
}

// walk advances while both texts have the same bytes. It returns where in g all of h is heard and
// whether a word ends there, or -1. It puts places with choices on the stack.
func (m *matcher) walk(p pair) (end int32, word bool) {
	for {
		m.budget--
		if p.h.atEnd(m.h) {
			return p.g.pos, p.g.rest == "" && m.g.marks[p.g.pos]&markWord != 0
		}
		if p.g.choosing(m.g) || p.h.choosing(m.h) {
			if !m.visit(p) {
				return -1, false
			}
			m.stack = append(m.stack, step{p, true})
		}
		if p.g.atEnd(m.g) || p.g.next(m.g) != p.h.next(m.h) {
			return -1, false
		}
		p.g, p.h = p.g.advance(), p.h.advance()
	}
}

// choose puts on the stack what follows from each choice at the place.
func (m *matcher) choose(p pair) {
	gc, hc := p.g.choosing(m.g), p.h.choosing(m.h)
	if gc {
		for _, alt := range m.choicesAt(m.g, p.g.pos) {
			if hc || alt.text == "" || alt.text[0] == p.h.next(m.h) {
				m.stack = append(m.stack, step{pair{p.g.take(alt), p.h}, false})
			}
		}
	}
	if hc {
		for _, alt := range m.choicesAt(m.h, p.h.pos) {
			if gc || alt.text == "" || !p.g.atEnd(m.g) && alt.text[0] == p.g.next(m.g) {
				m.stack = append(m.stack, step{pair{p.g, p.h.take(alt)}, false})
			}
		}
	}
}

// choicesAt returns the choices at a place, at their cost.
func (m *matcher) choicesAt(s *speech, at int32) []choice {
	said := s.said
	list := s.choicesAt(at)
	m.budget -= choiceCost + s.said - said
	return list
}

// run finds h as consecutive words anywhere in g and returns where the first such run ends. A
// single word must occur once and be whole. A longer run may end inside a word if none ends with
// one.
func (m *matcher) run() (end int32, ok bool) {
	single := m.h.words < 2
	start, end, half, count := m.plainRun(single)
	if m.g.choices || m.h.choices {
		limit := start // a run by readings counts only if it comes first
		if single || start < 0 {
			limit = int32(len(m.g.text))
		}
		for at := int32(0); at < limit && m.budget > 0; at++ {
			if !m.mayStart(at) {
				continue
			}
			to, whole, found := m.from(at)
			switch {
			case whole && at == start: // the plain run
			case whole:
				count++
				if start < 0 || at < start {
					start, end = at, to
				}
			case found && to > at && half < 0:
				half = to
			}
			if count > 1 || whole && !single {
				break
			}
		}
	}
	switch {
	case single:
		return end, count == 1 && m.budget > 0
	case start >= 0:
		return end, true
	}
	return half, half > 0
}

// mayStart reports whether a run may start at the byte.
func (m *matcher) mayStart(at int32) bool {
	return m.g.marks[at]&markWord != 0 &&
		(m.g.marks[at]&markChoice != 0 || m.h.marks[0]&markChoice != 0 || m.g.text[at] == m.h.text[0])
}

// plainRun finds h in g byte for byte, starting at a word: where the first run starts and ends, or
// -1; where the first run ends that ends inside a word, or -1; and how many there are, counted
// beyond the first only if all is set. It is the Knuth–Morris–Pratt search, linear in any case.
func (m *matcher) plainRun(all bool) (start, end, half int32, count int) {
	g, h := m.g.text, m.h.text
	// Border[i]: longest proper prefix of h[:i] that is its suffix too.
	border := make([]int32, len(h)+1)
	for i, k := 1, int32(0); i < len(h); i++ {
		for k > 0 && h[i] != h[k] {
			k = border[k]
		}
		if h[i] == h[k] {
			k++
		}
		border[i+1] = k
	}
	start, end, half = -1, -1, -1
	k := int32(0)
	for i := range len(g) {
		for k > 0 && g[i] != h[k] {
			k = border[k]
		}
		if g[i] == h[k] {
			k++
		}
		if int(k) < len(h) {
			continue
		}
		to := int32(i + 1)
		from := to - k
		k = border[k]
		switch {
		case m.g.marks[from]&markWord == 0:
		case m.g.marks[to]&markWord == 0:
			if half < 0 {
				half = to
			}
		default:
			if count++; start < 0 {
				start, end = from, to
			}
			if !all {
				return start, end, half, count
			}
		}
	}
	return start, end, half, count
}

// skipsAt returns the optional stretches that start at the byte.
func (s *speech) skipsAt(n int32) []skipStretch {
	if s.marks[n]&markSkip == 0 {
		return nil
	}
	i := sort.Search(len(s.skips), func(i int) bool { return s.skips[i].from >= n })
	j := i
	for j < len(s.skips) && s.skips[j].from == n {
		j++
	}
	return s.skips[i:j]
}
