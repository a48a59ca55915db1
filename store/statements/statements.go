// Package statements holds the statements that both SQL stores run alike: exports, imports, checks
// of what belongs together, some reads, and the owners of sealed values. A store passes its
// transaction as a Reader or a Writer.
package statements

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/record"
)

// Row is one row of a result. Its methods read a column, counted from 0, and return the zero value
// for null. It is valid until the next row.
type Row interface {
	Int(i int) int64
	Bool(i int) bool
	Text(i int) string
	Blob(i int) []byte
	Null(i int) bool
}

// Reader runs queries in one transaction. A statement has a ? for each argument: an int64, a bool,
// a string, a []byte or nil.
type Reader interface {
	// Each calls fn with every row of a short result.
	Each(sql string, args []any, fn func(Row) error) error
	// Walk is Each for results of any length. fn may run other queries.
	Walk(sql string, args []any, fn func(Row) error) error
}

// Writer also changes rows.
type Writer interface {
	Each(sql string, args []any, fn func(Row) error) error
	// Exec returns how many rows the statement has changed.
	Exec(sql string, args ...any) (int64, error)
}

// eacher is the part of Reader and Writer that first needs.
type eacher interface {
	Each(sql string, args []any, fn func(Row) error) error
}

// first calls fn with the first row of a query, and reports whether there is one.
func first(db eacher, fn func(Row), sql string, args ...any) (found bool, err error) {
	err = db.Each(sql, args, func(row Row) error {
		if !found && fn != nil {
			fn(row)
		}
		found = true
		return nil
	})
	return found, err
}

// number returns the only integer of a query, 0 if it is null or there is no row.
func number(db eacher, sql string, args ...any) (n int64, err error) {
	_, err = first(db, func(row Row) { n = row.Int(0) }, sql, args...)
	return n, err
}

// AgentOwner returns the owner of an agent's sealed settings; see package encryption.
func AgentOwner(project, id string) string { return encryption.Owner("agent", project, id) }

// EndpointOwner returns the owner of an endpoint's secrets.
func EndpointOwner(id string) string { return encryption.Owner("endpoint", id) }

// KVOwner returns the owner of an entry of package kv.
func KVOwner(s kv.Space, key string) string { return encryption.Owner("kv", s.Owner(), s.Agent, key) }

// RecordOwner returns the owner of a record of package record.
func RecordOwner(s record.Space, id string) string {
	return encryption.Owner("record", s.Project, s.Name, s.User, id)
}

// MessageOwner returns the owner of the body of a message of the agent with a number.
func MessageOwner(agentNo, seq int64) string {
	return encryption.Owner("message", strconv.FormatInt(agentNo, 10), strconv.FormatInt(seq, 10))
}

// EventOwner returns the owner of the body of an event.
func EventOwner(id string) string { return encryption.Owner("event", id) }

// KeyOf returns whose data key seals what belongs to a caller of a project, or, without a caller,
// to the project. Only callers by whom their agents are found have keys of their own.
func KeyOf(project, user string) encryption.Of {
	if len(user) > memory.MaxTag {
		user = ""
	}
	return encryption.Of{Project: project, User: user}
}

// AgentKey returns whose data key seals what belongs to an agent.
func AgentKey(a *memory.Agent) encryption.Of { return KeyOf(a.Project, a.Settings.Scope.UserID) }

// keyOwner returns the owner of one of the store's own keys, which is its key in table meta too.
func keyOwner(name string) string { return encryption.Owner("key", name) }

// Check runs probes: those of this package and then a store's own. Each is a text and a query that
// counts rows that must not exist. It calls each for those that find some.
func Check(db Reader, own [][2]string, each func(export.Finding) error) error {
	for _, p := range append(probes(), own...) {
		n, err := number(db, p[1])
		if err == nil && n > 0 {
			err = each(export.Finding{What: fmt.Sprintf(p[0], n)})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// probes returns the probes that fit both stores. Rows of agents in table erased are still being
// erased.
func probes() [][2]string {
	const erased = " AND NOT EXISTS (SELECT 1 FROM erased x WHERE x.agent_no = r.agent_no)"
	const archived = " AND NOT EXISTS (SELECT 1 FROM archived x WHERE x.agent_no = r.agent_no AND x.used = 1)"
	orphans := func(table string) string {
		return "SELECT count(*) FROM " + table + " r WHERE r.agent_no <> 0 AND NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = r.agent_no)" + erased
	}
	return [][2]string{
		{"%d messages belong to no agent", orphans("message")},
		{"%d messages are in the store and in the archive", "SELECT count(*) FROM message m WHERE EXISTS (SELECT 1 FROM archived x WHERE x.agent_no = m.agent_no AND x.used = 1)"},
		{"%d archived calls do not exist", "SELECT count(*) FROM archived x WHERE x.used = 1 AND NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = x.agent_no)"},
		{"%d keys belong to no agent", orphans("agent_key")},
		{"%d tags belong to no agent", "SELECT count(*) FROM agent_tag g WHERE NOT EXISTS (SELECT 1 FROM agent a WHERE a.no = g.agent_no)"},
		{"%d items belong to no message", "SELECT count(*) FROM item r WHERE NOT EXISTS (SELECT 1 FROM message m WHERE m.agent_no = r.agent_no AND m.seq = r.seq)" + erased + archived},
		{"%d events refer to an agent that does not exist", orphans("event")},
		{"%d deliveries have no event", "SELECT count(*) FROM delivery d WHERE NOT EXISTS (SELECT 1 FROM event e WHERE e.no = d.event_no)"},
		{"%d deliveries have no endpoint", "SELECT count(*) FROM delivery d WHERE NOT EXISTS (SELECT 1 FROM endpoint e WHERE e.no = d.endpoint_no)"},
		{"%d attempts belong to no delivery", "SELECT count(*) FROM attempt t WHERE NOT EXISTS (SELECT 1 FROM delivery d WHERE d.id = t.delivery_id)"},
		{"%d working memories belong to no agent", strings.Replace(orphans("kv"), "*", "DISTINCT r.agent_no", 1)},
		{"%d records belong to no space", "SELECT count(*) FROM record r WHERE NOT EXISTS (SELECT 1 FROM record_space s WHERE s.no = r.space_no)"},
		{"%d spaces of records have another size than is noted", `SELECT count(*) FROM (SELECT space_no FROM
			(SELECT space_no, count(body) AS n, sum(size) AS bytes FROM record GROUP BY space_no UNION ALL SELECT no, -n, -bytes FROM record_space) c GROUP BY space_no HAVING sum(n) <> 0 OR sum(bytes) <> 0) s`},
		{"%d records are newer than their space", "SELECT count(*) FROM record r JOIN record_space s ON s.no = r.space_no WHERE r.rev > s.rev"},
		{"%d events refer to another agent than the one they belong to", "SELECT count(*) FROM event e JOIN agent a ON a.no = e.agent_no WHERE a.id <> e.agent_id OR a.project <> e.project"},
		{"%d deliveries are for an endpoint of another project", "SELECT count(*) FROM delivery d JOIN event e ON e.no = d.event_no JOIN endpoint p ON p.no = d.endpoint_no WHERE p.project <> e.project"},
		{"%d deliveries have an unknown state", "SELECT count(*) FROM delivery WHERE state NOT IN (0, 1, 2, 3)"},
		{"%d endpoints have no id", "SELECT count(*) FROM endpoint WHERE id IS NULL AND gone_id IS NULL"},
		{"%d import was not finished: run it again", "SELECT count(*) FROM meta WHERE key = '" + importMark + "'"},
	}
}

// ServerKey returns the store's own key of that name, which the first call makes and seals with
// key; see webhook.Log.
func ServerKey(db Writer, s encryption.Sealer, key encryption.Key, name string) ([]byte, error) {
	owner, fresh := keyOwner(name), make([]byte, 32)
	rand.Read(fresh) // never fails
	if _, err := db.Exec("INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING", owner, key.Seal(fresh, owner)); err != nil {
		return nil, err
	}
	var sealed []byte
	if _, err := first(db, func(row Row) { sealed = bytes.Clone(row.Blob(0)) }, "SELECT value FROM meta WHERE key = ?", owner); err != nil {
		return nil, err
	}
	return s.Open(sealed, owner)
}
