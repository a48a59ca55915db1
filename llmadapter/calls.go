package llmadapter

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/text"
)

// maxCalls limits how many tool calls of one answer are kept.
const maxCalls = 128

// toolCall is one call of an answer, joined from its deltas.
type toolCall struct {
	index    int64 // -1 without one
	id, kind string
	name     []byte
	args     pieces
	more     merged // members beside those above, an object
	function merged // those of its function
}

// whole reports whether the arguments are complete.
func (c *toolCall) whole() bool {
	return len(c.args.whole) > 0 && c.args.whole[len(c.args.whole)-1] == '}' && peek.Valid(c.args.whole)
}

// callDelta is one delta of a call, as it came.
type callDelta struct {
	id, kind, name string
	args           []byte // JSON; nil for none
	index          int64  // -1 without one
	object, fn     []byte
}

func readCallDelta(object []byte) callDelta {
	d := callDelta{object: object, index: -1}
	_ = peek.Object(object, func(name, v []byte) error {
		switch string(name) {
		case `"id"`:
			d.id = textOf(v)
		case `"type"`:
			d.kind = textOf(v)
		case `"index"`:
			if n, err := strconv.ParseInt(textOf(v), 10, 64); err == nil && n >= 0 {
				d.index = n
			}
		case `"function"`:
			d.fn = v
			d.name = peek.At(v, "name").Str()
			if args, ok := lookup(v, "arguments"); ok && args[0] != 'n' {
				d.args = args
			}
		}
		return nil
	})
	return d
}

// isWhole reports whether the delta is a complete call.
func (d *callDelta) isWhole() bool {
	switch {
	case d.name == "" || d.args == nil:
		return false
	case d.args[0] == '{':
		return true
	}
	args := bytes.TrimSpace([]byte(textOf(d.args)))
	return len(args) > 1 && args[0] == '{' && peek.Valid(args)
}

// callOf returns the call that a delta goes on with, or nil for a new one. Another ID is another
// call, whatever its index: some servers give all calls the index 0. So is a whole call after a
// whole call, where a server sends neither.
func (r *Record) callOf(d *callDelta) *toolCall {
	var same, last *toolCall // by the index, and of all
	for i := range r.calls {
		c := &r.calls[i]
		if d.id != "" && c.id == d.id {
			return c
		}
		if d.index >= 0 && c.index == d.index {
			same = c
		}
		last = c
	}
	c := same
	if d.index < 0 && d.id == "" || c == nil && d.name == "" {
		c = last
	}
	switch {
	case c == nil:
		return nil
	case d.id != "" && c.id != "" && d.name != "": // without a name it cannot begin a call
		return nil
	case d.name != "" && c.whole() && d.isWhole():
		return nil
	case d.index < 0 && d.name != "" && len(c.name) > 0 && len(c.args.whole) == 0 && d.name != string(c.name):
		return nil
	}
	return c
}

// toolCall adds one delta of a call.
func (r *Record) toolCall(object []byte) {
	if len(object) == 0 || object[0] != '{' {
		return
	}
	d := readCallDelta(object)
	c := r.callOf(&d)
	begun := c == nil
	if c == nil && len(r.calls) == maxCalls {
		r.cut = true
		return
	}
	if c == nil {
		r.calls = append(r.calls, toolCall{index: d.index, more: merged{kind: '{'}, function: merged{kind: '{'}})
		c = &r.calls[len(r.calls)-1]
	} else if d.id != "" && d.isWhole() && c.whole() {
		return // sent again
	}
	r.spoke = true
	keep := func(s string) string {
		s = r.room(r.callBytes, s)
		r.callBytes += len(s)
		return s
	}
	if c.id == "" {
		c.id = keep(d.id)
	}
	if c.kind == "" {
		c.kind = keep(d.kind)
	}
	// Some servers repeat the name with each piece of the arguments.
	if len(c.args.whole) == 0 && d.name != string(c.name) {
		c.name = append(c.name, keep(d.name)...)
	}
	at := r.indexOf(c)
	if begun {
		r.changed(CallBegun, "", at)
	}
	args := ""
	switch {
	case d.args == nil:
	case d.args[0] == '{': // some servers send an object
		args = keep(string(d.args))
	case d.args[0] == '"':
		args = keep(c.args.next(d.args))
	}
	c.args.whole = append(c.args.whole, args...)
	r.changed(CallArguments, args, at)
	r.more(&c.more, d.object, "id", "type", "index", "function")
	if d.fn != nil {
		r.more(&c.function, d.fn, "name", "arguments")
	}
}

func (r *Record) indexOf(c *toolCall) int {
	for i := range r.calls {
		if c == &r.calls[i] {
			return i
		}
	}
	return -1
}

// more merges the members of an object that have no field of their own.
func (r *Record) more(into *merged, object []byte, own ...string) {
	_ = peek.Object(object, func(name, v []byte) error {
		for _, o := range own {
			if peek.NameIs(name, o) {
				return nil
			}
		}
		n := peek.Unquote(name)
		into.member(n).merge(n, v, &r.budget, 1)
		return nil
	})
}

// ToolCalls returns the calls as an OpenAI tool_calls array, or nil. Members that OpenAI does not
// have are kept, such as Gemini's extra_content.
func (r *Record) ToolCalls() []byte {
	if r.wholeCalls != nil || len(r.calls) == 0 {
		return r.wholeCalls
	}
	out := []byte{'['}
	for i := range r.calls {
		c := &r.calls[i]
		if i > 0 {
			out = append(out, ',')
		}
		kind := c.kind
		if kind == "" {
			kind = "function"
		}
		out = append(text.AppendJSON(append(out, `{"id":`...), c.id), `,"type":`...)
		out = append(text.AppendJSON(out, kind), `,"function":{"name":`...)
		out = append(text.AppendJSON(out, string(c.name)), `,"arguments":`...)
		args := string(c.args.whole)
		if args == "" {
			args = "{}"
		}
		out = text.AppendJSON(out, args)
		if !r.budget.exceeded {
			out = c.function.appendMembers(out)
		}
		out = append(out, '}')
		if !r.budget.exceeded {
			out = c.more.appendMembers(out)
		}
		out = append(out, '}')
	}
	return append(out, ']')
}

// Calls reports whether the answer calls a tool, as far as it was read.
func (r *Record) Calls() bool {
	return r.wholeCalls != nil || len(r.calls) > 0 || r.members.get(functionCall) != nil
}

// functionCall is the older form of a tool call: a member of the message, without an ID.
const functionCall = "function_call"

// SameCalls reports whether two tool_calls arrays make the same calls: the same IDs, names and
// arguments in the same order. White space and the order of members do not matter.
func SameCalls(a, b []byte) bool {
	return len(a) > 0 && len(b) > 0 && slices.Equal(signatures(a), signatures(b))
}

// signatures returns the ID, name and arguments of each call.
func signatures(calls []byte) []string {
	var out []string
	peek.Array(editCalls(calls, true), func(call []byte) {
		fn, _ := lookup(call, "function")
		args := jsontext.Value(peek.At(fn, "arguments").Str())
		_ = args.Canonicalize() // what is not JSON stays as it is
		out = append(out, peek.At(call, "id").Str()+"\x00"+peek.At(fn, "name").Str()+"\x00"+string(args))
	})
	return out
}

// editCalls returns a tool_calls array as it goes upstream: arguments are a string, and empty ones
// are {}, since servers parse them. With plain, the calls have only OpenAI's members.
func editCalls(calls []byte, plain bool) []byte {
	if len(calls) == 0 || calls[0] != '[' {
		return calls
	}
	edited := plain
	if !edited {
		peek.Array(calls, func(call []byte) { edited = edited || needsArguments(call) })
	}
	if !edited {
		return calls
	}
	out := []byte{'['}
	peek.Array(calls, func(call []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = appendCall(out, call, plain)
	})
	return append(out, ']')
}

// needsArguments reports whether a call has no arguments as a string.
func needsArguments(call []byte) bool {
	fn, ok := lookup(call, "function")
	if !ok || fn[0] != '{' {
		return false
	}
	args, ok := lookup(fn, "arguments")
	return !ok || args[0] != '"' || len(bytes.TrimSpace(args[1:len(args)-1])) == 0
}

// appendCall appends a call as it goes upstream.
func appendCall(dst, call []byte, plain bool) []byte {
	return appendEdited(dst, call, func(dst, name, v []byte) []byte {
		switch {
		case peek.NameIs(name, "function") && v[0] == '{':
			return appendFunction(append(append(dst, name...), ':'), v, plain)
		case plain && !peek.NameIs(name, "id") && !peek.NameIs(name, "type") && !peek.NameIs(name, "custom"):
			return dst
		}
		return append(append(append(dst, name...), ':'), v...)
	})
}

// appendFunction appends the function of a call as it goes upstream.
func appendFunction(dst, fn []byte, plain bool) []byte {
	found := false
	dst = appendEdited(dst, fn, func(dst, name, v []byte) []byte {
		switch {
		case peek.NameIs(name, "arguments"):
			found = true
			switch {
			case v[0] == 'n', v[0] == '"' && len(bytes.TrimSpace(v[1:len(v)-1])) == 0:
				v = []byte(`"{}"`)
			case v[0] != '"':
				v = text.AppendJSON(nil, string(v))
			}
		case plain && !peek.NameIs(name, "name"):
			return dst
		}
		return append(append(append(dst, name...), ':'), v...)
	})
	if found {
		return dst
	}
	dst = dst[:len(dst)-1]
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	return append(dst, `"arguments":"{}"}`...)
}

// appendEdited appends an object whose members edit appends, or leaves out.
func appendEdited(dst, object []byte, edit func(dst, name, v []byte) []byte) []byte {
	dst = append(dst, '{')
	_ = peek.Object(object, func(name, v []byte) error {
		before := len(dst)
		if dst[before-1] != '{' {
			dst = append(dst, ',')
		}
		start := len(dst)
		if dst = edit(dst, name, v); len(dst) == start {
			dst = dst[:before]
		}
		return nil
	})
	return append(dst, '}')
}

// withSigned returns a client's tool_calls array with the members that the ledger's calls of the
// same IDs have and its own lack, such as signatures.
func withSigned(calls, stored []byte) []byte {
	if len(calls) == 0 || len(stored) == 0 || bytes.Equal(calls, stored) {
		return calls
	}
	known := map[string][]byte{}
	peek.Array(stored, func(call []byte) {
		if id := peek.At(call, "id").Str(); id != "" {
			known[id] = call
		}
	})
	added := false
	out := []byte{'['}
	peek.Array(calls, func(call []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		from := len(out)
		out = append(out, call...)
		stored := known[peek.At(call, "id").Str()]
		if stored == nil || out[len(out)-1] != '}' {
			return
		}
		out = out[:len(out)-1]
		_ = peek.Object(stored, func(name, v []byte) error {
			if _, has := lookup(out[from:], peek.Unquote(name)); !has && !peek.NameIs(name, "index") && !peek.NameIs(name, "function") {
				out, added = append(append(append(append(out, ','), name...), ':'), v...), true
			}
			return nil
		})
		out = append(out, '}')
	})
	if !added {
		return calls
	}
	return append(out, ']')
}

// maxCallIDs limits how many calls of one message are read.
const maxCallIDs = 256

// CallIDs returns the IDs of a tool_calls array, at most maxCallIDs.
func CallIDs(toolCalls []byte) []string {
	var out []string
	if len(toolCalls) > 0 && toolCalls[0] == '[' {
		peek.Array(toolCalls, func(call []byte) {
			if call[0] != '{' {
				return
			}
			if id := peek.At(call, "id").Str(); id != "" && len(out) < maxCallIDs {
				out = append(out, id)
			}
		})
	}
	return out
}
