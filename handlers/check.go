package handlers

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/longterm/check"
	"github.com/heardlog/heardlog/memory"
)

// findingJSON is what a check has found in a call.
type findingJSON struct {
	Check  string      `json:"check"`
	By     memory.Role `json:"by,omitempty"`
	At     placeJSON   `json:"at"`
	Before placeJSON   `json:"before"`
	// UnheardAnswer is of a question that the caller asked again.
	UnheardAnswer *bool `json:"unheard_answer,omitempty"`
	MS            int64 `json:"ms,omitempty"`
}

type placeJSON struct {
	Seq    int64  `json:"seq"`
	TurnID int64  `json:"turn_id"`
	Text   string `json:"text"`
}

func newFindingJSON(f *check.Finding) findingJSON {
	out := findingJSON{Check: f.Check, By: f.By, At: placeJSON(f.At), Before: placeJSON(f.Before), MS: f.MS}
	if f.By == memory.User {
		out.UnheardAnswer = &f.Unheard
	}
	return out
}

// checks serves GET /v1/agents/{id}/checks.
func (a agentAPI) checks(r *http.Request) (any, error) {
	project, id := projectOf(r), chi.URLParam(r, "id")
	var h memory.Head
	var msgs []memory.Message
	// Of long texts few are read.
	for n, enough := 16, false; !enough; n = min(4*n, check.MaxMessages) {
		var err error
		if h, msgs, err = a.memory.Messages.Recent(r.Context(), project, id, n); err != nil {
			return nil, err
		}
		enough = len(msgs) < n || n == check.MaxMessages || check.Enough(msgs)
	}
	return struct {
		Findings []findingJSON `json:"findings"`
	}{each(check.Of(h.Agent.Settings.Memory.Own(msgs)), newFindingJSON)}, nil
}

// checkParam reads the names of checks that must have found something, with commas.
func checkParam(v url.Values) ([]string, error) {
	list := listParam(v, "check")
	for _, name := range list {
		if !slices.Contains(check.Names, name) {
			return nil, fault.At(fault.Invalid, "check", "must be one of %s, or several with commas, not %q", strings.Join(check.Names, ", "), text.Clip(name, 20))
		}
	}
	return list, nil
}
