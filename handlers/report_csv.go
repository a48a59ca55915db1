package handlers

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"net/http"
	"strconv"

	"github.com/heardlog/heardlog/longterm/check"
	"github.com/heardlog/heardlog/longterm/report"
)

// columns are the figures of a CSV file, after time and group.
var columns = []struct {
	name string
	of   func(f *report.Figures) int64
}{
	{"calls", func(f *report.Figures) int64 { return f.Calls }},
	{"turns", func(f *report.Figures) int64 { return f.Turns }},
	{"answers", func(f *report.Figures) int64 { return f.Answers }},
	{"interruptions", func(f *report.Figures) int64 { return f.Interruptions }},
	{"ghosts", func(f *report.Figures) int64 { return f.Ghosts }},
	{"failures", func(f *report.Figures) int64 { return f.Failures }},
	{"words", func(f *report.Figures) int64 { return f.Words }},
	{"unheard_words", func(f *report.Figures) int64 { return f.UnheardWords }},
	{"generated_tokens", func(f *report.Figures) int64 { return f.Generated }},
	{"unheard_tokens", func(f *report.Figures) int64 { return f.Unheard }},
	{"prompt_tokens", func(f *report.Figures) int64 { return f.Prompt }},
	{"completion_tokens", func(f *report.Figures) int64 { return f.Completion }},
	{"cached_tokens", func(f *report.Figures) int64 { return f.Cached }},
	{"tool_calls", func(f *report.Figures) int64 { return f.ToolCalls }},
	{"recall_hits", func(f *report.Figures) int64 { return f.Recalled }},
	{"silence_ms", func(f *report.Figures) int64 { return f.SilenceMS }},
	{"length_ms", func(f *report.Figures) int64 { return f.LengthMS }},
}

// spread are the figures of which a CSV file has percentiles.
var spread = []struct {
	name string
	of   func(f *report.Figures) report.Sketch
}{
	{"first_token_ms", func(f *report.Figures) report.Sketch { return f.FirstToken }},
	{"first_sentence_ms", func(f *report.Figures) report.Sketch { return f.FirstSentence }},
	{"longest_silence_ms", func(f *report.Figures) report.Sketch { return f.Longest }},
	{"call_length_ms", func(f *report.Figures) report.Sketch { return f.Length }},
}

// writeReport answers with a report as CSV: a line for each point of each group, or for the whole
// time without an interval. Costs are in US dollars; what was not measured is empty.
func writeReport(w http.ResponseWriter, by string, got *report.Report) error {
	var b bytes.Buffer
	out := csv.NewWriter(&b) // writing to memory does not fail
	head := []string{"start_at", cmp.Or(by, "group")}
	for _, c := range columns {
		head = append(head, c.name)
	}
	for _, name := range check.Names {
		head = append(head, "check_"+name)
	}
	head = append(head, "cost_usd", "unheard_usd")
	for _, c := range spread {
		head = append(head, c.name+"_p50", c.name+"_p95", c.name+"_p99")
	}
	_ = out.Write(head)
	line := func(startMS int64, value string, f *report.Figures) {
		row := []string{shownTime(startMS), safeCell(value)}
		for _, c := range columns {
			row = append(row, strconv.FormatInt(c.of(f), 10))
		}
		_, checks := f.Checks()
		for _, name := range check.Names {
			row = append(row, strconv.FormatInt(checks[name], 10))
		}
		for _, n := range []int64{f.Cost, f.UnheardCost} {
			row = append(row, strconv.FormatFloat(float64(n)/1e9, 'f', -1, 64))
		}
		for _, c := range spread {
			s := c.of(f)
			for _, p := range []float64{0.5, 0.95, 0.99} {
				cell := ""
				if len(s) > 0 {
					cell = strconv.FormatInt(s.Percentile(p), 10)
				}
				row = append(row, cell)
			}
		}
		_ = out.Write(row)
	}
	lines := func(value string, total *report.Figures, points []report.Point) {
		for i := range points {
			line(points[i].StartMS, value, &points[i].Figures)
		}
		if len(points) == 0 && total.Calls > 0 {
			line(got.FromMS, value, total)
		}
	}
	for i := range got.Groups {
		g := &got.Groups[i]
		lines(g.Value, &g.Total, g.Points)
	}
	if by == "" {
		lines("", &got.Total, got.Points)
	}
	out.Flush()
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="report.csv"`)
	w.WriteHeader(http.StatusOK)
	_, err := w.Write(b.Bytes())
	return err
}

// safeCell returns a text that spreadsheets do not take for a formula.
func safeCell(s string) string {
	if s != "" && bytes.IndexByte([]byte("=+-@\t\r"), s[0]) >= 0 {
		return "'" + s
	}
	return s
}
