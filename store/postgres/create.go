package postgres

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/statements"
)

// Create implements memory.Store.
func (s *Store) Create(ctx context.Context, w memory.Write, limit int) (no int64, existing string, err error) {
	wake := false
	for try := 1; ; try++ {
		err = s.db.Transact(ctx, "create agent", func(ctx context.Context, tx pgx.Tx) (err error) {
			no, existing, wake, err = s.create(ctx, tx, &w, limit)
			return err
		})
		// Another call was quicker: the next try finds its agent.
		if try < pg.MaxTries && fault.Is(err, fault.Conflict) && slices.Contains([]string{"agent_live_name", "agent_join_key", "agent_key_live"}, pg.Violated(err)) {
			continue
		}
		if pg.Violated(err) == "agent_id" {
			err = fault.New(fault.Conflict, "there is an agent %q already", w.ID)
		}
		if err != nil {
			return 0, "", err
		}
		if wake && existing == "" {
			s.wake()
		}
		return no, existing, nil
	}
}

// create checks that the agent can be created, and writes it.
func (s *Store) create(ctx context.Context, tx pgx.Tx, w *memory.Write, limit int) (no int64, existing string, wake bool, err error) {
	a := w.Head.Agent
	if limit > 0 || a.Settings.Memory.MaxSessions > 0 { // joins that count agents do so one after the other
		_, err := tx.Exec(ctx, "INSERT INTO project_gate (project) VALUES ($1) ON CONFLICT DO NOTHING", pg.Stored(a.Project))
		if err == nil {
			_, err = tx.Exec(ctx, "SELECT 1 FROM project_gate WHERE project = $1 FOR UPDATE", pg.Stored(a.Project))
		}
		if err != nil {
			return 0, "", false, err
		}
	}
	if existing, err = s.joinConflict(ctx, tx, a, limit); err != nil || existing != "" {
		return 0, existing, false, err
	}
	b := &pgx.Batch{}
	key, err := s.key(ctx, tx, statements.AgentKey(a))
	if err != nil {
		return 0, "", false, err
	}
	no, err = s.insertAgent(ctx, tx, b, w.Head, key.Seal(w.Private, statements.AgentOwner(a.Project, a.ID)), w.Bytes())
	if err != nil {
		return 0, "", false, err
	}
	events, err := s.outboxOf(a.Ref(), no, key, w.Change.Events)
	if err != nil {
		return 0, "", false, err
	}
	all := writes{events: events}
	all.messages(no, key, &w.Change, w.Bodies)
	all.items.take(a.Ref(), no, w.Change)
	all.queueNew(b, no)
	return no, "", !events.empty(), tx.SendBatch(ctx, b).Close()
}

// queueNew queues the first rows of a new agent.
func (w *writes) queueNew(b *pgx.Batch, no int64) {
	st := &pg.Parts{}
	st.With("head", "SELECT ?::bigint AS agent_no", no)
	w.inserted.insert(st)
	w.items.write(st)
	w.events.write(st)
	st.End("SELECT 1")
	st.Queue(b)
}

// agentFields are the columns of an agent, without its number.
var agentFields = []string{"project", "id", "name", "channel", "status", "start_ms", "stop_ms", "message", "rev", "join_key", "join_hash", "settings"}

// agentValues returns agentFields of an agent, with texts as they are. private is its sealed
// settings.
func agentValues(a *memory.Agent, private []byte) []any {
	return []any{
		a.Project, a.ID, a.Name, a.Settings.Channel, int64(a.Status), a.StartMS, a.StopMS, a.Message, a.Rev, a.JoinKey, a.JoinHash, private,
	}
}

// insertAgent inserts the row of an agent and queues those of its head and its keys. written is the
// length of its messages.
func (s *Store) insertAgent(ctx context.Context, tx pgx.Tx, b *pgx.Batch, h *memory.Head, private []byte, written int64) (no int64, err error) {
	a := h.Agent
	err = tx.QueryRow(ctx, "INSERT INTO agent ("+strings.Join(agentFields, ", ")+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) RETURNING no",
		pg.StoredValues(agentValues(a, private))...).Scan(&no)
	if err != nil {
		return 0, err
	}
	b.Queue("INSERT INTO agent_head (agent_no, ver, rev, next_seq, last_turn, written, tally) VALUES ($1, 1, $2, $3, $4, $5, $6)", no, h.Rev, h.NextSeq, h.LastTurn, written, h.Tally.Encode())
	if a.Status.Ended() {
		b.Queue("INSERT INTO report_due (project, agent_no, id, rev) VALUES ($1, $2, $3, $4)", pg.Stored(a.Project), no, pg.Stored(a.ID), h.Rev)
		b.Queue("INSERT INTO project_use (project, stopped, failed, messages, bytes) VALUES ($1, ($2 = 4)::int, ($2 = 6)::int, $3, $4)", pg.Stored(a.Project), int(a.Status), h.NextSeq-1, written)
	}
	for shared, keys := range [][]string{a.Settings.Call.Keys, a.Settings.Call.Shared} {
		b.Queue(`INSERT INTO agent_key (project, key, agent_no, shared, live) SELECT $1, unnest($2::text[]), $3, $4, $5 ON CONFLICT (project, key, agent_no) DO NOTHING`,
			pg.Stored(a.Project), pg.StoredAll(keys), no, shared == 1, !a.Status.Ended())
	}
	for _, tag := range h.Tags() {
		b.Queue("INSERT INTO agent_tag (project, name, value, start_ms, agent_no) VALUES ($1, $2, $3, $4, $5)", pg.Stored(a.Project), pg.Stored(tag.Name), pg.Stored(tag.Value), a.StartMS, no)
	}
	return no, nil
}

// joinConflict returns the ID of the agent that has the join key already, or the error that keeps a
// new one from being made. It also makes sure that the endpoints that this process knows are up to
// date.
func (s *Store) joinConflict(ctx context.Context, tx pgx.Tx, a *memory.Agent, limit int) (existing string, err error) {
	project := pg.Stored(a.Project)
	var named, sameID *int64
	var joined, namedID, keyID, heldKey *string
	var live, sessions int
	var endpoints int64
	b := &pgx.Batch{}
	one := func(into ...any) func(pgx.Row) error {
		return func(row pgx.Row) error {
			if err := row.Scan(into...); err != nil && !pg.NoRows(err) {
				return err
			}
			return nil
		}
	}
	b.Queue("SELECT n FROM counter WHERE key = 'endpoints'").QueryRow(one(&endpoints))
	if a.JoinKey != "" {
		b.Queue("SELECT id FROM agent WHERE project = $1 AND join_key = $2 AND join_key <> ''", project, pg.Stored(a.JoinKey)).QueryRow(one(&joined))
	}
	if !a.Status.Ended() {
		if a.Name != "" {
			b.Queue("SELECT no, id FROM agent WHERE project = $1 AND name = $2 AND status NOT IN (4, 6) AND name <> ''", project, pg.Stored(a.Name)).QueryRow(one(&named, &namedID))
		}
		if len(a.Settings.Call.Keys) > 0 {
			b.Queue(`SELECT a.id, k.key FROM agent_key k JOIN agent a ON a.no = k.agent_no WHERE k.project = $1 AND k.key = ANY($2) AND k.live AND NOT k.shared
				LIMIT 1`, project, pg.StoredAll(a.Settings.Call.Keys)).QueryRow(one(&keyID, &heldKey))
		}
		if limit > 0 {
			b.Queue("SELECT count(*) FROM (SELECT 1 FROM agent WHERE project = $1 AND status NOT IN (4, 6) LIMIT $2) l", project, limit).QueryRow(one(&live))
		}
		if m := &a.Settings.Memory; m.MaxSessions > 0 {
			b.Queue(`SELECT count(*) FROM agent a WHERE a.project = $1 AND a.status NOT IN (4, 6)
				AND EXISTS (SELECT 1 FROM agent_tag g WHERE g.agent_no = a.no AND g.name = $2 AND g.value = $3)`, project, pg.Stored(memory.ModelTag), pg.Stored(m.Model)).QueryRow(one(&sessions))
		}
	}
	b.Queue("SELECT no FROM agent WHERE project = $1 AND id = $2", project, pg.Stored(a.ID)).QueryRow(one(&sameID))
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return "", err
	}
	if err := s.freshEndpoints(ctx, tx, endpoints); err != nil {
		return "", err
	}
	switch {
	case joined != nil:
		return pg.Shown(*joined), nil
	case named != nil:
		return "", &memory.NameTakenError{
			AgentID: pg.Shown(*namedID), Err: fault.At(fault.Conflict, "name", "a running agent has the name %q already", a.Name),
		}
	case keyID != nil:
		return "", memory.KeyTaken(pg.Shown(*heldKey), pg.Shown(*keyID))
	case limit > 0 && live >= limit:
		return "", fault.New(fault.Quota, "the project runs %d agents already, which is its limit", limit)
	case a.Settings.Memory.MaxSessions > 0 && sessions >= a.Settings.Memory.MaxSessions:
		return "", a.ErrSessions()
	case sameID != nil:
		return "", fault.New(fault.Conflict, "there is an agent %q already", a.ID)
	}
	return "", nil
}
