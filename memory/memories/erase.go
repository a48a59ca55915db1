package memories

import (
	"context"
	"maps"
	"math"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/window"
	"github.com/heardlog/heardlog/store/record"
)

// Erased is what was taken away of a user or a project: numbers, and no content.
type Erased struct {
	Agents   int // with all that belongs to them
	Memories int // messages and items in the ledgers of others
	Records  int // of package record: facts, aliases, documents
	// Shared are agents that heard the user among others, and were kept: the first maxShared, and
	// how many there are.
	Shared  []string
	SharedN int
}

// Always is the bound of an erasure that takes what is stored at any time.
const Always = math.MaxInt64

// maxShared is how many agents Erased names.
const maxShared = 1000

// erasePage is how many agents are read at a time.
const erasePage = 100

// EraseUser erases the data of users of a project by their names: every agent with one of them in
// its scope, or with no user in its scope but joined for that user alone
// (properties.remote_rtc_uids), every message with the user's scope in other ledgers, and the
// user's records. untilMS has, by name, the time (Unix ms) up to which agents have begun, messages
// were said and records were stored that are erased, or Always. It reads all agents of the project
// and calls before with each that it is about to erase. What is created while it runs may stay;
// repeating it is safe. If one of the agents is under hold, it returns fault.Held and has erased
// nothing, unless the hold was set meanwhile.
func (s Service) EraseUser(ctx context.Context, project string, untilMS map[string]int64, before func(*memory.Agent) error) (out Erased, err error) {
	if _, empty := untilMS[""]; empty || len(untilMS) == 0 {
		return out, fault.At(fault.Invalid, "user", "must not be empty")
	}
	names := slices.Sorted(maps.Keys(untilMS))
	is := func(id string) bool { _, ok := untilMS[id]; return ok }
	own := func(a *memory.Agent) bool {
		until, is := untilMS[userOf(a)]
		return is && a.StartMS <= until
	}
	err = s.checkHolds(ctx, project, own)
	if err != nil {
		return out, err
	}
	err = s.eachAgent(ctx, project, func(h *memory.Head) error {
		a := h.Agent
		switch {
		case own(a):
			if err := before(a); err != nil {
				return err
			}
			return s.eraseOne(ctx, a, &out)
		case slices.ContainsFunc(a.RemoteUIDs(), is):
			if out.SharedN++; len(out.Shared) < maxShared {
				out.Shared = append(out.Shared, a.ID)
			}
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	for _, user := range names {
		n, err := s.clear(ctx, project, queryFor(window.UserLevel, window.Scope{UserID: user}), untilMS[user])
		if out.Memories += n; err != nil {
			return out, err
		}
	}
	// Last, since they are made of the above.
	out.Records, err = record.EraseUsers(ctx, s.Records, project, untilMS)
	return out, err
}

// userOf returns the user that an agent belongs to, "" if it belongs to none or to several.
func userOf(a *memory.Agent) string {
	user, uids := a.Settings.Scope.UserID, a.RemoteUIDs()
	if user == "" && len(uids) == 1 {
		user = uids[0]
	}
	return user
}

// EachUser calls fn with the user of every agent of a project that belongs to one.
func (s Service) EachUser(ctx context.Context, project string, fn func(user string) error) error {
	return s.eachAgent(ctx, project, func(h *memory.Head) error {
		if user := userOf(h.Agent); user != "" {
			return fn(user)
		}
		return nil
	})
}

// checkHolds returns fault.Held if one of those agents is under hold, before any is erased.
func (s Service) checkHolds(ctx context.Context, project string, of func(*memory.Agent) bool) error {
	if fault.Is(s.Holds.CheckProject(ctx, project), fault.Held) {
		return s.eachAgent(ctx, project, func(h *memory.Head) error {
			if !of(h.Agent) {
				return nil
			}
			return s.Holds.CheckAgent(ctx, h)
		})
	}
	return nil
}

// EraseProject erases all agents of a project, the items that are in no agent's ledger, and all
// records; untilMS bounds it as in EraseUser. What is created while it runs may stay; repeating it
// is safe. A project with a hold is refused with fault.Held.
func (s Service) EraseProject(ctx context.Context, project string, untilMS int64) (out Erased, err error) {
	if err := s.Holds.CheckProject(ctx, project); err != nil {
		return out, err
	}
	err = s.eachAgent(ctx, project, func(h *memory.Head) error {
		if h.Agent.StartMS > untilMS {
			return nil
		}
		return s.eraseOne(ctx, h.Agent, &out)
	})
	if err != nil {
		return out, err
	}
	if out.Memories, err = s.clear(ctx, project, Query{}, untilMS); err != nil {
		return out, err
	}
	left, next, err := s.Store.Items(ctx, project, Query{Limit: 1})
	if err != nil {
		return out, err
	}
	if untilMS == Always || len(left) == 0 && next == 0 {
		own := ownAgent(project)
		if err := s.Ledger.Erase(ctx, own.Project, own.ID); err != nil && !fault.Is(err, fault.NotFound) {
			return out, err
		}
	}
	out.Records, err = record.EraseProject(ctx, s.Records, project, untilMS)
	return out, err
}

// eachAgent calls fn, which may erase it, with each agent of a project.
func (s Service) eachAgent(ctx context.Context, project string, fn func(*memory.Head) error) error {
	for q := (memory.AgentQuery{Project: project, Limit: erasePage, NoTotal: true}); ; {
		page, err := s.Memory.Agents.List(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Heads {
			if err := fn(&page.Heads[i]); err != nil {
				return err
			}
		}
		if q.After = page.Next; page.Next == (memory.AgentPlace{}) {
			return nil
		}
	}
}

func (s Service) eraseOne(ctx context.Context, a *memory.Agent, out *Erased) error {
	err := s.Memory.Agents.Erase(ctx, a.Project, a.ID)
	if fault.Is(err, fault.NotFound) { // erased in the meantime
		return nil
	}
	if err == nil {
		out.Agents++
	}
	return err
}
