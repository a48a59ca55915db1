package handlers

import (
	"net/http"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/longterm/caller"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/webhook"
)

// eraseAPI erases all data of a user or a project.
type eraseAPI struct {
	items         memories.Service
	callers       *caller.Service
	conversations kv.Conversations
	kv            *kv.Service
	webhooks      *webhook.Service
	now           func() time.Time
}

// receiptJSON lists what was erased, without content.
type receiptJSON struct {
	Project  string     `json:"project"`
	User     string     `json:"user,omitempty"`
	ErasedAt timeMS     `json:"erased_at"`
	Erased   erasedJSON `json:"erased"`
	// Shared names agents that were kept because other users spoke there, too.
	Shared  []string `json:"shared_agents,omitempty"`
	SharedN int      `json:"shared_total,omitempty"`
}

type erasedJSON struct {
	Agents        int  `json:"agents"`
	Memories      int  `json:"memories"`
	Records       int  `json:"records"`
	Aliases       *int `json:"aliases,omitempty"` // of a user
	Conversations *int `json:"conversations,omitempty"`
	Keys          *int `json:"keys,omitempty"` // of namespaces
	Endpoints     *int `json:"endpoints,omitempty"`
}

func newReceipt(project string, e memories.Erased, at time.Time) receiptJSON {
	return receiptJSON{
		Project: project, ErasedAt: timeMS(at.UnixMilli()), Erased: erasedJSON{Agents: e.Agents, Memories: e.Memories, Records: e.Records}, Shared: e.Shared, SharedN: e.SharedN,
	}
}

// user erases everything that belongs to a caller of the project, under all of its names.
func (a eraseAPI) user(r *http.Request) (any, error) {
	user, err := userInPath(r)
	if err != nil {
		return nil, err
	}
	e, err := a.callers.Erase(r.Context(), projectOf(r), user)
	if err != nil {
		return nil, err
	}
	infoOf(r).target = e.User // an alias is gone
	out := newReceipt(projectOf(r), e.Erased, time.UnixMilli(e.AtMS))
	out.User = e.User
	out.Erased.Aliases = &e.Aliases
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
	ctx := r.Context()
	if err := a.items.Holds.CheckProject(ctx, project); err != nil {
		return nil, err
	}
	gone := 0
	if a.webhooks != nil { // optional
		var err error
		// First, so that nothing more is sent.
		if gone, err = a.webhooks.DeleteAll(ctx, project); err != nil {
			return nil, err
		}
	}
	e, err := a.items.EraseProject(ctx, project)
	if err != nil {
		return nil, err
	}
	saved, err := a.conversations.Clear(ctx, project)
	if err != nil {
		return nil, err
	}
	keys := 0
	if a.kv != nil { // optional
		if keys, err = kv.EraseProject(ctx, a.kv.Store, project); err != nil {
			return nil, err
		}
	}
	out := newReceipt(project, e, a.now())
	out.Erased.Conversations, out.Erased.Keys, out.Erased.Endpoints = &saved, &keys, &gone
	return out, nil
}
