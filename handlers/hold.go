package handlers

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/hold"
	"github.com/heardlog/heardlog/store/record"
)

// holdAPI sets and lifts legal holds.
type holdAPI struct {
	bodies
	holds  *hold.Service
	agents *agents.Agents
}

// holdJSON is a hold. Exactly one of UserID, AgentID and Label is there.
type holdJSON struct {
	ID        string         `json:"id"`
	UserID    string         `json:"user_id,omitempty"`
	Names     []string       `json:"names,omitempty"` // all names of the caller
	AgentID   string         `json:"agent_id,omitempty"`
	Label     *holdLabelJSON `json:"label,omitempty"`
	Reason    string         `json:"reason"`
	SetBy     string         `json:"set_by,omitempty"` // the ID of a key
	SetByName string         `json:"set_by_name,omitempty"`
	SetAt     timeMS         `json:"set_at"`
}

type holdLabelJSON struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func newHoldJSON(h *hold.Hold) holdJSON {
	out := holdJSON{
		ID: h.ID, UserID: h.User, Names: h.Names, AgentID: h.AgentID,
		Reason: h.Reason, SetBy: h.SetBy, SetByName: h.SetByName, SetAt: timeMS(h.SetMS),
	}
	if h.Label != "" {
		out.Label = &holdLabelJSON{h.Label, h.Value}
	}
	return out
}

type holdRequest struct {
	Reason string `json:"reason"`
}

// holdRoutes adds the paths of the hold on one thing.
func (a *api) holdRoutes(r chi.Router, path string, target func(r *http.Request) (hold.Target, error)) {
	h := a.holds
	r.Put(path, a.audit.of("hold.set", agora(admin, takes(a.bodies, h.set(target)))))
	r.Get(path, agora(admin, shows(func(r *http.Request) (any, error) {
		t, err := target(r)
		if err != nil {
			return nil, err
		}
		return shown(newHoldJSON)(h.holds.Get(r.Context(), projectOf(r), t))
	})))
	r.Delete(path, a.audit.of("hold.lift", deletes(admin, gone(func(r *http.Request) error {
		t, err := target(r)
		if err != nil {
			return err
		}
		infoOf(r).target = t.String()
		was, err := h.holds.Lift(r.Context(), projectOf(r), t)
		if err == nil {
			infoOf(r).target = actOf(&was)
		}
		return err
	}))))
}

// actOf returns what the audit log says of a hold.
func actOf(h *hold.Hold) string { return h.ID + " on " + h.Target.String() + ": " + h.Reason }

func (a holdAPI) set(target func(r *http.Request) (hold.Target, error)) func(r *http.Request, in *holdRequest) (any, error) {
	return func(r *http.Request, in *holdRequest) (any, error) {
		t, err := target(r)
		if err != nil {
			return nil, err
		}
		if in.Reason == "" {
			return nil, fault.At(fault.Missing, "reason", "is required: refusals and the audit log show it")
		}
		reason, err := text.Clean("reason", in.Reason, hold.MaxReason)
		if err != nil {
			return nil, err
		}
		if t.AgentID != "" { // after the check of the body
			if _, err := a.agents.Agent(r.Context(), projectOf(r), t.AgentID); err != nil {
				return nil, err
			}
		}
		by := infoOf(r).caller
		infoOf(r).target = t.String()
		h, err := a.holds.Set(r.Context(), projectOf(r), t, reason, by.ID, by.Name)
		if err != nil {
			return nil, err
		}
		infoOf(r).target = actOf(&h)
		return newHoldJSON(&h), nil
	}
}

func heldUser(r *http.Request) (hold.Target, error) {
	user, err := userInPath(r)
	return hold.Target{User: user}, err
}

func heldAgent(r *http.Request) (hold.Target, error) {
	return hold.Target{AgentID: chi.URLParam(r, "id")}, nil
}

func heldLabel(r *http.Request) (t hold.Target, err error) {
	if t.Label, err = text.CleanKey("label", pathName(r, "label"), hold.MaxLabel); err != nil {
		return t, err
	}
	if t.Value, err = text.CleanKey("value", pathName(r, "value"), hold.MaxLabel); err != nil {
		return t, err
	}
	return t, hold.CheckTarget(t)
}

// list returns a page of the project's holds.
func (a holdAPI) list(r *http.Request) (any, error) {
	after, limit, err := pageOf(r, maxPageSize, record.MaxID)
	if err != nil {
		return nil, err
	}
	list, next, err := a.holds.List(r.Context(), projectOf(r), after, limit)
	if err != nil {
		return nil, err
	}
	return struct {
		Holds  []holdJSON `json:"holds"`
		Cursor string     `json:"next_cursor,omitempty"`
	}{each(list, newHoldJSON), next}, nil
}
