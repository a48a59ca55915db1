package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory"
)

// agentFilter returns the conditions of a list except the status, with their arguments.
func agentFilter(q memory.AgentQuery) (where []string, args []any) {
	where, args = []string{"a.project = $1"}, []any{stored(q.Project)}
	add := func(cond string, arg any) {
		args = append(args, arg)
		where = append(where, fmt.Sprintf(cond, len(args)))
	}
	if q.Channel != "" {
		add("a.channel = $%d", stored(q.Channel))
	}
	if q.Name != "" {
		add("a.name = $%d", stored(q.Name))
	}
	if q.FromMS != 0 {
		add("a.start_ms >= $%d", q.FromMS)
	}
	if q.ToMS != 0 {
		add("a.start_ms <= $%d", q.ToMS)
	}
	return where, args
}

// byStatus returns a statement with one part for each status. The index finds agents of one status
// in order, but not those of several.
func byStatus(q memory.AgentQuery, part func(status string) string) string {
	if len(q.Statuses) == 0 {
		return part("")
	}
	list := slices.Clone(q.Statuses)
	slices.Sort(list)
	var parts []string
	for _, st := range slices.Compact(list) {
		parts = append(parts, "("+part(fmt.Sprintf(" AND a.status = %d", st))+")")
	}
	return strings.Join(parts, " UNION ALL ")
}

// List implements memory.Store. Its cost does not grow with the number of matching agents, since it
// counts at most memory.MaxCounted. The best plan depends on the values, so the statements are
// planned each time.
func (s *Store) List(ctx context.Context, q memory.AgentQuery) (page memory.AgentPage, err error) {
	where, args := agentFilter(q)
	most := memory.MaxCounted + 1
	count := fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM (%s) parts LIMIT %d) l", byStatus(q, func(status string) string {
		return fmt.Sprintf("SELECT 1 FROM agent a WHERE %s%s LIMIT %d", strings.Join(where, " AND "), status, most)
	}), most)
	counted := append([]any{pgx.QueryExecModeSimpleProtocol}, args...)
	limit := max(q.Limit, 1)
	if q.Cursor != "" {
		args = append(args, stored(q.Cursor))
		where = append(where, fmt.Sprintf("a.id <= $%d", len(args)))
	}
	list := fmt.Sprintf("SELECT %s FROM (%s) a ORDER BY a.id DESC LIMIT %d", agentColumns, byStatus(q, func(status string) string {
		return fmt.Sprintf("SELECT a.* FROM agent a WHERE %s%s ORDER BY a.id DESC LIMIT %d", strings.Join(where, " AND "), status, limit+1)
	}), limit+1)
	listed := append([]any{pgx.QueryExecModeSimpleProtocol}, args...)
	err = s.read(ctx, "list agents", func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			n := 0
			if err := tx.QueryRow(ctx, count, counted...).Scan(&n); err != nil {
				return err
			}
			page.Count(n)
			page.Agents, err = collect(ctx, tx, func(row pgx.CollectableRow) (a memory.Agent, err error) {
				var no int64
				err = s.scanAgent(row, &a, &no)
				return a, err
			}, list, listed...)
			return err
		})
	})
	if err != nil {
		return memory.AgentPage{}, err
	}
	if len(page.Agents) > limit {
		page.Next = page.Agents[limit].ID
		page.Agents = page.Agents[:limit]
	}
	if len(page.Agents) == 0 {
		page.Agents = nil
	}
	return page, nil
}
