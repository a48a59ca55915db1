package postgres

import (
	"context"
	"embed"
	"regexp"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/store/postgres/pg"
	"github.com/heardlog/heardlog/store/statements"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// migrations returns the steps of the schema in their order.
func migrations() ([]string, error) { return statements.Migrations(schemaFiles) }

// worksFrom is pg.Schema.WorksFrom of the newest schema.
const worksFrom = 5

var createTable = regexp.MustCompile(`(?m)^CREATE TABLE (?:IF NOT EXISTS )?(\w+)`)

// tableNames returns the names of all tables that any migration created. Some may have been dropped
// since.
func tableNames() ([]string, error) {
	steps, err := migrations()
	var out []string
	for _, sql := range steps {
		for _, m := range createTable.FindAllStringSubmatch(sql, -1) {
			out = append(out, m[1])
		}
	}
	slices.Sort(out)
	return slices.Compact(out), err
}

// migrate brings the schema up to the last step, and checks or sets the keys.
func (s *Store) migrate(ctx context.Context, conn *pgx.Conn, steps []string, o Options) error {
	return pg.Migrate(ctx, conn, pg.Schema{Steps: steps, WorksFrom: worksFrom}, func(tx pgx.Tx) (err error) {
		if _, _, err := checkDataKey(ctx, tx, o.DataKey); err != nil { // before the other key is taken
			return err
		}
		if s.sealer, err = openSealer(ctx, tx, o.SealKey); err == nil {
			err = s.openKeys(ctx, tx, o.DataKey)
		}
		s.words.Sealer = s.sealer
		return err
	})
}

// Probe inspects a database without changing it. Its errors hold no password.
func Probe(ctx context.Context, url string) (pg.Probed, error) {
	steps, err := migrations()
	if err != nil {
		return pg.Probed{}, err
	}
	names, err := tableNames()
	if err != nil {
		return pg.Probed{}, err
	}
	return pg.Probe(ctx, url, pg.Schema{Steps: steps, WorksFrom: worksFrom}, names)
}

// Plain describes why a database cannot be used, and what to do about it; see pg.Plain.
func Plain(err error) (what, do string) { return pg.Plain(err) }

// Vacuum runs VACUUM (ANALYZE) on each table of this program; see pg.DB.Vacuum.
func (s *Store) Vacuum(ctx context.Context) (before, after int64, err error) {
	names, err := tableNames()
	if err != nil {
		return 0, 0, err
	}
	return s.db.Vacuum(ctx, names)
}

// Compact is Vacuum for those tables of which at least so many percent of the rows are deleted ones
// that still take space. Other calls go on. It returns by how many bytes the files have shrunk.
func (s *Store) Compact(ctx context.Context, percent int) (bytes int64, err error) {
	names, err := tableNames()
	if err != nil {
		return 0, err
	}
	names, err = pg.ReadAll(ctx, s.db, "compact", pgx.RowTo[string], `SELECT relname FROM pg_stat_user_tables
		WHERE schemaname = current_schema() AND relname = ANY($1) AND n_dead_tup > 0 AND 100 * n_dead_tup >= $2 * (n_live_tup + n_dead_tup) ORDER BY relname`, names, percent)
	if err != nil || len(names) == 0 {
		return 0, err
	}
	before, after, err := s.db.Vacuum(ctx, names)
	return before - after, err
}
