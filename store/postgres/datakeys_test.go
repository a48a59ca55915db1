package postgres_test

import (
	"context"
	"encoding/hex"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/storetest"
)

// sealedTables is the schema of a test of data keys.
type sealedTables struct {
	t   *testing.T
	url string
}

func (p sealedTables) options(key []byte) postgres.Options {
	return postgres.Options{URL: p.url, DataKey: key, Terms: storetest.Terms}
}

// Open implements storetest.SealedPlace.
func (p sealedTables) Open(key []byte) (storetest.SealedStore, error) {
	s, err := store.OpenPostgres(p.t.Context(), p.options(key), engine.Options{})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Dump implements storetest.SealedPlace: all rows of all tables, and the bytes of their columns.
func (p sealedTables) Dump() (all []byte) {
	t, ctx := p.t, context.WithoutCancel(p.t.Context())
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	rows, _ := conn.Query(ctx, "SELECT table_name::text FROM information_schema.tables WHERE table_schema = current_schema()")
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		rows, _ := conn.Query(ctx, "SELECT r::text FROM "+pgx.Identifier{name}.Sanitize()+" r")
		list, failed := pgx.CollectRows(rows, pgx.RowTo[string])
		if failed != nil {
			t.Fatal(name, failed)
		}
		for _, row := range list {
			all = append(all, row...)
			// A bytea is shown as \x and digits.
			for i := 0; i+1 < len(row); i++ {
				if row[i] != '\\' || row[i+1] != 'x' {
					continue
				}
				end := i + 2
				for end < len(row) && slices.Contains([]byte("0123456789abcdef"), row[end]) {
					end++
				}
				b, _ := hex.DecodeString(row[i+2 : end])
				all, i = append(all, b...), end
			}
		}
	}
	if err != nil || len(names) < 10 {
		t.Fatal(names, err)
	}
	return all
}

// Rotate implements storetest.SealedPlace.
func (p sealedTables) Rotate(from, to []byte) (int, error) {
	return postgres.RotateDataKey(p.t.Context(), p.options(from), to)
}

// Seal implements storetest.SealedPlace.
func (p sealedTables) Seal(ctx context.Context, key []byte) (int, error) {
	return postgres.SealOld(ctx, p.options(key))
}

// TestSealed is the contract of data keys.
func TestSealed(t *testing.T) {
	storetest.RunSealed(t, func(t *testing.T) storetest.SealedPlace { return sealedTables{t, postgrestest.URL(t)} })
}

// TestDestroyedElsewhere: a server that seals with a caller's key, which another one destroys, goes
// on with a new one. Nothing that it stores is lost.
func TestDestroyedElsewhere(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	a, b := open(t, postgres.Options{URL: url, DataKey: dataKey}), open(t, postgres.Options{URL: url, DataKey: dataKey})
	ctx := t.Context()
	callOf := func(n int) memory.Agent {
		g := agent(n)
		g.Settings.Scope.UserID = "ann"
		return g
	}
	first, second := callOf(1), callOf(2)
	create(t, a, first)
	if err := a.Update(ctx, first.Project, first.ID, says("one")); err != nil {
		t.Fatal(err)
	}
	if err := b.Erase(ctx, first.Project, first.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := b.EraseRecords(ctx, first.Project, "ann", ""); err != nil {
		t.Fatal(err)
	}
	create(t, b, second) // with a new key, which the first server does not know
	if err := a.Update(ctx, first.Project, second.ID, says("two")); err != nil {
		t.Fatal(err)
	}
	c := open(t, postgres.Options{URL: url, DataKey: dataKey})
	if _, list, err := c.Recent(ctx, first.Project, second.ID, 10, false); err != nil || len(list) != 1 || list[0].Content != "two" {
		t.Errorf("%v, %v", list, err)
	}
}

// TestRotatedBeside: a server that runs while the data key is rotated makes no data keys that the
// new one cannot unwrap.
func TestRotatedBeside(t *testing.T) {
	t.Parallel()
	o := postgres.Options{URL: postgrestest.URL(t), DataKey: dataKey}
	s := open(t, o)
	ctx := t.Context()
	g := agent(1)
	create(t, s, g)
	next := slices.Repeat([]byte("n"), len(dataKey))
	if _, err := postgres.RotateDataKey(ctx, o, next); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(ctx, g.Project, g.ID, says("goes on")); err != nil {
		t.Errorf("with a key in memory: %v", err)
	}
	other := agent(2)
	other.Settings.Scope.UserID = "ann"
	if _, _, err := s.Create(ctx, other, 0, memory.Change{}); err == nil {
		t.Error("a data key was made with the old key")
	}
	o.DataKey = next
	if _, list, err := open(t, o).Recent(ctx, g.Project, g.ID, 10, false); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}
