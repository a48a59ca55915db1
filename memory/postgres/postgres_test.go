package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memorytest"
	"github.com/heardlog/heardlog/memory/postgres"
	"github.com/heardlog/heardlog/webhook"
	"github.com/heardlog/heardlog/webhook/webhooktest"
)

// server gives the URL of the server that tests run on: TEST_POSTGRES_URL, or one that answers on this machine. Without any, the test is skipped
// at a desk and fails in CI.
func server(t *testing.T) string {
	t.Helper()
	base := os.Getenv("TEST_POSTGRES_URL")
	if base == "" {
		base = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, base)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("no PostgreSQL server answers at TEST_POSTGRES_URL: %v", err)
		}
		t.Skip("no PostgreSQL server answers; set TEST_POSTGRES_URL, such as postgres://postgres@127.0.0.1:5432/test")
	}
	_ = conn.Close(ctx)
	return base
}

var schemas atomic.Int64

// fresh gives the URL of an empty schema of the test's own.
func fresh(t *testing.T) string {
	t.Helper()
	base := server(t)
	name := fmt.Sprintf("t_%d_%d", time.Now().UnixNano(), schemas.Add(1))
	do := func(sql string) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		conn, err := pgx.Connect(ctx, base)
		if err == nil {
			_, err = conn.Exec(ctx, sql)
			_ = conn.Close(ctx)
		}
		if err != nil {
			t.Error(err)
		}
	}
	do("CREATE SCHEMA " + name)
	t.Cleanup(func() { do("DROP SCHEMA " + name + " CASCADE") })
	return within(base, name)
}

// within gives the URL with the schema as its search path.
func within(base, schema string) string {
	sep := "?"
	if strings.Contains(base, "?") {
		sep = "&"
	}
	return base + sep + "search_path=" + url.QueryEscape(schema)
}

// open opens a store on a schema of the test's own, or on the one that o names.
func open(t *testing.T, o postgres.Options) *postgres.Store {
	t.Helper()
	if o.URL == "" {
		o.URL = fresh(t)
	}
	s, err := postgres.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	memorytest.Run(t, func(t *testing.T) memory.Store { return open(t, postgres.Options{}) })
}

// TestStoreUncached runs the contract with next to no memory for the cache, so that everything is read from the database.
func TestStoreUncached(t *testing.T) {
	memorytest.Run(t, func(t *testing.T) memory.Store {
		return open(t, postgres.Options{CacheBytes: 1, SealKey: []byte("key")})
	})
}

// TestStoreAlone gives each call a transaction of its own.
func TestStoreAlone(t *testing.T) {
	memorytest.Run(t, func(t *testing.T) memory.Store { return open(t, postgres.Options{MaxGroup: 1, Committers: 4}) })
}

func TestConversations(t *testing.T) {
	memorytest.RunConversations(t, func(t *testing.T) memory.ConversationStore { return open(t, postgres.Options{SealKey: []byte("key")}) })
}

func TestQueue(t *testing.T) {
	webhooktest.Run(t, func(t *testing.T) (memory.Store, webhook.Store) {
		s := open(t, postgres.Options{SealKey: []byte("key")})
		return s, s
	})
}
