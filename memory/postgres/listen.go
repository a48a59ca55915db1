package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/heardlog/heardlog/memory"
)

// Questions and their answers are told by NOTIFY as well, each with the row that holds it: they are rare, their transactions do not wait for the disk, and no
// message's transaction has to do with it. A connection of its own listens. It counts only while it hears what we say ourselves, once a beat: a connection that is
// gone, a pooler that gives the session to others and a database without LISTEN are all the same then, and tables are looked at instead.

const (
	// maxNote is how long the body of a notification may be; PostgreSQL takes 7,999 bytes with what stands before it.
	maxNote = 7700
	// deafAfter is how long it may be since we heard ourselves.
	deafAfter = 3 * time.Second
	// maxHeard is how many questions, and how many answers that nobody waits for yet, are kept.
	maxHeard = 256
	// listenAgain is how long it takes to try again where a listener heard nothing, and where it seems that it never will.
	listenAgain, listenLater = time.Second, time.Minute
)

// The kinds of notifications: their first word. The second is whom they are from, or for.
const (
	noteEcho     = "echo"
	noteQuestion = "ask"
	noteReply    = "reply"
)

// ears is what a replica hears.
type ears struct {
	channel   string // of the schema
	start     sync.Once
	echo      atomic.Int64 // when we heard ourselves last, Unix ns of our own clock
	mute      atomic.Int64 // until when notifications are left out since the database knows none, likewise
	questions chan memory.Question

	mu      sync.Mutex
	waiting map[int64]chan noted // by question
	early   map[int64]noted      // answers that came before their question's number
}

// noted is the answer to a question as it is told.
type noted struct {
	Done bool `json:"done,omitempty"` // else somebody has taken it up
	memory.Reply
}

// channelOf names a schema's channel: channels belong to the database.
func channelOf(schema string) string {
	sum := sha256.Sum256([]byte(schema))
	return fmt.Sprintf("heardlog_%x", sum[:8])
}

func (e *ears) hears() bool { return time.Since(time.Unix(0, e.echo.Load())) < deafAfter }

func (e *ears) muted() bool { return time.Now().UnixNano() < e.mute.Load() }

// noteBody gives what is told of a question or an answer; "" where it is too long, so that it is to be looked for.
func noteBody(v any) string {
	b, err := json.Marshal(v)
	if err != nil || len(b) > maxNote {
		return ""
	}
	return string(b)
}

// note gives a notification. Its first words are its kind, whom it is from or for, and a question's number and time.
func note(kind, who string, no int64, v any) string {
	return fmt.Sprintf("%s %s %d 0 %s", kind, who, no, noteBody(v))
}

// listens tells whether there are sessions to listen on: a pooler that gives ours to others would have them hear for us. Statements that are not prepared say that
// there is one.
func (s *Store) listens() bool {
	mode := s.pool.Config().ConnConfig.DefaultQueryExecMode
	return mode != pgx.QueryExecModeExec && mode != pgx.QueryExecModeSimpleProtocol
}

// echoes says something that only we want to hear.
func (s *Store) echoes(ctx context.Context) {
	if s.ears.muted() {
		return
	}
	// Whoever tells holds a lock of the whole server's until his commit is done, which therefore must not wait for the disk.
	err := s.loose(ctx, func(b *pgx.Batch) {
		b.Queue("SELECT pg_notify($1, $2)", s.ears.channel, note(noteEcho, s.replica, 0, nil))
	})
	if refused(err) {
		s.ears.mute.Store(time.Now().Add(listenLater).UnixNano())
	}
}

// refused tells that the database is there and does not do what it was asked.
func refused(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && !broken(err) && !lockedOut(err) && !strings.HasPrefix(e.Code, "40")
}

// listen hears what replicas tell until ctx is done.
func (s *Store) listen(ctx context.Context) {
	for ctx.Err() == nil {
		heard := s.listenOnce(ctx)
		s.ears.echo.Store(0)
		pause := listenAgain
		if !heard {
			pause = listenLater
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// listenOnce hears on one connection until it breaks or falls silent, and tells whether it is worth a new one soon: whether it heard anything, or could not be made.
func (s *Store) listenOnce(ctx context.Context) (heard bool) {
	dial, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	config := s.pool.Config().ConnConfig
	var notes []*pgconn.Notification
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { notes = append(notes, n) }
	conn, err := pgx.ConnectConfig(dial, config)
	if err != nil {
		return true
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err = conn.Exec(dial, "LISTEN "+pgx.Identifier{s.ears.channel}.Sanitize(), pgx.QueryExecModeSimpleProtocol); err != nil {
		return !refused(err)
	}
	for {
		wait, cancel := context.WithTimeout(ctx, deafAfter)
		err := conn.PgConn().WaitForNotification(wait)
		cancel()
		for _, n := range notes {
			if n.Channel == s.ears.channel {
				heard = s.hear(ctx, n.Payload) || heard
			}
		}
		notes = nil
		// A wait that is over is not the end while others talk: our own echo may be late.
		if err != nil && (ctx.Err() != nil || conn.IsClosed() || !s.ears.hears()) {
			return heard
		}
	}
}

// hear takes up what was told, and tells whether it was our own echo.
func (s *Store) hear(ctx context.Context, text string) (own bool) {
	e := &s.ears
	words := strings.SplitN(text, " ", 5)
	if len(words) < 5 {
		return false // of another version
	}
	kind, who, body := words[0], words[1], words[4]
	no, err := strconv.ParseInt(words[2], 10, 64)
	at, err2 := strconv.ParseInt(words[3], 10, 64)
	if err != nil || err2 != nil {
		return false
	}
	switch {
	case kind == noteEcho && who == s.replica:
		e.echo.Store(time.Now().UnixNano())
		return true
	case (kind == noteFollow || kind == noteChanged) && who != s.replica:
		s.follows.hear(kind, who, body)
	case kind == noteQuestion && who != s.replica:
		var q memory.Question
		if json.Unmarshal([]byte(body), &q) == nil {
			q.No, q.From, q.AtMS = no, who, at
			e.ask(shownQuestion(q))
			return false
		}
		list, err := s.Asked(ctx) // it was too long to be told
		for _, q := range list {
			if err == nil && q.No == no {
				e.ask(q)
			}
		}
	case kind == noteReply && who == s.replica:
		var n noted
		if json.Unmarshal([]byte(body), &n) == nil {
			e.answer(no, n)
		}
	}
	return false
}

// ask passes a question on, unless too many wait: they are looked for as well.
func (e *ears) ask(q memory.Question) {
	select {
	case e.questions <- q:
	default:
	}
}

// answer passes an answer on to whoever waits for it, or is about to.
func (e *ears) answer(no int64, n noted) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ch, ok := e.waiting[no]
	if !ok {
		if len(e.early) >= maxHeard {
			clear(e.early)
		}
		e.early[no] = n
		return
	}
	select {
	case ch <- n:
	default: // it is looked for, too
	}
}

// wait gives where the answers to a question come, until it is left.
func (e *ears) wait(no int64) (answers <-chan noted, leave func()) {
	ch := make(chan noted, 2)
	e.mu.Lock()
	defer e.mu.Unlock()
	if n, ok := e.early[no]; ok {
		ch <- n
		delete(e.early, no)
	}
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
