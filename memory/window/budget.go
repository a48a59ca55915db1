package window

// newestTokens removes exchanges, the oldest first, until the rest costs at most n tokens. With
// keepSystem system messages stay, and count. With keepLastUser it stops before the user's last
// words, or before the newest exchange if the user said nothing. n = 0 means no limit.
//
// It works from the end, so that only what stays, and one more exchange, is counted.
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

// lastWords returns the index of the user's last words, or else of the newest exchange that is not
// of the system, or else len(s).
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

// exchangeStart returns the start of the exchange whose last message is before end. A message with
// calls leaves together with the results that directly follow it; any other message leaves alone.
// From *alone on, results are known to have no call before them. A caller that goes from the end to
// the start passes the same variable, which starts as len(s).
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
