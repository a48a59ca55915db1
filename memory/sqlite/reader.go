package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/export"
	"github.com/heardlog/heardlog/memory/seal"
	"github.com/heardlog/heardlog/memory/sqlite/dbfile"
)

// Reader reads a database file, also beside the process that owns it. It changes nothing, takes no
// lock and does not migrate. While one of its calls runs, the write-ahead log cannot start from its
// beginning and grows.
type Reader struct {
	path   string
	c      *dbfile.Conn
	sealer seal.Sealer
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
	if err := r.check(o.SealKey); err != nil {
		return nil, errors.Join(dbfile.Classify(err, "open "+path), c.Close())
	}
	return r, nil
}

// check refuses files that this program would read wrongly.
func (r *Reader) check(key []byte) error {
	steps, err := migrations()
	if err != nil {
		return err
	}
	have, err := dbfile.SchemaVersion(r.c)
	switch {
	case err != nil:
		return err
	case have == 0:
		return fault.New(fault.Invalid, "%s is no database of this program", r.path)
	case have != len(steps):
		return fault.New(fault.Invalid, "the database has schema %d and this program reads %d: serve it once with this version, or use the version that wrote it", have, len(steps))
	}
	row, err := r.c.First("SELECT value FROM meta WHERE key = 'seal'")
	if err != nil || row == nil {
		return err
	}
	if r.sealer, err = seal.Check(key, row.Blob(0)); err != nil {
		return fault.Wrap(fault.Invalid, err, "the secrets in this database cannot be read")
	}
	return nil
}

// Close closes the connection.
func (r *Reader) Close() error { return r.c.Close() }

// Export calls each with the records of the file.
func (r *Reader) Export(ctx context.Context, s export.Scope, each func(export.Record) error) error {
	return dbfile.Classify(r.c.Moment((&exporter{ctx, r.c, &r.sealer, s, each}).run), "export")
}

// Damage calls each with signs of damage. It is quicker than Probe and finds less.
func (r *Reader) Damage(ctx context.Context, each func(what string)) error {
	err := quickCheck(ctx, r.c, each)
	if dbfile.IsDamage(err) {
		each(err.Error())
		err = nil
	}
	return dbfile.Classify(err, "check the file")
}

// Probe checks the file and its tables for damage.
func (r *Reader) Probe(ctx context.Context, each func(export.Finding) error) error {
	damage, err := r.c.Texts("PRAGMA integrity_check(20)")
	if err != nil {
		return dbfile.Classify(err, "check the file")
	}
	for _, what := range damage {
		if what == "ok" {
			continue
		}
		if err := each(export.Finding{What: "the file is damaged: " + what}); err != nil {
			return err
		}
	}
	for _, p := range probes {
		if ctx.Err() != nil {
			return dbfile.Ended(ctx)
		}
		n, err := r.c.Number(p.sql)
		if err != nil {
			return dbfile.Classify(err, "look for what is wrong")
		}
		if n > 0 {
			if err := each(export.Finding{What: fmt.Sprintf(p.what, n)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// probes count rows that must not exist. Rows of agents in table erased are still being erased.
var probes = []struct{ what, sql string }{
	{"%d messages belong to no agent", "SELECT count(*) FROM message m WHERE NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = m.agent_no) AND m.agent_no NOT IN (SELECT agent_no FROM erased)"},
	{"%d agents have no settings", "SELECT count(*) FROM agent a WHERE NOT EXISTS (SELECT 1 FROM agent_settings s WHERE s.agent_no = a.no)"},
	{"%d settings belong to no agent", "SELECT count(*) FROM agent_settings s WHERE NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = s.agent_no) AND s.agent_no NOT IN (SELECT agent_no FROM erased)"},
	{"%d keys belong to no agent", "SELECT count(*) FROM agent_key k WHERE NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = k.agent_no) AND k.agent_no NOT IN (SELECT agent_no FROM erased)"},
	{"%d tags belong to no agent", "SELECT count(*) FROM agent_tag g WHERE NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = g.agent_no)"},
	{"%d items belong to no message", "SELECT count(*) FROM item i WHERE NOT EXISTS (SELECT 1 FROM message m WHERE m.agent_no = i.agent_no AND m.seq = i.seq) AND i.agent_no NOT IN (SELECT agent_no FROM erased)"},
	{"%d events tell of an agent that is not there", "SELECT count(*) FROM event e WHERE e.agent_no <> 0 AND NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = e.agent_no) AND e.agent_no NOT IN (SELECT agent_no FROM erased)"},
	{"%d deliveries have no event", "SELECT count(*) FROM delivery d WHERE NOT EXISTS (SELECT 1 FROM event e WHERE e.no = d.event_no)"},
	{"%d deliveries have no endpoint", "SELECT count(*) FROM delivery d WHERE NOT EXISTS (SELECT 1 FROM endpoint e WHERE e.no = d.endpoint_no)"},
	{"%d attempts belong to no delivery", "SELECT count(*) FROM attempt t WHERE NOT EXISTS (SELECT 1 FROM delivery d WHERE d.id = t.delivery_id)"},
	{"%d projects have another number of conversations than is noted", `SELECT count(*) FROM (SELECT project, sum(n) AS n FROM
		(SELECT project, count(*) AS n FROM kv WHERE agent_no = 0 GROUP BY project UNION ALL SELECT project, -n FROM kv_total WHERE agent_no = 0) GROUP BY project HAVING sum(n) <> 0)`},
	{"%d working memories have another size than is noted", `SELECT count(*) FROM (SELECT agent_no, sum(n) AS n, sum(size) AS size FROM
		(SELECT agent_no, count(*) AS n, sum(size) AS size FROM kv WHERE agent_no <> 0 GROUP BY agent_no UNION ALL SELECT agent_no, -n, -size FROM kv_total WHERE agent_no <> 0) GROUP BY agent_no HAVING sum(n) <> 0 OR sum(size) <> 0)`},
	{"%d working memories belong to no agent", "SELECT count(DISTINCT agent_no) FROM kv w WHERE w.agent_no <> 0 AND NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = w.agent_no) AND w.agent_no NOT IN (SELECT agent_no FROM erased)"},
	{"%d working memories are counted for no agent", "SELECT count(*) FROM kv_total w WHERE w.agent_no <> 0 AND NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = w.agent_no) AND w.agent_no NOT IN (SELECT agent_no FROM erased)"},
	{"%d conversations have another size than is noted", "SELECT count(*) FROM kv WHERE agent_no = 0 AND size <> length(CAST(key AS BLOB)) + length(body) - CASE hex(substr(body, 1, 1)) WHEN '00' THEN 1 ELSE 29 END"},
	{"%d records belong to no space", "SELECT count(*) FROM record r WHERE NOT EXISTS (SELECT 1 FROM record_space s WHERE s.no = r.space_no)"},
	{"%d spaces of records have another size than is noted", `SELECT count(*) FROM (SELECT space_no FROM
		(SELECT space_no, count(body) AS n, sum(size) AS bytes FROM record GROUP BY space_no UNION ALL SELECT no, -n, -bytes FROM record_space) GROUP BY space_no HAVING sum(n) <> 0 OR sum(bytes) <> 0)`},
	{"%d records have another size than is noted", `SELECT count(*) FROM record WHERE size <> coalesce(length(CAST(id AS BLOB)) + length(body) - CASE hex(substr(body, 1, 1)) WHEN '00' THEN 1 ELSE 29 END, 0)`},
	{"%d records are newer than their space", "SELECT count(*) FROM record r JOIN record_space s ON s.no = r.space_no WHERE r.rev > s.rev"},
	{"%d events tell of another agent than they belong to", "SELECT count(*) FROM event e JOIN agent a ON a.no = e.agent_no WHERE a.id <> e.agent_id OR a.project <> e.project"},
	{"%d deliveries are for an endpoint of another project", "SELECT count(*) FROM delivery d JOIN event e ON e.no = d.event_no JOIN endpoint p ON p.no = d.endpoint_no WHERE p.project <> e.project"},
	{"%d deliveries have a state that there is none of", "SELECT count(*) FROM delivery WHERE state NOT IN (0, 1, 2, 3)"},
	{"%d endpoints have no id", "SELECT count(*) FROM endpoint WHERE id IS NULL AND gone_id IS NULL"},
	{"%d import was not finished: run it again", "SELECT count(*) FROM meta WHERE key = '" + importMark + "'"},
}
