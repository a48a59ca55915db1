package llmadapter

import (
	"strings"

	"github.com/heardlog/heardlog/internal/peek"
)

// answer is a chat.completion.chunk or a chat.completion, by its members. They are JSON, and nil if
// they are not there.
type answer struct {
	id, model, object, choices []byte
	usage                      []byte // an object
	failed                     []byte // an error: an object, an array or a text
}

// readAnswer reads the members of an answer. Its tokens stand in usage, Groq's in x_groq. Errors
// stand in error or errors; those of vLLM, FastAPI and MiniMax have no such member.
func readAnswer(data []byte) answer {
	var a answer
	var kind, status []byte
	words := false // there is a message or a detail
	_ = peek.Object(data, func(name, v []byte) error {
		switch string(name) {
		case `"id"`:
			a.id = v
		case `"model"`:
			a.model = v
		case `"object"`:
			a.object = v
		case `"choices"`:
			a.choices = v
		case `"usage"`:
			if v[0] == '{' {
				a.usage = v
			}
		case `"error"`, `"errors"`:
			if says(v) {
				a.failed = v
			}
		case `"type"`:
			kind = v
		case `"message"`, `"detail"`:
			words = words || says(v)
		case `"base_resp"`:
			if code, ok := lookup(v, "status_code"); ok && string(code) != "0" {
				status = v
			}
		default:
			if v[0] == '{' && a.usage == nil {
				if u, ok := lookup(v, "usage"); ok && u[0] == '{' {
					a.usage = u
				}
			}
		}
		return nil
	})
	if len(a.choices) > 2 {
		return a
	}
	if a.failed == nil && (words || string(a.object) == `"error"` || string(kind) == `"error"`) {
		a.failed = data
	}
	if a.failed == nil {
		a.failed = status
	}
	return a
}

// says reports whether a JSON value is not null, false or empty.
func says(v []byte) bool {
	switch v[0] {
	case 'n', 'f':
		return false
	case '"':
		return len(v) > 2
	case '[':
		return !emptyArray(v)
	case '{':
		return strings.TrimSpace(string(v[1:max(1, len(v)-1)])) != ""
	}
	return string(v) != "0"
}

// answerOf returns the choice that is the answer: the first with index 0 or without an index, or
// else the first of all. It returns nil if there is none.
func answerOf(choices []byte) (answer []byte) {
	if len(choices) == 0 || choices[0] != '[' {
		return nil
	}
	found := false
	peek.Array(choices, func(c []byte) {
		index, indexed := lookup(c, "index")
		is := !indexed || string(index) == "0"
		if answer == nil || is && !found {
			answer = c
		}
		found = found || is
	})
	return answer
}
