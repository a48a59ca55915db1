// Package cli runs subcommands described as structs for github.com/alecthomas/kong. Run is its only
// function.
package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Run parses args with the grammar and calls the Run method of the subcommand that they name. The
// method may take ctx and the values of bind. A flag may have one dash or two: -store is --store.
//
// With --help, Run only writes the help to stdout; help, if not nil, writes more below that of the
// program itself. A kong.VersionFlag in the grammar writes version.
func Run(ctx context.Context, grammar any, args []string, version string, stdout io.Writer, help func(io.Writer) error, bind ...any) error {
	done := false
	k, err := kong.New(grammar,
		kong.Name("heardlog"),
		kong.Description("Heardlog keeps the memory of voice agents. Without a subcommand it serves."),
		kong.Writers(stdout, stdout),
		kong.Exit(func(int) { done = true }), // after --help and --version
		kong.WithHyphenPrefixedParameters(true),
		kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 100, NoExpandSubcommands: true}),
		kong.Help(func(o kong.HelpOptions, c *kong.Context) error {
			err := kong.DefaultHelpPrinter(o, c)
			if err == nil && help != nil && c.Selected() == nil {
				err = help(stdout)
			}
			return err
		}),
		kong.Vars{"version": version},
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(bind...),
	)
	if err != nil {
		return err
	}
	parsed, err := k.Parse(twoDashes(k.Model.Node, args))
	switch {
	case done:
		return nil
	case err != nil && len(args) > 0:
		return fmt.Errorf("%q: %w; --help shows what there is", args[0], err)
	case err != nil:
		return err
	}
	return parsed.Run()
}

// twoDashes puts a second dash before long flags that have one.
func twoDashes(root *kong.Node, args []string) []string {
	var names []string
	_ = kong.Visit(root, func(n kong.Visitable, next kong.Next) error {
		if f, ok := n.(*kong.Flag); ok {
			names = append(names, f.Name)
		}
		return next(nil)
	})
	out := slices.Clone(args)
	for i, arg := range out {
		name, one := strings.CutPrefix(arg, "-")
		name, _, _ = strings.Cut(name, "=")
		if one && len(name) > 1 && slices.Contains(names, name) {
			out[i] = "-" + arg
		}
	}
	return out
}
