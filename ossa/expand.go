package ossa

import (
	"fmt"
	"strings"
)

// MaxExpanded limits the bytes of all texts with variables in one document, after replacement.
const MaxExpanded = 1 << 20

// maxNested limits how deep defaults of variables may hold other variables.
const maxNested = 16

// expander replaces ${NAME} and ${NAME:-default}. It knows only the variables of the request: the
// environment of this process may hold secrets, which the sender of a document must not read.
type expander struct {
	variables map[string]string
	left      int // bytes that may still be put in
}

// Expand returns a text with its variables replaced, as Validate does, which leaves out secrets.
func Expand(text string, variables map[string]string) (string, error) {
	out, _, err := (&expander{variables: variables, left: MaxExpanded}).expand(text)
	return out, err
}

// expand returns the text with its variables replaced, and whether it had any. As in a shell, the
// default replaces a variable that is missing or empty, and may itself hold variables. Values are
// not expanded again.
func (e *expander) expand(s string) (out string, found bool, err error) {
	if !strings.Contains(s, "${") {
		return s, false, nil
	}
	var b strings.Builder
	if err := e.write(&b, s, 0); err != nil {
		return "", true, err
	}
	return b.String(), true, nil
}

func (e *expander) write(b *strings.Builder, s string, depth int) error {
	if depth > maxNested {
		return fmt.Errorf("has defaults that nest deeper than %d levels", maxNested)
	}
	for {
		before, rest, ok := strings.Cut(s, "${")
		b.WriteString(before)
		if e.left -= len(before); e.left < 0 {
			return fmt.Errorf("makes the document's values longer than %d bytes", MaxExpanded)
		}
		if !ok {
			return nil
		}
		end := closing(rest)
		if end < 0 {
			return fmt.Errorf("has a ${ without its }")
		}
		name, def, hasDef := strings.Cut(rest[:end], ":-")
		if !validVariable(name) {
			return fmt.Errorf("has a ${…} that is neither ${NAME} nor ${NAME:-default}; a name has letters, digits and _, and does not begin with a digit")
		}
		value, given := e.variables[name]
		switch {
		case given && (value != "" || !hasDef):
			if e.left -= len(value); e.left < 0 {
				return fmt.Errorf("makes the document's values longer than %d bytes", MaxExpanded)
			}
			b.WriteString(value)
		case hasDef:
			if err := e.write(b, def, depth+1); err != nil {
				return err
			}
		default:
			return fmt.Errorf("needs the variable %s, which has no default; give it in variables", name)
		}
		s = rest[end+1:]
	}
}

// closing returns the index of the brace that ends a variable, or -1.
func closing(s string) int {
	open := 0
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '$' && i+1 < len(s) && s[i+1] == '{':
			open++
			i++
		case s[i] == '}' && open == 0:
			return i
		case s[i] == '}':
			open--
		}
	}
	return -1
}

func validVariable(name string) bool {
	for i := 0; i < len(name); i++ {
		c := name[i]
		if !(c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return name != "" && len(name) <= 256
}
