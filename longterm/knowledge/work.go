package knowledge

import (
	"context"
	"errors"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/store/record"
)

// work is an import in work.
type work struct {
	s             *Service
	project, base string
	m             Import
	rev           int64 // of the import's record
}

// save stores how far the import is.
func (w *work) save(ctx context.Context) (err error) {
	w.m.UpdatedMS = w.s.nowMS()
	w.rev, err = w.s.put(ctx, importSpace(w.project, w.base), w.m.ID, w.rev, w.m)
	return err
}

// run stores entries until the import has ended or its time is over.
func (w *work) run(ctx context.Context, content record.Space) error {
	list, _, err := w.s.cfg.Store.Records(ctx, content, record.Query{Limit: MaxImport/contentPiece + 1})
	if err != nil {
		return err
	}
	var whole strings.Builder
	for _, r := range list {
		whole.Write(r.Body)
	}
	drafts, err := parse(w.m.Document, w.m.Format, whole.String())
	if err != nil {
		return err
	}
	for began := w.s.cfg.Now(); w.m.Done < len(drafts); {
		if ctx.Err() != nil || w.s.cfg.Now().Sub(began) > slice {
			return nil
		}
		b, err := w.s.load(ctx, w.project, w.base)
		if err != nil {
			return err
		}
		schema, err := compile(b.Schema)
		if err != nil {
			return err
		}
		if err := w.store(ctx, &b, schema, drafts[w.m.Done:min(w.m.Done+batch, len(drafts))]); err != nil {
			return err
		}
		if err := w.save(ctx); err != nil {
			return err
		}
	}
	if w.m.Failed == 0 {
		if err := w.removeOthers(ctx, drafts); err != nil {
			return err
		}
	}
	w.m.State = Done
	return w.save(ctx)
}

// store stores some entries, and counts those that cannot be.
func (w *work) store(ctx context.Context, b *Base, schema *jsonschema.Schema, drafts []draft) error {
	var entries []Entry
	seen := map[string]bool{}
	flush := func() error {
		err := w.s.store(ctx, b, nil, entries)
		entries = entries[:0]
		clear(seen)
		return err
	}
	for i := range drafts {
		d := &drafts[i]
		err := d.err
		if err == nil {
			err = w.s.checkEntry(ctx, b, schema, &d.Entry)
		}
		if fault.Is(err, fault.Unavailable) {
			return err // the job is tried again
		}
		if err != nil {
			if w.m.Failed++; len(w.m.Faults) < maxFaults {
				w.m.Faults = append(w.m.Faults, Fault{d.line, text.Clip(err.Error(), 300)})
			}
			continue
		}
		if seen[d.ID] { // twice in the document: the later one becomes the next version
			if err := flush(); err != nil {
				return err
			}
		}
		seen[d.ID] = true
		entries = append(entries, d.Entry)
	}
	if err := flush(); err != nil {
		return err
	}
	w.m.Done += len(drafts)
	return nil
}

// removeOthers deletes the entries of the document that it no longer has.
func (w *work) removeOthers(ctx context.Context, drafts []draft) error {
	keep := make(map[string]bool, len(drafts))
	for i := range drafts {
		keep[drafts[i].ID] = true
	}
	b := DefaultBase(w.project, w.base)
	for after := ""; ; {
		list, _, err := w.s.cfg.Store.Records(ctx, b.space(), record.Query{AfterID: after, Limit: page})
		if err != nil {
			return err
		}
		var old []record.Change
		for i := range list {
			after = list[i].ID
			e, err := read(&list[i])
			if err != nil {
				return err
			}
			if e.Source != nil && e.Source.Document == w.m.Document && !keep[e.ID] {
				old = append(old, record.Change{ID: e.ID, If: list[i].Rev})
			}
		}
		if len(old) > 0 {
			_, err := w.s.cfg.Store.ChangeRecords(ctx, b.space(), old, record.Limit{}, nil, w.s.nowMS())
			if err != nil && !errors.Is(err, record.ErrStale) {
				return err
			}
			if errors.Is(err, record.ErrStale) { // one was changed meanwhile: read again
				return fault.Wrap(fault.Unavailable, err, "the entries were changed meanwhile")
			}
			w.m.Removed += len(old)
		}
		if len(list) < page {
			return nil
		}
	}
}
