package window

// newestTokens takes exchanges away, the oldest first, until what is left costs n tokens at most (001-8 to 001-10). System messages stay if asked, and count.
// If asked, it stops in front of the user's newest words, or of the newest exchange where the user said nothing (001-12). n = 0 is no limit.
//
// It looks from the end, so that only what is kept, and one exchange more, has to be counted.
func newestTokens(s []slot, c Counter, n int, keepSystem, keepLastUser bool) []slot {
	if n <= 0 || len(s) == 0 {
		return s
	}
	left := n * c.PerToken()
	if keepSystem {
		for _, e := range s {
			if e.system {
				left -= c.Size(e.m)
			}
		}
	}
	pinned := len(s)
	if keepLastUser {
		pinned = lastWords(s, keepSystem)
	}
	cut, alone := len(s), len(s)
	for cut > 0 {
		start := exchangeStart(s, cut-1, &alone)
		if keepSystem && s[start].system {
			cut = start
			continue
		}
		for _, e := range s[start:cut] {
			left -= c.Size(e.m)
		}
		if left < 0 && start < pinned {
			break
		}
		cut = start
	}
	if cut == 0 {
		return s
	}
	return from(s, cut, keepSystem)
}

// lastWords gives where the user's newest words stand, or the newest exchange that is not of the system where there are none; len(s) if there is neither.
func lastWords(s []slot, keepSystem bool) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i].m.isRealUser() {
			return i
		}
	}
	for i := len(s) - 1; i >= 0; i-- {
		if !keepSystem || !s[i].system {
			alone := len(s)
			return exchangeStart(s, i, &alone)
		}
	}
	return len(s)
}

// isResult is Message.isResult, without looking at messages that cannot be one.
func (e *slot) isResult() bool { return e.links && e.m.isResult() }

// exchangeStart gives where the exchange begins whose last message stands at end: a message with calls leaves together with the results that follow it
// directly, every other message leaves alone. From alone on, results are known to have no call in front of them; it is kept up by one who goes from the end to
// the beginning, and starts as len(s).
func exchangeStart(s []slot, end int, alone *int) int {
	if end >= *alone || !s[end].isResult() {
		return end
	}
	i := end - 1
	for i >= 0 && s[i].isResult() {
		i--
	}
	if i >= 0 && s[i].links && s[i].m.makesCalls() {
		return i
	}
	*alone = i + 1
	return end
}
