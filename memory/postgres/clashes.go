package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory/export"
)

// Clashes implements export.Target.
func (s *Store) Clashes(ctx context.Context, batch []export.Record, each func(export.Record, string)) error {
	var why []string
	err := s.read(ctx, "look for what is there already", func(ctx context.Context) error {
		b := &pgx.Batch{}
		why = make([]string, len(batch))
		for i := range batch {
			queueClash(b, &batch[i], &why[i])
		}
		return s.pool.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return err
	}
	for i, r := range batch {
		if why[i] != "" {
			each(r, why[i])
		}
	}
	return nil
}

// queueClash queues the queries that find why a record cannot be imported. They set why, unless the
// record can be imported.
func queueClash(b *pgx.Batch, r *export.Record, why *string) {
	ask := func(is, sql string, args ...any) {
		b.Queue("SELECT EXISTS ("+sql+")", args...).QueryRow(func(row pgx.Row) error {
			var found bool
			err := row.Scan(&found)
			if found && *why == "" {
				*why = is
			}
			return err
		})
	}
	switch {
	case r.Endpoint != nil:
		ask(export.OtherProject, "SELECT 1 FROM endpoint WHERE id = $1 AND project <> $2", stored(r.Endpoint.ID), stored(r.Endpoint.Project))
	case r.Conversation != nil:
		ask(export.IsThere, "SELECT 1 FROM kv WHERE agent_no = 0 AND project = $1 AND key = $2", stored(r.Conversation.Project), stored(r.Conversation.ID))
	case r.Value != nil:
		ask(export.IsThere, "SELECT 1 FROM record_space s JOIN record r ON r.space_no = s.no WHERE s.project = $1 AND s.name = $2 AND s.user_id = $3 AND r.id = $4 AND r.body IS NOT NULL",
			append(spaceKey(r.Value.Space()), stored(string(r.Value.ID)))...)
	case r.Event != nil:
		ask(export.IsThere, "SELECT 1 FROM event WHERE id = $1", stored(r.Event.ID))
	case r.Agent != nil:
		a := r.Agent
		project := stored(a.Project)
		ask(export.IsThere, "SELECT 1 FROM agent WHERE project = $1 AND id = $2", project, stored(a.ID))
		if a.JoinKey != "" {
			ask(export.JoinKeyTaken, "SELECT 1 FROM agent WHERE project = $1 AND join_key = $2 AND join_key <> ''", project, stored(a.JoinKey))
		}
		if a.Status.Ended() {
			return
		}
		if a.Name != "" {
			ask(export.NameTaken, "SELECT 1 FROM agent WHERE project = $1 AND name = $2 AND name <> '' AND status NOT IN (4, 6)", project, stored(a.Name))
		}
		if len(a.Settings.Call.Keys) > 0 {
			ask(export.CallKeyTaken, "SELECT 1 FROM agent_key WHERE project = $1 AND key = ANY($2) AND live AND NOT shared", project, storedAll(a.Settings.Call.Keys))
		}
	}
}
