package cli_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/heardlog/heardlog/internal/cli"
)

// StoreFlag is a part of two subcommands.
type StoreFlag struct {
	Store string `placeholder:"URL" help:"The store."`
}

type copyCommand struct {
	StoreFlag
	Keep      int           `default:"3" placeholder:"N" help:"How many."`
	Pace      float64       `help:"How fast."`
	Timeout   time.Duration `default:"30s" help:"How long."`
	Plain     bool          `help:"In clear."`
	IntoFiles []string      `sep:"none" help:"Where to; may be repeated."`
	Scopes    []string      `help:"Of what."`
	Place     string        `arg:"" help:"A folder."`
	Names     []string      `arg:"" optional:"" help:"What to copy."`
}

// Help returns the details.
func (*copyCommand) Help() string { return "It copies.\n\nIt does no more." }

// Run notes what was parsed.
func (c *copyCommand) Run(_ context.Context, into *copyCommand) error {
	*into = *c
	return nil
}

type listCommand struct {
	StoreFlag
	Project string `required:"" help:"The project."`
	File    string `arg:"" optional:"" name:"out-file" help:"The file."`
}

var errRan = errors.New("it ran")

// Run returns an error, as a subcommand may.
func (l *listCommand) Run(context.Context, *copyCommand) error { return errRan }

type grammar struct {
	Copy copyCommand `cmd:"" help:"Copy a store."`
	Keys struct {
		List listCommand `cmd:"" help:"List keys."`
	} `cmd:"" name:"key-ring" help:"The keys."`
}

func run(args string, out io.Writer) (copyCommand, error) {
	var got copyCommand
	more := func(w io.Writer) error {
		_, err := io.WriteString(w, "and the settings\n")
		return err
	}
	err := cli.Run(context.Background(), &grammar{}, strings.Fields(args), "version 1", out, more, &got)
	return got, err
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args string
		want copyCommand
	}{
		{"copy here", copyCommand{Keep: 3, Timeout: 30 * time.Second, Place: "here"}},
		{"copy here -plain a --keep=0 b -keep 7", copyCommand{Keep: 7, Timeout: 30 * time.Second, Plain: true, Place: "here", Names: []string{"a", "b"}}},
		{"copy --store sqlite:x -pace .5 --timeout 1m --plain=false -- -here -keep", copyCommand{
			StoreFlag: StoreFlag{"sqlite:x"}, Keep: 3, Pace: .5, Timeout: time.Minute, Place: "-here", Names: []string{"-keep"},
		}},
		{"copy - --into-files a,b -into-files c -scopes read,write -scopes admin", copyCommand{
			Keep: 3, Timeout: 30 * time.Second, Place: "-", IntoFiles: []string{"a,b", "c"}, Scopes: []string{"read", "write", "admin"},
		}},
	} {
		got, err := run(tt.args, io.Discard)
		if err != nil {
			t.Errorf("%s: %v", tt.args, err)
		}
		if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", tt.args, diff)
		}
	}
	if _, err := run("key-ring list -project p", io.Discard); !errors.Is(err, errRan) {
		t.Errorf("a subcommand of a subcommand: %v", err)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                             `heardlog needs a subcommand`,
		"serve":                        `heardlog has no subcommand "serve"; it has copy, key-ring`,
		"cpoy":                         `heardlog has no subcommand "cpoy"; did you mean "copy"?`,
		"--store x copy":               `heardlog has no flag --store`,
		"key-ring":                     `heardlog key-ring needs a subcommand`,
		"key-ring drop":                `heardlog key-ring has no subcommand "drop"; it has list`,
		"copy":                         `"copy": missing <place>`,
		"copy here --nope":             `"copy": flag provided but not defined: -nope`,
		"copy here --keep x":           `"copy": invalid value "x" for flag -keep`,
		"copy here --plain=perhaps":    `"copy": invalid boolean value "perhaps" for -plain`,
		"copy here --pace":             `"copy": flag needs an argument: -pace`,
		"key-ring list":                `"list": missing --project=PROJECT`,
		"key-ring list -project p a b": `"list": unexpected argument "b"`,
	} {
		if _, err := run(args, io.Discard); err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "--help shows what there is") {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--version": "version 1\n",
		"-h": `Usage: heardlog <command> [flags]

Heardlog keeps the memory of voice agents. Without a subcommand it serves.

Flags:
  --help       Show this help.
  --version    Print the version, the commit and the Go version.

Commands:
  copy <place> [<names> ...] [flags]
    Copy a store.

  key-ring <command> [flags]
    The keys.

Run "heardlog <command> --help" for more about a command.
and the settings
`,
		"key-ring -help": `Usage: heardlog key-ring <command> [flags]

The keys.

Flags:
  --help    Show this help.

Commands:
  key-ring list --project=PROJECT [<out-file>] [flags]
    List keys.

Run "heardlog key-ring <command> --help" for more about a command.
`,
		"copy --plain --help": `Usage: heardlog copy <place> [<names> ...] [flags]

Copy a store.

It copies.

It does no more.

Arguments:
  <place>          A folder.
  [<names> ...]    What to copy.

Flags:
  --help                     Show this help.
  --store=URL                The store.
  --keep=N                   How many.
  --pace=PACE                How fast.
  --timeout=TIMEOUT          How long.
  --plain                    In clear.
  --into-files=INTO-FILES    Where to; may be repeated.
  --scopes=SCOPES            Of what.
`,
	} {
		var out strings.Builder
		if _, err := run(args, &out); err != nil {
			t.Errorf("%s: %v", args, err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%s: %s", args, diff)
		}
	}
}
