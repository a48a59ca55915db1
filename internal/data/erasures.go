package data

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/app"
	"github.com/heardlog/heardlog/internal/erased"
	"github.com/heardlog/heardlog/internal/erasure"
	"github.com/heardlog/heardlog/longterm/caller"
	"github.com/heardlog/heardlog/longterm/facts"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/hold"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/webhook"
)

// newErasures returns the service that erases in a store, with a ledger or nil.
func newErasures(ctx context.Context, ledger *erasure.Ledger, s eraser) (*erasure.Service, error) {
	key, err := s.ServerKey(ctx, caller.KeyName)
	if err != nil {
		return nil, err
	}
	holds := &hold.Service{Records: s, Now: time.Now} // it sets none
	service := agents.NewService(agents.Config{
		Ledger: s, Now: time.Now, Held: func(ctx context.Context, h *memory.Head) error { return holds.CheckAgent(ctx, h) },
		Forget: app.ForgetAgent(s, time.Now),
	})
	items := memories.Service{
		Holds: holds, Memory: service, Ledger: s, Store: s, Records: s,
		Events: func(ctx context.Context, project, id string, ledger []memory.Message) ([]memory.Event, error) {
			return erased.Events(ctx, s, project, id, ledger)
		},
	}
	callers := &caller.Service{Records: s, Ledger: s, Items: items, Now: time.Now, Key: key}
	if file, ok := s.(interface{ Purge(context.Context) error }); ok {
		callers.Purge = file.Purge
	}
	newID := app.NewIDs(time.Now)
	return &erasure.Service{
		Ledger: ledger, Records: s, Agents: service.Agents, Callers: callers, Items: items, Keys: s, Values: s, Webhooks: &webhook.Service{Store: s},
		Facts: facts.NewService(facts.Config{
			Store: s, Upkeep: s, Ledger: s, Items: s, Callers: callers, Now: time.Now, NewID: newID, Events: noEvents{}, Count: func(string, string) {},
		}),
		Now: time.Now, NewID: newID, Settings: erasure.Settings{Offline: true},
	}, nil
}

// noEvents sends no events about facts.
type noEvents struct{}

// Wants implements facts.Events.
func (noEvents) Wants(string, int) bool { return false }

// FactBody implements facts.Events.
func (noEvents) FactBody(facts.Notice) ([]byte, error) {
	return nil, errors.New("no event about a fact is wanted")
}

// applyErasures erases in a store what the ledger of the settings has as erased. It returns what to
// say of it after the counts of what came, which is less now. The store may be elsewhere than the
// settings say. all is as in erasure.Service.Apply.
func applyErasures(ctx context.Context, c, store config.Config, all bool) (said string, err error) {
	ledger, err := app.OpenErasures(c)
	if err != nil {
		return "", err
	}
	if ledger == nil {
		return "WARNING: HEARDLOG_ERASURES names no ledger of erasures: what was erased since may be back\n", nil
	}
	empty, err := ledger.Empty(ctx)
	if err != nil {
		return "", err
	}
	if empty {
		return fmt.Sprintf("nothing was erased again: the ledger of erasures %s is empty. If the servers have another one (HEARDLOG_ERASURES), what was erased since may be back\n", ledger), nil
	}
	s, err := openEraser(ctx, store)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	service, err := newErasures(ctx, ledger, s)
	if err != nil {
		return "", err
	}
	// The next start of a server settles imports: its ledger may be another one than this shell's.
	done, err := service.Apply(ctx, all, 0)
	if err == nil && done != (erasure.Applied{}) {
		said = fmt.Sprintf("then what the ledger %s has as erased was erased: %s\n", ledger, done)
	}
	return said, err
}

// finishImport applies the ledger if an earlier import was killed after its last record.
func finishImport(ctx context.Context, e Env, c config.Config) error {
	s, err := openRows(ctx, c)
	if err != nil {
		return err
	}
	begun := false
	if r, ok := s.(erasure.Reader); ok {
		begun, err = erasure.ImportBegun(ctx, r)
	}
	if err := errors.Join(err, s.Close()); err != nil || !begun {
		return err
	}
	said, err := applyErasures(ctx, c, c, true)
	fmt.Fprint(e.Stderr, said)
	return err
}

// keepsNotes is a target that keeps what it has noted of erasures: an export may have noted the
// same ones.
type keepsNotes struct{ target }

// Import implements export.Target.
func (k keepsNotes) Import(ctx context.Context, batch []export.Record, had, mark []byte) error {
	batch, err := k.without(ctx, batch)
	if err != nil {
		return err
	}
	return k.target.Import(ctx, batch, had, mark)
}

// Clashes implements export.Target.
func (k keepsNotes) Clashes(ctx context.Context, batch []export.Record, each func(r export.Record, why string)) error {
	return k.target.Clashes(ctx, batch, func(r export.Record, why string) {
		if !erasure.IsNote(r.Value) {
			each(r, why)
		}
	})
}

// without returns records without the notes that the store has.
func (k keepsNotes) without(ctx context.Context, batch []export.Record) ([]export.Record, error) {
	var notes, out []export.Record
	for _, r := range batch {
		if erasure.IsNote(r.Value) {
			notes = append(notes, r)
		}
	}
	if len(notes) == 0 {
		return batch, nil
	}
	there := map[string]bool{}
	err := k.target.Clashes(ctx, notes, func(r export.Record, _ string) { there[r.Value.Project+"/"+string(r.Value.ID)] = true })
	for _, r := range batch {
		if !erasure.IsNote(r.Value) || !there[r.Value.Project+"/"+string(r.Value.ID)] {
			out = append(out, r)
		}
	}
	return out, err
}
