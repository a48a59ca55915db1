package postgres

import (
	"context"
	"crypto/sha256"
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

// Questions and answers between replicas are rows of a table, and NOTIFY announces each of them:
// the receiver then reads the row. They are rare, their transactions do not wait for the disk, and
// no write of messages sends a notification. A connection of its own listens. On each beat a
// replica notifies itself, and notifications count as working only while these echoes arrive.
// Otherwise the replica polls the tables: when the connection is lost, when a pooler shares
// sessions, or when the database has no LISTEN.

const (
	// deafAfter is how long notifications count as working after the last echo.
	deafAfter = 3 * time.Second
	// maxHeard bounds the queue of questions.
	maxHeard = 256
	// listenAgain is the pause before a new connection listens, and listenLater the pause if the
	// database seems not to support notifications.
	listenAgain, listenLater = time.Second, time.Minute
)

// The kinds of notifications. The kind is the first word, the sender or receiver the second, and
// the rest is the number of a question or a list of agents.
const (
	noteEcho     = "echo"
	noteQuestion = "ask"
	noteReply    = "reply"
	noteFollow   = "follow"
	noteChanged  = "changed"
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
	waiting map[int64]chan struct{} // calls that wait for an answer, by question
}

// channelOf returns the name of a schema's channel. All schemas of a database share one set of
// channels.
func channelOf(schema string) string {
	sum := sha256.Sum256([]byte(schema))
	return fmt.Sprintf("heardlog_%x", sum[:8])
}

func (e *ears) hears() bool { return time.Since(time.Unix(0, e.echo.Load())) < deafAfter }

func (e *ears) muted() bool { return time.Now().UnixNano() < e.mute.Load() }

// notify sends a notification in a transaction of its own. A transaction that notifies holds a
// server-wide lock until its commit is done, so its commit must not wait for the disk.
func (s *Store) notify(ctx context.Context, kind, body string) error {
	if s.ears.muted() {
		return nil
	}
	err := s.loose(ctx, func(b *pgx.Batch) {
		b.Queue("SELECT pg_notify($1, $2)", s.ears.channel, kind+" "+s.replica+" "+body)
	})
	if refused(err) {
		s.ears.mute.Store(time.Now().Add(listenLater).UnixNano())
		return nil
	}
	return err
}

// telling runs statements of which one notifies another replica. If the database supports no
// notifications, or their queue is full, it runs them without that one.
func (s *Store) telling(ctx context.Context, what string, queue func(b *pgx.Batch, tell bool)) error {
	return s.read(ctx, what, func(ctx context.Context) error {
		tell := !s.ears.muted()
		err := s.loose(ctx, func(b *pgx.Batch) { queue(b, tell) })
		if tell && refused(err) {
			s.ears.mute.Store(time.Now().Add(listenLater).UnixNano())
			err = s.loose(ctx, func(b *pgx.Batch) { queue(b, false) })
		}
		return err
	})
}

// listens reports whether the store may listen. Without prepared statements it assumes a pooler
// that shares sessions between clients, where another client would receive the notifications.
func (s *Store) listens() bool {
	mode := s.pool.Config().ConnConfig.DefaultQueryExecMode
	return mode != pgx.QueryExecModeExec && mode != pgx.QueryExecModeSimpleProtocol
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
	kind, rest, _ := strings.Cut(text, " ")
	who, body, _ := strings.Cut(rest, " ")
	ours := who == s.replica
	switch {
	case kind == noteEcho && ours:
		s.ears.echo.Store(time.Now().UnixNano())
		return true
	case (kind == noteFollow || kind == noteChanged) && !ours:
		s.follows.hear(kind, who, body)
	case kind == noteQuestion && !ours:
		no, _ := strconv.ParseInt(body, 10, 64)
		list, _ := s.questions(ctx, "no = $2", no)
		for _, q := range list {
			select {
			case s.ears.questions <- q:
			default: // the table is polled as well
			}
		}
	case kind == noteReply && ours:
		no, _ := strconv.ParseInt(body, 10, 64)
		s.ears.mu.Lock()
		defer s.ears.mu.Unlock()
		select {
		case s.ears.waiting[no] <- struct{}{}:
		default: // the call is awake, or gone
		}
	}
	return false
}

// wait returns a channel that receives when a question is taken up or answered, until leave is
// called.
func (e *ears) wait(no int64) (woken <-chan struct{}, leave func()) {
	ch := make(chan struct{}, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
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
