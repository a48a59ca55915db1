package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
)

// ErrDiffers is returned if a record is not as expected. The reports have been written.
var ErrDiffers = errors.New("the record is not as expected")

// maxPace is the largest factor of real time; for more speed, calls are played without waiting.
const maxPace = 100

// Command is the subcommand simulate, in the form of package cli.
type Command struct {
	Server    string   `placeholder:"URL" help:"Base URL of the server, without /v1. Default: the server of the settings."`
	Key       string   `placeholder:"SECRET" help:"Secret of a credential. Default: the first of HEARDLOG_CREDENTIALS."`
	Listen    string   `default:"127.0.0.1:0" placeholder:"HOST:PORT" help:"Address of the simulated LLM, which the server must be allowed to call (HEARDLOG_OUTBOUND_ALLOW). Default: 127.0.0.1 and a free port."`
	Pace      float64  `default:"0" placeholder:"N" help:"1 plays in real time, 2 twice as fast. 0, the default, waits for nothing."`
	JSON      bool     `name:"json" help:"Write one JSON object a call instead of tables."`
	Print     bool     `help:"Write the transcript instead of playing it."`
	Platforms []string `arg:"" optional:"" name:"platform" help:"A platform, all, the name of one built-in transcript, or a file (*.jsonl)."`
}

// Help returns the details.
func (*Command) Help() string {
	return "Plays scripted calls of a platform against a running server and compares what was recorded with what was heard. The platforms are " +
		strings.Join(Platforms(), ", ") + ". The exit code is 0 if everything is as expected."
}

// Play runs the subcommand. It returns ErrDiffers if a record is not as expected, and any other
// error if a call could not be played.
func (o *Command) Play(ctx context.Context, stdout io.Writer) error {
	if len(o.Platforms) != 1 {
		return errors.New("simulate: name one platform or one file")
	}
	c := Config{Server: o.Server, Key: o.Key, Listen: o.Listen, Pace: o.Pace}
	if err := c.check(); err != nil {
		return err
	}
	list, err := find(o.Platforms[0])
	if err != nil {
		return err
	}
	if o.Print {
		return printSources(list, stdout)
	}
	return playAll(ctx, c, list, o.JSON, stdout)
}

func (c *Config) check() error {
	if u, err := url.Parse(c.Server); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("--server: %q is not an http or https URL", c.Server)
	}
	if c.Pace < 0 || c.Pace > maxPace {
		return fmt.Errorf("--pace: %v is not from 0 to %d", c.Pace, maxPace)
	}
	return nil
}

// find returns the transcripts of a platform, of a name, or in a file.
func find(name string) ([]Transcript, error) {
	list, err := Builtin(name)
	if err != nil || len(list) > 0 {
		return list, err
	}
	if !strings.HasSuffix(name, ".jsonl") {
		return nil, fmt.Errorf("%q is not a platform that can be simulated: %s, or a file that ends in .jsonl", name, strings.Join(Platforms(), ", "))
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxTranscript+1))
	if err != nil {
		return nil, err
	}
	t, err := Parse(name, text)
	return []Transcript{t}, err
}

func printSources(list []Transcript, w io.Writer) error {
	for _, t := range list {
		if _, err := fmt.Fprintf(w, "# %s\n%s", t.Name, t.Text); err != nil {
			return err
		}
	}
	return nil
}

// playAll plays the calls in turn and writes a report of each. It stops at a call that cannot be
// played.
func playAll(ctx context.Context, c Config, list []Transcript, asJSON bool, w io.Writer) error {
	match := true
	for i, t := range list {
		r, err := Play(ctx, c, t)
		if err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
		match = match && r.Match
		if asJSON {
			err = json.NewEncoder(w).Encode(r)
		} else {
			if i > 0 {
				_, _ = fmt.Fprintln(w) // what cannot be written shows below
			}
			err = r.Print(w)
		}
		if err != nil {
			return err
		}
	}
	if !match {
		return ErrDiffers
	}
	return nil
}
