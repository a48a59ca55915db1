package simulate

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// maxCell is how much of a text a table shows.
const maxCell = 48

// Print writes a report as a table, with each expected row above the recorded one.
func (r Report) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d requests, agent %s\n", r.Name, r.Requests, r.AgentID)
	if r.About != "" {
		fmt.Fprintf(&b, "%s\n", r.About)
	}
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "turn\tcaller\t\tgenerated\theard\tinterrupted\tmethod\tghosts\t")
	for _, c := range r.Rows {
		turn, caller, verdict := "", "", "ok"
		if row := c.Expected; row != nil {
			turn, caller = strconv.Itoa(row.Turn), row.Caller
		} else if row := c.Recorded; row != nil {
			turn, caller = strconv.Itoa(row.Turn), row.Caller
		}
		if len(c.Differs) > 0 {
			verdict = "differs: " + strings.Join(c.Differs, ", ")
			if c.Line > 0 {
				verdict += fmt.Sprintf(" (line %d)", c.Line)
			}
		}
		fmt.Fprintf(table, "%s\t%s\texpected\t%s\t\n", turn, cell(caller), cells(c.Expected, c.Recorded))
		fmt.Fprintf(table, "\t%s\trecorded\t%s\t%s\n", otherCaller(c), cells(c.Recorded, nil), verdict)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "problem: %s\n", p)
	}
	if r.Match {
		b.WriteString("the record is as expected\n")
	} else {
		b.WriteString("THE RECORD IS NOT AS EXPECTED\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cells returns the columns of a row. A field that an expected row leaves open is a dash.
func cells(r, other *Row) string {
	if r == nil {
		return "none\t\t\t\t"
	}
	generated := cell(r.Generated)
	if r.Tool != "" {
		generated = strings.TrimSpace(generated + " [" + r.Tool + "]")
	}
	method := r.Method
	if method == "" && other != nil {
		method = "-"
	}
	return strings.Join([]string{generated, cell(r.Heard), map[bool]string{true: "yes", false: "no"}[r.Interrupted], method, strconv.Itoa(r.Ghosts)}, "\t")
}

// otherCaller returns the recorded words of the caller if they are not the expected ones.
func otherCaller(c Compared) string {
	if c.Recorded != nil && slices.Contains(c.Differs, "caller") {
		return cell(c.Recorded.Caller)
	}
	return ""
}

// cell shortens a text to the width of a column, on one line.
func cell(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if utf8.RuneCountInString(s) <= maxCell {
		return s
	}
	return string([]rune(s)[:maxCell-1]) + "…"
}
