package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
)

// Reader reads a database file, also beside the process that owns it. It changes nothing, takes no
// lock and does not migrate. While one of its calls runs, the write-ahead log cannot start from its
// beginning and grows.
type Reader struct {
	path   string
	c      *dbfile.Conn
	sealer encryption.Sealer
}

var (
	_ export.Source = (*Reader)(nil)
	_ export.Prober = (*Reader)(nil)
)

// OpenReader opens an existing file. Its schema must be that of this program.
func OpenReader(o Options) (*Reader, error) {
	c, path, err := dbfile.OpenReadOnly(o.Path)
	if err != nil {
		return nil, err
	}
	r := &Reader{path: path, c: c}
	if err := r.check(o.SealKey, o.DataKey); err != nil {
		return nil, errors.Join(dbfile.Classify(err, "open "+path), c.Close())
	}
	return r, nil
}

// check refuses files that this program would read wrongly.
func (r *Reader) check(key, dataKey []byte) error {
	steps, err := migrations()
	if err != nil {
		return err
	}
	have, err := dbfile.SchemaVersion(r.c)
	switch {
	case err != nil:
		return err
	case have == 0:
		return fault.New(fault.Invalid, "%s is not a database of this program", r.path)
	case have != len(steps):
		return fault.New(fault.Invalid, "the database has schema %d and this program reads %d: serve it once with this version, or use the version that wrote it", have, len(steps))
	}
	row, err := r.c.First("SELECT value FROM meta WHERE key = 'seal'")
	if err != nil {
		return err
	}
	if row != nil {
		if r.sealer, err = encryption.Check(key, row.Blob(0)); err != nil {
			return fault.Wrap(fault.Invalid, err, "the secrets in this database cannot be read")
		}
	}
	w, has, err := checkDataKey(r.c, dataKey)
	if err == nil && has {
		r.sealer = r.sealer.WithKeys(w, nil) // each export has a load of its own
	}
	return err
}

// Close closes the connection.
func (r *Reader) Close() error { return r.c.Close() }

// Export calls each with the records of the file.
func (r *Reader) Export(ctx context.Context, s export.Scope, each func(export.Record) error) error {
	x := statements.Exporter{
		DB: reading{r.c}, Sealer: r.sealer, Packed: "body", Body: checkSum, Claimed: "0", Bytes: "BINARY",
		Agents: "a.head_rev, a.next_seq, a.last_turn, s.body, a.tally FROM agent a LEFT JOIN agent_settings s ON s.agent_no = a.no",
	}
	return dbfile.Classify(r.c.Moment(func() error {
		return x.Run(s, func(record export.Record) error {
			if ctx.Err() != nil {
				return fault.Ended(ctx)
			}
			return each(record)
		})
	}), "export")
}

// RecordIDs is statements.RecordIDs.
func (r *Reader) RecordIDs(_ context.Context, project, name, after string, limit int) ([]string, error) {
	ids, err := statements.RecordIDs(reading{r.c}, project, name, after, limit)
	return ids, dbfile.Classify(err, "read records")
}

// Damage calls each with signs of damage. It is quicker than Probe and finds less.
func (r *Reader) Damage(ctx context.Context, each func(what string)) error {
	if err := r.firstPage(each); err != nil {
		return err
	}
	err := quickCheck(ctx, r.c, func(context.Context, time.Duration) {}, each)
	if dbfile.IsDamage(err) {
		each(err.Error())
		err = nil
	}
	return dbfile.Classify(err, "check the file")
}

// firstPage checks the first page in the file, which a newer one in the log may hide.
func (r *Reader) firstPage(each func(what string)) error {
	err := dbfile.CheckFirstPage(r.path)
	if dbfile.IsDamage(err) {
		each(err.Error())
		err = nil
	}
	return err
}

// Probe checks the file and its tables for damage.
func (r *Reader) Probe(ctx context.Context, each func(export.Finding) error) error {
	var damage []string
	if err := r.firstPage(func(what string) { damage = append(damage, what) }); err != nil {
		return err
	}
	more, err := r.c.Texts("PRAGMA integrity_check(20)")
	if err != nil {
		return dbfile.Classify(err, "check the file")
	}
	damage = append(damage, more...)
	for _, what := range damage {
		if what == "ok" {
			continue
		}
		if err := each(export.Finding{What: "the file is damaged: " + what}); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return fault.Ended(ctx)
	}
	return dbfile.Classify(statements.Check(reading{r.c}, probes, each), "look for what is wrong")
}

// probes count rows that must not exist, besides those of package statements.
var probes = [][2]string{
	{"%d agents have no settings", "SELECT count(*) FROM agent a WHERE NOT EXISTS (SELECT 1 FROM agent_settings s WHERE s.agent_no = a.no)"},
	{"%d settings belong to no agent", "SELECT count(*) FROM agent_settings s WHERE NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = s.agent_no) AND s.agent_no NOT IN (SELECT agent_no FROM erased)"},
	{"%d projects have another number of conversations than is noted", `SELECT count(*) FROM (SELECT project, sum(n) AS n FROM
		(SELECT project, count(*) AS n FROM kv WHERE agent_no = 0 GROUP BY project UNION ALL SELECT project, -n FROM kv_total WHERE agent_no = 0) GROUP BY project HAVING sum(n) <> 0)`},
	{"%d projects use another amount than is noted", `SELECT count(*) FROM (SELECT project FROM (
		SELECT project, status = 4 AS stopped, status = 6 AS failed, next_seq - 1 AS messages, written AS bytes FROM agent WHERE status IN (4, 6)
		UNION ALL SELECT project, 0, 0, 0, bytes FROM record_space
		UNION ALL SELECT substr(project, 1, instr(project, '/') - 1), 0, 0, 0, size FROM kv_total WHERE agent_no = 0 AND instr(project, '/') > 0 AND project NOT LIKE '~%'
		UNION ALL SELECT project, -stopped, -failed, -messages, -bytes FROM project_use)
		GROUP BY project HAVING sum(stopped) <> 0 OR sum(failed) <> 0 OR sum(messages) <> 0 OR sum(bytes) <> 0)`},
	{"%d working memories have another size than is noted", `SELECT count(*) FROM (SELECT agent_no, sum(n) AS n, sum(size) AS size FROM
		(SELECT agent_no, count(*) AS n, sum(size) AS size FROM kv WHERE agent_no <> 0 GROUP BY agent_no UNION ALL SELECT agent_no, -n, -size FROM kv_total WHERE agent_no <> 0) GROUP BY agent_no HAVING sum(n) <> 0 OR sum(size) <> 0)`},
	{"%d working memories are counted for no agent", "SELECT count(*) FROM kv_total w WHERE w.agent_no <> 0 AND NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = w.agent_no) AND w.agent_no NOT IN (SELECT agent_no FROM erased)"},
	{"%d conversations have another size than is noted", "SELECT count(*) FROM kv WHERE agent_no = 0 AND size <> length(CAST(key AS BLOB)) + length(body) - CASE hex(substr(body, 1, 1)) WHEN '00' THEN 1 WHEN '02' THEN 33 ELSE 29 END"},
	{"%d records have another size than is noted", `SELECT count(*) FROM record WHERE size <> coalesce(length(CAST(id AS BLOB)) + length(body) - CASE hex(substr(body, 1, 1)) WHEN '00' THEN 1 WHEN '02' THEN 33 ELSE 29 END, 0)`},
}
