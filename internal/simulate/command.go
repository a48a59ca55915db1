package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
)

// ErrDiffers tells that at least one record was not as expected; the reports have been written.
var ErrDiffers = errors.New("the record is not as expected")

// usageText stands above the flags of -h.
const usageText = `usage: simulate [flags] PLATFORM

Plays scripted calls of a platform against a running server and compares what was recorded with what was heard. PLATFORM is one of
%s; or all; or the name of one built-in transcript; or a file (*.jsonl). The code is 0 if
everything is as expected.

`

// maxPace is the fastest that a call is played in time; faster than that, time is left out.
const maxPace = 100

// Command runs the subcommand with the arguments behind its name. server and key are those of the server's own settings, which flags change.
// It returns ErrDiffers if a record is not as expected, and any other error if a call could not be played.
func Command(ctx context.Context, args []string, server, key string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	flags.SetOutput(stderr)
	c := Config{}
	flags.StringVar(&c.Server, "server", server, "base `URL` of the server, without /v1")
	flags.StringVar(&c.Key, "key", key, "`secret` of a credential; by default the first of HEARDLOG_CREDENTIALS")
	flags.StringVar(&c.Listen, "listen", "127.0.0.1:0", "`host:port` of the simulated LLM, which the server must be allowed to call (HEARDLOG_OUTBOUND_ALLOW)")
	flags.Float64Var(&c.Pace, "pace", 0, "1 plays in real time, 2 twice as fast; 0 waits for nothing")
	asJSON := flags.Bool("json", false, "write one JSON object a call instead of tables")
	show := flags.Bool("print", false, "write the transcript instead of playing it")
	flags.Lookup("key").DefValue = "" // never shown
	flags.Usage = func() {
		fmt.Fprintf(stderr, usageText, strings.Join(Platforms(), ", "))
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() != 1 {
		flags.Usage()
		return errors.New("simulate: name one platform or one file")
	}
	if err := c.check(); err != nil {
		return err
	}
	list, err := find(flags.Arg(0))
	if err != nil {
		return err
	}
	if *show {
		return printSources(list, stdout)
	}
	return playAll(ctx, c, list, *asJSON, stdout)
}

func (c *Config) check() error {
	if u, err := url.Parse(c.Server); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("-server: %q is not an http or https URL", c.Server)
	}
	if c.Pace < 0 || c.Pace > maxPace {
		return fmt.Errorf("-pace: %v is not from 0 to %d", c.Pace, maxPace)
	}
	return nil
}

// find gives the transcripts of a platform, of a name, or in a file.
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

// playAll plays one call after the other and writes what came of each. One that cannot be played ends it.
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
