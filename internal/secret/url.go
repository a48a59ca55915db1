package secret

import (
	"net/url"
	"strings"
)

// MaskURL returns an address as answers and logs show it: its password, and the values of query
// parameters that hold secrets, are replaced by Mask.
func MaskURL(raw string) string {
	if before, _, after, ok := splitLogin(raw); ok {
		raw = before + Mask + "@" + after
	}
	return editQuery(raw, func(name, _ string) string { return name + "=" + Mask })
}

// StripURL returns an address without its login and without the query parameters that hold
// secrets.
func StripURL(raw string) string {
	if before, _, after, ok := splitLogin(raw); ok {
		raw = before + after
	}
	return editQuery(raw, func(string, string) string { return "" })
}

// RestoreURL returns an address in which masked query parameters have the values that stored has
// for them. It returns false if stored has none.
func RestoreURL(raw, stored string) (string, bool) {
	had, found := map[string]string{}, true
	editQuery(stored, func(name, value string) string {
		if _, ok := had[name]; !ok {
			had[name] = value
		}
		return ""
	})
	out := editQuery(raw, func(name, value string) string {
		if plain, err := url.QueryUnescape(value); err != nil || !IsMask(plain) {
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
		if plain, err := url.QueryUnescape(value); err == nil && plain != value {
			out = append(out, plain)
		}
	}
	editQuery(raw, func(_, value string) string { add(value); return "" })
	if _, login, _, ok := splitLogin(raw); ok {
		add(login)
		if _, password, ok := strings.Cut(login, ":"); ok {
			add(password)
		}
	}
	return out
}

// editQuery replaces each query parameter of an address that holds a secret by what edit returns
// for its name and value as they stand there; "" removes it. Nothing else is changed, and the
// address may be any text.
func editQuery(raw string, edit func(name, value string) string) string {
	base, rest, ok := strings.Cut(raw, "?")
	if !ok {
		return raw
	}
	query, fragment, hasFragment := strings.Cut(rest, "#")
	var kept []string
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(name)
		if err == nil && value != "" && inQuery(plain) {
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
