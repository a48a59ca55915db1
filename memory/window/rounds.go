package window

// lastRounds keeps the newest n rounds. A round starts with a user message, answered or not. If
// there are no more than n, nothing is cut, not even what is before the first round. With
// keepSystem system messages before the cut stay. n = 0 means no limit.
func lastRounds(s []slot, n int, keepSystem bool) []slot {
	if n <= 0 {
		return s
	}
	cut, users := 0, 0
	for i := len(s) - 1; i >= 0 && users <= n; i-- {
		if !s[i].m.isRealUser() {
			continue
		}
		if users++; users == n {
			cut = i
		}
	}
	if users <= n {
		return s
	}
	return from(s, cut, keepSystem)
}

// newestMessages keeps the newest n messages. With keepSystem system messages stay and do not
// count; otherwise they are cut like others. n = 0 means no limit.
func newestMessages(s []slot, n int, keepSystem bool) []slot {
	if n <= 0 || len(s) <= n {
		return s
	}
	for i := len(s) - 1; i >= 0; i-- {
		if keepSystem && s[i].system {
			continue
		}
		if n == 0 {
			return from(s, i+1, keepSystem)
		}
		n--
	}
	return s
}

// from returns the messages from cut on and, with keepSystem, the system messages before them, in
// place.
func from(s []slot, cut int, keepSystem bool) []slot {
	if !keepSystem {
		return s[cut:]
	}
	out := s[:0]
	for i, e := range s {
		if i >= cut || e.system {
			out = append(out, e)
		}
	}
	return out
}
