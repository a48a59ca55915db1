package window

// lastRounds keeps the newest n rounds; a round opens with a user message, answered or not (003-12). If there are no more than n, nothing is cut, what stands
// in front of the first included. System messages in front of the cut stay if asked (003-13). n = 0 is no limit.
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

// newestMessages keeps the newest n messages. If asked, system messages stay and are not counted; else they are cut as all others are (000-18). n = 0 is no limit.
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

// from gives what stands at cut and behind it, and in front of that the system messages from before the cut, if asked. In place.
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
