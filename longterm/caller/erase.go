package caller

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store/record"
)

// Erasure is what was erased of a caller: numbers, and no content.
type Erasure struct {
	Project string
	User    string
	AtMS    int64
	memories.Erased
	Aliases int
}

// passes is how often a caller is erased at most until nothing is found any more: what a join or an
// append stored during a pass is found by the next one.
const passes = 5

// marks holds, by hashes with Service.Key, the names of callers that were erased and the calls that
// were running then.
func marks(project string) record.Space {
	return record.Space{Project: project, Name: "caller.erased"}
}

// markTTL is how long a mark is kept at least, in milliseconds.
const markTTL = 24 * 3600 * 1000

type mark struct {
	AtMS int64 `json:"at_ms"` // when the caller was erased; the mark may be stored later
}

// Erase erases the caller with a name or alias: agents, messages in the ledgers of others, records,
// aliases and consent. It is safe to repeat. If it fails, it returns what it has erased. If
// something of the caller is under hold, it returns fault.Held and has erased nothing, unless the
// hold was set meanwhile.
func (s *Service) Erase(ctx context.Context, project, name string) (Erasure, error) {
	out := Erasure{Project: project, User: name}
	c, err := s.Get(ctx, project, name)
	if err != nil {
		return out, err
	}
	out.User = c.User
	until := map[string]int64{}
	for _, n := range c.IDs() {
		until[n] = memories.Always
	}
	if err := s.erase(ctx, until, []string{name}, &out); err != nil {
		return out, err
	}
	out.AtMS = s.Now().UnixMilli()
	var events []memory.Event
	if s.Erased != nil {
		if events, err = s.Erased(out); err != nil {
			return out, err
		}
	}
	if err := s.mark(ctx, project, c.IDs(), events, out.AtMS); err != nil || s.Purge == nil {
		return out, err
	}
	return out, s.Purge(ctx)
}

// EraseUntil erases again what was erased of callers before, and came back with a backup or an
// import. untilMS has the time of each name's erasure, Unix ms: what began or was stored later
// stays. A name stands for itself alone: another name that is its alias in the backup, but was not
// when the caller was erased, is only no alias any more. No event is sent. It fails as Erase does.
func (s *Service) EraseUntil(ctx context.Context, project string, untilMS map[string]int64) error {
	out := Erasure{Project: project}
	var own []string
	for name, at := range untilMS {
		e, err := s.load(ctx, project, name)
		if err != nil {
			return err
		}
		if e.Of == "" && e.rev != record.Absent && e.updatedMS <= at {
			own = append(own, name)
		}
	}
	if err := s.erase(ctx, untilMS, own, &out); err != nil || s.Purge == nil {
		return err
	}
	return s.Purge(ctx)
}

// erase erases what is stored of callers under names, and the entries of the callers named own.
func (s *Service) erase(ctx context.Context, untilMS map[string]int64, own []string, out *Erasure) error {
	project, names := out.Project, slices.Sorted(maps.Keys(untilMS))
	if err := s.Items.Holds.CheckUsers(ctx, project, names...); err != nil {
		return err
	}
	if err := s.markUntil(ctx, project, untilMS); err != nil {
		return err
	}
	live := func(a *memory.Agent) error {
		if a.Status.Ended() {
			return nil
		}
		return s.mark(ctx, project, callNames(a.ID, a.Settings.Call), nil, s.Now().UnixMilli())
	}
	for range passes {
		gone, err := s.Items.EraseUser(ctx, project, untilMS, live)
		out.Agents += gone.Agents
		out.Memories += gone.Memories
		out.Records += gone.Records
		out.Shared, out.SharedN = gone.Shared, gone.SharedN
		if err != nil {
			return err
		}
		if gone.Agents+gone.Memories+gone.Records == 0 {
			break
		}
	}
	for _, name := range own {
		n, err := s.eraseEntries(ctx, project, name)
		if out.Aliases += n; err != nil {
			return err
		}
	}
	// What was computed since the last pass is either found here, or finds this mark.
	if err := s.markUntil(ctx, project, untilMS); err != nil {
		return err
	}
	n, err := record.EraseUsers(ctx, s.Records, project, untilMS)
	if out.Records += n; err != nil {
		return err
	}
	for _, name := range names {
		if s.Forget != nil {
			s.Forget(project, name)
		}
	}
	return s.SweepMarks(ctx, project)
}

// EachName calls fn with every name under which something is stored of a caller in a project, some
// of them more than once. An error of fn ends it.
func (s *Service) EachName(ctx context.Context, project string, fn func(name string) error) error {
	for after := ""; ; {
		page, err := s.Items.Store.Users(ctx, project, after, readPage)
		if err != nil {
			return err
		}
		for _, n := range page {
			if after = n; n != "" {
				if err := fn(n); err != nil {
					return err
				}
			}
		}
		if len(page) < readPage {
			break
		}
	}
	for after := (record.Space{}); ; {
		spaces, err := s.Records.RecordSpaces(ctx, project, "", after, readPage)
		if err != nil {
			return err
		}
		for _, sp := range spaces {
			if after = sp; sp.User != "" {
				if err := fn(sp.User); err != nil {
					return err
				}
			}
		}
		if len(spaces) < readPage {
			break
		}
	}
	err := s.visitSpace(ctx, space(project), Visitor{Record: func(_ string, r record.Record) error {
		e, err := decodeEntry(r)
		if err != nil {
			return err
		}
		return fn(e.Name)
	}})
	if err != nil {
		return err
	}
	return s.Items.EachUser(ctx, project, fn)
}

// callNames returns what stands for a call among the marks: its agent's ID, if not empty, and keys
// that are its alone. The NUL keeps them apart from names of callers.
func callNames(id string, call memory.Call) (out []string) {
	if id != "" {
		out = append(out, "call\x00"+id)
	}
	if !call.Weak {
		for _, k := range call.Keys {
			out = append(out, "key\x00"+k)
		}
	}
	return out
}

// callRest is how long a call whose caller was erased must be silent before its ID and keys may
// name a new one, in milliseconds.
const callRest = 10 * 60 * 1000

// CheckCall returns fault.Stopped if a call that is to begin was running when its caller was
// erased. Its platform would send all of its messages again.
func (s *Service) CheckCall(ctx context.Context, project, id string, call memory.Call) error {
	for _, n := range callNames(id, call) {
		r, err := s.Records.Record(ctx, marks(project), s.markID(n))
		now := s.Now().UnixMilli()
		switch {
		case fault.Is(err, fault.NotFound) || err == nil && now-r.UpdatedMS > callRest:
			continue
		case err != nil:
			return err
		}
		if now-r.UpdatedMS > callRest/10 {
			if err := s.mark(ctx, project, []string{n}, nil, now); err != nil {
				return err
			}
		}
		return fault.New(fault.Stopped, "the caller of this call was erased while it was running, so nothing more of the call is taken")
	}
	return nil
}

// eraseEntries deletes the entries of a caller and returns how many aliases it had.
func (s *Service) eraseEntries(ctx context.Context, project, name string) (n int, err error) {
	_, err = s.change(ctx, project, name, func(e entry) ([]entry, error) {
		n = len(e.Aliases)
		list := []entry{{Name: e.Name, rev: e.rev}}
		for _, a := range e.Aliases {
			is, err := s.load(ctx, project, a)
			if err != nil {
				return nil, err
			}
			if is.Of == e.Name { // not one that an import has given to another caller
				list = append(list, entry{Name: a, rev: is.rev})
			}
		}
		return list, nil
	})
	return n, err
}

// markID returns the ID of the mark of a name.
func (s *Service) markID(name string) string {
	h := hmac.New(sha256.New, s.Key)
	h.Write([]byte(name))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// markUntil notes of each name that it is being erased, as of its time: later calls may be filed.
// The time of a mark never becomes earlier.
func (s *Service) markUntil(ctx context.Context, project string, untilMS map[string]int64) error {
	for part := range slices.Chunk(slices.Sorted(maps.Keys(untilMS)), record.MaxChanges) {
		err := record.Retry(ctx, "the marks of erased callers", func() error {
			now := s.Now().UnixMilli()
			changes := make([]record.Change, len(part))
			for i, n := range part {
				c := record.Change{ID: s.markID(n), If: record.Any}
				at := min(now, untilMS[n])
				if at < now {
					was, rev, err := s.markOf(ctx, project, n)
					if err != nil {
						return err
					}
					at, c.If = max(at, was.AtMS), rev
				}
				var err error
				if c.Body, err = json.Marshal(mark{at}); err != nil {
					return err
				}
				changes[i] = c
			}
			_, err := s.Records.ChangeRecords(ctx, marks(project), changes, record.Limit{}, nil, now)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// markOf returns the mark of a name and its revision: record.Absent if there is none.
func (s *Service) markOf(ctx context.Context, project, name string) (m mark, rev int64, err error) {
	r, err := s.Records.Record(ctx, marks(project), s.markID(name))
	if fault.Is(err, fault.NotFound) {
		return m, record.Absent, nil
	}
	if err == nil {
		err = json.Unmarshal(r.Body, &m)
	}
	return m, r.Rev, err
}

// mark notes that names are being erased, as of a time, and stores events.
func (s *Service) mark(ctx context.Context, project string, names []string, events []memory.Event, atMS int64) error {
	body, err := json.Marshal(mark{atMS})
	if err != nil {
		return err
	}
	changes := make([]record.Change, len(names))
	for i, n := range names {
		changes[i] = record.Change{ID: s.markID(n), Body: body, If: record.Any}
	}
	_, err = s.Records.ChangeRecords(ctx, marks(project), changes, record.Limit{}, events, atMS)
	return err
}

// ErasedAt returns when a caller with a name was last erased, Unix ms; 0 if that was never, or more
// than a day ago and the mark is gone.
func (s *Service) ErasedAt(ctx context.Context, project, name string) (int64, error) {
	if name == "" {
		return 0, nil
	}
	m, _, err := s.markOf(ctx, project, name)
	return m.AtMS, err
}

// Guard returns a check for what is computed from a caller's texts and then stored. Call Guard
// before the texts are read, and the check after the result was stored. If the check reports true,
// the caller was erased meanwhile, and the result must be erased too.
func (s *Service) Guard(ctx context.Context, project, name string) (erased func(context.Context) (bool, error), err error) {
	marked := func(ctx context.Context) (int64, error) {
		r, err := s.Records.Record(ctx, marks(project), s.markID(name))
		if fault.Is(err, fault.NotFound) {
			return 0, nil
		}
		return r.Rev, err
	}
	before, err := marked(ctx)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (bool, error) {
		after, err := marked(ctx)
		return after > before, err // a mark that was swept is not an erasure
	}, nil
}

// SweepMarks deletes the marks of a project's erasures that are more than a day old.
func (s *Service) SweepMarks(ctx context.Context, project string) error {
	old := s.Now().UnixMilli() - markTTL
	q := record.Query{Limit: 500, Broken: true}
	for {
		page, _, err := s.Records.Records(ctx, marks(project), q)
		if err != nil || len(page) == 0 {
			return err
		}
		var gone []record.Change
		for _, r := range page {
			q.AfterID = r.ID
			if r.UpdatedMS < old {
				gone = append(gone, record.Change{ID: r.ID, If: record.Any})
			}
		}
		if len(gone) > 0 {
			if _, err := s.Records.ChangeRecords(ctx, marks(project), gone, record.Limit{}, nil, s.Now().UnixMilli()); err != nil {
				return fmt.Errorf("delete marks of old erasures: %w", err)
			}
		}
	}
}
