package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// check is one measured figure and what was wanted of it.
type check struct {
	part   int
	what   string
	value  float64
	unit   string // "x" for a ratio
	limit  float64
	atMost bool   // else at least
	note   string // the figures behind it
}

func (c check) pass() bool {
	if c.atMost {
		return c.value <= c.limit
	}
	return c.value >= c.limit
}

// report collects figures and prints them.
type report struct {
	out    io.Writer
	checks []check
}

// sayf prints a line at once: a run takes minutes.
func (r *report) sayf(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

func (r *report) atLeast(part int, what string, value float64, unit string, limit float64, note string, args ...any) {
	r.add(check{part: part, what: what, value: value, unit: unit, limit: limit, note: fmt.Sprintf(note, args...)})
}

func (r *report) atMost(part int, what string, value float64, unit string, limit float64, note string, args ...any) {
	r.add(check{part: part, what: what, value: value, unit: unit, limit: limit, atMost: true, note: fmt.Sprintf(note, args...)})
}

func (r *report) add(c check) {
	r.checks = append(r.checks, c)
	r.sayf("  %s", strings.TrimSpace(row(c, "  ")))
}

func row(c check, sep string) string {
	sign, verdict := "≥", "pass"
	if c.atMost {
		sign = "≤"
	}
	if !c.pass() {
		verdict = "MISS"
	}
	return strings.Join([]string{
		fmt.Sprint(c.part), c.what, figure(c.value, c.unit), sign + " " + figure(c.limit, c.unit), verdict, c.note,
	}, sep)
}

func figure(v float64, unit string) string {
	digits := 2
	switch {
	case v >= 100 || v == float64(int(v)):
		digits = 0
	case v >= 10:
		digits = 1
	}
	if unit == "x" {
		return fmt.Sprintf("%.2f ×", v)
	}
	return strings.TrimSpace(fmt.Sprintf("%.*f %s", digits, v, unit))
}

// table prints everything once more, and tells how many targets were missed.
func (r *report) table() (missed int, err error) {
	r.sayf("")
	w := tabwriter.NewWriter(r.out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "part\twhat\tmeasured\ttarget\t\tfigures behind it")
	for _, c := range r.checks {
		fmt.Fprintln(w, row(c, "\t"))
		if !c.pass() {
			missed++
		}
	}
	if err := w.Flush(); err != nil {
		return missed, err
	}
	r.sayf("\n%d of %d targets met", len(r.checks)-missed, len(r.checks))
	return missed, nil
}
