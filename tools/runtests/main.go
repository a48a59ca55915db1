// Command runtests runs the tests of several modules and prints one line for a package, the output
// of tests that failed, and at the end the tests that were skipped, by reason.
//
// Each run is a folder and arguments of go test; "--" stands between runs, which go on at the same
// time:
//
//	runtests . ./... -- compat -count=1 ./...
//
// The exit code is 1 if any failed. If RUNTESTS_RECORD names a file, what ran and what was skipped
// is appended to it. After several such calls,
//
//	runtests -check file
//
// fails if a test was skipped in each of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "runtests:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 2 && args[0] == "-check" {
		return checkRecord(args[1], out)
	}
	runs, err := split(args)
	if err != nil {
		return err
	}
	r := newReport(out)
	failed := make([]error, len(runs))
	var all sync.WaitGroup
	for i, one := range runs {
		all.Go(func() {
			if err := goTest(ctx, one[0], one[1:], r); err != nil {
				failed[i] = fmt.Errorf("%s: %w", one[0], err)
			}
		})
	}
	all.Wait()
	failed = append(failed, r.summarize())
	if file := os.Getenv("RUNTESTS_RECORD"); file != "" {
		failed = append(failed, r.record(file))
	}
	return errors.Join(failed...)
}

// split returns the runs that args name.
func split(args []string) ([][]string, error) {
	var runs [][]string
	for more := true; more; {
		one := args
		if end := slices.Index(args, "--"); end < 0 {
			more = false
		} else {
			one, args = args[:end], args[end+1:]
		}
		if len(one) == 0 {
			return nil, errors.New("a run is a folder and arguments of go test")
		}
		runs = append(runs, one)
	}
	return runs, nil
}

// goTest runs go test in a folder and reads its events.
func goTest(ctx context.Context, dir string, args []string, r *report) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go passes it on to the tests
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := r.read(events)
	return errors.Join(readErr, cmd.Wait())
}
