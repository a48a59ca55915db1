package memory

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	rules "github.com/heardlog/heardlog/memory/window"
)

// Erased is what was taken away of a user or a project: numbers, and no content.
type Erased struct {
	Agents   int // with all that belongs to them
	Memories int // messages and items in the ledgers of others
	// Shared are agents that heard the user among others, and were kept: the first maxShared, and
	// how many there are.
	Shared  []string
	SharedN int
}

// maxShared is how many agents Erased names.
const maxShared = 1000

// erasePage is how many agents are read at a time.
const erasePage = 100

// EraseUser erases the data of a user of a project: every agent with the user in its scope, or with
// no user in its scope but joined for that user alone (properties.remote_rtc_uids), and every
// message with the user's scope in other ledgers. It reads all agents of the project. What is
// created while it runs may stay; repeating it is safe.
func (s *Service) EraseUser(ctx context.Context, project, user string) (out Erased, err error) {
	if user == "" {
		return out, fault.At(fault.Invalid, "user", "must not be empty")
	}
	err = s.eachAgent(ctx, project, func(a *Agent) error {
		uids := a.remoteUIDs()
		owner := a.Settings.Scope.UserID
		switch {
		case owner == user, owner == "" && len(uids) == 1 && uids[0] == user:
			return s.eraseOne(ctx, a, &out)
		case slices.Contains(uids, user):
			if out.SharedN++; len(out.Shared) < maxShared {
				out.Shared = append(out.Shared, a.ID)
			}
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	out.Memories, err = s.ClearItems(ctx, project, rules.UserLevel, rules.Scope{UserID: user})
	return out, err
}

// EraseProject erases all agents of a project, and the items that are in no agent's ledger. What is
// created while it runs may stay; repeating it is safe.
func (s *Service) EraseProject(ctx context.Context, project string) (out Erased, err error) {
	if err := s.eachAgent(ctx, project, func(a *Agent) error { return s.eraseOne(ctx, a, &out) }); err != nil {
		return out, err
	}
	if out.Memories, err = s.ClearItems(ctx, project, rules.UserLevel, rules.Scope{}); err != nil {
		return out, err
	}
	own := ownAgent(project)
	if err := s.cfg.Store.Erase(ctx, own.Project, own.ID); err != nil && !fault.Is(err, fault.NotFound) {
		return out, err
	}
	return out, nil
}

// eachAgent calls fn, which may erase it, with each agent of a project.
func (s *Service) eachAgent(ctx context.Context, project string, fn func(*Agent) error) error {
	for q := (AgentQuery{Project: project, Limit: erasePage}); ; {
		page, err := s.cfg.Store.Agents(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Agents {
			if err := fn(&page.Agents[i]); err != nil {
				return err
			}
		}
		if q.Cursor = page.Next; page.Next == "" {
			return nil
		}
	}
}

func (s *Service) eraseOne(ctx context.Context, a *Agent, out *Erased) error {
	err := s.Erase(ctx, a.Project, a.ID)
	if fault.Is(err, fault.NotFound) { // erased in the meantime
		return nil
	}
	if err == nil {
		out.Agents++
	}
	return err
}

// remoteUIDs returns the users that the join named.
func (a *Agent) remoteUIDs() []string {
	var p struct {
		UIDs []json.RawMessage `json:"remote_rtc_uids"`
	}
	if json.Unmarshal(a.Properties, &p) != nil {
		return nil
	}
	var out []string
	for _, raw := range p.UIDs {
		var s string
		if json.Unmarshal(raw, &s) != nil { // a number
			s = string(raw)
		}
		out = append(out, s)
	}
	return out
}
