package sqlite

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/codec"
	"github.com/heardlog/heardlog/memory/seal"
)

// Head gives the agent's head, from memory where it is hot.
func (s *Store) Head(ctx context.Context, project, id string) (memory.Head, error) {
	k := key{project, id}
	s.pending.wait(k)
	if v := s.cache.get(k); v != nil && !s.isClosed() {
		return v.head, nil
	}
	v, err := s.load(ctx, k, 0, false)
	if err != nil {
		return memory.Head{}, err
	}
	return v.head, nil
}

// Recent gives the head and the newest n messages, from memory where the agent is hot and n not above what
// is kept of it (see view.maxTail).
func (s *Store) Recent(ctx context.Context, project, id string, n int, historyOnly bool) (memory.Head, []memory.Message, error) {
	k := key{project, id}
	n = max(n, 0)
	s.pending.wait(k)
	if v := s.cache.get(k); v != nil && !s.isClosed() {
		if list, ok := v.newest(n, historyOnly); ok {
			return v.head, list, nil
		}
	}
	v, err := s.load(ctx, k, n, historyOnly)
	if err != nil {
		return memory.Head{}, nil, err
	}
	return v.head, v.list, nil
}

// loaded is what one read of the database found.
type loaded struct {
	*view
	list []memory.Message
}

// load reads an agent's head and its newest n messages as of one moment and puts them in the cache.
func (s *Store) load(ctx context.Context, k key, n int, historyOnly bool) (loaded, error) {
	var out loaded
	e, old := s.cache.hold(k)
	known := old
	if known == gone {
		known = nil
	}
	if known != nil && n > 0 && n <= known.maxTail() {
		if v := s.loadTail(ctx, e, known, n); v != nil {
			if list, ok := v.newest(n, historyOnly); ok {
				return loaded{v, list}, nil
			}
			known, old = v, v
		}
	}
	kept := true // what was read is worth keeping
	err := s.readers.do(ctx, func(c *conn) error {
		no, a, h, err := readHead(c, &s.sealer, k, known)
		if err != nil {
			return err
		}
		most := maxTail(&a)
		if n == 0 || n > most {
			if out.view, err = viewOf(c, no, a, h); err == nil && n > 0 { // more than is kept: read just that
				kept = false
				out.list, err = loadNewest(c, no, n, historyOnly)
			}
			return err
		}
		want := tailFor(n, most)
		list, err := loadNewest(c, no, want, false)
		if err != nil {
			return err
		}
		out.view = headOnly(no, a, h, list).withTail(list, len(list) < want)
		var ok bool
		if out.list, ok = out.view.newest(n, historyOnly); !ok {
			// Too many of the newest are not for history.
			out.list, err = loadNewest(c, no, n, true)
		}
		return err
	})
	switch {
	case fault.Is(err, fault.NotFound):
		s.cache.forget(e)
	case err == nil && (n > 0 && kept || old == nil):
		s.cache.fill(e, old, out.view)
	}
	return out, classify(err, "read agent")
}

// tailFor gives how many messages are read where the newest n are wanted of an agent of which at most so many are kept.
func tailFor(n, most int) int {
	if n > tailLoad { // a turn will look at the rest before long
		return most
	}
	return tailLoad
}

// loadTail reads the messages of an agent whose head is in memory, and puts them there; nil where the two may not be of one moment, because the agent
// was written to meanwhile. It is most of what reads of agents that are not hot come to, and one statement.
func (s *Store) loadTail(ctx context.Context, e *entry, head *view, n int) *view {
	want := tailFor(n, head.maxTail())
	var list []memory.Message
	err := s.readers.with(ctx, func(c *conn) (err error) {
		list, err = loadNewest(c, head.no, want, false)
		return err
	})
	if err != nil || len(list) == 0 || list[len(list)-1].Seq != head.head.Last.Seq {
		return nil
	}
	for i := range list {
		if list[i].Rev > head.head.Rev { // a commit that is not in memory yet
			return nil
		}
	}
	v := head.withTail(list, len(list) < want)
	if !s.cache.fill(e, head, v) {
		return nil
	}
	return v
}

const selectAgent = `SELECT a.no, a.project, a.id, a.name, a.status, a.start_ms, a.stop_ms, a.message, a.rev, a.join_key, a.join_hash,
	a.hint_rev, a.hint_turn, a.hint_seq FROM agent a `

// readAgent reads a row of selectAgent, all but settings and properties.
func readAgent(row []driver.Value) (no int64, a memory.Agent, h hints) {
	a = memory.Agent{
		Project: text(row[1]), ID: text(row[2]), Name: text(row[3]), Status: memory.Status(integer(row[4])),
		StartMS: integer(row[5]), StopMS: integer(row[6]), Message: text(row[7]), Rev: integer(row[8]),
		JoinKey: text(row[9]), JoinHash: text(row[10]),
	}
	return integer(row[0]), a, hints{rev: integer(row[11]), turn: integer(row[12]), seq: integer(row[13])}
}

// loadSettings reads an agent's settings and properties.
func loadSettings(c *conn, s *seal.Sealer, no int64, a *memory.Agent) error {
	row, err := c.first("SELECT body FROM agent_settings WHERE agent_no = ?", no)
	if err != nil {
		return classify(err, "read settings")
	}
	if row == nil {
		return fault.Wrap(fault.Internal, errNoRow, "the store failed")
	}
	plain, err := s.Open(blob(row[0]), agentOwner(a.Project, a.ID))
	if err == nil {
		err = codec.DecodeAgent(plain, a)
	}
	return classify(err, "read settings")
}

// loadHead reads an agent's head; known is an older view, whose settings are used where they have not changed since.
func loadHead(c *conn, s *seal.Sealer, k key, known *view) (*view, error) {
	no, a, h, err := readHead(c, s, k, known)
	if err != nil {
		return nil, err
	}
	return viewOf(c, no, a, h)
}

// readHead reads what a head is made of but for the last message.
func readHead(c *conn, s *seal.Sealer, k key, known *view) (no int64, a memory.Agent, h hints, err error) {
	row, err := c.first(selectAgent+"WHERE a.project = ? AND a.id = ?", k.project, k.id)
	if err != nil {
		return 0, a, h, classify(err, "read agent")
	}
	if row == nil {
		return 0, a, h, noAgent(k.id)
	}
	no, a, h = readAgent(row)
	if known != nil && known.no == no && known.head.Agent.Rev == a.Rev {
		a.Settings, a.Properties = known.head.Agent.Settings, known.head.Agent.Properties
		return no, a, h, nil
	}
	return no, a, h, loadSettings(c, s, no, &a)
}

// viewOf adds the last message.
func viewOf(c *conn, no int64, a memory.Agent, h hints) (*view, error) {
	last, err := loadNewest(c, no, 1, false)
	if err != nil {
		return nil, err
	}
	return headOnly(no, a, h, last), nil
}

// headOnly gives the view without a tail of an agent whose newest messages are list, none if it has none.
func headOnly(no int64, a memory.Agent, h hints, list []memory.Message) *view {
	if len(list) == 0 {
		return &view{no: no, head: makeHead(a, nil, h), hint: h, full: true}
	}
	return &view{no: no, head: makeHead(a, &list[len(list)-1], h), hint: h}
}

// Messages pages through the ledger, from memory where what is asked for is among a hot agent's newest.
func (s *Store) Messages(ctx context.Context, project, id string, q memory.MessageQuery) ([]memory.Message, error) {
	k := key{project, id}
	s.pending.wait(k)
	if v := s.cache.get(k); v != nil && !s.isClosed() {
		if list, ok := v.page(q); ok {
			return list, nil
		}
	}
	var out []memory.Message
	err := s.readers.do(ctx, func(c *conn) error {
		row, err := c.first("SELECT no FROM agent WHERE project = ? AND id = ?", project, id)
		if err != nil {
			return err
		}
		if row == nil {
			return noAgent(id)
		}
		out, err = loadMessages(c, selectMessage+"WHERE agent_no = ? AND seq > ? AND rev > ? AND shown >= ? ORDER BY seq LIMIT ?+0",
			integer(row[0]), q.AfterSeq, q.AfterRev, boolean(q.HistoryOnly), int64(max(q.Limit, 1)))
		return err
	})
	return out, classify(err, "read messages")
}

// afterCommit waits until a commit that was read in the database is in memory, too.
func (s *Store) afterCommit() {
	s.showing.RLock()
	defer s.showing.RUnlock()
}

// Live calls each with every live agent as of one moment, and warms the cache with them.
func (s *Store) Live(ctx context.Context, each func(memory.Head) error) error {
	var own error
	commits := s.commits.Load()
	err := s.readers.do(ctx, func(c *conn) error {
		// The numbers first, by the index that holds live agents alone: ended ones are many.
		var nos []int64
		err := c.each("SELECT no FROM agent INDEXED BY agent_live WHERE status NOT IN (4, 6)", nil, func(row []driver.Value) error {
			nos = append(nos, integer(row[0]))
			return nil
		})
		if err != nil {
			return err
		}
		for _, no := range nos {
			if ctx.Err() != nil {
				return ended(ctx)
			}
			row, err := c.first(selectAgent+"WHERE a.no = ?", no)
			if err == nil && row == nil {
				err = errNoRow
			}
			if err != nil {
				return err
			}
			_, a, h := readAgent(row)
			e, old := s.cache.hold(key{a.Project, a.ID})
			v, err := func() (*view, error) {
				if err := loadSettings(c, &s.sealer, no, &a); err != nil {
					return nil, err
				}
				return viewOf(c, no, a, h)
			}()
			if err == nil && s.commits.Load() == commits { // else this moment may be past for the agent
				s.cache.fill(e, old, v)
			} else {
				s.cache.forget(e)
			}
			if err != nil {
				return err
			}
			if own = each(v.head); own != nil {
				return own
			}
		}
		return nil
	})
	if own != nil {
		return own
	}
	return classify(err, "read live agents")
}

// Count gives how many agents have each status, as of the last commit.
func (s *Store) Count(context.Context) ([memory.Statuses]int, error) {
	var out [memory.Statuses]int
	if s.isClosed() {
		return out, errClosed()
	}
	for i := range out {
		out[i] = int(s.counts[i].Load())
	}
	return out, nil
}

// Ping writes a row and reads it back.
func (s *Store) Ping(ctx context.Context) error {
	now := time.Now().UTC().Format(time.RFC3339Nano)
	return s.do(ctx, func(g *group) error {
		if _, _, err := g.exec("ping", "INSERT INTO meta (key, value) VALUES ('ping', ?) ON CONFLICT DO UPDATE SET value = excluded.value", now); err != nil {
			return err
		}
		row, err := g.w.first("SELECT value FROM meta WHERE key = 'ping'")
		if err == nil && (row == nil || text(row[0]) != now) {
			err = errNoRow
		}
		return classify(err, "ping")
	})
}
