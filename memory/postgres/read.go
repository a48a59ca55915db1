package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/codec"
)

const (
	agentColumns   = "a.no, a.project, a.id, a.name, a.status, a.start_ms, a.stop_ms, a.message, a.rev, a.join_key, a.join_hash, a.settings"
	messageColumns = "m.seq, m.rev, m.turn, m.client_id, m.body"
	headColumns    = "h.ver, h.rev, h.next_seq, h.last_turn"
)

// querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// scanAgent reads agentColumns, and further columns after them into more.
func (s *Store) scanAgent(row pgx.CollectableRow, a *memory.Agent, no *int64, more ...any) error {
	var sealed []byte
	into := append([]any{no, &a.Project, &a.ID, &a.Name, &a.Status, &a.StartMS, &a.StopMS, &a.Message, &a.Rev, &a.JoinKey, &a.JoinHash, &sealed}, more...)
	if err := row.Scan(into...); err != nil {
		return err
	}
	for _, text := range []*string{&a.Project, &a.ID, &a.Name, &a.Message, &a.JoinKey, &a.JoinHash} {
		*text = shown(*text)
	}
	plain, err := s.sealer.Open(sealed, agentOwner(a.Project, a.ID))
	if err != nil {
		return fmt.Errorf("agent %s: %w", a.ID, err)
	}
	if err := codec.DecodeAgent(plain, a); err != nil {
		return fmt.Errorf("agent %s: %w", a.ID, err)
	}
	return nil
}

// scanMessage reads columns into before, and then messageColumns.
func scanMessage(row pgx.CollectableRow, before ...any) (memory.Message, error) {
	var m memory.Message
	var id *string
	var text string
	if err := row.Scan(append(before, &m.Seq, &m.Rev, &m.TurnID, &id, &text)...); err != nil {
		return m, err
	}
	if id != nil {
		m.ID = shown(*id)
	}
	err := codec.DecodeMessage(text, &m)
	return m, err
}

// messages reads messages with a query that selects messageColumns.
func messages(ctx context.Context, q querier, sql string, args ...any) ([]memory.Message, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (memory.Message, error) { return scanMessage(row) })
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
	err = s.read(ctx, what, func(ctx context.Context) error {
		err := s.pool.QueryRow(ctx, sql, stored(project), stored(arg)).Scan(&id)
		if noRows(err) {
			return missing
		}
		return err
	})
	return shown(id), err
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
	err = s.read(ctx, "read live agents", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, "SELECT "+agentColumns+", "+headColumns+`, m.* FROM agent a JOIN agent_head h ON h.agent_no = a.no
			LEFT JOIN LATERAL (SELECT `+messageColumns+` FROM message m WHERE m.agent_no = a.no ORDER BY m.seq DESC LIMIT 1) m ON true
			WHERE a.no > $1 AND a.status NOT IN (4, 6) ORDER BY a.no LIMIT $2`, after, livePage)
		if err != nil {
			return err
		}
		last = 0
		heads, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (h memory.Head, err error) {
			var ver int64
			var seq, rev, turn *int64
			var id, text *string
			err = s.scanAgent(row, &h.Agent, &last, &ver, &h.Rev, &h.NextSeq, &h.LastTurn, &seq, &rev, &turn, &id, &text)
			if err != nil || seq == nil {
				return h, err
			}
			h.Last.Seq, h.Last.Rev, h.Last.TurnID = *seq, *rev, *turn
			if id != nil {
				h.Last.ID = shown(*id)
			}
			err = codec.DecodeMessage(*text, &h.Last)
			return h, err
		})
		return err
	})
	return heads, last, err
}

// Count implements memory.Store.
func (s *Store) Count(ctx context.Context) (out [memory.Statuses]int, err error) {
	err = s.read(ctx, "count agents", func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, "SELECT status, count(*) FROM agent GROUP BY status")
		if err != nil {
			return err
		}
		out = [memory.Statuses]int{}
		var st, n int
		_, err = pgx.ForEachRow(rows, []any{&st, &n}, func() error {
			if st >= 0 && st < len(out) {
				out[st] = n
			}
			return nil
		})
		return err
	})
	return out, err
}
