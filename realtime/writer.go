package realtime

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/evidence"
	"github.com/heardlog/heardlog/memory/heard"
)

// Limits of the queue between the sockets and the ledger.
const (
	queued    = 256              // changes of one call
	queueWait = 2 * time.Second  // for room in it
	storeWait = 30 * time.Second // for a store that is away
)

// writer stores what a record passes on, one change after the other, so that a report follows its
// answer. A store that is slow or away does not hold up the sockets.
type writer struct {
	memory         *agents.Service
	project, agent string
	log            zerolog.Logger
	lost           func(n int) // counts changes that were given up
	over           func(error) // called once the agent takes no more
	ops            chan func(ctx context.Context) error
	finished       chan struct{}
	once           sync.Once

	renamed map[string]string // items whose ID another message of the agent has
	suffix  func() string     // makes their IDs unique
}

func (w *writer) run(ctx context.Context) {
	defer close(w.finished)
	for op := range w.ops {
		w.do(ctx, op)
	}
}

// do runs a change, again and again while the store is away.
func (w *writer) do(ctx context.Context, op func(context.Context) error) {
	ctx, stop := context.WithTimeout(agents.Withholding(ctx), storeWait)
	defer stop()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := op(ctx)
		switch {
		case err == nil:
			return
		case fault.Is(err, fault.Stopped), fault.Is(err, fault.NotFound):
			w.lost(1)
			w.once.Do(func() { w.over(err) })
			return
		case ctx.Err() == nil && fault.Is(err, fault.Unavailable):
			select {
			case <-time.After(pause):
				continue
			case <-ctx.Done():
			}
		}
		w.lost(1)
		w.log.Error().Err(err).Str("agent", w.agent).Msg("failed to store an item of a realtime call")
		return
	}
}

// put queues a change. It waits for room, but not for long.
func (w *writer) put(op func(ctx context.Context) error) {
	select {
	case w.ops <- op:
		return
	default:
	}
	t := time.NewTimer(queueWait)
	defer t.Stop()
	select {
	case w.ops <- op:
	case <-t.C:
		w.lost(1)
	}
}

// drain waits until everything that was queued is stored.
func (w *writer) drain(ctx context.Context) {
	done := make(chan struct{})
	w.put(func(context.Context) error { close(done); return nil })
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// id returns the ID that an item has in the ledger, by its key: its own ID, and the number of the
// connection that it came from.
func (w *writer) id(key string) string {
	if id, ok := w.renamed[key]; ok {
		return id
	}
	id, _, _ := strings.Cut(key, keySeparator)
	return id
}

const keySeparator = "\x00"

// append stores a message. given is set if the client named the item: then one that is known is a
// repetition of the client's, with what was heard. Otherwise the item of another socket has its ID.
func (w *writer) append(item string, m memory.Message, given bool) {
	w.put(func(ctx context.Context) error {
		m.ID = w.id(item)
		stored, err := w.memory.Messages.Append(ctx, w.project, w.agent, []memory.Message{m})
		switch {
		case given && fault.Is(err, fault.Conflict):
			return nil
		case given || m.ID == "" || w.renamed[item] != "":
			return err
		case err != nil && !fault.Is(err, fault.Conflict):
			return err
		case err == nil && stored.Messages[0].Timestamp == m.Timestamp:
			return nil
		}
		w.renamed[item] = clipID(m.ID + "-" + w.suffix())
		m.ID = w.renamed[item]
		_, err = w.memory.Messages.Append(ctx, w.project, w.agent, []memory.Message{m})
		return err
	})
}

func clipID(s string) string { return s[max(0, len(s)-memory.MaxMessageID):] }

// transcript stores the words of a caller in the place that was kept for them.
func (w *writer) transcript(item, words, failed string) {
	w.change(item, func(m memory.Message, _ int64) (memory.Message, bool, error) {
		if _, ok := m.Metadata[pending]; !ok {
			return m, false, nil
		}
		m.Metadata = maps.Clone(m.Metadata)
		delete(m.Metadata, pending)
		if words == "" {
			if failed == "" {
				failed = "empty"
			}
			m.Metadata[pending] = json.RawMessage(`"` + failed + `"`)
			return m, true, nil
		}
		m.Content, m.Status = words, memory.Accepted
		return m, true, nil
	})
}

// change changes a stored message, with its words as the agent's settings want them.
func (w *writer) change(item string, f func(m memory.Message, now int64) (memory.Message, bool, error)) {
	w.put(func(ctx context.Context) error {
		return w.memory.Messages.Change(ctx, w.project, w.agent, func(view memory.AgentView) (memory.Change, error) {
			id := w.id(item)
			found, err := view.ByIDs([]string{id})
			if err != nil {
				return memory.Change{}, err
			}
			m, ok := found[id]
			if !ok {
				return memory.Change{}, nil
			}
			m, changed, err := f(m, w.memory.Messages.NowMS())
			if err != nil || !changed {
				return memory.Change{}, nil //nolint:nilerr // words that are not the answer's say nothing of it
			}
			m = m.Redacted(w.memory.Messages.Redactor(view.Head().Agent))
			m.Rev = view.Head().Rev + 1
			return memory.Change{Replace: []memory.Message{m}}, nil
		})
	})
}

// heard stores what was heard of an answer. Without a word of the client it is an estimate: the
// audio was played at its pace from the moment when it came.
func (w *writer) heard(r evidence.Report, told bool) {
	if told {
		w.put(func(ctx context.Context) error {
			r.ItemID = w.id(r.ItemID)
			_, err := evidence.Service{Memory: w.memory}.Record(ctx, w.project, w.agent, []evidence.Report{r})
			return err
		})
		return
	}
	w.change(r.ItemID, func(m memory.Message, now int64) (memory.Message, bool, error) {
		e := memory.Evidence{Seq: m.Seq, Method: memory.RateEstimate, AtMS: r.AtMS, By: memory.ByStartOfSpeech}
		if said := wordsUntil(r.Words, *r.HeardMS); len(r.Words) > 0 && (said == "" || aligned(m.Original(), said)) {
			e.Heard = said
		} else {
			e.Heard = heard.Voice{Rate: heard.Voice{}.Measure(m.Original(), r.WholeMS)}.Estimate(m.Original(), *r.HeardMS)
		}
		return m.WithEvidence(e, now)
	})
}

func aligned(whole, said string) bool {
	_, ok := heard.Align(whole, said)
	return ok
}

func wordsUntil(list []evidence.WordTime, ms int64) string {
	n := slices.IndexFunc(list, func(w evidence.WordTime) bool { return w.EndMS > ms })
	if n < 0 {
		n = len(list)
	}
	said := make([]string, n)
	for i := range said {
		said[i] = list[i].Text
	}
	return strings.Join(said, " ")
}
