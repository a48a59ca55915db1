package peers

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/postgres/pg"
)

// Questions and answers between replicas are rows of a table, and NOTIFY announces each of them:
// the receiver then reads the row. They are rare, their transactions do not wait for the disk, and
// no write of messages sends a notification. A connection of its own listens. On each beat a
// replica notifies itself, and notifications count as working only while these echoes arrive.
// Otherwise the replica polls the tables: when the connection is lost, when a pooler shares
// sessions, or when the database has no LISTEN.

const (
	// silentAfter is how long notifications count as working after the last echo.
	silentAfter = 3 * time.Second
	// maxQuestions bounds the queue of questions.
	maxQuestions = 256
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

// notices is the state of a replica's notifications.
type notices struct {
	channel string // of this schema
	start   sync.Once
	echo    atomic.Int64 // when the last echo arrived, Unix ns by this machine's clock
	// The database refused a notification. The next one may be sent at this time, Unix ns.
	refusedUntil atomic.Int64
	questions    chan memory.Question

	mu      sync.Mutex
	waiting map[int64]chan struct{} // calls that wait for an answer, by question
}

// channelOf returns the name of a schema's channel. All schemas of a database share one set of
// channels.
func channelOf(schema string) string {
	sum := sha256.Sum256([]byte(schema))
	return fmt.Sprintf("heardlog_%x", sum[:8])
}

func (n *notices) arrive() bool { return time.Since(time.Unix(0, n.echo.Load())) < silentAfter }

func (n *notices) refused() bool { return time.Now().UnixNano() < n.refusedUntil.Load() }

// notify sends a notification in a transaction of its own. A transaction that notifies holds a
// server-wide lock until its commit is done, so its commit must not wait for the disk.
func (p *Peers) notify(ctx context.Context, kind, body string) error {
	if p.notices.refused() {
		return nil
	}
	err := p.runUnsynced(ctx, func(b *pgx.Batch) {
		b.Queue("SELECT pg_notify($1, $2)", p.notices.channel, kind+" "+p.replica+" "+body)
	})
	if pg.Refused(err) {
		p.notices.refusedUntil.Store(time.Now().Add(listenLater).UnixNano())
		return nil
	}
	return err
}

// withNotice runs statements of which one notifies another replica. If the database supports no
// notifications, or their queue is full, it runs them without that one.
func (p *Peers) withNotice(ctx context.Context, what string, queue func(b *pgx.Batch, tell bool)) error {
	return p.db.Read(ctx, what, func(ctx context.Context) error {
		tell := !p.notices.refused()
		err := p.runUnsynced(ctx, func(b *pgx.Batch) { queue(b, tell) })
		if tell && pg.Refused(err) {
			p.notices.refusedUntil.Store(time.Now().Add(listenLater).UnixNano())
			err = p.runUnsynced(ctx, func(b *pgx.Batch) { queue(b, false) })
		}
		return err
	})
}

// listens reports whether the server may listen. Where sessions are shared with other clients, one
// of those would receive the notifications. Without prepared statements this is assumed.
func (p *Peers) listens() bool {
	mode := p.db.Pool.Config().ConnConfig.DefaultQueryExecMode
	return !p.db.Shared() && mode != pgx.QueryExecModeExec && mode != pgx.QueryExecModeSimpleProtocol
}

// listen receives the notifications of replicas until ctx is done.
func (p *Peers) listen(ctx context.Context) {
	for ctx.Err() == nil {
		echoed := p.listenOnce(ctx)
		p.notices.echo.Store(0)
		pause := listenAgain
		if !echoed {
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
func (p *Peers) listenOnce(ctx context.Context) (echoed bool) {
	dial, cancel := context.WithTimeout(ctx, p.db.Timeout)
	defer cancel()
	config := p.db.Pool.Config().ConnConfig
	p.db.Prepare(config)
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
	if _, err = conn.Exec(dial, "LISTEN "+pgx.Identifier{p.notices.channel}.Sanitize(), pgx.QueryExecModeSimpleProtocol); err != nil {
		return !pg.Refused(err)
	}
	for {
		wait, cancel := context.WithTimeout(ctx, silentAfter)
		err := conn.PgConn().WaitForNotification(wait)
		cancel()
		for _, n := range notes {
			if n.Channel == p.notices.channel {
				echoed = p.received(ctx, n.Payload) || echoed
			}
		}
		notes = nil
		// A timeout alone does not end the loop: the last echo may still be recent.
		if err != nil && (ctx.Err() != nil || conn.IsClosed() || !p.notices.arrive()) {
			return echoed
		}
	}
}

// received handles a notification and reports whether it was this replica's own echo.
func (p *Peers) received(ctx context.Context, text string) (own bool) {
	kind, rest, _ := strings.Cut(text, " ")
	who, body, _ := strings.Cut(rest, " ")
	ours := who == p.replica
	switch {
	case kind == noteEcho && ours:
		p.notices.echo.Store(time.Now().UnixNano())
		return true
	case (kind == noteFollow || kind == noteChanged) && !ours:
		p.follows.received(kind, who, body)
	case kind == noteQuestion && !ours:
		no, _ := strconv.ParseInt(body, 10, 64)
		list, _ := p.questions(ctx, "no = $2", no)
		for _, q := range list {
			select {
			case p.notices.questions <- q:
			default: // the table is polled as well
			}
		}
	case kind == noteReply && ours:
		no, _ := strconv.ParseInt(body, 10, 64)
		p.notices.mu.Lock()
		defer p.notices.mu.Unlock()
		select {
		case p.notices.waiting[no] <- struct{}{}:
		default: // the call is awake, or gone
		}
	}
	return false
}

// wait returns a channel that receives when a question is taken up or answered, until leave is
// called.
func (n *notices) wait(no int64) (woken <-chan struct{}, leave func()) {
	ch := make(chan struct{}, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting[no] = ch
	return ch, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.waiting, no)
	}
}

// Calls implements memory.Peers.
func (p *Peers) Calls() <-chan memory.Question { return p.notices.questions }

// Notified implements memory.Peers.
func (p *Peers) Notified() bool { return p.notices.arrive() }
