package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/statements"
)

const (
	agentColumns   = "a.no, a.project, a.id, a.name, a.status, a.start_ms, a.stop_ms, a.message, a.rev, a.join_key, a.join_hash, a.settings"
	messageColumns = "m.agent_no, m.seq, m.rev, m.turn, m.client_id, " + packedBody
	packedBody     = "coalesce(packed, convert_to(body, 'UTF8'))"
	headColumns    = "h.ver, h.rev, h.next_seq, h.last_turn, h.tally"
)

// scanAgent reads agentColumns, and further columns after them into more.
func (s *Store) scanAgent(row pgx.CollectableRow, a *memory.Agent, no *int64, more ...any) error {
	var sealed []byte
	into := append([]any{no, &a.Project, &a.ID, &a.Name, &a.Status, &a.StartMS, &a.StopMS, &a.Message, &a.Rev, &a.JoinKey, &a.JoinHash, &sealed}, more...)
	if err := row.Scan(into...); err != nil {
		return err
	}
	pg.Show(&a.Project, &a.ID, &a.Name, &a.Message, &a.JoinKey, &a.JoinHash)
	plain, err := s.sealer.Open(sealed, statements.AgentOwner(a.Project, a.ID))
	if err != nil {
		return fmt.Errorf("agent %s: %w", a.ID, err)
	}
	if err := codec.DecodeAgent(plain, a); err != nil {
		return fmt.Errorf("agent %s: %w", a.ID, err)
	}
	return nil
}

// tallyOf scans the tally of a head.
type tallyOf struct{ head *memory.Head }

// Scan implements sql.Scanner.
func (t tallyOf) Scan(v any) (err error) {
	b, ok := v.([]byte)
	if !ok {
		return fmt.Errorf("a tally is stored as %T", v)
	}
	t.head.Tally, err = memory.DecodeTally(b)
	return err
}

// scanMessage reads columns into before, and then messageColumns.
func (s *Store) scanMessage(row pgx.CollectableRow, before ...any) (memory.Message, error) {
	var m memory.Message
	var id *string
	var no *int64 // null, as all of it, for an item whose message is in the archive
	var body []byte
	if err := row.Scan(append(before, &no, &m.Seq, &m.Rev, &m.TurnID, &id, &body)...); err != nil {
		return m, err
	}
	if id != nil {
		m.ID = pg.Shown(*id)
	}
	if no == nil {
		return m, nil
	}
	return m, statements.OpenMessage(s.sealer, *no, body, &m)
}

// Find implements memory.Store.
func (s *Store) Find(ctx context.Context, project string, by memory.Lookup) (id string, err error) {
	what, sql, arg := "look for the key", `SELECT a.id FROM agent_key k JOIN agent a ON a.no = k.agent_no WHERE k.project = $1 AND k.key = $2
		ORDER BY k.live DESC, a.no DESC LIMIT 1`, by.Key
	missing := fault.New(fault.NotFound, "no agent has the key %q", by.Key)
	if by.Key == "" {
		what, sql, arg = "look for the name", `SELECT id FROM agent WHERE project = $1 AND name = $2 AND status IN (4, 6) AND name <> ''
			ORDER BY stop_ms DESC, no DESC LIMIT 1`, by.Ended
		missing = fault.New(fault.NotFound, "no agent of the name %q has ended", by.Ended)
	}
	err = s.db.Read(ctx, what, func(ctx context.Context) error {
		err := s.db.Pool.QueryRow(ctx, sql, pg.Stored(project), pg.Stored(arg)).Scan(&id)
		if pg.NoRows(err) {
			return missing
		}
		return err
	})
	return pg.Shown(id), err
}

// livePage is how many live agents are read at once.
const livePage = 500

// Scan implements memory.Store.
func (s *Store) Scan(ctx context.Context, each func(memory.Head) error) error {
	_, err := s.liveSince(ctx, 0, each)
	return err
}

// liveSince is Scan for agents with a number above after. It returns the number for the next call.
func (s *Store) liveSince(ctx context.Context, after int64, each func(memory.Head) error) (int64, error) {
	for {
		heads, last, err := s.livePage(ctx, after)
		if err != nil {
			return after, err
		}
		for _, h := range heads {
			if err := each(h); err != nil {
				return after, err
			}
		}
		if last == 0 {
			return after, nil
		}
		after = last
	}
}

// livePage reads one page of live agents; last is 0 if there are none.
func (s *Store) livePage(ctx context.Context, after int64) (heads []memory.Head, last int64, err error) {
	err = s.db.Read(ctx, "read live agents", func(ctx context.Context) error {
		heads, last = nil, 0
		var list []*pg.Question[load]
		var k memory.Ref
		err := pg.Each(ctx, s.db.Pool, []any{&last, &k.Project, &k.ID}, func() error {
			list = append(list, &pg.Question[load]{About: load{k: memory.Ref{Project: pg.Shown(k.Project), ID: pg.Shown(k.ID)}}})
			return nil
		}, "SELECT no, project, id FROM agent WHERE no > $1 AND status NOT IN (4, 6) ORDER BY no LIMIT $2", after, livePage)
		if err != nil || len(list) == 0 {
			return err
		}
		s.askLoads(ctx, list)
		for _, q := range list {
			if q.Err != nil {
				return q.Err
			}
			// It may have ended meanwhile.
			if st := &q.About.stored; st.No != 0 && !st.Head.Agent.Status.Ended() {
				heads = append(heads, st.Head)
			}
		}
		return nil
	})
	return heads, last, err
}
