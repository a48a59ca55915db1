package handlers

import (
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/memory/window"
)

// trimAnswer reports what a trim or a repair did.
type trimAnswer struct {
	AgentID string   `json:"agent_id"`
	Dropped int      `json:"dropped"`
	Kept    int      `json:"kept"`
	Tokens  int      `json:"estimated_tokens"`
	Healed  []string `json:"healed"`
}

type repairAnswer struct {
	trimAnswer
	Problems []repairProblem `json:"problems"`
}

type repairProblem struct {
	Code       string   `json:"code"`
	Seq        int64    `json:"seq"`
	IDs        []string `json:"ids"`
	Repairable bool     `json:"repairable"`
}

func newTrimAnswer(r *http.Request, t memctx.Trimmed) trimAnswer {
	return trimAnswer{chi.URLParam(r, "id"), t.Dropped, t.Kept, t.Tokens, append([]string{}, t.Healed...)}
}

// trimRequest limits a memory.
type trimRequest struct {
	MaxTokens  *int `json:"max_tokens"`
	KeepRecent *int `json:"keep_recent"`
}

// trim shortens the memory for good, to a budget of tokens or to the newest messages.
func (a contextAPI) trim(r *http.Request, in *trimRequest) (any, error) {
	for _, f := range []struct {
		name      string
		v         *int
		low, high int
	}{{"max_tokens", in.MaxTokens, 1, window.MaxTokenCount}, {"keep_recent", in.KeepRecent, 0, window.MaxCount}} {
		if f.v != nil && (*f.v < f.low || *f.v > f.high) {
			return nil, fault.At(fault.Invalid, f.name, "must be from %d to %d, not %d", f.low, f.high, *f.v)
		}
	}
	t, err := a.contexts.Trim(r.Context(), projectOf(r), chi.URLParam(r, "id"), memctx.TrimRequest{MaxTokens: in.MaxTokens, KeepRecent: in.KeepRecent})
	if err != nil {
		return nil, err
	}
	return newTrimAnswer(r, t), nil
}

// repair reports problems of the memory's tool calls and adds placeholders for missing results.
func (a contextAPI) repair(w http.ResponseWriter, r *http.Request) error {
	if err := a.readNone(w, r); err != nil {
		return err
	}
	t, err := a.contexts.Repair(r.Context(), projectOf(r), chi.URLParam(r, "id"))
	if err != nil {
		return err
	}
	out := repairAnswer{newTrimAnswer(r, t), []repairProblem{}}
	for _, p := range t.Problems {
		out.Problems = append(out.Problems, repairProblem{string(p.Code), p.Seq, append([]string{}, p.IDs...), p.Repairable})
	}
	return encode(w, http.StatusOK, out)
}

// summarizable lists the messages that a summary should cover before they leave the memory. A long
// list is sent as it is read.
func (a contextAPI) summarizable(w http.ResponseWriter, r *http.Request) error {
	keep := window.DefaultKeepRecent
	if r.URL.Query().Get("keep_recent") == "0" { // which is no "absent" here: all of it
		keep = 0
	} else if n, err := intParam(r.URL.Query(), "keep_recent", keep, 0, window.MaxCount); err != nil {
		return err
	} else {
		keep = n
	}
	out, last := &stream{w: w, r: r}, int64(0)
	out.raw(`{"messages":[`)
	h, err := a.contexts.Summarizable(r.Context(), projectOf(r), chi.URLParam(r, "id"), keep, func(msgs []memory.Message) error {
		for i := range msgs {
			if last > 0 {
				out.raw(",")
			}
			last = msgs[i].Seq
			if err := out.value(newLedgerEntry(&msgs[i], false, 0)); err != nil {
				return err
			}
			if err := out.flush(); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		out.raw(`],"keep_recent":` + strconv.Itoa(keep) + `,"agent_id":`)
		err = out.value(h.Agent.ID)
	}
	if last > 0 {
		out.raw(`,"up_to_seq":` + strconv.FormatInt(last, 10))
	}
	out.raw("}")
	return out.end(err)
}

// clear empties an agent's memory. The summary and the ledger stay.
func (a contextAPI) clear(w http.ResponseWriter, r *http.Request) error {
	if err := a.readNone(w, r); err != nil {
		return err
	}
	_, err := a.contexts.Clear(r.Context(), projectOf(r), chi.URLParam(r, "id"))
	return noContent(w, err)
}
