package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// event is one line of go test -json, as `go doc test2json` describes it.
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string // of build output
}

// name is a test of a package; Test "" is the package itself.
type name struct{ Package, Test string }

// skips are the tests that were skipped for one reason.
type skips struct {
	tests    int
	packages []string
}

// report collects the events of several go tests. Its methods are safe for concurrent use.
type report struct {
	mu             sync.Mutex
	out            io.Writer
	text           map[name][]string // the lines of tests that have not ended
	passed, failed int
	skipped        map[string]*skips // by reason
	results        []result
}

func newReport(out io.Writer) *report {
	return &report{out: out, text: map[name][]string{}, skipped: map[string]*skips{}}
}

// read reads the events of one go test and prints what is worth a line.
func (r *report) read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.add(line)
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

func (r *report) add(line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e event
	if json.Unmarshal(line, &e) != nil {
		r.print(string(line)) // go test writes other text too
		return
	}
	n := name{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		r.print(e.Output)
	case "output":
		if e.Test == "" && verdict.MatchString(e.Output) {
			r.print(e.Output)
		} else if !frame.MatchString(e.Output) {
			r.text[n] = append(r.text[n], e.Output)
		}
	case "pass":
		delete(r.text, n)
		if e.Test != "" {
			r.passed++
			r.results = append(r.results, result{Package: e.Package, Test: e.Test})
		}
	case "skip":
		if e.Test != "" {
			why := reason(r.text[n])
			r.skip(e.Package, why)
			r.results = append(r.results, result{e.Package, e.Test, why})
		}
		delete(r.text, n)
	case "fail":
		if e.Test == "" { // what tests wrote that never ended, too
			for _, n := range r.unended(e.Package) {
				r.dump(n)
			}
			return
		}
		r.failed++
		r.results = append(r.results, result{Package: e.Package, Test: e.Test})
		r.dump(n)
	}
}

var (
	// verdict matches the line of a package that has ended. Packages without tests are left out.
	verdict = regexp.MustCompile(`^(ok  |FAIL)\t`)
	// frame matches the lines between a test's own.
	frame = regexp.MustCompile(`^(=== (RUN|PAUSE|CONT|NAME) |PASS\n|FAIL\n|\?   \t)`)
	// place matches where a line was logged from.
	place = regexp.MustCompile(`^\s+\S+\.go:\d+: `)
)

func (r *report) print(text string) { _, _ = io.WriteString(r.out, text) }

// dump prints what a failed test wrote.
func (r *report) dump(n name) {
	if len(r.text[n]) > 0 {
		r.print(strings.TrimSuffix("--- "+n.Package+" "+n.Test, " ") + "\n" + strings.Join(r.text[n], ""))
	}
	delete(r.text, n)
}

// unended returns the names of a package with lines left, the package itself last.
func (r *report) unended(pkg string) []name {
	var out []name
	for n := range r.text {
		if n.Package == pkg {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b name) int { return strings.Compare(b.Test, a.Test) })
	return out
}

// reason returns the first line that a test logged last: what it was skipped with.
func reason(lines []string) string {
	for _, line := range slices.Backward(lines) {
		if place.MatchString(line) {
			return strings.TrimSpace(place.ReplaceAllString(line, ""))
		}
	}
	return "no reason given"
}

func (r *report) skip(pkg, why string) {
	s := r.skipped[why]
	if s == nil {
		s = &skips{}
		r.skipped[why] = s
	}
	s.tests++
	if !slices.Contains(s.packages, pkg) {
		s.packages = append(s.packages, pkg)
	}
}

// summarize prints the tests that did not run, by reason, and the counts.
func (r *report) summarize() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	total := 0
	if len(r.skipped) > 0 {
		b.WriteString("\nNot run:\n")
	}
	for _, why := range slices.Sorted(maps.Keys(r.skipped)) {
		s := r.skipped[why]
		total += s.tests
		fmt.Fprintf(&b, "  %d in %s\n    %s\n", s.tests, strings.Join(s.packages, ", "), why)
	}
	fmt.Fprintf(&b, "\n%d passed, %d failed, %d skipped\n", r.passed, r.failed, total)
	_, err := io.WriteString(r.out, b.String())
	return err
}
