package postgres

import (
	"context"
	"fmt"
	"slices"

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

// scanAgent reads agentColumns, and what more is asked for behind them.
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

// scanMessage reads messageColumns, and what is asked for before them.
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

// messages reads messages with a query that gives messageColumns.
func messages(ctx context.Context, q querier, sql string, args ...any) ([]memory.Message, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (memory.Message, error) { return scanMessage(row) })
}

// newestSQL gives the newest messages of an agent ($1), at most $2, newest first.
func newestSQL(historyOnly bool) string {
	shown := ""
	if historyOnly {
		shown = "AND m.shown "
	}
	return "SELECT " + messageColumns + " FROM message m WHERE m.agent_no = $1 " + shown + "ORDER BY m.seq DESC LIMIT $2"
}

func newest(ctx context.Context, q querier, no int64, n int, historyOnly bool) ([]memory.Message, error) {
	list, err := messages(ctx, q, newestSQL(historyOnly), no, n)
	slices.Reverse(list)
	return list, err
}

// loadViews reads agents as they are in the transaction, by number; those that are gone are not in the result.
func (s *Store) loadViews(ctx context.Context, q querier, nos []int64) (map[int64]*view, error) {
	out := make(map[int64]*view, len(nos))
	rows, err := q.Query(ctx, "SELECT "+agentColumns+", "+headColumns+" FROM agent a JOIN agent_head h ON h.agent_no = a.no WHERE a.no = ANY($1)", nos)
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*view, error) {
		v := &view{}
		return v, s.scanAgent(row, &v.head.Agent, &v.no, &v.ver, &v.head.Rev, &v.head.NextSeq, &v.head.LastTurn)
	})
	if err != nil {
		return nil, err
	}
	tails, err := s.tails(ctx, q, list)
	if err != nil {
		return nil, err
	}
	for i, v := range list {
		if tail := tails[i]; len(tail) > 0 {
			v.head.Last = tail[len(tail)-1]
		}
		out[v.no] = newView(v.no, v.ver, v.head, tails[i], len(tails[i]) < maxTail(&v.head.Agent))
	}
	return out, nil
}

// tailsSQL gives the newest messages of agents ($1), of each at most as many as $2 says, in order; each with its agent's place among them.
const tailsSQL = `SELECT u.ord, ` + messageColumns + ` FROM unnest($1::bigint[], $2::int[]) WITH ORDINALITY u (no, n, ord)
	CROSS JOIN LATERAL (SELECT * FROM message m WHERE m.agent_no = u.no ORDER BY m.seq DESC LIMIT u.n) m ORDER BY u.ord, m.seq`

// tails reads what is kept of agents' ledgers, for all at once.
func (s *Store) tails(ctx context.Context, q querier, list []*view) ([][]memory.Message, error) {
	tails := make([][]memory.Message, len(list))
	if len(list) == 1 { // the usual case, and the simpler statement
		v := list[0]
		tail, err := newest(ctx, q, v.no, maxTail(&v.head.Agent), false)
		tails[0] = tail
		return tails, err
	}
	nos, most := make([]int64, len(list)), make([]int32, len(list))
	for i, v := range list {
		nos[i], most[i] = v.no, int32(maxTail(&v.head.Agent))
	}
	rows, err := q.Query(ctx, tailsSQL, nos, most)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var at int
		m, err := scanMessage(rows, &at)
		if err != nil {
			return nil, err
		}
		tails[at-1] = append(tails[at-1], m)
	}
	return tails, rows.Err()
}

// current gives an agent as it is now: from memory where its ver still holds, and read anew otherwise.
func (s *Store) current(ctx context.Context, k key) (*view, error) {
	if v := s.cache.get(k); v != nil {
		ver, endpoints, err := s.ver(ctx, v.no)
		if err != nil {
			return nil, err
		}
		if ver < 0 {
			s.cache.Drop(k)
			return s.load(ctx, k)
		}
		if err := s.freshEndpoints(ctx, s.pool, endpoints); err != nil {
			return nil, err
		}
		if now := s.cache.get(k); now != nil && now.no == v.no && now.ver >= ver { // ours only grow, and hold what is committed
			return now, nil
		}
	}
	return s.load(ctx, k)
}

// load reads an agent as of one moment, and what else is wanted of that moment.
func (s *Store) load(ctx context.Context, k key, also ...func(q querier, v *view) error) (v *view, err error) {
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var no, endpoints int64
		err := tx.QueryRow(ctx, "SELECT no, (SELECT n FROM counter WHERE key = 'endpoints') FROM agent WHERE project = $1 AND id = $2", stored(k.project), stored(k.id)).Scan(&no, &endpoints)
		if noRows(err) {
			return noAgent(k.id)
		}
		if err != nil {
			return err
		}
		if err := s.freshEndpoints(ctx, tx, endpoints); err != nil {
			return err
		}
		views, err := s.loadViews(ctx, tx, []int64{no})
		if err != nil {
			return err
		}
		if v = views[no]; v == nil {
			return noAgent(k.id)
		}
		for _, fn := range also {
			if err := fn(tx, v); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.cache.put(k, v)
	return v, nil
}

// Head gives the agent's head.
func (s *Store) Head(ctx context.Context, project, id string) (memory.Head, error) {
	h, _, err := s.Recent(ctx, project, id, 0, false)
	return h, err
}

// Recent gives the head and the newest n messages.
func (s *Store) Recent(ctx context.Context, project, id string, n int, historyOnly bool) (memory.Head, []memory.Message, error) {
	var h memory.Head
	var list []memory.Message
	err := s.read(ctx, "read agent", func(ctx context.Context) error {
		for try := 1; ; try++ {
			if try > 2 { // somebody writes all the time: a snapshot does not mind, but takes more round trips
				v, err := s.load(ctx, key{project, id}, func(q querier, v *view) (err error) {
					list, err = newest(ctx, q, v.no, n, historyOnly)
					return err
				})
				if err == nil {
					h = v.head
				}
				return err
			}
			v, err := s.current(ctx, key{project, id})
			if err != nil {
				return err
			}
			ok := false
			if list, ok = v.newest(n, historyOnly); ok {
				h = v.head
				return nil
			}
			// More than is kept: read, and given only if nothing was written meanwhile, so that it is of one moment with the head.
			if list, err = newest(ctx, s.pool, v.no, n, historyOnly); err != nil {
				return err
			}
			now, err := s.current(ctx, key{project, id})
			if err != nil {
				return err
			}
			if now.no == v.no && now.ver == v.ver {
				h = v.head
				return nil
			}
		}
	})
	if err != nil {
		return memory.Head{}, nil, err
	}
	return h, list, nil
}

// Messages pages through the ledger.
func (s *Store) Messages(ctx context.Context, project, id string, q memory.MessageQuery) (list []memory.Message, err error) {
	shown := ""
	if q.HistoryOnly {
		shown = "AND m.shown "
	}
	err = s.read(ctx, "read messages", func(ctx context.Context) error {
		v, err := s.current(ctx, key{project, id})
		if err != nil {
			return err
		}
		ok := false
		if list, ok = v.page(q); ok {
			return nil
		}
		list, err = messages(ctx, s.pool, "SELECT "+messageColumns+" FROM message m WHERE m.agent_no = $1 AND m.seq > $2 AND m.rev > $3 "+shown+
			"ORDER BY m.seq LIMIT $4", v.no, q.AfterSeq, q.AfterRev, max(q.Limit, 1))
		return err
	})
	return list, err
}

// ByKey gives the id of the agent that a key finds.
func (s *Store) ByKey(ctx context.Context, project, callKey string) (id string, err error) {
	err = s.read(ctx, "look for the key", func(ctx context.Context) error {
		err := s.pool.QueryRow(ctx, `SELECT a.id FROM agent_key k JOIN agent a ON a.no = k.agent_no WHERE k.project = $1 AND k.key = $2
			ORDER BY k.live DESC, a.no DESC LIMIT 1`, stored(project), stored(callKey)).Scan(&id)
		if noRows(err) {
			return fault.New(fault.NotFound, "no agent has the key %q", callKey)
		}
		return err
	})
	return shown(id), err
}

// LastNamed gives the id of the agent of that name which ended last.
func (s *Store) LastNamed(ctx context.Context, project, name string) (id string, err error) {
	err = s.read(ctx, "look for the name", func(ctx context.Context) error {
		err := s.pool.QueryRow(ctx, `SELECT id FROM agent WHERE project = $1 AND name = $2 AND status IN (4, 6) AND name <> ''
			ORDER BY stop_ms DESC, no DESC LIMIT 1`, stored(project), stored(name)).Scan(&id)
		if noRows(err) {
			return fault.New(fault.NotFound, "no agent of the name %q has ended", name)
		}
		return err
	})
	return shown(id), err
}

// livePage is how many live agents are read at once.
const livePage = 500

// Live calls each for every live agent.
func (s *Store) Live(ctx context.Context, each func(memory.Head) error) error {
	_, err := s.liveSince(ctx, 0, each)
	return err
}

// liveSince is Live for agents whose number is above one that an earlier call gave; 0 is the first. It gives the number for the next call.
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

// livePage reads one page of live agents; last is 0 where there are none.
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

// Count gives how many agents have each status.
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
