package config

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/go-playground/validator/v10"
)

// Setting describes one environment variable.
type Setting struct {
	Name    string
	Default string // as it would be written; "" = none
	Help    string

	field reflect.StructField
	index []int // of the field in Config
}

// Settings returns every setting in the order in which they are documented.
func Settings() []Setting { return settingsOf(reflect.TypeFor[Config](), nil) }

func settingsOf(t reflect.Type, at []int) []Setting {
	var out []Setting
	for i := range t.NumField() {
		f := t.Field(i)
		index := append(at[:len(at):len(at)], i)
		if name := f.Tag.Get("env"); name != "" {
			out = append(out, Setting{Name: name, Default: f.Tag.Get("envDefault"), Help: help[name], field: f, index: index})
		} else if f.Type.Kind() == reflect.Struct {
			out = append(out, settingsOf(f.Type, index)...)
		}
	}
	return out
}

// Usage writes the name, the default and the description of every setting.
func Usage(w io.Writer) error {
	var b strings.Builder
	for _, s := range Settings() {
		fmt.Fprintf(&b, "  %s", s.Name)
		if s.Default != "" {
			fmt.Fprintf(&b, " (default %s)", s.Default)
		}
		fmt.Fprintf(&b, "\n        %s\n", s.Help)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// newValidator returns a validator that knows our rules and names fields by their variables.
func newValidator() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(func(f reflect.StructField) string { return f.Tag.Get("env") })
	for name, rule := range rules {
		if err := v.RegisterValidation(name, func(f validator.FieldLevel) bool { return rule(f.Field()) == nil }); err != nil {
			panic(err) // only for a name that validator reserves
		}
	}
	return v
}

// parseError returns the error of a value that could not be read. Errors of our own parsers are
// complete; those of numbers, durations and booleans are replaced.
func (s Setting) parseError(value string, err error) error {
	if want := s.allowed(); want != "" {
		return fmt.Errorf("must be %s, not %q", want, value)
	}
	return err
}

// ruleError returns the error of a value that breaks a rule of its validate tag.
func (s Setting) ruleError(value string, e validator.FieldError) error {
	if rule := rules[e.Tag()]; rule != nil {
		return rule(reflect.ValueOf(e.Value()))
	}
	if want := s.allowed(); want != "" {
		return fmt.Errorf("must be %s, not %q", want, value)
	}
	return errors.New("is not allowed")
}

// allowed describes the values of a number, a duration, a boolean or a choice, or returns "" for
// settings of other kinds.
func (s Setting) allowed() string {
	args := map[string]string{}
	for rule := range strings.SplitSeq(s.field.Tag.Get("validate"), ",") {
		name, arg, _ := strings.Cut(rule, "=")
		args[strings.TrimSuffix(name, "ci")] = arg
	}
	switch {
	case s.field.Type == reflect.TypeFor[time.Duration]():
		return fmt.Sprintf("a duration from %s to %s, such as 90s, 30m or 14d", args["min"], args["max"])
	case s.field.Type.Kind() == reflect.Bool, s.field.Type == reflect.TypeFor[*bool]():
		return "true or false"
	case args["oneof"] != "":
		choices := strings.Fields(args["oneof"])
		if len(choices) == 1 {
			return choices[0]
		}
		return "one of " + strings.Join(choices, ", ")
	case args["max"] != "":
		return fmt.Sprintf("a number from %s to %s", args["min"], args["max"])
	}
	return ""
}
