// Command api is the Heardlog server. Its settings are environment variables; api -h lists them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	_ "time/tzdata" // agents name time zones for the timestamps that models are told, and a bare container has no list of them

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/app"
	"github.com/heardlog/heardlog/internal/data"
	"github.com/heardlog/heardlog/internal/simulate"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "heardlog:", err)
		os.Exit(data.ExitCode(err))
	}
}

func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "-h", "-help", "--help", "help":
			return config.Usage(stdout)
		case "healthcheck": // for containers, which hold no other program
			return app.Healthcheck(ctx, getenv)
		case "simulate":
			return play(ctx, args[1:], getenv, stdout, stderr)
		}
		if slices.Contains(data.Names(), args[0]) {
			ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
			defer stop()
			return data.Command(ctx, data.Env{
				Getenv: getenv, Environ: os.Environ(), Stdin: os.Stdin, Stdout: stdout, Stderr: stderr, Terminal: data.IsTerminal(os.Stderr),
			}, args[0], args[1:])
		}
		return fmt.Errorf("unknown argument %q; the settings are environment variables, -h lists them; the subcommands are simulate, healthcheck, %s, each with -h", args[0], strings.Join(data.Names(), ", "))
	}
	signalled, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(signalled, func() {
		stop() // first of all: from the moment that the program is seen to stop, a second signal ends it at once
		cancel()
	})
	c, err := config.Load(getenv)
	if err := errors.Join(err, app.Check(c)); err != nil {
		return fmt.Errorf("the settings have mistakes:\n%w", err)
	}
	log := app.Logger(c, stderr)
	for _, name := range config.Unknown(os.Environ()) {
		log.Warn().Str("name", name).Msg("not a setting; -h lists them")
	}
	a, err := app.New(ctx, c, log)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

// play runs the subcommand simulate against the server of these settings, unless its flags name another.
func play(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := config.Load(getenv)
	if err != nil {
		return fmt.Errorf("the settings have mistakes:\n%w", err)
	}
	key := ""
	if len(c.Credentials) > 0 {
		key = c.Credentials[0].ID + ":" + c.Credentials[0].Secret.Reveal()
	}
	return simulate.Command(ctx, args, app.LocalURL(c), key, stdout, stderr)
}
