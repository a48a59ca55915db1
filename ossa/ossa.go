// Package ossa reads memory models of the Open Standard for Software Agents (OSSA). Validate checks
// a Document against schema.json and returns a Report: its mistakes, or what Heardlog does with it
// and by which settings. The package is pure: it reads neither files nor the environment.
package ossa

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory/window"
)

// Limits of a report and of a document. Problems beyond MaxProblems are only counted.
const (
	MaxProblems  = 100
	MaxVariables = 1000
)

// Problem is a mistake in a document, or a part of it that has no effect here.
type Problem struct {
	Path    string `json:"path"` // from the root of a whole document; "" is the document itself
	Message string `json:"message"`
}

// Session has the form of properties.heardlog.session.
type Session struct {
	TTLSeconds int64 `json:"session_ttl_seconds"`
	Persist    bool  `json:"persist_across_invocations"`
}

// AgentState is how often the memory of an agent is saved, and how many checkpoints are kept.
type AgentState struct {
	IntervalSeconds int64 `json:"checkpoint_interval_seconds"`
	MaxCheckpoints  int64 `json:"max_checkpoints"`
	Compression     bool  `json:"compression"`
}

// History is what happens to a conversation after its end.
type History struct {
	RetentionDays int64 `json:"retention_days"`
	Indexing      bool  `json:"indexing"`
	Summarization bool  `json:"summarization"`
}

// KnowledgeBase has the settings of the model's knowledge base.
type KnowledgeBase struct {
	Schema     string `json:"schema"`
	Versioning bool   `json:"versioning"`
	MaxEntries int64  `json:"max_entries"`
}

// Patterns has the settings of the learned patterns: which ones prompts have, and how long new ones
// of the project last.
type Patterns struct {
	Types        []string `json:"pattern_types"`
	HalfLifeDays int64    `json:"half_life_days"` // 0 = their weights stay
}

// WorkingMemory has the form of properties.heardlog.working_memory.
type WorkingMemory struct {
	Enabled    bool  `json:"enabled"`
	MaxSizeMB  int64 `json:"max_size_mb,omitempty"`
	TTLSeconds int64 `json:"ttl_seconds,omitempty"`
}

// GarbageCollection is how keys and values make room for others.
type GarbageCollection struct {
	Strategy           string `json:"strategy"`
	RunIntervalSeconds int64  `json:"run_interval_seconds"`
	MaxPercent         int64  `json:"max_memory_percent"`
	TargetPercent      int64  `json:"target_memory_percent"`
}

// Compaction is when the store returns unused space to the disk.
type Compaction struct {
	ThresholdPercent int64 `json:"threshold_percent"`
	RunIntervalHours int64 `json:"run_interval_hours"`
}

// Report is the result of Validate. A document with errors has nothing else set. Fields about parts
// that the document lacks are not set either.
type Report struct {
	Valid  bool      `json:"valid"`
	Errors []Problem `json:"errors"`
	// Effective is the document with its variables replaced and its defaults filled in.
	Effective map[string]any `json:"effective,omitempty"`
	// Policy, Session and WorkingMemory are the settings that short_term means here, in the form
	// that join takes under properties.heardlog.
	Policy        *window.Policy `json:"policy,omitempty"`
	Session       *Session       `json:"session,omitempty"`
	WorkingMemory *WorkingMemory `json:"working_memory,omitempty"`
	// MaxSessions is how many agents may run by the document at a time; 0 = no limit.
	MaxSessions int64 `json:"max_sessions,omitempty"`
	// GarbageCollection is nil unless the document has written it.
	GarbageCollection *GarbageCollection `json:"garbage_collection,omitempty"`
	// Compaction is nil unless the operator's document has written it.
	Compaction *Compaction `json:"compaction,omitempty"`
	// AgentState and History are what long_term means here.
	AgentState *AgentState `json:"agent_state,omitempty"`
	History    *History    `json:"conversation_history,omitempty"`
	// KnowledgeBase and Patterns are nil unless the document has written them.
	KnowledgeBase *KnowledgeBase `json:"knowledge_base,omitempty"`
	Patterns      *Patterns      `json:"learned_patterns,omitempty"`
	// Refused lists what this server cannot do. A document with any cannot be loaded.
	Refused []Problem `json:"refused,omitempty"`
	// NotSupported lists what the document may hold but has no effect.
	NotSupported []Problem `json:"not_supported"`
}

// Document is the input of Validate.
type Document struct {
	// JSON is a document or a part of one. The caller limits its depth.
	JSON []byte
	// Part is the path of JSON in a document, such as short_term.working_memory, or All. Nothing is
	// required in a part. "" means that JSON is a whole document.
	Part string
	// Variables holds the values of ${NAME} in texts.
	Variables map[string]string
	Host      Host
}

// All is the Part of a document that may lack required values.
const All = "model"

// Validate checks a document. It returns fault.BadRequest if JSON is not a JSON object, and
// fault.Invalid if the model has no such Part or there are too many Variables. Any other mistake is
// in the report.
func Validate(d Document) (Report, error) {
	at := d.Part
	if at == All {
		at = ""
	}
	schema := findPart(at)
	if schema == nil {
		return Report{}, fault.At(fault.Invalid, "part", "%q is not an object of the model; there are %s, short_term, long_term, provider_interface, lifecycle and what stands in them, such as short_term.working_memory",
			text.Clip(d.Part, 60), All)
	}
	if len(d.Variables) > MaxVariables {
		return Report{}, fault.At(fault.Invalid, "variables", "has %d of them, which is more than %d", len(d.Variables), MaxVariables)
	}
	given, err := decode(d.JSON)
	if err != nil {
		return Report{}, err
	}
	c := checker{
		strict: d.Part == "", expander: expander{d.Variables, MaxExpanded}, document: given, part: at, schema: schema,
		settled: map[string]bool{},
	}
	effective := c.object(schema, at, given)
	if err := c.check(effective); err != nil {
		return Report{}, err
	}
	out := Report{Valid: len(c.errors) == 0, Errors: atMost(c.errors), NotSupported: []Problem{}}
	if !out.Valid {
		return out, nil
	}
	out.Effective = wrap(at, effective)
	out.setMeaning()
	c.judge(&out, wrap(at, given), d.Host)
	out.NotSupported = atMost(c.unsupported)
	return out, nil
}

func split(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, ".")
}

// wrap returns the whole document whose object at path is m.
func wrap(path string, m map[string]any) map[string]any {
	for _, name := range slices.Backward(split(path)) {
		m = map[string]any{name: m}
	}
	return m
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
		return nil, fault.New(fault.BadRequest, "the document must be an object, not %s", show(v))
	}
	return m, nil
}

// checker holds what is known of one document while it is checked.
type checker struct {
	expander
	strict   bool // required values must be there
	document map[string]any
	part     string // path of document in the model
	schema   *jsonschema.Schema
	// settled holds the paths of values that the schema does not judge: references to secrets, and
	// texts whose variables already made an error.
	settled     map[string]bool
	errors      []Problem
	unsupported []Problem
}

// check compares the effective document with the schema and adds its errors in the order of their
// paths.
func (c *checker) check(effective map[string]any) error {
	err := c.schema.Validate(effective)
	if err == nil {
		return nil
	}
	var all *jsonschema.ValidationError
	if !errors.As(err, &all) {
		return fault.Wrap(fault.Internal, err, "the document could not be checked")
	}
	leaves := leavesOf(all)
	slices.SortStableFunc(leaves, func(a, b *jsonschema.ValidationError) int {
		return slices.CompareFunc(a.InstanceLocation, b.InstanceLocation, compareKeys)
	})
	for _, leaf := range leaves {
		c.addError(leaf)
	}
	return nil
}

func leavesOf(e *jsonschema.ValidationError) []*jsonschema.ValidationError {
	if len(e.Causes) == 0 {
		return []*jsonschema.ValidationError{e}
	}
	var out []*jsonschema.ValidationError
	for _, c := range e.Causes {
		out = append(out, leavesOf(c)...)
	}
	return out
}

// compareKeys orders keys by name and places in a list by number.
func compareKeys(a, b string) int {
	i, errA := strconv.Atoi(a)
	j, errB := strconv.Atoi(b)
	if errA == nil && errB == nil {
		return i - j
	}
	return strings.Compare(a, b)
}

// addError adds the problems of one failed keyword. They show values as the document has them,
// since a variable may stand for a secret.
func (c *checker) addError(leaf *jsonschema.ValidationError) {
	schema, path, written := c.schema, c.part, any(c.document)
	for _, key := range leaf.InstanceLocation {
		path = joinPath(schema, path, key)
		schema = property(schema, key)
		switch v := written.(type) {
		case map[string]any:
			written = v[key]
		case []any:
			i, _ := strconv.Atoi(key)
			written = v[i]
		}
	}
	if r, ok := leaf.ErrorKind.(*kind.Required); ok {
		for _, name := range r.Missing {
			if c.strict {
				c.fail(joinPath(schema, path, name), "is missing, and is required in a whole document; name a part to leave it out")
			}
		}
		return
	}
	if !c.settled[path] {
		c.settled[path] = true // a value may break several keywords
		c.fail(path, "%s %s", show(written), wants(schema))
	}
}

func (c *checker) fail(path, format string, args ...any) {
	c.errors = append(c.errors, Problem{path, fmt.Sprintf(format, args...)})
}

// atMost returns the first MaxProblems of a list, and the number of the others as a last entry.
func atMost(list []Problem) []Problem {
	out := append([]Problem{}, list[:min(len(list), MaxProblems)]...)
	if more := len(list) - len(out); more > 0 {
		out = append(out, Problem{"", fmt.Sprintf("there are %d more", more)})
	}
	return out
}

// joinPath returns the path of a value in the object or list at path.
func joinPath(parent *jsonschema.Schema, path, key string) string {
	switch {
	case parent.Items2020 != nil:
		return path + "[" + key + "]"
	case path == "":
		return text.Clip(key, 60)
	}
	return path + "." + text.Clip(key, 60)
}

// show returns a value for an error, shortened, or its kind if it is an object or a list.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return strconv.Quote(text.Clip(v, 60))
	case json.Number:
		return text.Clip(string(v), 60)
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return "a list"
	}
	return "an object"
}
