package facts

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
)

// The causes of changes that no request asked for, and Fact.Reason of what was undone.
const (
	causeTime     = "valid_to"
	causeEvidence = "evidence"
	reasonUndone  = "undone"
	reasonNoProof = "no_proof"
)

// tenth is what reinforcing adds.
const tenth = .1

// DefaultFactor is what decay multiplies by if no factor is given.
const DefaultFactor = .8

func clip(s string) string { return text.Clip(s, 40) }

// noticeOf returns the webhook event of a change of state, or 0.
func noticeOf(was, is State) int {
	switch {
	case is == was:
		return 0
	case is == Active:
		return event.FactAdded
	case was != Active:
		return 0
	case is == Superseded:
		return event.FactSuperseded
	case is == Withdrawn:
		return event.FactWithdrawn
	case is == Expired:
		return event.FactExpired
	}
	return 0
}

// KeyID returns the ID of the fact that a request with an Idempotency-Key adds.
func KeyID(key string) string {
	sum := sha256.Sum256([]byte("fact\x00" + key))
	return hex.EncodeToString(sum[:16])
}

// Add stores a fact. It returns the stored one and created=false if a fact of the given ID says the
// same, and fails with fault.Conflict if it says something else. A source is checked: the fact is
// refused if its quote was not heard there, and a draft if that is not certain enough. An agreement
// without a source is a draft. It fails with fault.Conflict, too, if the caller was erased while
// the source was checked; the fact is not kept then.
func (s *Service) Add(ctx context.Context, project, user string, n New) (f *Fact, created bool, err error) {
	if err := cmp.Or(n.check(), n.checkTimes(s.cfg.Now())); err != nil {
		return nil, false, err
	}
	if err := s.allowed(ctx, project, user); err != nil {
		return nil, false, err
	}
	erased, err := s.cfg.Callers.Guard(ctx, project, user)
	if err != nil {
		return nil, false, err
	}
	if n, err = s.redacted(ctx, project, n); err != nil {
		return nil, false, err
	}
	reason := ""
	switch {
	case n.Source != nil:
		v, err := s.prove(ctx, project, user, n.fact("", s.cfg.Now()))
		if err != nil {
			return nil, false, err
		}
		if v.reason != "" && !v.weak {
			return nil, false, fault.At(fault.Invalid, "source", "does not prove the fact: %s", explain[v.reason])
		}
		reason, n.Draft = v.reason, n.Draft || v.weak
		n.Source.Heard, n.Source.Checked = v.method, v.version
	case n.Kind == Agreement:
		n.Draft, reason = true, reasonNoProof
	}
	id := n.ID
	if id == "" {
		id = s.cfg.NewID()
	}
	err = s.update(ctx, project, user, func(t *change) error {
		f = n.fact(id, t.now)
		f.Reason = reason
		if old := t.facts[id]; old != nil {
			if !sameWords(old.Fact, f) {
				return fault.At(fault.Conflict, "id", "there is another fact %q; change that one, or leave id out", clip(id))
			}
			f, created = old.Fact, false
			return nil
		}
		created = true
		t.put(f, EventAdded, n.Cause)
		return nil
	})
	if err == nil && created && n.Source != nil {
		err = s.unlessErased(ctx, project, user, []*Fact{f}, erased)
	}
	return f, created, err
}

// redacted returns a new fact with personal data replaced, names as in the call of its source.
func (s *Service) redacted(ctx context.Context, project string, n New) (out New, err error) {
	a := memory.Agent{Project: project}
	if n.Source != nil {
		h, err := s.cfg.Ledger.Head(ctx, project, n.Source.AgentID)
		if err == nil {
			a = *h.Agent
		} else if !fault.Is(err, fault.NotFound) {
			return n, err
		}
	}
	err = s.cfg.Redact(ctx, &a, func(r *redact.Redactor) {
		out = n
		out.Content, out.Subject, out.Attribute, out.Topics = r.Text(n.Content), r.Text(n.Subject), r.Text(n.Attribute), redactedTopics(r, n.Topics)
		if n.Source != nil {
			source := *n.Source
			source.Quote = r.Text(source.Quote)
			out.Source = &source
		}
	})
	return out, err
}

func redactedTopics(r *redact.Redactor, list []string) []string {
	list = slices.Clone(list)
	for i := range list {
		list[i] = r.Text(list[i])
	}
	return list
}

// redacted returns the patch with personal data replaced.
func (p Patch) redacted(r *redact.Redactor) Patch {
	for _, field := range []**string{&p.Content, &p.Subject, &p.Attribute} {
		if *field != nil {
			text := r.Text(**field)
			*field = &text
		}
	}
	if p.Topics != nil {
		list := redactedTopics(r, *p.Topics)
		p.Topics = &list
	}
	return p
}

func sameWords(a, b *Fact) bool {
	return a.Content == b.Content && a.Kind == b.Kind && a.Subject == b.Subject && a.Attribute == b.Attribute && slices.Equal(a.Topics, b.Topics)
}

// ended reports whether the fact's time is over.
func (f *Fact) ended(now time.Time) bool { return f.ValidToMS != 0 && f.ValidToMS <= now.UnixMilli() }

// Patch is what to change of a fact; nil leaves a field as it is.
type Patch struct {
	Content, Subject, Attribute *string
	Kind                        *Kind
	Topics                      *[]string
	Confidence                  *float64
	ValidFromMS, ValidToMS      *int64
	Cause                       string
}

// Change changes a fact. If it says something else afterwards, it is another fact, which supersedes
// it; otherwise the fact itself is changed. An agreement that says something else has no proof and
// is a draft, and the earlier one holds until the draft is accepted.
func (s *Service) Change(ctx context.Context, project, user, id string, p Patch) (f *Fact, err error) {
	if err := s.allowed(ctx, project, user); err != nil {
		return nil, err
	}
	newID := s.cfg.NewID()
	asked := p
	err = s.cfg.Redact(ctx, &memory.Agent{Project: project}, func(r *redact.Redactor) { p = asked.redacted(r) })
	if err != nil {
		return nil, err
	}
	err = s.update(ctx, project, user, func(t *change) error {
		old, err := t.open(id)
		if err != nil {
			return err
		}
		f = edit(old)
		if err := asked.apply(edit(old)); err != nil { // which refuses what must not be kept even if it is replaced
			return err
		}
		if err := p.apply(f); err != nil {
			return err
		}
		if f.Content == old.Content && f.Kind == old.Kind && f.Subject == old.Subject && f.Attribute == old.Attribute {
			if p.Confidence != nil {
				f.SeenUS = t.now.UnixMicro()
			}
			t.put(f, EventChanged, p.Cause)
			return nil
		}
		if p.Confidence == nil {
			f.Confidence = t.faded(old).Confidence
		}
		f.ID, f.Supersedes, f.Source, f.Hits, f.History, f.By = newID, old.ID, nil, 0, nil, ByAPI
		f.OrderUS, f.CreatedUS, f.SeenUS, f.ActiveMS = old.order(), t.now.UnixMicro(), t.now.UnixMicro(), 0
		f.Reason, f.Accepted = "", false
		if f.Kind == Agreement {
			f.State, f.Reason = Draft, reasonNoProof
		}
		replaces := f.State == old.State
		t.put(f, EventAdded, p.Cause)
		if replaces {
			t.supersede(old, f.ID, p.Cause)
		}
		return nil
	})
	return s.faded(f), err
}

// apply changes a copy of a fact.
func (p *Patch) apply(f *Fact) error {
	n := New{
		Content: f.Content, Kind: f.Kind, Subject: f.Subject, Attribute: f.Attribute, Topics: f.Topics, Confidence: &f.Confidence,
		ValidFromMS: f.ValidFromMS, ValidToMS: f.ValidToMS, Cause: p.Cause,
	}
	set(&n.Content, p.Content)
	set(&n.Subject, p.Subject)
	set(&n.Attribute, p.Attribute)
	set(&n.Kind, p.Kind)
	set(&n.Topics, p.Topics)
	set(&n.ValidFromMS, p.ValidFromMS)
	set(&n.ValidToMS, p.ValidToMS)
	if p.Confidence != nil {
		n.Confidence = p.Confidence
	}
	if err := n.check(); err != nil {
		return err
	}
	f.Content, f.Kind, f.Subject, f.Attribute, f.Topics = n.Content, n.Kind, n.Subject, n.Attribute, n.Topics
	f.Confidence, f.ValidFromMS, f.ValidToMS = *n.Confidence, n.ValidFromMS, n.ValidToMS
	return nil
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// supersede puts another fact in the place of one.
func (t *change) supersede(old *Fact, by, cause string) {
	f := edit(old)
	f.State, f.SupersededBy = Superseded, by
	t.put(f, EventSuperseded, cause)
}

// activate makes a draft active, in the place of the fact that it is to supersede.
func (t *change) activate(f *Fact, name, cause string) *Fact {
	f = edit(f)
	f.State, f.Reason = Active, ""
	t.put(f, name, cause)
	if f.Supersedes != "" && f.State == Active {
		if old, err := t.get(f.Supersedes); err == nil && old.State == Active {
			t.supersede(old, f.ID, cause)
		}
	}
	return f
}

// withdraw withdraws a fact and restores the one that it superseded, as a draft if that was never
// active.
func (t *change) withdraw(f *Fact, reason, cause string) {
	f = edit(f)
	f.State, f.Reason = Withdrawn, reason
	t.put(f, EventWithdrawn, cause)
	t.restore(f, cause)
}

// demote makes a draft of an active fact, until better evidence comes, and restores the one that it
// superseded.
func (t *change) demote(f *Fact, v verdict) {
	f = edit(f)
	f.State, f.Reason = Draft, v.reason
	f.Source.Heard, f.Source.Checked = v.method, v.version
	t.put(f, EventChanged, causeEvidence)
	t.restore(f, causeEvidence)
}

// restore restores the fact that one that no longer holds has superseded.
func (t *change) restore(f *Fact, cause string) {
	if f.Supersedes == "" {
		return
	}
	old, err := t.get(f.Supersedes)
	if err != nil || old.State != Superseded || old.SupersededBy != f.ID {
		return
	}
	old = edit(old)
	old.State, old.SupersededBy = Active, ""
	if old.ActiveMS == 0 {
		old.State = Draft
	}
	t.put(old, EventRestored, cause)
}

// one runs a change of one fact that is active or a draft.
func (s *Service) one(ctx context.Context, project, user, id string, do func(*change, *Fact) (*Fact, error)) (f *Fact, err error) {
	err = s.update(ctx, project, user, func(t *change) error {
		old, err := t.open(id)
		if err != nil {
			return err
		}
		f, err = do(t, edit(old))
		return err
	})
	return s.faded(f), err
}

// open returns a fact that is active or a draft; fault.Conflict for another state.
func (t *change) open(id string) (*Fact, error) {
	f, err := t.get(id)
	if err == nil && f.State != Active && f.State != Draft {
		err = fault.New(fault.Conflict, "the fact is %s and no longer changes", f.State)
	}
	return f, err
}

// Accept makes a draft active. An agreement without a proof stays a draft: fault.Conflict.
func (s *Service) Accept(ctx context.Context, project, user, id, cause string) (*Fact, error) {
	if err := s.allowed(ctx, project, user); err != nil {
		return nil, err
	}
	return s.one(ctx, project, user, id, func(t *change, f *Fact) (*Fact, error) {
		if f.State == Active {
			return f, nil
		}
		if f.Kind == Agreement && f.Source == nil {
			return nil, fault.New(fault.Conflict, "an agreement needs a source that proves that the caller heard what was proposed; add it with one")
		}
		f.Accepted = true
		return t.activate(f, EventAccepted, cause), nil
	})
}

// Undo withdraws a fact that superseded another, and returns the other, which holds again. It takes
// the ID of either. It fails with fault.Conflict for a fact without a predecessor, or one that
// another fact has superseded since.
func (s *Service) Undo(ctx context.Context, project, user, id, cause string) (f *Fact, err error) {
	err = s.update(ctx, project, user, func(t *change) error {
		newer, err := t.get(id)
		if err != nil {
			return err
		}
		if newer.State == Superseded {
			if newer, err = t.get(newer.SupersededBy); err != nil {
				return fault.New(fault.Conflict, "the fact that superseded this one was deleted")
			}
		}
		switch {
		case newer.State != Active && newer.State != Draft:
			return fault.New(fault.Conflict, "the fact is %s; undo the newest change first", newer.State)
		case newer.Supersedes == "":
			return fault.New(fault.Conflict, "the fact did not supersede another; delete it instead")
		}
		if _, err := t.get(newer.Supersedes); err != nil {
			return fault.New(fault.Conflict, "the fact that this one superseded was deleted")
		}
		t.withdraw(newer, reasonUndone, cause)
		f, err = t.get(newer.Supersedes)
		return err
	})
	return s.faded(f), err
}

// Reinforce raises the confidence by .1, to at most 1, and notes that the fact was seen.
func (s *Service) Reinforce(ctx context.Context, project, user, id, cause string) (*Fact, error) {
	return s.one(ctx, project, user, id, func(t *change, f *Fact) (*Fact, error) {
		f.Confidence = min(1, t.faded(f).Confidence+tenth)
		f.SeenUS = t.now.UnixMicro()
		f.Hits++
		t.put(f, EventReinforced, cause)
		return f, nil
	})
}

// Decay multiplies the confidence by a factor from 0 to 1.
func (s *Service) Decay(ctx context.Context, project, user, id string, factor float64, cause string) (*Fact, error) {
	if err := share("factor", factor); err != nil {
		return nil, err
	}
	return s.one(ctx, project, user, id, func(t *change, f *Fact) (*Fact, error) {
		f.Confidence *= factor
		t.put(f, EventDecayed, cause)
		return f, nil
	})
}

// DecayAll multiplies the confidence of all active facts of a caller by a factor from 0 to 1, and
// deletes those that are below a limit afterwards. It returns what was kept and deleted, with
// dryRun what would be. If it fails, some of the facts may have been changed.
func (s *Service) DecayAll(ctx context.Context, project, user string, factor, dropBelow float64, dryRun bool, cause string) (kept, dropped []*Fact, err error) {
	if err := share("factor", factor); err != nil {
		return nil, nil, err
	}
	if err := share("drop_below", dropBelow); err != nil {
		return nil, nil, err
	}
	if _, err := short("cause", cause, MaxTopic); err != nil {
		return nil, nil, err
	}
	list, err := s.List(ctx, project, user, Query{})
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(list, older)
	for some := range slices.Chunk(list, atOnce) {
		var k, d []*Fact
		err := s.update(ctx, project, user, func(t *change) error {
			k, d = nil, nil
			for _, f := range some {
				f, err := t.get(f.ID)
				if err != nil || f.State != Active {
					continue // changed meanwhile
				}
				was := f.Confidence
				f = edit(f)
				f.Confidence = round(f.Confidence * factor)
				switch shown := t.faded(f); {
				case shown.Confidence < dropBelow:
					d = append(d, shown)
					t.drops = append(t.drops, f.ID)
				case f.Confidence == was:
					k = append(k, f)
				default:
					k = append(k, f)
					t.put(f, EventDecayed, cause)
				}
			}
			if dryRun {
				t.puts, t.drops = map[string]*Fact{}, nil
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
		kept, dropped = append(kept, k...), append(dropped, d...)
	}
	return kept, dropped, nil
}

// Delete deletes a fact with its history. One that does not exist is deleted already.
func (s *Service) Delete(ctx context.Context, project, user, id string) error {
	return s.update(ctx, project, user, func(t *change) error {
		if t.facts[id] != nil {
			t.drops = append(t.drops, id)
		}
		return nil
	})
}

// Clear deletes all facts of a caller. A fact that is added meanwhile may go or stay.
func (s *Service) Clear(ctx context.Context, project, user string) error {
	names, err := s.cfg.Callers.Names(ctx, project, user)
	if err != nil {
		return err
	}
	_, err = s.cfg.Store.EraseRecords(ctx, project, names[0], Space)
	return err
}
