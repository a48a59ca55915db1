package redis

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/heardlog/heardlog/memory"
)

// Questions and their answers are published as well as kept, by the scripts that keep them. A subscription counts only while we hear what we say ourselves, once a beat: a connection that is gone, a user without the
// right to channels and a proxy without any are all the same then, and what is kept is looked for instead. In a cluster PUBLISH reaches every node, whichever we listen to; there are few questions.

const (
	// toAll is the channel's name that all hear; the others are named for the server that they are for.
	toAll = "all"
	// deafAfter is how long it may be since we heard ourselves.
	deafAfter = 3 * time.Second
	// listenAgain is how long it takes to listen again where that has ended.
	listenAgain = time.Second
	// maxHeard is how many questions, and how many answers that nobody waits for yet, are kept.
	maxHeard = 256
)

// ears is what a server hears.
type ears struct {
	echo      atomic.Int64 // when we heard ourselves last, Unix ns of our own clock
	questions chan memory.Question

	mu      sync.Mutex
	waiting map[int64]chan string // by question
	early   map[int64][]string    // answers that came before their question's number
}

func newEars() ears {
	return ears{questions: make(chan memory.Question, maxHeard), waiting: map[int64]chan string{}, early: map[int64][]string{}}
}

// channel gives the name of a channel. It begins as keys do, so that rights to keys and to channels can be given alike.
func (s *Store) channel(name string) string { return s.rootKey("to:" + name) }

func (e *ears) hears() bool { return time.Since(time.Unix(0, e.echo.Load())) < deafAfter }

// listen hears what servers tell until ctx is done.
func (s *Store) listen(ctx context.Context) {
	for ctx.Err() == nil {
		// On a connection of its own, so that what is told does not wait behind long answers. It ends with that, or where it is refused.
		conn, giveBack := s.client.Dedicate()
		_ = conn.Receive(ctx, conn.B().Subscribe().Channel(s.channel(toAll), s.channel(s.replica)).Build(), s.hear)
		giveBack()
		s.ears.echo.Store(0)
		select {
		case <-ctx.Done():
		case <-time.After(listenAgain):
		}
	}
}

// hear takes up what was told. It must not wait, since nothing else is heard meanwhile.
func (s *Store) hear(m rueidis.PubSubMessage) {
	e := &s.ears
	if m.Channel == s.channel(toAll) {
		if q, err := parseQuestion(m.Message); err == nil && q.From != s.replica {
			select {
			case e.questions <- q:
			default: // too many wait; they are looked for as well
			}
		}
		return
	}
	number, text, _ := strings.Cut(m.Message, " ")
	no, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err != nil: // of another version
	case no == 0:
		e.echo.Store(time.Now().UnixNano())
	default:
		e.answer(no, text)
	}
}

// answer passes an answer on to whoever waits for it, or is about to.
func (e *ears) answer(no int64, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ch, ok := e.waiting[no]
	if !ok {
		if len(e.early) >= maxHeard {
			clear(e.early)
		}
		e.early[no] = append(e.early[no], text)
		return
	}
	select {
	case ch <- text:
	default: // it is looked for, too
	}
}

// wait gives where the answers to a question come, until it is left: first "" where somebody has taken it up, then what came of it.
func (e *ears) wait(no int64) (answers <-chan string, leave func()) {
	ch := make(chan string, 8)
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, text := range e.early[no] {
		select {
		case ch <- text:
		default:
		}
	}
	delete(e.early, no)
	e.waiting[no] = ch
	return ch, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.waiting, no)
	}
}

// Calls implements memory.Peers.
func (s *Store) Calls() <-chan memory.Question { return s.ears.questions }

// Hears implements memory.Peers.
func (s *Store) Hears() bool { return s.ears.hears() }
