package sqlite

import (
	"context"
	"errors"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/sqlite/dbfile"
	"github.com/heardlog/heardlog/store/statements"
	"github.com/heardlog/heardlog/webhook"
)

// Importer puts records into a database file that no other process uses.
type Importer struct {
	s *Store // of which only the writer is open
}

// boundLog makes SQLite move the log of an import into the file when it has 16 MiB. Without it the
// log would grow as large as the import.
const boundLog = "PRAGMA wal_autocheckpoint = 4000; PRAGMA journal_size_limit = 16777216"

var _ export.Target = (*Importer)(nil)

// OpenImporter opens the file, creates or migrates its schema, and takes the lock that servers
// take. It fails if another process has the file.
func OpenImporter(o Options) (*Importer, error) {
	s, err := openStore(o.withDefaults())
	if err != nil {
		return nil, err
	}
	if err := s.db.Writer().Script(boundLog); err != nil {
		return nil, errors.Join(dbfile.Classify(err, "open "+o.Path), s.db.Release())
	}
	return &Importer{s: s}, nil
}

// Close releases the file.
func (m *Importer) Close() error { return errors.Join(m.s.keys.close(), m.s.db.Release()) }

// Mark implements export.Target.
func (m *Importer) Mark(context.Context) ([]byte, error) {
	mark, err := statements.Mark(reading{m.s.db.Writer()})
	return mark, dbfile.Classify(err, "read the mark")
}

// Reserve implements export.Target. It returns the highest ID that a delivery ever had.
func (m *Importer) Reserve(context.Context, int64) (int64, error) {
	n, err := m.s.db.Writer().Number("SELECT max(coalesce((SELECT max(id) FROM delivery), 0), coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'delivery'), 0))")
	return n, dbfile.Classify(err, "look for deliveries")
}

// Clashes implements export.Target.
func (m *Importer) Clashes(ctx context.Context, batch []export.Record, each func(export.Record, string)) error {
	if ctx.Err() != nil {
		return fault.Ended(ctx)
	}
	return dbfile.Classify(statements.Clashes(reading{m.s.db.Writer()}, batch, each), "look for what is there already")
}

// Import implements export.Target.
func (m *Importer) Import(ctx context.Context, batch []export.Record, had, mark []byte) error {
	if ctx.Err() != nil {
		return fault.Ended(ctx)
	}
	t := &tx{m.s.db.OpenTx(), m.s}
	err := t.Conn.Transaction(func() error {
		return statements.Import(t.writing(), incoming{t, map[encryption.Of]encryption.Key{}}, batch, had, mark)
	})
	return dbfile.Classify(err, "import")
}

// incoming is the transaction of an import as a statements.Store.
type incoming struct {
	t    *tx
	keys map[encryption.Of]encryption.Key
}

// InsertAgent implements statements.Store.
func (m incoming) InsertAgent(h *memory.Head, private []byte) (int64, error) {
	a := h.Agent
	if !a.Status.Ended() {
		if err := keysAreFree(m.t.Conn, a); err != nil {
			return 0, err
		}
	}
	key, err := m.Key(statements.AgentKey(a))
	if err != nil {
		return 0, err
	}
	return m.t.insertAgent(h, key.Seal(private, statements.AgentOwner(a.Project, a.ID)), 0)
}

// Key implements statements.Store.
func (m incoming) Key(of encryption.Of) (k encryption.Key, err error) {
	k, ok := m.keys[of]
	if !ok {
		if k, err = m.t.key(of); err == nil {
			m.keys[of] = k
		}
	}
	return k, err
}

// InsertMessage implements statements.Store.
func (m incoming) InsertMessage(no int64, key encryption.Key, msg *memory.Message, body string) error {
	if _, err := m.t.Exec("UPDATE agent SET written = written + ? WHERE no = ?", int64(len(body)), no); err != nil {
		return err
	}
	return m.t.insertMessage(no, key, msg, codec.Pack(body))
}

// Insert implements statements.Store.
func (m incoming) Insert(table string, columns []string, values ...any) (int64, error) {
	return m.t.Insert("INSERT INTO "+table+" ("+strings.Join(columns, ", ")+") VALUES (?"+strings.Repeat(", ?", len(columns)-1)+")", values...)
}

// Flush implements statements.Store.
func (incoming) Flush() error { return nil }

// InsertEndpoint implements statements.Store.
func (m incoming) InsertEndpoint(e *webhook.Endpoint) error {
	no, err := m.t.insertEndpointRow(e)
	if err != nil {
		return err
	}
	return m.t.writeEndpoint(&endpoint{Endpoint: e, no: no})
}

// InsertDelivery implements statements.Store.
func (m incoming) InsertDelivery(d *export.Delivery, eventNo, endpointNo, state int64) error {
	_, err := m.t.Exec(`INSERT INTO delivery (id, event_no, endpoint_no, state, attempt, due_ms, fence, reason, created_ms, done_ms, first_ms, urgent, replay_of)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, d.ID, eventNo, endpointNo, state, int64(d.Attempt), d.DueMS, d.Fence, string(d.Reason), d.Created, d.DoneMS,
		d.FirstMS, d.Urgent, d.ReplayOf)
	return err
}

// CountKey implements statements.Store.
func (m incoming) CountKey(agentNo int64, project string, size int64) error {
	return m.t.countKeys(keyRow{agentNo, project}, 1, size)
}

// LockSpace implements statements.Store.
func (m incoming) LockSpace(at record.Space) (int64, record.State, error) {
	space, err := readSpace(m.t.Conn, at)
	if err == nil && space.no == 0 {
		space.no, err = m.t.Insert("INSERT INTO record_space (project, name, user_id, rev, n, bytes, whole) VALUES (?, ?, ?, ?, 0, 0, ?)",
			at.Project, at.Name, at.User, space.state.Rev, space.state.CompactedRev)
	}
	return space.no, space.state, err
}

// Inserted implements statements.Store.
func (m incoming) Inserted(spaceNo int64, v *export.Value) error {
	words := wordList(m.t.s.words.Of(v.Space(), v.Body))
	if words == "" {
		return nil
	}
	no, err := m.t.Conn.Number("SELECT no FROM record WHERE space_no = ? AND id = ?", spaceNo, string(v.ID))
	if err != nil {
		return err
	}
	return m.t.insertWords(no, words)
}

// Taken implements statements.Store.
func (incoming) Taken(err error) bool {
	return fault.Is(dbfile.Classify(err, "import"), fault.Conflict)
}

// Unfinished reports whether an import is unfinished, so that its end may be missing.
func (s *Store) Unfinished(ctx context.Context) (found bool, err error) {
	err = s.db.Read(ctx, "read the mark", func(c *dbfile.Conn) error {
		mark, err := statements.Mark(reading{c})
		found = mark != nil
		return err
	})
	return found, err
}

// Unfinished reports whether an import is unfinished.
func (r *Reader) Unfinished(context.Context) (bool, error) {
	mark, err := statements.Mark(reading{r.c})
	return mark != nil, dbfile.Classify(err, "read the mark")
}
