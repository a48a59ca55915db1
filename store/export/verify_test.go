package export_test

import (
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/sqlite"
)

// damaged are stores of each kind, with something of every kind in them, that are damaged by SQL
// and then read.
func damaged() map[string]func(t *testing.T, statement string) export.Source {
	return map[string]func(t *testing.T, statement string) export.Source{
		"sqlite": func(t *testing.T, statement string) export.Source {
			path := filepath.Join(t.TempDir(), "h.db")
			s := must(store.OpenSQLite(t.Context(), sqlite.Options{Path: path, SealKey: []byte("k")}, engine.Options{}))
			t.Cleanup(func() { _ = s.Close() })
			fill(t, s)
			if statement != "" {
				db := must(sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)"))
				must(db.ExecContext(t.Context(), "UPDATE message SET body = substr(body, 1, length(body) - 8)"))
				must(db.ExecContext(t.Context(), statement))
				addSums(t, db)
				_ = db.Close()
			}
			r := must(sqlite.OpenReader(sqlite.Options{Path: path, SealKey: []byte("k")}))
			t.Cleanup(func() { _ = r.Close() })
			return r
		},
		"postgres": func(t *testing.T, statement string) export.Source {
			o := postgres.Options{URL: postgrestest.URL(t), SealKey: []byte("k")}
			s := must(store.OpenPostgres(t.Context(), o, engine.Options{}))
			fill(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if statement != "" {
				postgrestest.Exec(t, o.URL, statement)
			}
			r := must(postgres.OpenReader(t.Context(), o))
			t.Cleanup(func() { _ = r.Close() })
			return r
		},
	}
}

// addSums adds the checksums of SQLite's messages, which would find the damage first.
func addSums(t *testing.T, db *sql.DB) {
	t.Helper()
	rows := must(db.QueryContext(t.Context(), "SELECT id, agent_no, seq, rev, turn, coalesce(client_id, ''), body FROM message"))
	sums := map[int64]string{}
	for rows.Next() {
		var id, no, seq, rev, turn int64
		var client, body string
		if err := rows.Scan(&id, &no, &seq, &rev, &turn, &client, &body); err != nil {
			t.Fatal(err)
		}
		var row []byte
		for _, n := range []int64{no, seq, rev, turn, int64(len(client))} {
			row = binary.AppendVarint(row, n)
		}
		sums[id] = fmt.Sprintf("%08x", crc32.Checksum(append(row, client+body...), crc32.MakeTable(crc32.Castagnoli)))
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		t.Fatal(err)
	}
	for id, sum := range sums {
		must(db.ExecContext(t.Context(), "UPDATE message SET body = body || ? WHERE id = ?", sum, id))
	}
}

// TestVerify: nothing is wrong with a store that was used, and each kind of damage is named.
func TestVerify(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, sql string // of both kinds of store
		sqlite    string // where that differs; "-" = it cannot be
		postgres  string
		want      string
	}{
		{name: "nothing"},
		{name: "a message of nobody", sql: "INSERT INTO message (agent_no, seq, rev, turn, shown, body) VALUES (99, 1, 1, 0, 1, '{}')",
			postgres: "INSERT INTO message (agent_no, seq, rev, turn, shown, body) VALUES (99, 1, 1, 0, true, '{}')", want: "1 messages belong to no agent"},
		{name: "a message that is missing", sql: "DELETE FROM message WHERE agent_no = 2 AND seq = 3", want: "p a messages 3 to 4 are missing"},
		{name: "the first is missing", sql: "DELETE FROM message WHERE agent_no = 2 AND seq = 1", want: "p a messages 1 to 2 are missing"},
		{name: "the last is missing", sql: "UPDATE agent SET next_seq = 12 WHERE no = 2", postgres: "UPDATE agent_head SET next_seq = 12 WHERE agent_no = 2", want: "p a messages 9 to 11 are missing"},
		{name: "a number that would be given again", sql: "UPDATE agent SET next_seq = 5 WHERE no = 2", postgres: "UPDATE agent_head SET next_seq = 5 WHERE agent_no = 2", want: "p a message 7: its number is not below that of the next message, 5"},
		{name: "a number below 1", sql: "UPDATE message SET seq = -3 WHERE agent_no = 2 AND seq = 3", want: "p a message -3: its number is below 1"},
		{name: "a turn that is opened twice", sql: `UPDATE message SET turn = 1, body = '{"opens":true,"role":"user","content":"x"}' WHERE agent_no = 2 AND seq IN (1, 3)`,
			postgres: `UPDATE message SET turn = 1, packed = '{"opens":true,"role":"user","content":"x"}' WHERE agent_no = 2 AND seq IN (1, 3)`,
			want:     "p a message 3: it opens turn 1, which message 1 has opened already"},
		{name: "a body that is none", sql: "UPDATE message SET body = '{' WHERE agent_no = 1 AND seq = 3", postgres: "UPDATE message SET packed = '{' WHERE agent_no = 1 AND seq = 3", want: "message 3 of agent b of project p cannot be read"},
		{name: "a revision from nowhere", sql: "UPDATE message SET rev = 0 WHERE agent_no = 2 AND seq = 3", want: "p a message 3: its revision 0 is not from 1"},
		{name: "a turn below 0", sql: "UPDATE message SET turn = -3 WHERE agent_no = 2 AND seq = 3", want: "p a message 3: its turn -3"},
		{name: "shown or not", sql: "UPDATE message SET shown = 0 WHERE agent_no = 2 AND seq = 1", postgres: "UPDATE message SET shown = false WHERE agent_no = 2 AND seq = 1", want: "p a message 1: whether history shows it"},
		{name: "no settings", sql: "DELETE FROM agent_settings WHERE agent_no = 2", postgres: "UPDATE agent SET settings = '' WHERE no = 2", want: "agent a of project p cannot be read"},
		{name: "settings sealed for another", sql: "UPDATE agent_settings SET body = (SELECT body FROM agent_settings WHERE agent_no = 1) WHERE agent_no = 2",
			postgres: "UPDATE agent SET settings = (SELECT settings FROM agent WHERE no = 1) WHERE no = 2", want: "agent a of project p cannot be read"},
		{name: "settings of nobody", sql: "INSERT INTO agent_settings (agent_no, body) VALUES (99, x'00')", postgres: "INSERT INTO agent_head VALUES (99, 0, 1, 1, 1)", want: "belong to no agent"},
		{name: "no head", sqlite: "-", postgres: "DELETE FROM agent_head WHERE agent_no = 2", want: "1 agents have no head"},
		{name: "a status that is none", sql: "UPDATE agent SET status = 9 WHERE no = 3", want: "q a the status 9 is unknown"},
		{name: "ended and without an end", sql: "UPDATE agent SET stop_ms = 0 WHERE no = 1", want: "p b its status is STOPPED, and its end is at 0 ms"},
		{name: "an item of nothing", sql: "DELETE FROM message WHERE agent_no = 1 AND seq = 5", want: "1 items belong to no message"},
		{name: "a message that is not found", sql: "DELETE FROM item WHERE agent_no = 1 AND seq = 5", want: "of 1 agents other messages are found as items"},
		{name: "a key of nobody", sql: "UPDATE agent_key SET agent_no = 99 WHERE agent_no = 2", want: "keys belong to no agent"},
		{name: "a key of the dead", sqlite: "-", postgres: "UPDATE agent_key SET live = true, shared = true WHERE agent_no = 1", want: "do not go with the status of their agent"},
		{name: "a working memory of nobody", sql: "UPDATE kv SET agent_no = 99 WHERE agent_no <> 0", want: "1 working memories belong to no agent"},
		{name: "a size that is none", sql: "UPDATE kv SET size = 7777 WHERE key = 'Z'", want: "p a key Z: its size is noted as 7777 and is 2"},
		{name: "a total that is none", sql: "UPDATE kv_total SET size = 5 WHERE agent_no <> 0", postgres: "-", want: "1 working memories have another size"},
		{name: "a total of nobody", sql: "INSERT INTO kv_total VALUES (99, '', 0, 0)", postgres: "-", want: "1 working memories are counted for no agent"},
		{name: "a value that cannot be opened", sql: "UPDATE kv SET body = x'0102030405' WHERE key = 'Z'", postgres: "UPDATE kv SET body = '\\x0102030405' WHERE key = 'Z'", want: "key Z of agent a of project p cannot be read"},
		{name: "a conversation that cannot be opened", sql: "UPDATE kv SET body = x'0102030405' WHERE key = 'z'", postgres: "UPDATE kv SET body = '\\x0102030405' WHERE key = 'z'", want: "conversation z of project p cannot be read"},
		{name: "a conversation of another size", sql: "UPDATE kv SET size = 1 WHERE key = 'z'", postgres: "-", want: "1 conversations have another size"},
		{name: "secrets that cannot be opened", sql: "UPDATE endpoint SET secrets = x'0102030405' WHERE id = 'e1'", postgres: "UPDATE endpoint SET secrets = '\\x0102030405' WHERE id = 'e1'", want: "endpoint e1"},
		{name: "a key of the server's that cannot be opened", sql: "INSERT INTO meta (key, value) VALUES ('key x', x'0102030405')", postgres: "INSERT INTO meta (key, value) VALUES ('key x', '\\x0102030405')", want: "key x cannot be read"},
		{name: "an event of nobody", sql: "UPDATE event SET agent_no = 77 WHERE id = 'end'", want: "1 events refer to an agent that does not exist"},
		{name: "an event of another", sql: "UPDATE event SET agent_no = 2 WHERE id = 'end'", want: "1 events refer to another agent than the one they belong to"},
		{name: "no event", sql: "PRAGMA foreign_keys = 0; DELETE FROM event WHERE id = 'end'", postgres: "DELETE FROM event WHERE id = 'end'", want: "deliveries have no event"},
		{name: "an endpoint that is gone", sql: "DELETE FROM endpoint WHERE id = 'e1'", want: "deliveries have no endpoint"},
		{name: "an endpoint of another project", sql: "UPDATE endpoint SET project = 'r' WHERE id = 'e1'", want: "deliveries are for an endpoint of another project"},
		{name: "an endpoint without an id", sql: "UPDATE endpoint SET gone_id = NULL WHERE gone_id = 'gone'", want: "1 endpoints have no id"},
		{name: "an endpoint that is disabled or not", sqlite: "-", postgres: "UPDATE endpoint SET disabled = true WHERE id = 'e1'", want: "1 endpoints are noted as disabled and are not"},
		{name: "a delivery of another project", sqlite: "-", postgres: "UPDATE delivery SET project = 'q' WHERE id = (SELECT min(id) FROM delivery)", want: "1 deliveries are kept with another project"},
		{name: "a state that is none", sql: "UPDATE delivery SET state = 9 WHERE id = (SELECT min(id) FROM delivery)", want: "1 deliveries have an unknown state"},
		{name: "a first try that is none", sqlite: "-", postgres: "UPDATE delivery SET retry = NOT retry WHERE id = (SELECT min(id) FROM delivery WHERE state = 0)", want: "1 deliveries do not tell a first try"},
		{name: "an attempt of nothing", sql: "UPDATE attempt SET delivery_id = 999 WHERE delivery_id = (SELECT min(delivery_id) FROM attempt)", want: "1 attempts belong to no delivery"},
		{name: "more attempts than are counted", sql: "UPDATE delivery SET attempt = 0 WHERE id = (SELECT min(delivery_id) FROM attempt)", want: "has an attempt 1 and counts 0"},
		{name: "an end of what waits", sql: "UPDATE delivery SET done_ms = 5 WHERE state = 0 AND id = (SELECT min(id) FROM delivery WHERE state = 0)", want: "is pending, and ended at 5 ms"},
		{name: "conversations that nobody counted", sql: "UPDATE kv_total SET n = 7 WHERE project = 'p'", postgres: "UPDATE kv_count SET n = 7 WHERE project = 'p'", want: "1 projects have another number of conversations"},
		{name: "a counter that is gone", sqlite: "-", postgres: "DELETE FROM counter WHERE key = 'ping'", want: "1 counters are missing"},
		{name: "an import in the middle", sql: "INSERT INTO meta (key, value) VALUES ('import', x'00')", postgres: "INSERT INTO meta (key, value) VALUES ('import', '\\x00')", want: "1 import was not finished"},
	} {
		for kind, open := range damaged() {
			statement := tt.sql
			if other := map[string]string{"sqlite": tt.sqlite, "postgres": tt.postgres}[kind]; other != "" {
				statement = other
			}
			if statement == "-" {
				continue
			}
			t.Run(tt.name+" in "+kind, func(t *testing.T) {
				t.Parallel()
				got := findings(t, open(t, statement))
				if tt.want == "" && len(got) > 0 || tt.want != "" && !strings.Contains(strings.Join(got, "\n"), tt.want) {
					t.Errorf("findings %q, want %q", got, tt.want)
				}
			})
		}
	}
}

// TestVerifyReserved checks that numbers which were kept free and never used are no finding: those
// of a question that was asked three times, whose first answer was replaced.
func TestVerifyReserved(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "h.db")
	s := must(store.OpenSQLite(t.Context(), sqlite.Options{Path: path}, engine.Options{}))
	a := memory.Agent{ID: "a", Project: "p", Status: memory.Running, StartMS: 1, Rev: 1}
	_, _, err := s.Create(t.Context(), a, 0, memory.Change{Append: []memory.Message{
		{Seq: 1, Rev: 1, Role: memory.User, Content: "When?", Opens: true, AnswerSeq: 7},
		{Seq: 3, Rev: 1, Role: memory.Assistant, Content: "It ", State: memory.Superseded},
		{Seq: 7, Rev: 1, Role: memory.Assistant, Content: "At nine."},
	}})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	r := must(sqlite.OpenReader(sqlite.Options{Path: path}))
	defer r.Close()
	if got := findings(t, r); len(got) > 0 {
		t.Errorf("findings %q", got)
	}
}
