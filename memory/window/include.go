package window

// include removes what the include flags exclude.
func (r *rules) include(s []slot) []slot {
	if !r.includeSystem {
		s = filter(s, func(e slot) bool { return !e.system })
	}
	if !r.includeResults {
		s = withoutTools(s)
	}
	return s
}

// withoutTools removes the results of tools, and the calls, because LLMs reject a call without its
// result. A message that also has text keeps that.
func withoutTools(s []slot) []slot {
	out := s[:0]
	for _, e := range s {
		if e.links {
			var ok bool
			if e, ok = e.without(func(string) bool { return true }, func(string) bool { return true }); !ok {
				continue
			}
		}
		out = append(out, e)
	}
	return out
}

// filter keeps the messages for which ok returns true, in place.
func filter(s []slot, ok func(slot) bool) []slot {
	out := s[:0]
	for _, e := range s {
		if ok(e) {
			out = append(out, e)
		}
	}
	return out
}
