package ossa

import (
	"fmt"
	"strings"
)

// MaxExpanded is how many bytes all that variables stand for may have in one document.
const MaxExpanded = 1 << 20

// maxNested is how deep the default of a variable may hold others.
const maxNested = 16

// expander puts in what ${NAME} and ${NAME:-default} stand for (004-2). It knows the variables that it was given and no others: what this process has in
// its environment is not the business of who sends a document.
type expander struct {
	variables map[string]string
	left      int // bytes that may still be put in
}

// expand gives the text with its variables put in, and whether there were any. As in a shell, a default stands for a variable that is not given or
// empty, and may itself hold variables. What was put in is not looked at again.
func (e *expander) expand(s string) (out string, found bool, err error) {
	if !strings.Contains(s, "${") {
		return s, false, nil
	}
	var b strings.Builder
	if err := e.into(&b, s, 0); err != nil {
		return "", true, err
	}
	return b.String(), true, nil
}

func (e *expander) into(b *strings.Builder, s string, depth int) error {
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
			if err := e.into(b, def, depth+1); err != nil {
				return err
			}
		default:
			return fmt.Errorf("needs the variable %s, which has no default; give it in variables", name)
		}
		s = rest[end+1:]
	}
}

// closing gives the place of the brace that ends a variable; below 0 if there is none.
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
