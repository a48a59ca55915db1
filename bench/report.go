package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// check is one measured figure and its target.
type check struct {
	part   int
	what   string
	value  float64
	unit   string // "x" for a ratio
	limit  float64
	atMost bool   // else at least
	open   bool   // there is no target
	note   string // the figures behind it

	other     float64 // the same figure of the server of -against
	otherNote string
}

func (c check) pass() bool {
	if c.open {
		return true
	}
	if c.atMost {
		return c.value <= c.limit
	}
	return c.value >= c.limit
}

// report collects figures and prints them.
type report struct {
	out    io.Writer
	checks []check
	both   bool // each row has the figure of a second server too
}

// sayf prints a line at once: a run takes minutes.
func (r *report) sayf(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

func (r *report) atLeast(part int, what string, value float64, unit string, limit float64, note string, args ...any) {
	r.add(check{part: part, what: what, value: value, unit: unit, limit: limit, note: fmt.Sprintf(note, args...)})
}

func (r *report) atMost(part int, what string, value float64, unit string, limit float64, note string, args ...any) {
	r.add(check{part: part, what: what, value: value, unit: unit, limit: limit, atMost: true, note: fmt.Sprintf(note, args...)})
}

// show adds a figure that has no target.
func (r *report) show(part int, what string, value float64, unit, note string, args ...any) {
	r.add(check{part: part, what: what, value: value, unit: unit, open: true, note: fmt.Sprintf(note, args...)})
}

func (r *report) add(c check) {
	r.checks = append(r.checks, c)
	r.sayf("  %s", strings.TrimSpace(r.row(c, "  ")))
}

func (r *report) row(c check, sep string) string {
	target, verdict := "≥ "+figure(c.limit, c.unit), "pass"
	if c.atMost {
		target = "≤ " + figure(c.limit, c.unit)
	}
	switch {
	case c.open:
		target, verdict = "", ""
	case !c.pass():
		verdict = "MISS"
	}
	cells := []string{fmt.Sprint(c.part), c.what, figure(c.value, c.unit)}
	note := c.note
	if r.both {
		times := "" // a figure of 0 has no ratio
		if c.other != 0 {
			times = figure(c.value/c.other, "x")
		}
		cells = append(cells, figure(c.other, c.unit), times)
		if c.otherNote != "" {
			note += " (against: " + c.otherNote + ")"
		}
	}
	return strings.Join(append(cells, target, verdict, note), sep)
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

// table prints all rows again and returns how many targets were missed.
func (r *report) table() (missed int, err error) {
	r.sayf("")
	w := tabwriter.NewWriter(r.out, 0, 4, 2, ' ', 0)
	second := ""
	if r.both {
		second = "against\tmeasured / against\t"
	}
	fmt.Fprintln(w, "part\twhat\tmeasured\t"+second+"target\t\tfigures behind it")
	targets := 0
	for _, c := range r.checks {
		fmt.Fprintln(w, r.row(c, "\t"))
		if !c.open {
			targets++
		}
		if !c.pass() {
			missed++
		}
	}
	if err := w.Flush(); err != nil {
		return missed, err
	}
	r.sayf("\n%d of %d targets met", targets-missed, targets)
	return missed, nil
}
