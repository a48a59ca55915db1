// Command api is the Heardlog server. Without a subcommand it serves. Its settings are environment
// variables, or stand in the file that --env-file names; "help settings" lists them.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	_ "time/tzdata" // agents name time zones, and a bare container has no list of them

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/app"
	"github.com/heardlog/heardlog/internal/cli"
	"github.com/heardlog/heardlog/internal/data"
	"github.com/heardlog/heardlog/internal/simulate"
	"github.com/heardlog/heardlog/longterm/mcp"
)

func main() {
	// net/http writes to the standard logger, with the first bytes of responses that may hold a
	// secret.
	log.SetOutput(io.Discard)
	args, err := readEnvFile(os.Args[1:])
	if err == nil {
		err = run(context.Background(), args, data.Env{
			Getenv: os.Getenv, Environ: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Terminal: data.IsTerminal(os.Stderr),
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "heardlog:", err)
		os.Exit(data.ExitCode(err))
	}
}

// readEnvFile puts the variables of the file that args or the environment name into the
// environment, unless they are set there, and returns the arguments behind its flag. Libraries read
// some of them by themselves, such as AWS_REGION.
func readEnvFile(args []string) ([]string, error) {
	path := os.Getenv(config.EnvFile)
	if len(args) > 0 {
		flag, value, joined := strings.Cut(args[0], "=")
		if flag == "--env-file" || flag == "-env-file" {
			args = args[1:]
			if !joined && len(args) > 0 {
				value, args = args[0], args[1:]
			}
			if path = value; path == "" {
				return nil, errors.New("--env-file needs the path of a file")
			}
		}
	}
	if path == "" {
		return args, nil
	}
	vars, err := config.ReadEnvFile(path)
	if err != nil {
		return nil, fmt.Errorf("the file of settings cannot be used:\n%w", err)
	}
	for _, v := range vars {
		if os.Getenv(v.Name) != "" {
			continue
		}
		if err := os.Setenv(v.Name, v.Value); err != nil {
			return nil, err
		}
	}
	return args, nil
}

// commands is the grammar of the command line.
type commands struct {
	Help         helpCommand         `cmd:"" help:"Show help for a subcommand, or settings for the environment variables."`
	Healthcheck  healthcheckCommand  `cmd:"" help:"Ask the server of these settings whether it is ready."`
	Simulate     simulateCommand     `cmd:"" help:"Play scripted calls against a running server."`
	MCP          mcpCommand          `cmd:"" name:"mcp" help:"Offer a caller's memory as tools on the standard input and output (Model Context Protocol)."`
	ImportCalls  importCallsCommand  `cmd:"" name:"import-calls" help:"File calls that ran on a hosted platform."`
	ImportMemory importMemoryCommand `cmd:"" name:"import-memory" help:"Make facts of what another product remembers of callers."`
	data.Commands
}

func run(ctx context.Context, args []string, e data.Env) error {
	signalled, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(signalled, func() {
		stop() // first, so that a second signal ends the program at once
		cancel()
	})
	if len(args) == 0 {
		return serve(ctx, e)
	}
	return cli.Run(ctx, &commands{}, args, version(), e.Stdout, writeSettings, e)
}

// version describes the build: version, commit and Go version, from the build information.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "heardlog, built without build information"
	}
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	commit := cmp.Or(set["vcs.revision"], "unknown")
	if set["vcs.modified"] == "true" {
		commit += ", modified"
	}
	return fmt.Sprintf("heardlog %s (commit %s; %s %s/%s)", cmp.Or(info.Main.Version, "(devel)"), commit, info.GoVersion, set["GOOS"], set["GOARCH"])
}

// writeSettings writes the settings below the help of the program.
func writeSettings(w io.Writer) error {
	if _, err := fmt.Fprint(w, "\nSettings (environment variables, or lines of the file in heardlog --env-file FILE):\n\n"); err != nil {
		return err
	}
	return config.Usage(w)
}

// serve runs the server until ctx ends.
func serve(ctx context.Context, e data.Env) error {
	c, err := config.Load(e.Getenv)
	if err := errors.Join(err, app.Check(c)); err != nil {
		return fmt.Errorf("the settings have mistakes:\n%w", err)
	}
	log := app.Logger(c, e.Stderr)
	for name, advice := range config.Unknown(e.Environ) {
		log.Warn().Str("name", name).Msg("unknown setting; " + advice)
	}
	a, err := app.New(ctx, c, log)
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

type helpCommand struct {
	Topic string `arg:"" optional:"" help:"A subcommand, or settings."`
}

// Run writes the help.
func (h *helpCommand) Run(ctx context.Context, e data.Env) error {
	switch h.Topic {
	case "settings":
		return config.Usage(e.Stdout)
	case "":
		return run(ctx, []string{"--help"}, e)
	}
	return run(ctx, []string{h.Topic, "--help"}, e)
}

type healthcheckCommand struct{}

// Help returns the details.
func (*healthcheckCommand) Help() string {
	return "For containers, which hold no other program to ask with. The exit code is 0 if the server is ready."
}

// Run asks the server.
func (*healthcheckCommand) Run(ctx context.Context, e data.Env) error {
	return app.Healthcheck(ctx, e.Getenv)
}

type simulateCommand struct{ simulate.Command }

// Run plays calls against the server of the settings, unless flags name another.
func (s *simulateCommand) Run(ctx context.Context, e data.Env) error {
	c, err := config.Load(e.Getenv)
	if err != nil {
		return fmt.Errorf("the settings have mistakes:\n%w", err)
	}
	s.Server = cmp.Or(s.Server, app.LocalURL(c))
	if s.Key == "" && len(c.Credentials) > 0 {
		s.Key = c.Credentials[0].ID + ":" + c.Credentials[0].Secret.Reveal()
	}
	return s.Play(ctx, e.Stdout)
}

type mcpCommand struct{ mcp.Command }

// Run serves until the input ends.
func (m *mcpCommand) Run(ctx context.Context, e data.Env) error {
	m.Key = cmp.Or(m.Key, e.Getenv("HEARDLOG_KEY"))
	return m.Serve(ctx, e.Stdin, e.Stdout)
}
