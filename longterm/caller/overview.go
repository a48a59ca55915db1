package caller

import (
	"context"
	"encoding/json"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store/record"
)

// readPage is how many messages, records or names are read at a time.
const readPage = 500

// factSpace is the name of the space of a caller's facts.
const factSpace = "fact"

// Overview is a caller with what is stored of it.
type Overview struct {
	Caller
	Calls int // agents with messages of the caller
	// FirstMS and LastMS are the starts of the first and the last call, Unix ms; 0 without calls.
	FirstMS, LastMS int64
	Facts           map[string]int // how many, by state
}

// Overview returns what is known of a caller, or fault.NotFound if that is nothing.
func (s *Service) Overview(ctx context.Context, project string, c Caller) (Overview, error) {
	out := Overview{Caller: c, Facts: map[string]int{}}
	for _, n := range c.IDs() {
		count := func(_ string, r record.Record) error {
			var fact struct{ State string }
			err := json.Unmarshal(r.Body, &fact)
			out.Facts[fact.State]++
			return err
		}
		if err := s.visitSpace(ctx, record.Space{Project: project, Name: factSpace, User: n}, Visitor{Record: count}); err != nil {
			return out, err
		}
	}
	calls, err := memories.AgentsOf(ctx, s.Items.Store, project, c.IDs())
	if err != nil {
		return out, err
	}
	out.Calls = len(calls)
	if out.FirstMS, err = s.started(ctx, project, calls); err != nil {
		return out, err
	}
	slices.Reverse(calls)
	if out.LastMS, err = s.started(ctx, project, calls); err != nil {
		return out, err
	}
	if out.Calls > 0 || len(out.Facts) > 0 || len(c.Aliases) > 0 || c.Consent != (Consent{}) {
		return out, nil
	}
	list, _, err := s.Items.Store.Items(ctx, project, memories.Query{Scope: memory.Scope{UserID: c.User}, Limit: 1})
	if err == nil && len(list) == 0 {
		err = fault.New(fault.NotFound, "nothing is known of this user")
	}
	return out, err
}

// overviewsAtOnce is how many callers of a list are read at the same time.
const overviewsAtOnce = 4

// Overviews is Overview of several callers. One of whom nothing is known any more has nothing.
func (s *Service) Overviews(ctx context.Context, project string, list []Caller) ([]Overview, error) {
	out := make([]Overview, len(list))
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(overviewsAtOnce)
	for i := range list {
		all.Go(func() (err error) {
			if out[i], err = s.Overview(ctx, project, list[i]); fault.Is(err, fault.NotFound) {
				err = nil
			}
			return err
		})
	}
	return out, all.Wait()
}

// started returns the start of the first of the agents that is still there.
func (s *Service) started(ctx context.Context, project string, calls []memories.AgentVersion) (int64, error) {
	for _, a := range calls {
		h, err := s.Ledger.Head(ctx, project, a.ID)
		if err == nil {
			return h.Agent.StartMS, nil
		}
		if !fault.Is(err, fault.NotFound) {
			return 0, err
		}
	}
	return 0, nil
}

// Users returns callers of a project of whom messages or facts are stored, in the order of the
// bytes of their names after the given one, at most limit. Aliases are not among them. next is
// where the next page begins, or "".
func (s *Service) Users(ctx context.Context, project, after string, limit int) (list []Caller, next string, err error) {
	for len(list) < limit {
		names, err := s.names(ctx, project, after, limit+1)
		if err != nil {
			return nil, "", err
		}
		for _, n := range names {
			if len(list) == limit {
				return list, after, nil
			}
			after = n
			e, err := s.load(ctx, project, n)
			if err != nil {
				return nil, "", err
			}
			if e.Of == "" {
				list = append(list, e.caller())
			}
		}
		if len(names) <= limit {
			return list, "", nil
		}
	}
	return list, after, nil
}

// names returns names of callers and aliases of whom messages or facts are stored, sorted.
func (s *Service) names(ctx context.Context, project, after string, limit int) ([]string, error) {
	names, err := s.Items.Store.Users(ctx, project, after, limit)
	if err != nil {
		return nil, err
	}
	spaces, err := s.Records.RecordSpaces(ctx, project, factSpace, record.Space{Project: project, Name: factSpace, User: after}, limit)
	if err != nil {
		return nil, err
	}
	for _, sp := range spaces {
		if sp.Name == factSpace && sp.User != "" {
			names = append(names, sp.User)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(limit, len(names))], nil
}

// Visitor takes what is stored of a caller, piece by piece. A function's error ends the visit.
type Visitor struct {
	Call func(a *memory.Agent) error
	// Message is called with the messages of a call after Call, and at the end with those of no
	// call, whose agent is "".
	Message func(agent string, m *memory.Message) error
	Record  func(space string, r record.Record) error
}

// Visit reads everything that is stored of a caller, calls from the oldest on, in bounded memory.
func (s *Service) Visit(ctx context.Context, project string, c Caller, v Visitor) error {
	names := c.IDs()
	calls, err := memories.AgentsOf(ctx, s.Items.Store, project, names)
	if err != nil {
		return err
	}
	for _, a := range calls {
		// One that is not found was erased meanwhile.
		if err := s.visitCall(ctx, project, a.ID, names, v); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	own := memories.OwnProject(project)
	for _, n := range names {
		for q := (memories.Query{Scope: memory.Scope{UserID: n}, Limit: readPage}); ; {
			page, next, err := s.Items.Store.Items(ctx, project, q)
			if err != nil {
				return err
			}
			for i := range page {
				if page[i].Project != own {
					continue
				}
				if err := v.Message("", &page[i].Message); err != nil {
					return err
				}
			}
			if q.Before = next; next == 0 {
				break
			}
		}
	}
	return s.visitRecords(ctx, project, names, v)
}

func (s *Service) visitCall(ctx context.Context, project, id string, names []string, v Visitor) error {
	h, err := s.Ledger.Head(ctx, project, id)
	if err != nil {
		return err
	}
	if err := v.Call(h.Agent); err != nil {
		return err
	}
	return memory.EachPage(memory.MessageQuery{Limit: readPage}, func(q memory.MessageQuery) ([]memory.Message, error) {
		return s.Ledger.Messages(ctx, project, id, q)
	}, func(page []memory.Message) error {
		for i := range page {
			if slices.Contains(names, page[i].Filed().Scope.UserID) {
				if err := v.Message(id, &page[i]); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (s *Service) visitRecords(ctx context.Context, project string, names []string, v Visitor) error {
	for after := (record.Space{}); ; {
		spaces, err := s.Records.RecordSpaces(ctx, project, "", after, readPage)
		if err != nil {
			return err
		}
		for _, sp := range spaces {
			if after = sp; !slices.Contains(names, sp.User) {
				continue
			}
			if err := s.visitSpace(ctx, sp, v); err != nil {
				return err
			}
		}
		if len(spaces) < readPage {
			return nil
		}
	}
}

func (s *Service) visitSpace(ctx context.Context, sp record.Space, v Visitor) error {
	for q := (record.Query{Limit: readPage}); ; {
		page, _, err := s.Records.Records(ctx, sp, q)
		if err != nil {
			return err
		}
		for _, r := range page {
			if q.AfterID = r.ID; r.Deleted {
				continue
			}
			if err := v.Record(sp.Name, r); err != nil {
				return err
			}
		}
		if len(page) < readPage {
			return nil
		}
	}
}
