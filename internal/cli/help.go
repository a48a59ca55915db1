package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// width is the width of the help in columns.
const width = 80

// usage returns how a flag or an argument is written: --keep=N, <id> or [<file>].
func (f field) usage() string {
	if f.has("arg") {
		s := "<" + f.name + ">"
		if _, many := f.value.(*[]string); many {
			s += " ..."
		}
		if f.has("optional") {
			s = "[" + s + "]"
		}
		return s
	}
	if _, ok := f.value.(*bool); ok {
		return "--" + f.name
	}
	placeholder := f.tag.Get("placeholder")
	if placeholder == "" {
		placeholder = strings.ToUpper(f.name)
	}
	return "--" + f.name + "=" + placeholder
}

// usage returns how a command is written.
func (c *command) usage() string {
	parts := []string{c.path}
	for _, f := range c.flags {
		if f.has("required") {
			parts = append(parts, f.usage())
		}
	}
	for _, f := range c.args {
		parts = append(parts, f.usage())
	}
	if len(c.commands) > 0 {
		parts = append(parts, "<command>")
	}
	return strings.Join(append(parts, "[flags]"), " ")
}

// writeHelp writes the help of a command. That of the program also names --version and ends with
// what more writes.
func (c *command) writeHelp(w io.Writer, isProgram bool, more func(io.Writer) error) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s\n\n", c.usage())
	texts := []string{c.help}
	if h, ok := c.value.(interface{ Help() string }); ok {
		texts = append(texts, strings.Split(h.Help(), "\n\n")...)
	}
	for _, text := range texts {
		b.WriteString(strings.Join(wrap(text, width), "\n") + "\n\n")
	}
	if len(c.args) > 0 {
		b.WriteString("Arguments:\n")
		writeColumns(&b, c.args)
		b.WriteByte('\n')
	}
	b.WriteString("Flags:\n")
	flags := []field{{name: "help", tag: `help:"Show this help."`, value: new(bool)}}
	if isProgram {
		flags = append(flags, field{name: "version", tag: `help:"Print the version, the commit and the Go version."`, value: new(bool)})
	}
	writeColumns(&b, append(flags, c.flags...))
	if len(c.commands) > 0 {
		b.WriteString("\nCommands:\n")
		for _, sub := range c.commands {
			usage := strings.TrimPrefix(sub.usage(), "heardlog ")
			fmt.Fprintf(&b, "  %s\n    %s\n\n", usage, strings.Join(wrap(sub.help, width-4), "\n    "))
		}
		fmt.Fprintf(&b, "Run \"%s <command> --help\" for more about a command.\n", c.path)
	}
	if _, err := io.WriteString(w, b.String()); err != nil || more == nil || !isProgram {
		return err
	}
	return more(w)
}

// writeColumns writes fields in the left column and their help in the right one.
func writeColumns(b *strings.Builder, fields []field) {
	left := 0
	for _, f := range fields {
		left = max(left, len(f.usage())+4)
	}
	for _, f := range fields {
		for i, line := range wrap(f.tag.Get("help"), width-left-2) {
			name := ""
			if i == 0 {
				name = f.usage()
			}
			fmt.Fprintf(b, "  %-*s%s\n", left, name, line)
		}
	}
}

// wrap breaks a text into lines of at most n characters. A longer word has a line of its own.
func wrap(text string, n int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= n:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}
