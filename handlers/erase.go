package handlers

import (
	"cmp"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/erasure"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/store/record"
)

// eraseAPI erases all data of a user or a project, and shows the receipts of erasures.
type eraseAPI struct{ erasures *erasure.Service }

// erasureHeader has the ID of the erasure in the answer to a DELETE that has no body.
const erasureHeader = "X-Heardlog-Erasure"

// eraserOf returns what a receipt says of who erased: the name of the key, or the ID of the
// credential.
func eraserOf(r *http.Request) string {
	by := infoOf(r).caller
	return cmp.Or(by.Name, by.ID)
}

// receiptJSON lists what was erased, without content.
type receiptJSON struct {
	ID       string         `json:"erasure_id"`
	Project  string         `json:"project"`
	User     string         `json:"user,omitempty"`
	ErasedAt timeMS         `json:"erased_at"`
	Erased   erasure.Counts `json:"erased"`
	// Shared names agents that were kept because other users spoke there, too.
	Shared  []string `json:"shared_agents,omitempty"`
	SharedN int      `json:"shared_total,omitempty"`
}

func newReceipt(e *erasure.Entry) receiptJSON {
	return receiptJSON{ID: e.ID, Project: e.Project, ErasedAt: timeMS(e.DoneMS), Erased: e.Erased, SharedN: e.SharedN}
}

// user erases everything that belongs to a caller of the project, under all of its names.
func (a eraseAPI) user(r *http.Request) (any, error) {
	user, err := userInPath(r)
	if err != nil {
		return nil, err
	}
	e, gone, err := a.erasures.User(r.Context(), projectOf(r), user, eraserOf(r))
	if err != nil {
		return nil, err
	}
	infoOf(r).target = gone.User // an alias is gone
	out := newReceipt(&e)
	out.User, out.Shared = gone.User, gone.Shared
	return out, nil
}

// project erases everything that the caller's project has. The path and the parameter confirm
// repeat its name as a safeguard: the path alone may come from an example.
func (a eraseAPI) project(r *http.Request) (any, error) {
	named := pathName(r, "project")
	project := projectOf(r)
	if named != project {
		return nil, fault.At(fault.NotFound, "project", "%q is not the project of these credentials", text.Clip(named, 80))
	}
	if got := r.URL.Query().Get("confirm"); got != project {
		return nil, fault.At(fault.Invalid, "confirm", "must be the name of the project, %q, because this erases all of its data; it is %q", project, text.Clip(got, 80))
	}
	e, err := a.erasures.Project(r.Context(), project, eraserOf(r))
	if err != nil {
		return nil, err
	}
	return newReceipt(&e), nil
}

// erasureJSON is an erasure in lists.
type erasureJSON struct {
	ID       string         `json:"id"`
	Kind     string         `json:"kind"`  // agent, user or project
	State    string         `json:"state"` // erased or held
	AgentID  string         `json:"agent_id,omitempty"`
	AskedAt  timeMS         `json:"asked_at"` // when the erasure began
	ErasedAt timeMS         `json:"erased_at"`
	By       string         `json:"by,omitempty"`
	Erased   erasure.Counts `json:"erased"`
	// Unfinished is set if the counts lack what was erased before the server stopped.
	Unfinished bool   `json:"unfinished,omitempty"`
	AgainAt    string `json:"again_at,omitempty"` // when it was last applied again
}

func newErasureJSON(n *erasure.Noted) erasureJSON {
	out := erasureJSON{
		ID: n.ID, Kind: string(n.Kind), State: "erased", AgentID: n.AgentID, AskedAt: timeMS(n.AskedMS), ErasedAt: timeMS(n.DoneMS), By: n.By,
		Erased: n.Erased, Unfinished: n.Unfinished, AgainAt: shownTime(n.AgainMS),
	}
	if n.Held {
		out.State = "held"
	}
	return out
}

// get returns the receipt of an erasure.
func (a eraseAPI) get(r *http.Request) (any, error) {
	n, err := a.erasures.Get(r.Context(), projectOf(r), chi.URLParam(r, "id"))
	if err != nil {
		return nil, err
	}
	where, remains := a.erasures.Receipt(r.Context(), &n)
	return struct {
		erasureJSON
		Where   []erasure.Place  `json:"where"`
		Remains []erasure.Remain `json:"remains"`
	}{newErasureJSON(&n), where, remains}, nil
}

// list returns a page of the project's erasures.
func (a eraseAPI) list(r *http.Request) (any, error) {
	after, limit, err := pageOf(r, maxPageSize, record.MaxID)
	if err != nil {
		return nil, err
	}
	list, next, err := a.erasures.List(r.Context(), projectOf(r), after, limit)
	if err != nil {
		return nil, err
	}
	return struct {
		Erasures []erasureJSON `json:"erasures"`
		Cursor   string        `json:"next_cursor,omitempty"`
	}{each(list, newErasureJSON), next}, nil
}
