package kv

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// migrationBytes bounds the values of a batch of a Migration.
const migrationBytes = 4 << 20

// migrations is where Migration.Progress is kept. The entry has an end, so that no export has it.
var migrations = Space{Project: "~migration"}

// Migration moves the namespaces of all projects, and working memories, from one provider to
// another, while no server uses either. Run goes on where a process was killed, and does nothing
// once it is done.
type Migration struct {
	Name string // of the two providers; with another one, a new migration begins
	From Store
	To   Store
	// External is set if To is not the server's own store: it knows no agents.
	External bool
	Progress Store // the server's own store
	Batch    int   // keys that are stored together
	Verify   bool  // read back and compare each batch before the next one
	Now      func() time.Time
	Show     func(Moved) // is called after each batch
}

// Moved is how far a Migration has come. What stands before Space and Key is moved.
type Moved struct {
	Name     string `json:"name"`
	External bool   `json:"external"` // the target is not the server's own store
	Space    Space  `json:"space"`
	Key      string `json:"key"`
	Keys     int    `json:"keys"`  // that were moved
	Bytes    int64  `json:"bytes"` // of these
	// Left is the number of keys of agents that have ended, which the server's own store does not
	// take.
	Left   int  `json:"left"`
	Copied bool `json:"copied"` // all are at the target, and the source is being emptied
	Done   bool `json:"done"`
}

// Run moves everything that has not been moved and empties the source. It fails with
// fault.Conflict if the target holds keys before the first batch, or if what is read back differs.
func (m *Migration) Run(ctx context.Context) (Moved, error) {
	at, err := m.load(ctx)
	if err != nil || at.Done {
		return at, err
	}
	spaces, err := m.From.Spaces(ctx, "")
	if err != nil {
		return at, err
	}
	slices.SortFunc(spaces, compareSpaces)
	if at == (Moved{Name: m.Name, External: m.External}) && len(spaces) > 0 {
		if err := m.checkEmpty(ctx); err != nil {
			return at, err
		}
		at.Space = spaces[0]
		if err := m.save(ctx, &at); err != nil {
			return at, err
		}
	}
	for _, s := range spaces {
		if at.Copied {
			break
		}
		switch c := compareSpaces(s, at.Space); {
		case c < 0:
			continue
		case c > 0:
			at.Space, at.Key = s, ""
		}
		if err := m.copy(ctx, &at); err != nil {
			return at, fmt.Errorf("%s: %w", s.name(), err)
		}
	}
	at.Copied = true
	if err := m.save(ctx, &at); err != nil {
		return at, err
	}
	for _, s := range spaces {
		if _, err := m.From.ClearKeys(ctx, s, m.nowMS()); err != nil && !fault.Is(err, fault.NotFound) {
			return at, err
		}
	}
	at.Done = true
	return at, m.save(ctx, &at)
}

// copy moves the keys of one space that follow at.Key, in batches.
func (m *Migration) copy(ctx context.Context, at *Moved) error {
	for {
		page, err := m.From.ListKeys(ctx, at.Space, at.Key, m.Batch, m.nowMS())
		if fault.Is(err, fault.NotFound) { // the agent is gone
			return nil
		}
		if err != nil {
			return err
		}
		for rest := page.Keys; len(rest) > 0; {
			keys, size := []string{}, int64(0)
			for _, k := range rest {
				if size += k.Bytes; size > migrationBytes && len(keys) > 0 {
					break
				}
				keys = append(keys, k.Key)
			}
			rest = rest[len(keys):]
			entries, err := m.From.GetKeys(ctx, at.Space, keys, m.nowMS())
			if err != nil {
				return err
			}
			if err := m.put(ctx, at, entries); err != nil {
				return err
			}
			at.Key = keys[len(keys)-1]
			if err := m.save(ctx, at); err != nil {
				return err
			}
			m.Show(*at)
		}
		if len(page.Keys) < m.Batch {
			return nil
		}
	}
}

// put stores entries at the target and compares them.
func (m *Migration) put(ctx context.Context, at *Moved, entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	s, now := at.Space, m.nowMS()
	if id, ok := strings.CutPrefix(s.Name, AgentPrefix); ok && !m.External {
		s = Space{Project: s.Project, Agent: id}
	}
	if m.External && s.Agent != "" {
		s = Space{Project: s.Project, Name: AgentPrefix + s.Agent}
		for i := range entries {
			entries[i].ExpiresMS = min(entries[i].ExpiresMS, now+maxExternalTTL*1000)
		}
	}
	err := m.To.PutKeys(ctx, s, entries, Limit{}, now)
	if s.Agent != "" && (fault.Is(err, fault.Stopped) || fault.Is(err, fault.NotFound)) {
		at.Left += len(entries)
		return nil
	}
	if err != nil {
		return err
	}
	for i := range entries {
		at.Keys, at.Bytes = at.Keys+1, at.Bytes+entries[i].Size()
	}
	if !m.Verify {
		return nil
	}
	keys := make([]string, len(entries))
	for i := range entries {
		keys[i] = entries[i].Key
	}
	there, err := m.To.GetKeys(ctx, s, keys, now)
	if err != nil {
		return err
	}
	byKey := make(map[string]*Entry, len(there))
	for i := range there {
		byKey[there[i].Key] = &there[i]
	}
	for i := range entries {
		e := &entries[i]
		got := byKey[e.Key]
		if got == nil && e.ExpiresMS <= m.nowMS() {
			continue
		}
		if got == nil || !bytes.Equal(got.Value, e.Value) || got.UpdatedMS != e.UpdatedMS || got.ExpiresMS != e.ExpiresMS {
			return fault.New(fault.Conflict, "the key %q differs after it was moved", e.Key)
		}
	}
	return nil
}

// checkEmpty fails if the target holds keys, as far as it can tell.
func (m *Migration) checkEmpty(ctx context.Context) error {
	there, err := m.To.Spaces(ctx, "")
	if fault.Is(err, fault.Unsupported) {
		return nil
	}
	if err == nil && len(there) > 0 {
		err = fault.New(fault.Conflict, "the target holds keys, such as those of %s of the project %s: empty it first", there[0].name(), there[0].Project)
	}
	return err
}

// load returns how far this migration has come.
func (m *Migration) load(ctx context.Context) (Moved, error) {
	at, err := moved(ctx, m.Progress, m.nowMS())
	if err != nil || at.Name == m.Name {
		return at, err
	}
	if at.Name != "" && !at.Done {
		return at, errUnfinished(&at)
	}
	return Moved{Name: m.Name, External: m.External}, nil
}

// moved returns how far the last migration has come; one without a name is none.
func moved(ctx context.Context, progress Store, nowMS int64) (at Moved, err error) {
	found, err := progress.GetKeys(ctx, migrations, []string{"moved"}, nowMS)
	if err != nil || len(found) == 0 {
		return at, err
	}
	if err := json.Unmarshal(found[0].Value, &at); err != nil {
		return at, fault.Wrap(fault.Internal, err, "the progress of a migration could not be read")
	}
	return at, nil
}

func errUnfinished(at *Moved) error {
	how := "put its lifecycle.migration back, so that it is finished"
	if !at.Copied {
		how += "; or, to give it up, start a server that uses the source and has no lifecycle.migration"
	}
	return fault.New(fault.Conflict, "the migration from %s has not ended: %s", at.Name, how)
}

// Unfinished reports whether a migration has begun and not ended. progress is the server's own
// store.
func Unfinished(ctx context.Context, progress Store, now time.Time) (bool, error) {
	at, err := moved(ctx, progress, now.UnixMilli())
	return at.Name != "" && !at.Done, err
}

// GiveUp ends an unfinished migration if a server may work without it: one that uses the source,
// which has all keys as long as the migration only copies. It returns the name of the migration, ""
// if there is none, and fails with fault.Conflict for any other server. external reports whether
// the server keeps keys and values elsewhere than in its own store.
func GiveUp(ctx context.Context, progress Store, external bool, now time.Time) (name string, err error) {
	at, err := moved(ctx, progress, now.UnixMilli())
	if err != nil || at.Name == "" || at.Done {
		return "", err
	}
	if at.Copied || at.External == external {
		return "", errUnfinished(&at)
	}
	_, err = progress.DeleteKey(ctx, migrations, "moved", now.UnixMilli())
	return at.Name, err
}

func (m *Migration) save(ctx context.Context, at *Moved) error {
	b, err := json.Marshal(at)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the progress of a migration could not be encoded")
	}
	now := m.nowMS()
	return Put(ctx, m.Progress, migrations, Entry{Key: "moved", Value: b, UpdatedMS: now, ExpiresMS: now + MaxTTL*1000}, Limit{}, now)
}

func (m *Migration) nowMS() int64 { return m.Now().UnixMilli() }

// name returns a namespace as callers name it.
func (s Space) name() string {
	if s.Agent != "" {
		return AgentPrefix + s.Agent
	}
	return s.Name
}

func compareSpaces(a, b Space) int {
	return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Name, b.Name))
}
