package erasure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store/record"
)

const (
	// readsAtOnce is how many entries are read at the same time.
	readsAtOnce = 16
	// page is how many erasures are read or noted in the database at a time.
	page = 200
)

// Applied is what Apply did.
type Applied struct {
	Again   int // erasures that were applied
	Held    int // erasures that a legal hold keeps from being applied again
	Dropped int // erasures that a legal hold had refused, and that left the ledger
}

// String returns the numbers in words.
func (a Applied) String() string {
	out := fmt.Sprintf("erasures applied again: %d", a.Again)
	if a.Held > 0 {
		out += fmt.Sprintf(", kept back by legal holds: %d", a.Held)
	}
	return out
}

// Reader is a store that is open for reading.
type Reader interface {
	// RecordIDs returns the IDs of records of a space of no user after the given one, in order.
	RecordIDs(ctx context.Context, project, name, after string, limit int) ([]string, error)
}

// Pending returns how many erasures the ledger has that a database has not noted.
func (l *Ledger) Pending(ctx context.Context, in Reader) (n int, err error) {
	err = l.eachProject(ctx, func(project string, names []string) error {
		noted := map[string]bool{}
		for after := ""; ; {
			ids, err := in.RecordIDs(ctx, space(project).Project, space(project).Name, after, page)
			if err != nil {
				return err
			}
			for _, id := range ids {
				after, noted[project+"/"+id] = id, true
			}
			if len(ids) < page {
				break
			}
		}
		for _, name := range names {
			if !noted[name] {
				n++
			}
		}
		return nil
	})
	return n, err
}

// Apply erases again what the ledger has as erased, and the database has not noted: after a
// restore, or after a crash in the middle of an erasure. With all, it applies what is noted too:
// after an import, which may bring in what was erased. What began or was stored after an erasure
// stays. Entries that were asked for less than age ago are left out: their erasure may be under
// way. An entry that a hold refuses is kept for later if it was done before, and dropped if not.
func (s *Service) Apply(ctx context.Context, all bool, age time.Duration) (out Applied, err error) {
	if s.Ledger == nil {
		return out, nil
	}
	keys, err := s.Ledger.allKeys(ctx)
	if err != nil {
		return out, err
	}
	var errs []error
	err = s.Ledger.eachProject(ctx, func(project string, names []string) error {
		n, err := s.applyProject(ctx, all, age, project, names, keys)
		out.Again, out.Held, out.Dropped = out.Again+n.Again, out.Held+n.Held, out.Dropped+n.Dropped
		if err != nil { // that of one project does not keep the others from being applied
			errs = append(errs, fmt.Errorf("project %s: %w", project, err))
		}
		return ctx.Err()
	})
	return out, errors.Join(append(errs, err)...)
}

// Lost reports whether the ledger is empty although the database has noted an erasure: the ledger
// may be another one than before. usage returns the projects of the database.
func (s *Service) Lost(ctx context.Context, usage func(context.Context) ([]memory.Usage, error)) (bool, error) {
	if empty, err := s.Ledger.Empty(ctx); err != nil || !empty {
		return false, err
	}
	projects, err := usage(ctx)
	if err != nil {
		return false, err
	}
	for _, u := range projects {
		list, _, err := s.List(ctx, memories.ProjectOf(u.Project), "", 1)
		if err != nil || len(list) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// eachProject calls fn with the names of the entries of every project, in order.
func (l *Ledger) eachProject(ctx context.Context, fn func(project string, names []string) error) error {
	names, err := l.names(ctx)
	for from, to := 0, 0; err == nil && from < len(names); from = to {
		project := projectOf(names[from])
		for to = from; to < len(names) && projectOf(names[to]) == project; to++ {
		}
		err = fn(project, names[from:to])
	}
	return err
}

func projectOf(name string) string { return name[:len(name)-idLen-1] }

// noted returns the erasures that the database has noted of a project, by the names of their
// entries.
func (s *Service) noted(ctx context.Context, project string) (map[string]Noted, error) {
	out := map[string]Noted{}
	for q := (record.Query{Limit: page}); ; {
		list, _, err := s.Records.Records(ctx, space(project), q)
		if err != nil {
			return nil, err
		}
		for _, r := range list {
			q.AfterID = r.ID
			var n Noted
			if err := json.Unmarshal(r.Body, &n); err != nil {
				return nil, fmt.Errorf("decode erasure %s: %w", r.ID, err)
			}
			out[n.name()] = n
		}
		if len(list) < q.Limit {
			return out, nil
		}
	}
}

// applyProject is Apply for the entries of one project.
func (s *Service) applyProject(ctx context.Context, all bool, age time.Duration, project string, names []string, keys map[string][]byte) (out Applied, err error) {
	known, err := s.noted(ctx, project)
	if err != nil {
		return out, err
	}
	var list []Noted
	var missing []string
	for _, name := range names {
		n, ok := known[name]
		switch {
		case !ok:
			missing = append(missing, name)
		case all || n.Held:
			list = append(list, n)
		}
	}
	a := applying{s: s, project: project, known: known}
	for _, e := range a.readAll(ctx, missing) {
		if e.State == Asked && time.UnixMilli(e.AskedMS).Add(age).After(s.Now()) {
			continue
		}
		list = append(list, Noted{Entry: e})
	}
	a.agents(ctx, list)
	a.users(ctx, list, keys)
	a.whole(ctx, list)
	a.flush(ctx)
	return a.out, a.failed.join()
}

// applying applies entries of one project. An entry that fails does not keep the others from being
// applied.
type applying struct {
	s       *Service
	project string
	known   map[string]Noted
	out     Applied
	notes   []Noted // to be stored
	failed  failures
	misses  int // sets of callers that could not be erased
}

// maxFailures is how many failures are told, and after how many no more is tried in places where
// each try takes long.
const maxFailures = 20

// failures are errors of entries: the first ones, and how many there are.
type failures struct {
	first []error
	n     int
}

func (f *failures) add(err error) {
	if err == nil {
		return
	}
	if f.n++; f.n <= maxFailures {
		f.first = append(f.first, err)
	}
}

// join returns them as one error, nil for none.
func (f *failures) join() error {
	if more := f.n - len(f.first); more > 0 {
		return errors.Join(append(f.first, fmt.Errorf("%d more erasures failed", more))...)
	}
	return errors.Join(f.first...)
}

// readAll reads entries. One that is gone was refused meanwhile.
func (a *applying) readAll(ctx context.Context, names []string) (out []Entry) {
	var mu sync.Mutex // guards out and a.failed
	var all errgroup.Group
	all.SetLimit(readsAtOnce)
	for _, name := range names {
		all.Go(func() error {
			mu.Lock()
			enough := a.failed.n >= maxFailures // the place is away
			mu.Unlock()
			if enough {
				return nil
			}
			e, err := a.s.Ledger.get(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				out = append(out, e)
			} else if !fault.Is(err, fault.NotFound) {
				a.failed.add(err)
			}
			return nil
		})
	}
	_ = all.Wait() // the errors are in a.failed
	return out
}

// agents erases the agents of the entries that began before their erasure.
func (a *applying) agents(ctx context.Context, list []Noted) {
	for _, n := range list {
		if n.Kind != OfAgent {
			continue
		}
		h, err := a.s.Items.Ledger.Head(ctx, a.project, n.AgentID)
		found := err == nil && h.Agent.StartMS <= n.untilMS()
		if found {
			again := n.Entry
			err = a.s.eraseAgent(ctx, &again)
		}
		if fault.Is(err, fault.NotFound) {
			err = nil
		}
		a.settle(ctx, n, found, err)
	}
}

// users erases the callers of the entries.
func (a *applying) users(ctx context.Context, list []Noted, keys map[string][]byte) {
	type key struct {
		id   string
		name Hash
	}
	of := map[key][]int{} // the entries of a hash
	failed := map[int]error{}
	for i, n := range list {
		if n.Kind != OfUser {
			continue
		}
		if len(n.Names) > 0 && keys[n.Key] == nil {
			failed[i] = a.s.Ledger.fail(errors.New("it is missing, so that erasures of callers with it cannot be applied"), "read "+keyPrefix+n.Key)
			continue
		}
		for _, h := range n.Names {
			of[key{n.Key, h}] = append(of[key{n.Key, h}], i)
		}
	}
	found := map[int]map[string]int64{} // by entry
	if len(of) > 0 {
		err := a.s.Callers.EachName(ctx, a.project, func(name string) error {
			for id, secret := range keys {
				for _, i := range of[key{id, hash(secret, name)}] {
					if found[i] == nil {
						found[i] = map[string]int64{}
					}
					found[i][name] = list[i].untilMS()
				}
			}
			return nil
		})
		if err != nil {
			a.failed.add(err)
			return
		}
	}
	a.eraseUsers(ctx, found, slices.Sorted(maps.Keys(found)), failed)
	for i, n := range list {
		if n.Kind != OfUser {
			continue
		}
		a.settle(ctx, n, len(found[i]) > 0, failed[i])
	}
}

// eraseUsers erases the callers of entries by the names that were found of each. All take one pass
// over the project. If something is under hold or fails, the halves are tried, down to single
// entries; after maxFailures of those that failed, the rest fails with them.
func (a *applying) eraseUsers(ctx context.Context, found map[int]map[string]int64, entries []int, failed map[int]error) {
	if len(entries) == 0 {
		return
	}
	names := map[string]int64{}
	for _, i := range entries {
		for name, until := range found[i] {
			names[name] = max(names[name], until)
		}
	}
	err := a.s.Callers.EraseUntil(ctx, a.project, names)
	again := fault.Is(err, fault.Held) || err != nil && a.misses < maxFailures && ctx.Err() == nil
	if half := len(entries) / 2; again && half > 0 {
		a.eraseUsers(ctx, found, entries[:half], failed)
		a.eraseUsers(ctx, found, entries[half:], failed)
		return
	}
	if err == nil {
		return
	}
	if !fault.Is(err, fault.Held) {
		a.misses++
	}
	for _, i := range entries {
		failed[i] = err
	}
}

// whole erases the project, up to its last erasure.
func (a *applying) whole(ctx context.Context, list []Noted) {
	var last Entry
	for _, n := range list {
		if n.Kind == OfProject && (last.ID == "" || n.untilMS() > last.untilMS()) {
			last = n.Entry
			last.Erased = Counts{}
		}
	}
	if last.ID == "" {
		return
	}
	err := a.s.eraseProject(ctx, &last, last.untilMS())
	found := last.Erased.any()
	for _, n := range list {
		if n.Kind == OfProject {
			a.settle(ctx, n, found, err)
		}
	}
}

// settle notes what became of an entry. found reports whether there was something to erase.
func (a *applying) settle(ctx context.Context, n Noted, found bool, err error) {
	n.Held = fault.Is(err, fault.Held)
	switch {
	case n.Held && n.State == Asked: // it was refused, or would have been
		a.out.Dropped++
		if a.s.Dropped != nil {
			a.s.Dropped(n.Project, n.ID)
		}
		a.failed.add(a.s.drop(ctx, &n.Entry))
		return
	case n.Held:
		a.out.Held++
	case err != nil:
		a.failed.add(fmt.Errorf("erasure %s: %w", n.ID, err))
		return
	case n.State == Asked:
		if err := a.finish(ctx, &n.Entry); err != nil {
			a.failed.add(err)
			return
		}
		a.out.Again++
	case found:
		n.AgainMS = a.s.Now().UnixMilli()
		a.out.Again++
	}
	if was, ok := a.known[n.name()]; ok && was.Held == n.Held && was.AgainMS == n.AgainMS {
		return
	}
	if a.notes = append(a.notes, n); len(a.notes) == page {
		a.flush(ctx)
	}
}

// finish writes an entry as done, unless the call that began it has done so meanwhile, with counts.
func (a *applying) finish(ctx context.Context, e *Entry) error {
	if now, err := a.s.Ledger.get(ctx, e.name()); err == nil && now.State == Done {
		*e = now
		return nil
	}
	e.State, e.DoneMS, e.Unfinished = Done, a.s.Now().UnixMilli(), true
	return a.s.Ledger.put(ctx, e)
}

// flush stores what is to be noted.
func (a *applying) flush(ctx context.Context) {
	if len(a.notes) > 0 {
		a.failed.add(a.s.note(ctx, a.notes))
		a.notes = a.notes[:0]
	}
}
