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

// Questions and answers between replicas are rows of a table, and NOTIFY announces each of them.
// They are rare, their transactions do not wait for the disk, and no write of messages sends a
// notification. A connection of its own listens. On each beat a replica notifies itself, and
// notifications count as working only while these echoes arrive. Otherwise the replica polls the
// tables: when the connection is lost, when a pooler shares sessions, or when the database has no
// LISTEN.

const (
	// maxNote bounds the body of a notification in bytes. PostgreSQL accepts 7,999 bytes, including
	// the words before the body.
	maxNote = 7700
	// deafAfter is how long notifications count as working after the last echo.
	deafAfter = 3 * time.Second
	// maxHeard bounds the queue of questions, and the number of answers that arrived before their
	// question's number was known.
	maxHeard = 256
	// listenAgain is the pause before a new connection listens, and listenLater the pause if the
	// database seems not to support notifications.
	listenAgain, listenLater = time.Second, time.Minute
)

// The kinds of notifications. The kind is the first word, and the sender or receiver the second.
const (
	noteEcho     = "echo"
	noteQuestion = "ask"
	noteReply    = "reply"
)

// ears is the state of a replica's notifications.
type ears struct {
	channel string // of this schema
	start   sync.Once
	echo    atomic.Int64 // when the last echo arrived, Unix ns by this machine's clock
	// The database refused a notification. The next one may be sent at this time, Unix ns.
	mute      atomic.Int64
	questions chan memory.Question

	mu      sync.Mutex
	waiting map[int64]chan noted // by question
	early   map[int64]noted      // answers that arrived before their question's number was known
}

// noted is an answer to a question, as the body of a notification.
type noted struct {
	Done bool `json:"done,omitempty"` // false: another replica has taken the question up
	memory.Reply
}

// channelOf returns the name of a schema's channel. All schemas of a database share one set of
// channels.
func channelOf(schema string) string {
	sum := sha256.Sum256([]byte(schema))
	return fmt.Sprintf("heardlog_%x", sum[:8])
}

func (e *ears) hears() bool { return time.Since(time.Unix(0, e.echo.Load())) < deafAfter }

func (e *ears) muted() bool { return time.Now().UnixNano() < e.mute.Load() }

// noteBody encodes a question or an answer for a notification. It returns "" if the result would be
// too long. The receiver then reads the table.
func noteBody(v any) string {
	b, err := json.Marshal(v)
	if err != nil || len(b) > maxNote {
		return ""
	}
	return string(b)
}

// note returns the text of a notification. Its first words are the kind, the sender or receiver,
// and the number and time of a question.
func note(kind, who string, no int64, v any) string {
	return fmt.Sprintf("%s %s %d 0 %s", kind, who, no, noteBody(v))
}

// listens reports whether the store may listen. Without prepared statements it assumes a pooler
// that shares sessions between clients, where another client would receive the notifications.
func (s *Store) listens() bool {
	mode := s.pool.Config().ConnConfig.DefaultQueryExecMode
	return mode != pgx.QueryExecModeExec && mode != pgx.QueryExecModeSimpleProtocol
}

// echoes sends a notification to this replica itself.
func (s *Store) echoes(ctx context.Context) {
	if s.ears.muted() {
		return
	}
	// A transaction that notifies holds a server-wide lock until its commit is done. So its commit
	// must not wait for the disk.
	err := s.loose(ctx, func(b *pgx.Batch) {
		b.Queue("SELECT pg_notify($1, $2)", s.ears.channel, note(noteEcho, s.replica, 0, nil))
	})
	if refused(err) {
		s.ears.mute.Store(time.Now().Add(listenLater).UnixNano())
	}
}

// refused reports whether the database is available but rejected the statement.
func refused(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && !broken(err) && !lockedOut(err) && !strings.HasPrefix(e.Code, "40")
}

// listen receives the notifications of replicas until ctx is done.
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

// listenOnce listens on one connection until it breaks or the echoes stop. It reports whether to
// try again soon: it has received an echo, or it could not connect.
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
		// A timeout alone does not end the loop: the last echo may still be recent.
		if err != nil && (ctx.Err() != nil || conn.IsClosed() || !s.ears.hears()) {
			return heard
		}
	}
}

// hear handles a notification and reports whether it was this replica's own echo.
func (s *Store) hear(ctx context.Context, text string) (own bool) {
	e := &s.ears
	words := strings.SplitN(text, " ", 5)
	if len(words) < 5 {
		return false // from another version of this program
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
		list, err := s.Asked(ctx) // the body was too long for a notification
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

// ask queues a question. It drops the question if the queue is full, since the table is polled as
// well.
func (e *ears) ask(q memory.Question) {
	select {
	case e.questions <- q:
	default:
	}
}

// answer passes an answer to the call that waits for it. If no call waits yet, answer stores it.
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
	default: // the table is polled as well
	}
}

// wait returns a channel that receives the answers to a question until leave is called.
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
