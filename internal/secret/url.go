package secret

import (
	"net/url"
	"slices"
	"strings"
)

// MaskURL returns an address as answers and logs show it: its password, and the values of query
// parameters that hold secrets, are replaced by Mask.
func MaskURL(raw string) string {
	if before, _, after, ok := splitLogin(raw); ok {
		raw = before + Mask + "@" + after
	}
	return editQuery(raw, inQuery, func(name, _ string) string { return name + "=" + Mask })
}

// StripURL returns an address without its login and without the query parameters that hold
// secrets.
func StripURL(raw string) string {
	if before, _, after, ok := splitLogin(raw); ok {
		raw = before + after
	}
	return editQuery(raw, inQuery, func(string, string) string { return "" })
}

// RestoreURL returns an address in which masked query parameters have the values that stored has
// for them. It returns false if stored has none.
func RestoreURL(raw, stored string) (string, bool) {
	had, found := map[string]string{}, true
	editQuery(stored, inQuery, func(name, value string) string {
		if _, ok := had[name]; !ok {
			had[name] = value
		}
		return ""
	})
	out := editQuery(raw, inQuery, func(name, value string) string {
		if !IsMask(unescape(value)) {
			return name + "=" + value
		}
		was, ok := had[name]
		found = found && ok
		return name + "=" + was
	})
	return out, found
}

// InURL returns the secrets in an address: a login, its password, and values in the query, as they
// stand there and decoded.
func InURL(raw string) []string {
	var out []string
	add := func(value string) {
		out = append(out, value)
		if plain := unescape(value); plain != value {
			out = append(out, plain)
		}
	}
	editQuery(raw, inQuery, func(_, value string) string { add(value); return "" })
	if _, login, _, ok := splitLogin(raw); ok {
		add(login)
		if _, password, ok := strings.Cut(login, ":"); ok {
			add(password)
		}
	}
	return out
}

// inLLMQuery reports whether a query parameter of an LLM's address is kept secret: gateways name
// their keys as they like, so each is but the version of Azure's API.
func inLLMQuery(name string) bool { return !strings.EqualFold(name, "api-version") }

// MaskLLMURL is MaskURL for the address of an LLM, whose query may hold a key under any name.
func MaskLLMURL(raw string) string {
	return editQuery(MaskURL(raw), inLLMQuery, func(name, _ string) string { return name + "=" + Mask })
}

// StripLLMURL is StripURL for the address of an LLM, whose query may hold a key under any name.
func StripLLMURL(raw string) string {
	return editQuery(StripURL(raw), inLLMQuery, func(string, string) string { return "" })
}

// InLLMURL returns the secrets in the address of an LLM, whose query may hold a key under any name.
// Beside those of InURL it returns name=value of each parameter, and the value alone if it cannot
// be a common word: one of at least eight bytes, or with a digit.
func InLLMURL(raw string) []string {
	out := InURL(raw)
	editQuery(raw, func(name string) bool { return inLLMQuery(name) && !inQuery(name) }, func(name, value string) string {
		out = append(out, name+"="+value)
		for _, v := range []string{value, unescape(value)} {
			if len(v) >= 8 || strings.ContainsAny(v, "0123456789") {
				out = append(out, v) // a set leaves out what is shorter than four bytes
			}
		}
		return ""
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// unescape decodes a part of a query, as it is if it cannot be decoded.
func unescape(value string) string {
	if plain, err := url.QueryUnescape(value); err == nil {
		return plain
	}
	return value
}

// editQuery replaces each query parameter of an address whose name is chosen by what edit returns
// for its name and value as they stand there; "" removes it. Nothing else is changed, and the
// address may be any text.
func editQuery(raw string, chosen func(name string) bool, edit func(name, value string) string) string {
	base, rest, ok := strings.Cut(raw, "?")
	if !ok {
		return raw
	}
	query, fragment, hasFragment := strings.Cut(rest, "#")
	var kept []string
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(name)
		if err == nil && value != "" && chosen(plain) {
			if pair = edit(name, value); pair == "" {
				continue
			}
		}
		kept = append(kept, pair)
	}
	if len(kept) > 0 {
		base += "?" + strings.Join(kept, "&")
	}
	if hasFragment {
		base += "#" + fragment
	}
	return base
}

// splitLogin cuts user:password@ out of an address. It returns false if there is none.
func splitLogin(raw string) (before, login, after string, ok bool) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return "", "", "", false
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	at := strings.LastIndexByte(rest[:end], '@')
	if at < 0 {
		return "", "", "", false
	}
	return scheme + "://", rest[:at], rest[at+1:], true
}
