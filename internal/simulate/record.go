package simulate

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Row is one answer of a call's record, or what the record should have of it.
type Row struct {
	// From 0 in the order of the record, whatever the platform's own numbers.
	Turn        int    `json:"turn"`
	Caller      string `json:"caller,omitempty"` // the words that it answers
	Generated   string `json:"generated"`
	Heard       string `json:"heard"`
	Interrupted bool   `json:"interrupted"`
	Method      string `json:"method,omitempty"`
	Source      string `json:"source,omitempty"`
	Tool        string `json:"tool,omitempty"` // the function that the answer calls
	Ghosts      int    `json:"ghosts"`         // answers of the turn that were superseded; in its first row
}

// message has the fields of a ledger entry that are read.
type message struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	TurnID    int64  `json:"turn_id"`
	State     string `json:"state"`
	Generated string `json:"generated"`
	Heard     string `json:"heard"`
	ToolCalls []struct {
		Function struct{ Name string }
	} `json:"tool_calls"`
	Metadata struct {
		Source      string `json:"source"`
		Interrupted bool   `json:"interrupted"`
	} `json:"metadata"`
	Evidence struct{ Method string }
}

// ledger reads all of the agent's ledger.
func (p *player) ledger(ctx context.Context) ([]message, error) {
	var all []message
	for cursor := ""; ; {
		var page struct {
			Messages []message `json:"messages"`
			Next     string    `json:"next_cursor"`
		}
		path := "/v1/agents/" + url.PathEscape(p.agent) + "/messages?limit=1000&cursor=" + url.QueryEscape(cursor)
		if err := p.do(ctx, http.MethodGet, path, nil, &page); err != nil {
			return nil, fmt.Errorf("read the ledger: %w", err)
		}
		all = append(all, page.Messages...)
		if page.Next == "" {
			return all, nil
		}
		cursor = page.Next
	}
}

// rows returns the answers of a ledger. Superseded answers are counted; answers without words and
// calls are left out.
func rows(ledger []message) []Row {
	var out []Row
	turns, ghosts := map[int64]int{}, map[int64]int{}
	callers, first := map[int64][]string{}, map[int64]bool{}
	for _, m := range ledger {
		if _, ok := turns[m.TurnID]; !ok {
			turns[m.TurnID] = len(turns)
		}
		switch {
		case m.State == "superseded":
			ghosts[m.TurnID]++
		case m.Role == "user":
			callers[m.TurnID] = append(callers[m.TurnID], m.Content)
		}
	}
	for _, m := range ledger {
		if m.Role != "assistant" || m.State == "superseded" || m.Generated == "" && m.Heard == "" && len(m.ToolCalls) == 0 {
			continue
		}
		r := Row{
			Turn: turns[m.TurnID], Generated: m.Generated, Heard: m.Heard, Interrupted: m.Metadata.Interrupted,
			Method: m.Evidence.Method, Source: m.Metadata.Source,
		}
		if len(m.ToolCalls) > 0 {
			r.Tool = m.ToolCalls[0].Function.Name
		}
		if !first[m.TurnID] {
			first[m.TurnID] = true
			r.Caller, r.Ghosts = strings.Join(callers[m.TurnID], " "), ghosts[m.TurnID]
		}
		out = append(out, r)
	}
	return out
}

// Compared is a row of the result: what was expected and what was recorded. One of them is nil if
// the other has no counterpart.
type Compared struct {
	Line     int      `json:"line,omitempty"` // of the step in the transcript
	Expected *Row     `json:"expected"`
	Recorded *Row     `json:"recorded"`
	Differs  []string `json:"differs,omitempty"` // columns that are not equal
}

// compare compares the rows, in order.
func compare(wants []want, recorded []Row) []Compared {
	out, turn := make([]Compared, max(len(wants), len(recorded))), 0
	for i := range out {
		c := &out[i]
		if i < len(wants) {
			c.Expected, c.Line = &wants[i].Row, wants[i].line
			if wants[i].opens && i > 0 {
				turn++
			}
			c.Expected.Turn = turn
		}
		if i < len(recorded) {
			c.Recorded = &recorded[i]
		}
		if c.Expected == nil || c.Recorded == nil {
			c.Differs = []string{"answer"}
			continue
		}
		c.Differs = differences(c.Expected, c.Recorded)
	}
	return out
}

func differences(want, got *Row) []string {
	var out []string
	differ := func(column string, yes bool) {
		if yes {
			out = append(out, column)
		}
	}
	differ("turn", want.Turn != got.Turn)
	differ("caller", plain(want.Caller) != plain(got.Caller))
	differ("generated", plain(want.Generated) != plain(got.Generated))
	differ("heard", plain(want.Heard) != plain(got.Heard) && wholeWords(want) != plain(got.Heard))
	differ("interrupted", want.Interrupted != got.Interrupted)
	differ("method", want.Method != "" && want.Method != got.Method)
	differ("source", want.Source != "" && want.Source != got.Source)
	differ("tool", want.Tool != got.Tool)
	differ("ghosts", want.Ghosts != got.Ghosts)
	return out
}

// wholeWords returns the words that were heard without a half last one, which does not count as
// heard if a list is all that shows it.
func wholeWords(r *Row) string {
	heard := plain(r.Heard)
	rest, ok := strings.CutPrefix(plain(r.Generated), heard)
	if i := strings.LastIndexByte(heard, ' '); ok && i >= 0 && rest != "" && rest[0] != ' ' {
		return plain(heard[:i])
	}
	return heard
}

// plain removes white space at both ends of a text: it depends on where a stream was cut.
func plain(s string) string { return strings.TrimSpace(s) }
