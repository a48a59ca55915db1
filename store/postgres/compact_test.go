package postgres_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// TestCompact: tables with many deleted rows are vacuumed, and others are not.
func TestCompact(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	s := open(t, postgres.Options{URL: url})
	postgrestest.Exec(t, url, "ALTER TABLE kv SET (autovacuum_enabled = off)")
	space := kv.Space{Project: "acme", Name: "n"}
	const values, size = 200, 1000
	for i := range values {
		e := kv.Entry{Key: fmt.Sprint(i), Value: bytes.Repeat([]byte("7"), size), ExpiresMS: 10}
		if err := s.PutKeys(t.Context(), space, []kv.Entry{e}, kv.Limit{}, 1); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.Compact(t.Context(), 50); err != nil || n > 0 {
		t.Errorf("%d bytes, %v, before anything is deleted", n, err)
	}
	if _, err := s.ClearKeys(t.Context(), space, 1); err != nil {
		t.Fatal(err)
	}
	// PostgreSQL counts deleted rows a little later.
	for n := int64(0); n < values*size/2 && t.Context().Err() == nil; {
		var err error
		if n, err = s.Compact(t.Context(), 50); err != nil {
			t.Fatal(err)
		}
	}
}
