// Package cli runs subcommands that are described as structs. Run parses arguments with such a
// grammar and calls the subcommand that they name.
//
// A field of the grammar with the tag cmd is a subcommand: a struct with subcommands of its own, or
// one with a method Run and perhaps a method Help. In a subcommand, a field with the tag arg is an
// argument, and any other with the tag help is a flag. The types are string and []string, and for
// flags also bool, int, float64 and time.Duration. A []string may be repeated. Embedded structs are
// part of their struct. The tags are:
//
//	name         the name, if not that of the field: RecipientsFile is recipients-file
//	help         one or two sentences
//	default      a value
//	placeholder  what the help shows for a value
//	required     of a flag: it must be given
//	optional     of an argument: it may be left out
//	sep          of a []string: "none" if commas do not separate values
//
// Methods are found by interfaces and never by name, since the linker keeps every exported method
// of a program that looks them up by name.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/heardlog/heardlog/internal/text"
)

// command is a subcommand, or the program itself.
type command struct {
	path     string // with the names of those above it
	name     string
	help     string
	value    any // pointer to its struct
	commands []*command
	flags    []field
	args     []field
}

// field is a flag or an argument.
type field struct {
	name  string
	tag   reflect.StructTag
	value any // pointer to the field
}

// Run parses args with the grammar, a pointer to a struct, and calls the method Run of the
// subcommand that they name, with ctx and env. A flag may have one dash or two: -store is --store.
//
// With --help, Run only writes the help to stdout; more, if not nil, writes what follows the help
// of the program itself. With --version it only writes version.
func Run[E any](ctx context.Context, grammar any, args []string, version string, stdout io.Writer, more func(io.Writer) error, env E) error {
	c := newCommand("heardlog", "heardlog", "Heardlog keeps the memory of voice agents. Without a subcommand it serves.", grammar)
	root := c
	for len(c.commands) > 0 {
		var word string
		if len(args) > 0 {
			word, args = args[0], args[1:]
		}
		switch word {
		case "-h", "-help", "--help":
			return c.writeHelp(stdout, c == root, more)
		case "-version", "--version":
			_, err := fmt.Fprintln(stdout, version)
			return err
		}
		i := slices.IndexFunc(c.commands, func(sub *command) bool { return sub.name == word })
		if word == "" {
			return fmt.Errorf("%s needs a subcommand; --help shows what there is", c.path)
		}
		if i < 0 {
			return c.unknown(word)
		}
		c = c.commands[i]
	}
	if err := c.parse(args); errors.Is(err, flag.ErrHelp) {
		return c.writeHelp(stdout, false, nil)
	} else if err != nil {
		return fmt.Errorf("%q: %w; --help shows what there is", c.name, err)
	}
	return c.value.(interface {
		Run(ctx context.Context, env E) error
	}).Run(ctx, env)
}

// unknown returns the error for a word where a subcommand is expected.
func (c *command) unknown(word string) error {
	names := make([]string, len(c.commands))
	for i, sub := range c.commands {
		names[i] = sub.name
	}
	if strings.HasPrefix(word, "-") {
		return fmt.Errorf("%s has no flag %s; --help shows what there is", c.path, word)
	}
	if like := text.Nearest(word, names); like != "" {
		return fmt.Errorf("%s has no subcommand %q; did you mean %q? --help shows what there is", c.path, word, like)
	}
	return fmt.Errorf("%s has no subcommand %q; it has %s; --help shows what there is", c.path, word, strings.Join(names, ", "))
}

// newCommand reads the grammar of a command. Mistakes in a grammar panic.
func newCommand(path, name, help string, value any) *command {
	c := &command{path: path, name: name, help: help, value: value}
	c.read(reflect.ValueOf(value).Elem())
	return c
}

func (c *command) read(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			c.read(v.Field(i))
			continue
		}
		name, value := f.Tag.Get("name"), v.Field(i).Addr().Interface
		if name == "" {
			name = dashed(f.Name)
		}
		_, isCommand := f.Tag.Lookup("cmd")
		_, isArg := f.Tag.Lookup("arg")
		switch {
		case isCommand:
			c.commands = append(c.commands, newCommand(c.path+" "+name, name, f.Tag.Get("help"), value()))
		case isArg:
			c.args = append(c.args, field{name, f.Tag, value()})
		case f.Tag.Get("help") != "":
			c.flags = append(c.flags, field{name, f.Tag, value()})
		}
	}
}

// dashed returns the name of a field as the name of a flag: RecipientsFile is recipients-file.
func dashed(name string) string {
	var b strings.Builder
	lower := false
	for _, r := range name {
		if unicode.IsUpper(r) && lower {
			b.WriteByte('-')
		}
		lower = unicode.IsLower(r)
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// parse sets the flags and arguments of a command. Flags may stand after arguments.
func (c *command) parse(args []string) error {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	for _, f := range c.flags {
		if err := f.register(fs); err != nil {
			return err
		}
	}
	var words []string
	for len(args) > 0 {
		if err := fs.Parse(args); err != nil {
			return err
		}
		rest := fs.Args()
		if n := len(args) - len(rest); n > 0 && args[n-1] == "--" { // only arguments follow
			words, rest = append(words, rest...), nil
		}
		if args = rest; len(args) > 0 {
			words, args = append(words, args[0]), args[1:]
		}
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var missing []string
	for _, f := range c.flags {
		if f.has("required") && !given[f.name] {
			missing = append(missing, f.usage())
		}
	}
	if len(missing) > 0 {
		return errors.New("missing " + strings.Join(missing, ", "))
	}
	return c.take(words)
}

// register adds a flag with its default to fs.
func (f field) register(fs *flag.FlagSet) error {
	switch p := f.value.(type) {
	case *string:
		fs.StringVar(p, f.name, "", "")
	case *bool:
		fs.BoolVar(p, f.name, false, "")
	case *int:
		fs.IntVar(p, f.name, 0, "")
	case *float64:
		fs.Float64Var(p, f.name, 0, "")
	case *time.Duration:
		fs.DurationVar(p, f.name, 0, "")
	case *[]string:
		fs.Func(f.name, "", func(s string) error {
			if f.tag.Get("sep") == "none" {
				*p = append(*p, s)
			} else {
				*p = append(*p, strings.Split(s, ",")...)
			}
			return nil
		})
	default:
		panic(fmt.Sprintf("cli: the flag %s has the type %T", f.name, f.value))
	}
	if value := f.tag.Get("default"); value != "" {
		return fs.Lookup(f.name).Value.Set(value)
	}
	return nil
}

// take sets the arguments of a command to words.
func (c *command) take(words []string) error {
	for _, f := range c.args {
		switch p := f.value.(type) {
		case *[]string:
			*p, words = words, nil
		case *string:
			switch {
			case len(words) > 0:
				*p, words = words[0], words[1:]
			case !f.has("optional"):
				return errors.New("missing " + f.usage())
			}
		default:
			panic(fmt.Sprintf("cli: the argument %s has the type %T", f.name, f.value))
		}
	}
	if len(words) > 0 {
		return fmt.Errorf("unexpected argument %q", words[0])
	}
	return nil
}

func (f field) has(key string) bool {
	_, ok := f.tag.Lookup(key)
	return ok
}
