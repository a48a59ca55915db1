// Package ossa reads memory models of the Open Standard for Software Agents (reference/memory-semantics.md, system 004): it checks a document against the
// published schema and tells what of it Heardlog does, and by which settings. It is made of pure functions, and reads neither files nor the environment.
package ossa

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/window"
)

// Bounds of a report. What is beyond them is counted and not told.
const (
	MaxProblems  = 100
	MaxVariables = 1000
)

// Problem is something that a document may not hold, or that has no effect here.
type Problem struct {
	Path    string `json:"path"` // from the root of a whole document; "" is the document itself
	Message string `json:"message"`
}

// Session is the form of properties.heardlog.session.
type Session struct {
	TTLSeconds int64 `json:"session_ttl_seconds"`
	Persist    bool  `json:"persist_across_invocations"`
}

// WorkingMemory is the form of properties.heardlog.working_memory.
type WorkingMemory struct {
	Enabled    bool  `json:"enabled"`
	MaxSizeMB  int64 `json:"max_size_mb,omitempty"`
	TTLSeconds int64 `json:"ttl_seconds,omitempty"`
}

// Report is what is to be said of a document. All but Errors is set only for a valid one, and what a part says nothing of is not set.
type Report struct {
	Valid  bool      `json:"valid"`
	Errors []Problem `json:"errors"`
	// Effective is the document with its variables put in and its defaults filled in.
	Effective map[string]any `json:"effective,omitempty"`
	// Policy, Session and WorkingMemory are what the short-term half means here, as join takes it under properties.heardlog.
	Policy        *window.Policy `json:"policy,omitempty"`
	Session       *Session       `json:"session,omitempty"`
	WorkingMemory *WorkingMemory `json:"working_memory,omitempty"`
	// NotSupported is what of the document is accepted and has no effect.
	NotSupported []Problem `json:"not_supported"`
}

// Document is what is to be checked.
type Document struct {
	// JSON is a document, or a part of one; its depth is for the caller to bound.
	JSON []byte
	// Part is where in a document JSON stands, as in short_term.working_memory, or All. Of a part nothing is required (004-1). "" is a whole document.
	Part string
	// Variables are what ${NAME} stands for in values (004-2).
	Variables map[string]string
}

// All is the Part of a document that may lack what is required.
const All = "model"

// version is the form of apiVersion. Each published schema pins its own; all are taken (004-1).
var version = regexp.MustCompile(`^ossa/v[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}$`)

// Validate reads a document. It fails only where there is nothing to report on: with fault.BadRequest for what is not a JSON object, and with fault.Invalid
// for a Part that the model does not have.
func Validate(d Document) (Report, error) {
	at := d.Part
	if at == All {
		at = ""
	}
	place := model().part(at)
	if place == nil {
		return Report{}, fault.At(fault.Invalid, "part", "%q is no object of the model; there are %s, short_term, long_term, provider_interface, lifecycle and what stands in them, such as short_term.working_memory",
			clip(d.Part), All)
	}
	if len(d.Variables) > MaxVariables {
		return Report{}, fault.At(fault.Invalid, "variables", "has %d of them, which is more than %d", len(d.Variables), MaxVariables)
	}
	given, err := decode(d.JSON)
	if err != nil {
		return Report{}, err
	}
	c := checker{strict: d.Part == "", expander: expander{d.Variables, MaxExpanded}}
	effective := c.object(place, at, given)
	for _, path := range slices.Backward(split(at)) {
		effective = map[string]any{path: effective}
	}
	out := Report{Valid: len(c.errors) == 0, Errors: c.told(c.errors), NotSupported: []Problem{}}
	if !out.Valid {
		return out, nil
	}
	out.Effective = effective
	out.means()
	c.unsupported(effective)
	out.NotSupported = c.told(c.idle)
	return out, nil
}

func split(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, ".")
}

// decode reads one JSON object.
func decode(b []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fault.Wrap(fault.BadRequest, err, "the document is not valid JSON")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fault.New(fault.BadRequest, "the document holds more than one JSON value")
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fault.New(fault.BadRequest, "the document is %s; an object is wanted", name(v))
	}
	return m, nil
}

// checker walks through a document beside the model.
type checker struct {
	expander
	strict       bool // what is required has to be there
	errors, idle []Problem
	sessions     bool // the document says how many sessions there may be
}

func (c *checker) fail(path, format string, args ...any) {
	c.errors = append(c.errors, Problem{path, fmt.Sprintf(format, args...)})
}

// told bounds a list, and says how many more there are.
func (*checker) told(list []Problem) []Problem {
	out := append([]Problem{}, list[:min(len(list), MaxProblems)]...)
	if more := len(list) - len(out); more > 0 {
		out = append(out, Problem{"", fmt.Sprintf("there are %d more", more)})
	}
	return out
}

func join(path, name string) string {
	if path == "" {
		return clip(name)
	}
	return path + "." + clip(name)
}

// object gives an object with its values read and its defaults filled in. What the model does not know stays as it is (004-1).
func (c *checker) object(n *node, path string, given map[string]any) map[string]any {
	out := make(map[string]any, len(n.names))
	for _, key := range slices.Sorted(maps.Keys(given)) {
		child, v := n.children[key], given[key]
		switch {
		case child != nil:
			out[key] = c.value(child, join(path, key), v)
			c.sessions = c.sessions || key == "max_sessions"
		case len(n.names) == 0: // one without keys of its own, which may hold anything
			out[key] = v
		default:
			out[key] = v
			c.idle = append(c.idle, Problem{join(path, key), "is not known here"})
		}
	}
	for _, key := range n.names {
		child := n.children[key]
		if _, there := given[key]; there {
			continue
		}
		switch {
		case child.required && c.strict:
			c.fail(join(path, key), "is missing, and is required in a whole document; name a part to leave it out")
		case child.kind == kindObject && !child.given:
			out[key] = c.object(child, join(path, key), nil)
		case child.def != nil:
			out[key] = c.value(child, join(path, key), child.def)
		}
	}
	return out
}

// value gives a value as it is meant.
func (c *checker) value(n *node, path string, v any) any {
	shown := show(v) // as it was written: what variables stand for is not told
	if s, ok := v.(string); ok {
		if n.opaque && strings.Contains(s, "${") {
			return v
		}
		text, found, err := c.expand(s)
		if err != nil {
			c.fail(path, "%s %s", shown, err)
			return v
		}
		v = text
		if found && (n.kind == kindFlag || n.kind == kindNumber) { // JSON has no other place for a variable than a text
			var meant any
			dec := json.NewDecoder(strings.NewReader(text))
			dec.UseNumber()
			if dec.Decode(&meant) == nil && !dec.More() {
				v = meant
			}
		}
	}
	switch n.kind {
	case kindObject:
		if m, ok := v.(map[string]any); ok {
			return c.object(n, path, m)
		}
		c.fail(path, "%s is not an object", shown)
	case kindFlag:
		if _, ok := v.(bool); ok {
			return v
		}
		c.fail(path, "%s is neither true nor false", shown)
	case kindNumber:
		if i, ok := integer(v); ok && i >= n.min && i <= n.max {
			return i
		}
		c.fail(path, "%s is not an integer%s", shown, n.bounds())
	case kindText:
		s, ok := v.(string)
		switch {
		case !ok:
			c.fail(path, "%s is not a text", shown)
		case len(n.values) > 0 && !slices.Contains(n.values, s):
			c.fail(path, "%s is not %s", shown, oneOf(n.values))
		case path == "apiVersion" && !version.MatchString(s):
			c.fail(path, "%s is not of the form ossa/vX.Y.Z", shown)
		}
	case kindList:
		l, ok := v.([]any)
		if !ok {
			c.fail(path, "%s is not a list", shown)
			return v
		}
		out := make([]any, 0, len(l))
		for i, item := range l {
			out = append(out, c.value(n.items, path+"["+strconv.Itoa(i)+"]", item))
		}
		return out
	}
	return v
}

// integer reads a number that is whole, as 100, 100.0 and 1e2 are.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case json.Number:
		f, err := strconv.ParseFloat(string(v), 64)
		if err != nil || f != math.Trunc(f) || math.Abs(f) > noLimit {
			return 0, false
		}
		return int64(f), true
	}
	return 0, false
}

func (n *node) bounds() string {
	switch {
	case n.min == -noLimit:
		return ""
	case n.max == noLimit:
		return fmt.Sprintf(" of at least %d", n.min)
	}
	return fmt.Sprintf(" from %d to %d", n.min, n.max)
}

func oneOf(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return "one of " + strings.Join(values, ", ")
}

// name gives what kind of JSON value something is.
func name(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return "a text"
	case bool:
		return "a boolean"
	}
	return "a number"
}

// show gives a value for an error.
func show(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(clip(v))
	case json.Number:
		return clip(string(v))
	case bool:
		return strconv.FormatBool(v)
	}
	return name(v)
}

func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
