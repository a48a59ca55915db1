package window

// include leaves out what the include flags do not want.
func (r *rules) include(s []slot) []slot {
	if !r.includeSystem {
		s = filter(s, func(e slot) bool { return !e.system })
	}
	if !r.includeResults {
		s = withoutTools(s)
	}
	return s
}

// withoutTools leaves out tools' results, and with them the calls, which no LLM takes without: a message that also says something keeps that.
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

// filter keeps what ok says, in place.
func filter(s []slot, ok func(slot) bool) []slot {
	out := s[:0]
	for _, e := range s {
		if ok(e) {
			out = append(out, e)
		}
	}
	return out
}
