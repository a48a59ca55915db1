package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/record"
)

// TestRowsRead checks that PostgreSQL reads a bounded number of rows for each row that a call asks
// for or deletes, however many its space has, and without statistics on the tables.
func TestRowsRead(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	s := open(t, postgres.Options{URL: url})
	postgrestest.Exec(t, url, "ALTER TABLE kv SET (autovacuum_enabled = off)")
	postgrestest.Exec(t, url, "ALTER TABLE record SET (autovacuum_enabled = off)")
	ctx := t.Context()
	const rows, batch, times = 4000, 100, 6
	keys := func(from int) (list []string) {
		for i := range batch {
			list = append(list, fmt.Sprintf("%05d", from+i))
		}
		return list
	}
	none := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	space, at := kv.Space{Project: "acme", Name: "n"}, record.Space{Project: "acme", Name: "n"}
	put := func(i int) {
		var entries []kv.Entry
		for _, key := range keys(i) {
			entries = append(entries, kv.Entry{Key: key, Value: []byte("1"), UpdatedMS: 1, ExpiresMS: 10 + int64(i)})
		}
		none(s.PutKeys(ctx, space, entries, kv.Limit{}, 1))
	}
	for i := 0; i < rows; i += batch {
		put(i)
		var changes []record.Change
		for _, key := range keys(i) {
			changes = append(changes, record.Change{ID: key, Body: []byte("{}")})
		}
		_, err := s.ChangeRecords(ctx, at, changes, record.Limit{}, nil, 1)
		none(err)
	}
	for i := 0; i < rows; i += batch {
		found, err := s.GetKeys(ctx, space, keys(i), 1)
		none(err)
		var uses []kv.Use
		var seen []kv.Key
		for _, e := range found {
			uses, seen = append(uses, kv.Use{Key: e.Key, UsedMS: 2, Uses: 1}), append(seen, kv.Key{Key: e.Key, UpdatedMS: e.UpdatedMS})
		}
		none(s.TouchKeys(ctx, space, uses))
		if i%400 == 0 {
			n, err := s.EvictKeys(ctx, space, seen)
			none(err)
			if n != batch {
				t.Errorf("%d evicted, want %d", n, batch)
			}
		}
	}
	cleared, err := s.ClearKeys(ctx, space, 1)
	none(err)
	if want := rows - rows/4; cleared != want {
		t.Errorf("%d cleared, want %d", cleared, want)
	}
	for i := 0; i < rows; i += batch {
		put(i)
	}
	swept, err := s.SweepKeys(ctx, 2*rows)
	none(err)
	if swept != rows {
		t.Errorf("%d swept, want %d", swept, rows)
	}
	erased, err := s.EraseRecords(ctx, at.Project, "", "")
	none(err)
	if erased != rows {
		t.Errorf("%d records erased, want %d", erased, rows)
	}
	none(s.Close()) // PostgreSQL counts what a connection has read at its end, or later
	db, err := pgx.Connect(ctx, url)
	none(err)
	defer db.Close(ctx)
	for table, rows := range map[string]int{"kv": 2 * rows, "record": rows} {
		var read, deleted int
		for deleted < rows {
			none(db.QueryRow(ctx, `SELECT seq_tup_read + coalesce(idx_tup_fetch, 0), n_tup_del FROM pg_stat_user_tables
				WHERE schemaname = current_schema AND relname = $1`, table).Scan(&read, &deleted))
		}
		if read > times*rows {
			t.Errorf("%s: %d rows were read for calls about %d: more than %d for each", table, read, rows, times)
		}
	}
}
