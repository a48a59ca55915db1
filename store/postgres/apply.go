package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/statements"
)

// A batch is one transaction and one round trip, of one statement or two. The first part of the
// first statement moves the heads of those agents on that stand at the expected ver, and so locks
// them; everything else writes only for the agents that it has found. Where the database refuses
// something, each write gets a transaction of its own, so that the one at fault fails alone.

// Apply implements memory.Store.
func (s *Store) Apply(ctx context.Context, batch []memory.Write) ([]error, error) {
	ctx, leave, err := s.db.Enter(ctx, true)
	if err != nil {
		return nil, err
	}
	defer leave()
	a := applying{s: s, ctx: ctx, batch: batch, errs: make([]error, len(batch))}
	var together, alone []int
	for i := range batch {
		if s.isHeld(batch[i].No) {
			alone = append(alone, i)
		} else {
			together = append(together, i)
		}
	}
	a.together(together)
	a.apart(alone, heldWait)
	if first := a.errs[0]; fault.Is(first, fault.Unavailable) && !slices.ContainsFunc(a.errs, func(err error) bool { return err != first }) {
		return nil, first
	}
	return a.errs, nil
}

// applying is a call of Apply.
type applying struct {
	s     *Store
	ctx   context.Context
	batch []memory.Write
	errs  []error
}

// together stores some writes of the batch in one statement, and each by itself if the database
// refuses that.
func (a *applying) together(list []int) {
	if len(list) == 0 {
		return
	}
	err := a.store(list, 0)
	if err == nil {
		return
	}
	if pg.LockedOut(err) {
		a.apart(list, heldWait)
		return
	}
	err = a.s.db.Failed(a.ctx, err, "commit")
	if len(list) > 1 && !fault.Is(err, fault.Unavailable) {
		a.apart(list, 0)
		return
	}
	for _, i := range list {
		a.errs[i] = err
	}
}

// apart stores each of some writes in a statement of its own.
func (a *applying) apart(list []int, wait time.Duration) {
	failed := map[int64]bool{}
	for _, i := range list {
		no := a.batch[i].No
		if failed[no] {
			a.errs[i] = memory.ErrStale
			continue
		}
		err := a.store([]int{i}, wait)
		if wait > 0 {
			a.s.hold(no, pg.LockedOut(err))
		}
		if pg.LockedOut(err) {
			err = fault.Wrap(fault.Unavailable, err, "another server holds the agent; nothing was written; try again")
		}
		if err != nil {
			a.errs[i] = a.s.db.Failed(a.ctx, err, "commit")
		}
		failed[no] = a.errs[i] != nil
	}
}

// store stores some writes in one statement and sets their errors. An error means that none is
// stored, or that this is not known. wait bounds the wait for a lock; 0 is the connection's own
// bound.
func (a *applying) store(list []int, wait time.Duration) error {
	w, err := a.s.collect(a.ctx, a.batch, list)
	if err != nil {
		return err
	}
	before := a.s.db.Unsynced()
	var unknown error // why it is not known whether the statement has come through
	for try := 1; ; try++ {
		got, err := a.s.write(a.ctx, w, wait)
		if err != nil {
			again := try < pg.MaxTries && a.ctx.Err() == nil
			if again && pg.Transient(err) {
				continue
			}
			if again && pg.Broken(err) && unknown == nil {
				a.s.db.Lost()
				if !pgconn.SafeToRetry(err) {
					unknown = err // if the same statement writes now, it did not before
				}
				continue
			}
			return cmp.Or(unknown, err)
		}
		switch {
		case got.endpoints > w.epoch:
			if err := a.s.freshEndpoints(a.ctx, a.s.db.Pool, got.endpoints); err != nil {
				return err
			}
		case got.replaced < int64(len(w.replaced.nos)) && unknown == nil:
			if err := a.s.replacedMissing(a.ctx, a.batch, list); err != nil {
				return err
			}
		}
		if err := a.s.db.Wrote(before); err != nil {
			return err
		}
		a.settle(list, w, got, unknown)
		return nil
	}
}

// settle sets the errors of writes after their statement.
func (a *applying) settle(list []int, w *writes, got written, unknown error) {
	for _, i := range list {
		wr := &a.batch[i]
		switch _, ok := slices.BinarySearch(got.nos, wr.No); {
		case ok:
			a.s.AnnounceChange(wr.Project, wr.ID)
		case unknown != nil:
			a.errs[i] = pg.Classify(unknown, "commit")
		default:
			a.errs[i] = memory.ErrStale
			for _, of := range w.keys.of { // it may be that one was destroyed
				a.s.sealer.Stale(of)
			}
		}
	}
	if len(got.nos) > 0 && !w.events.empty() {
		a.s.wake()
	}
}

// errReplaced is the end of a statement of several writes of which one replaces a message that is
// not there.
var errReplaced = fault.New(fault.Internal, "a decision replaced a message that is not there under its id")

// replacedMissing returns an error if it is the writes' own fault that nothing was replaced, nil if
// they are stale.
func (s *Store) replacedMissing(ctx context.Context, batch []memory.Write, list []int) error {
	if len(list) > 1 {
		return errReplaced // each is tried by itself
	}
	w := &batch[list[0]]
	ver, _, err := s.versionOf(ctx, w.No)
	if err == nil && ver == w.Ver {
		m := &w.Change.Replace[0]
		err = fault.New(fault.Internal, "a decision replaced message %d, which is not there under the id %q", m.Seq, m.ID)
	}
	return err
}

// writes is what a statement writes, by column.
type writes struct {
	heads struct {
		nos, was, vers, revs, seqs, turns, written []int64
		tallies                                    [][]byte
		first, last                                []*memory.Write // of each agent
	}
	inserted, replaced rows
	// Of a message in inserted, and of one in replaced as its complement.
	place  map[place]int
	agents []agentRow
	tagged []taggedRow
	events outbox
	// rewritten holds new bodies of stored events, of the agents with these numbers.
	rewritten struct {
		nos    []int64
		ids    []string
		bodies [][]byte // packed
		sizes  []int64  // of the bodies before
	}
	// keys are the data keys of callers with which something is sealed. The statement locks them;
	// if one was destroyed, it writes nothing.
	keys struct {
		nos []int64
		of  []encryption.Of
	}
	items itemChanges
	due   dueChanges
	use   useChanges
	// checked are those that may erase something under hold.
	checked []*memory.Write
	epoch   int64 // the endpoints that it was decided by
}

type place struct{ no, seq int64 }

// rows is messages by column.
type rows struct {
	nos, seqs, revs, turns []int64
	shown                  []bool
	ids                    []*string
	bodies                 [][]byte // packed
	sizes                  []int64  // of the bodies before
}

func (r *rows) set(i int, no int64, key encryption.Key, m *memory.Message, body string) int {
	if i < 0 {
		i = len(r.nos)
		r.nos, r.seqs, r.revs, r.turns = append(r.nos, no), append(r.seqs, m.Seq), append(r.revs, 0), append(r.turns, 0)
		r.shown, r.ids, r.bodies = append(r.shown, false), append(r.ids, clientID(m.ID)), append(r.bodies, nil)
		r.sizes = append(r.sizes, 0)
	}
	r.revs[i], r.turns[i], r.shown[i], r.bodies[i], r.sizes[i] = m.Rev, m.TurnID, m.InHistory(), statements.MessageBody(key, no, m.Seq, codec.Pack(body)), int64(len(body))
	return i
}

// clientID returns the column: null if the client gave no ID.
func clientID(id string) *string {
	if id == "" {
		return nil
	}
	id = pg.Stored(id)
	return &id
}

// agentRow is an agent as a change leaves it.
type agentRow struct {
	no       int64
	agent    *memory.Agent
	settings []byte // nil: unchanged
}

// taggedRow is an agent whose tags may have changed.
type taggedRow struct {
	no   int64
	head *memory.Head
}

// retag notes that an agent's tags are those of h.
func (w *writes) retag(no int64, h *memory.Head) {
	if n := len(w.tagged); n > 0 && w.tagged[n-1].no == no {
		w.tagged[n-1].head = h
		return
	}
	w.tagged = append(w.tagged, taggedRow{no, h})
}

func (w *writes) agent(key encryption.Key, wr *memory.Write) {
	i := slices.IndexFunc(w.agents, func(r agentRow) bool { return r.no == wr.No })
	if i < 0 {
		i = len(w.agents)
		w.agents = append(w.agents, agentRow{no: wr.No})
	}
	r := &w.agents[i]
	r.agent = wr.Change.Agent
	if wr.Private != nil {
		r.settings = key.Seal(wr.Private, statements.AgentOwner(wr.Project, wr.ID))
	}
}

// collect gathers what some writes of a batch write. The writes of one agent move its head on once.
func (s *Store) collect(ctx context.Context, batch []memory.Write, list []int) (*writes, error) {
	w := &writes{epoch: batch[list[0]].Epoch}
	list = slices.Clone(list) // heads are locked in order of their numbers, on every server
	slices.SortStableFunc(list, func(i, j int) int { return cmp.Compare(batch[i].No, batch[j].No) })
	h := &w.heads
	for _, i := range list {
		wr := &batch[i]
		w.epoch = min(w.epoch, wr.Epoch)
		if n := len(h.nos); n == 0 || h.nos[n-1] != wr.No {
			h.nos, h.was, h.vers = append(h.nos, wr.No), append(h.was, wr.Ver), append(h.vers, wr.Ver)
			h.revs, h.seqs, h.turns = append(h.revs, 0), append(h.seqs, 0), append(h.turns, 0)
			h.written, h.tallies = append(h.written, 0), append(h.tallies, nil)
			h.first, h.last = append(h.first, wr), append(h.last, nil)
		}
		at := len(h.nos) - 1
		h.vers[at]++
		h.revs[at], h.seqs[at], h.turns[at] = wr.Head.Rev, wr.Head.NextSeq, wr.Head.LastTurn
		h.written[at] += wr.Bytes()
		h.tallies[at] = wr.Head.Tally.Encode()
		h.last[at] = wr
		w.due.take(wr.No, wr.Head)
		if statements.MustCheck(wr) {
			w.checked = append(w.checked, wr)
		}
		if wr.Retagged {
			w.retag(wr.No, wr.Head)
		}
		of := statements.AgentKey(wr.Head.Agent)
		key, err := s.keyOf(ctx, of)
		if err != nil {
			return nil, err
		}
		if no := key.No(); no != 0 && !slices.Contains(w.keys.nos, no) {
			w.keys.nos, w.keys.of = append(w.keys.nos, no), append(w.keys.of, of)
		}
		w.messages(wr.No, key, &wr.Change, wr.Bodies)
		w.items.take(wr.Ref, wr.No, wr.Change)
		if wr.Change.Agent != nil {
			w.agent(key, wr)
		}
		for _, ev := range wr.Change.Rewritten {
			r := &w.rewritten
			r.nos, r.ids = append(r.nos, wr.No), append(r.ids, pg.Stored(ev.ID))
			r.bodies, r.sizes = append(r.bodies, statements.EventBody(key, ev.ID, ev.Body)), append(r.sizes, int64(len(ev.Body)))
		}
		events, err := s.outboxOf(wr.Ref, wr.No, key, wr.Change.Events)
		if err != nil {
			return nil, err
		}
		w.events.add(events)
	}
	for i, no := range h.nos {
		w.use.take(no, h.first[i].Before, h.last[i].Head, h.written[i])
	}
	return w, nil
}

// messages takes up a change's messages. A message that is changed twice before it is written is
// written once.
func (w *writes) messages(no int64, key encryption.Key, c *memory.Change, bodies []string) {
	if w.place == nil {
		w.place = map[place]int{}
	}
	for i := range c.Append {
		m := &c.Append[i]
		w.place[place{no, m.Seq}] = w.inserted.set(-1, no, key, m, bodies[i])
	}
	for i := range c.Replace {
		m := &c.Replace[i]
		body := bodies[len(c.Append)+i]
		at, there := w.place[place{no, m.Seq}]
		switch {
		case there && at >= 0 && sameID(w.inserted.ids[at], m.ID):
			w.inserted.set(at, no, key, m, body)
		case there && at < 0 && sameID(w.replaced.ids[^at], m.ID):
			w.replaced.set(^at, no, key, m, body)
		default:
			w.place[place{no, m.Seq}] = ^w.replaced.set(-1, no, key, m, body)
		}
	}
}

func sameID(a *string, id string) bool {
	b := clientID(id)
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// found selects the rows of agents whose heads were moved on.
const found = "agent_no = ANY (ARRAY(SELECT agent_no FROM head))"

const messageArrays = `unnest(?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::boolean[], ?::text[], ?::bytea[])
	u (agent_no, seq, rev, turn, shown, client_id, packed)`

// insert adds the part that inserts the messages of agents.
func (r *rows) insert(st *pg.Parts) {
	if len(r.nos) > 0 {
		st.With("inserted", "INSERT INTO message (agent_no, seq, rev, turn, shown, client_id, packed) SELECT u.* FROM "+messageArrays+" WHERE u."+found,
			r.nos, r.seqs, r.revs, r.turns, r.shown, r.ids, r.bodies)
	}
}

// statement returns the statement that moves the heads on, if they and the endpoints are as
// expected, and then adds rows. It returns one row; see written.
func (w *writes) statement() *pg.Parts {
	st := &pg.Parts{}
	h, r := &w.heads, &w.replaced
	if n := len(r.nos); n > 0 {
		st.With("there", `SELECT count(*) AS n FROM unnest(?::bigint[], ?::bigint[], ?::text[]) u (agent_no, seq, client_id)
			JOIN message m ON m.agent_no = u.agent_no AND m.seq = u.seq AND coalesce(m.client_id, '') = coalesce(u.client_id, '')`, r.nos, r.seqs, r.ids)
	} else {
		st.With("there", "SELECT 0::bigint AS n")
	}
	locked := "0"
	if len(w.keys.nos) > 0 {
		st.With("key", "SELECT no FROM data_key WHERE no = ANY (?::bigint[])"+keyLock, w.keys.nos)
		locked = "(SELECT count(*) FROM key)"
	}
	st.With("head", `UPDATE agent_head h SET ver = u.ver, rev = u.rev, next_seq = u.next_seq, last_turn = u.last_turn,
			written = h.written + u.written, tally = u.tally
		FROM unnest(?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[], ?::bytea[]) u (no, was, ver, rev, next_seq, last_turn, written, tally)
		WHERE h.agent_no = u.no AND h.ver = u.was AND (SELECT n FROM there) = ?::bigint
			AND (SELECT n FROM counter WHERE key = 'endpoints') <= ?::bigint AND `+locked+` = ?::bigint RETURNING h.agent_no`,
		h.nos, h.was, h.vers, h.revs, h.seqs, h.turns, h.written, h.tallies, len(r.nos), w.epoch, len(w.keys.nos))
	w.inserted.insert(st)
	w.items.write(st)
	w.writeAgents(st)
	if len(w.tagged) > 0 {
		w.tags(st)
		st.With("tagged", "INSERT INTO agent_tag (project, name, value, start_ms, agent_no) SELECT u.* FROM tags u WHERE u."+found+" ON CONFLICT DO NOTHING")
	}
	w.due.write(st)
	w.use.write(st)
	w.events.write(st)
	out := "SELECT (SELECT n FROM counter WHERE key = 'endpoints'), (SELECT n FROM there), m.nos FROM (SELECT ARRAY(SELECT agent_no FROM head ORDER BY agent_no) AS nos) m"
	if w.changes() {
		out += " WHERE set_config('heardlog.moved', m.nos::text, true) IS NOT NULL"
	}
	st.End(out)
	return st
}

// changes reports whether rows besides the heads and the agents are changed or deleted.
func (w *writes) changes() bool { return len(w.replaced.nos)+len(w.rewritten.nos)+len(w.tagged) > 0 }

// second returns the statement that changes and deletes rows of the agents whose heads the first
// one has moved, which sets heardlog.moved for the transaction. The two are not one statement
// because some databases refuse one that changes a table in two ways.
func (w *writes) second() *pg.Parts {
	st := &pg.Parts{}
	st.With("head", "SELECT unnest(current_setting('heardlog.moved')::bigint[]) AS agent_no")
	if r := &w.replaced; len(r.nos) > 0 {
		st.With("replaced", "UPDATE message m SET rev = u.rev, turn = u.turn, shown = u.shown, body = '', packed = u.packed FROM "+messageArrays+
			" WHERE m.agent_no = u.agent_no AND m.seq = u.seq AND u."+found, r.nos, r.seqs, r.revs, r.turns, r.shown, r.ids, r.bodies)
	}
	if r := &w.rewritten; len(r.nos) > 0 {
		st.With("rewritten", `UPDATE event e SET body = u.body, size = u.size FROM unnest(?::bigint[], ?::text[], ?::bytea[], ?::bigint[]) u (agent_no, id, body, size)
			WHERE e.id = u.id AND e.agent_no = u.agent_no AND u.`+found+" RETURNING e.no", r.nos, r.ids, r.bodies, r.sizes)
		st.With("forgotten", `UPDATE attempt t SET response = NULL FROM delivery d WHERE t.delivery_id = d.id AND t.response IS NOT NULL
			AND d.event_no = ANY (ARRAY(SELECT no FROM rewritten))`)
	}
	if len(w.tagged) > 0 {
		w.tags(st)
		st.With("untagged", `DELETE FROM agent_tag g WHERE g.agent_no = ANY (?::bigint[]) AND g.`+found+`
			AND NOT EXISTS (SELECT 1 FROM tags u WHERE u.agent_no = g.agent_no AND u.name = g.name AND u.value = g.value AND u.start_ms = g.start_ms)`,
			pg.Column(w.tagged, func(r *taggedRow) int64 { return r.no }))
	}
	st.End("SELECT 1")
	return st
}

func (w *writes) writeAgents(st *pg.Parts) {
	if len(w.agents) == 0 {
		return
	}
	texts := func(value func(*memory.Agent) string) []string {
		return pg.Column(w.agents, func(r *agentRow) string { return pg.Stored(value(r.agent)) })
	}
	numbers := func(value func(*memory.Agent) int64) []int64 {
		return pg.Column(w.agents, func(r *agentRow) int64 { return value(r.agent) })
	}
	nos := pg.Column(w.agents, func(r *agentRow) int64 { return r.no })
	st.With("agents", `UPDATE agent a SET name = u.name, channel = u.channel, status = u.status, start_ms = u.start_ms, stop_ms = u.stop_ms, message = u.message,
		rev = u.rev, join_key = u.join_key, join_hash = u.join_hash, settings = coalesce(u.settings, a.settings)
		FROM unnest(?::bigint[], ?::text[], ?::text[], ?::bigint[], ?::bigint[], ?::bigint[], ?::text[], ?::bigint[], ?::text[], ?::text[], ?::bytea[])
			u (agent_no, name, channel, status, start_ms, stop_ms, message, rev, join_key, join_hash, settings)
		WHERE a.no = u.agent_no AND u.`+found, nos, texts(func(a *memory.Agent) string { return a.Name }), texts(func(a *memory.Agent) string { return a.Settings.Channel }),
		numbers(func(a *memory.Agent) int64 { return int64(a.Status) }), numbers(func(a *memory.Agent) int64 { return a.StartMS }), numbers(func(a *memory.Agent) int64 { return a.StopMS }),
		texts(func(a *memory.Agent) string { return a.Message }), numbers(func(a *memory.Agent) int64 { return a.Rev }), texts(func(a *memory.Agent) string { return a.JoinKey }),
		texts(func(a *memory.Agent) string { return a.JoinHash }), pg.Column(w.agents, func(r *agentRow) []byte { return r.settings }))
	st.With("keys", `UPDATE agent_key k SET live = u.live FROM unnest(?::bigint[], ?::boolean[]) u (agent_no, live)
		WHERE k.agent_no = u.agent_no AND k.live <> u.live AND u.`+found, nos, pg.Column(w.agents, func(r *agentRow) bool { return !r.agent.Status.Ended() }))
}

// tags adds the part with the tags that agents have now.
func (w *writes) tags(st *pg.Parts) {
	var projects, names, values []string
	var starts, of []int64
	for _, r := range w.tagged {
		a := r.head.Agent
		for _, tag := range r.head.Tags() {
			projects, names, values = append(projects, pg.Stored(a.Project)), append(names, pg.Stored(tag.Name)), append(values, pg.Stored(tag.Value))
			starts, of = append(starts, a.StartMS), append(of, r.no)
		}
	}
	st.With("tags", "SELECT * FROM unnest(?::text[], ?::text[], ?::text[], ?::bigint[], ?::bigint[]) u (project, name, value, start_ms, agent_no)", projects, names, values, starts, of)
}

// written is what a statement returns.
type written struct {
	endpoints int64   // the number of their changes
	replaced  int64   // how many of the messages that are to be replaced are there
	nos       []int64 // agents whose writes are stored, in order
}

// write runs the statements.
func (s *Store) write(ctx context.Context, w *writes, wait time.Duration) (got written, err error) {
	send := func(q interface {
		SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	}) error {
		b := &pgx.Batch{} // it is one transaction, also without BEGIN
		w.statement().QueueRow(b, &got.endpoints, &got.replaced, &got.nos)
		if w.changes() {
			w.second().Queue(b)
		}
		return q.SendBatch(ctx, b).Close()
	}
	if wait == 0 && !s.db.Shared() && len(w.checked) == 0 {
		return got, send(s.db.Pool)
	}
	err = s.db.Begin(ctx, func(tx pgx.Tx) error {
		if wait > 0 {
			if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", wait.Milliseconds())); err != nil {
				return err
			}
		}
		if err := s.checkWrites(ctx, tx, w.checked); err != nil {
			return err
		}
		return send(tx)
	})
	return got, err
}
