package replay

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/internal/text"
)

// own are the members of a body that params must not set.
var own = []string{"messages", "model", "stream", "stream_options", "n"}

// Check returns fault.Invalid if the change cannot be made.
func (c *Change) Check() error {
	if len(c.Params) > MaxParams {
		return fault.At(fault.Invalid, "params", "has %d bytes; at most %d are allowed", len(c.Params), MaxParams)
	}
	if c.System != nil && len(*c.System) > MaxSystem {
		return fault.At(fault.Invalid, "system", "has %d bytes; at most %d are allowed", len(*c.System), MaxSystem)
	}
	if len(c.Params) > 0 && !peek.Parse(c.Params).IsObject() {
		return fault.At(fault.Invalid, "params", "must be an object")
	}
	if len(c.Params) > 0 && len(secret.InJSON(c.Params)) > 0 {
		return fault.At(fault.Invalid, "params", "must not hold a key or another secret; send a key in llm.api_key")
	}
	return peek.Object(c.Params, func(name, _ []byte) error {
		if s := peek.Unquote(name); slices.Contains(own, s) {
			return fault.At(fault.Invalid, "params."+s, "cannot be set here")
		}
		return nil
	})
}

// apply returns a body as it is asked again: changed, and without a stream. What is not changed
// keeps its bytes and its place.
func (c *Change) apply(body []byte) []byte {
	out := make([]byte, 0, len(body)+len(c.Params)+256)
	put := func(name, value []byte) {
		if out = append(out, ','); len(out) == 1 {
			out[0] = '{'
		}
		out = append(append(append(out, name...), ':'), value...)
	}
	set := map[string][]byte{}
	_ = peek.Object(c.Params, func(name, v []byte) error { set[peek.Unquote(name)] = v; return nil })
	if c.Model != "" {
		set["model"] = text.AppendJSON(nil, c.Model)
	}
	_ = peek.Object(body, func(name, v []byte) error {
		s := peek.Unquote(name)
		switch to, ok := set[s]; {
		case s == "stream" || s == "stream_options":
		case s == "messages" && c.System != nil:
			put(name, withSystem(v, *c.System))
		case ok:
			put(name, to)
			delete(set, s)
		default:
			put(name, v)
		}
		return nil
	})
	for _, name := range sortedKeys(set) {
		put(text.AppendJSON(nil, name), set[name])
	}
	return append(out, '}')
}

func sortedKeys(m map[string][]byte) (out []string) {
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// withSystem returns a list of messages whose first system message has another text. One is put in
// front of a list without any.
func withSystem(messages []byte, system string) []byte {
	for _, v := range peek.Parse(messages).List() {
		if role := v.At("role").Str(); role == "system" || role == "developer" {
			if content := v.At("content"); content.Exists() {
				return peek.Replace(messages, content, string(text.AppendJSON(nil, system)))
			}
		}
	}
	m := append(text.AppendJSON([]byte(`{"role":"system","content":`), system), '}')
	at := bytes.IndexByte(messages, '[') + 1
	if rest := bytes.TrimSpace(messages[at:]); len(rest) > 0 && rest[0] != ']' {
		m = append(m, ',')
	}
	return slices.Concat(messages[:at], m, messages[at:])
}

// valid reports whether a stored body can be asked again.
func valid(body []byte) bool {
	return json.Valid(body) && peek.At(body, "messages").IsArray()
}
