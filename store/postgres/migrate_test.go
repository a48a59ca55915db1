package postgres_test

import (
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// TestTakenBack checks that a program that is rolled back after an upgrade serves if the newer
// version allows it. Otherwise the error must explain why it does not.
func TestTakenBack(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	create(t, open(t, postgres.Options{URL: url}), agent(1))
	postgrestest.Exec(t, url, "INSERT INTO heardlog_schema (version) SELECT max(version) + 1 FROM heardlog_schema")
	s := open(t, postgres.Options{URL: url})
	if h, err := s.Head(t.Context(), agent(1).Project, agent(1).ID); err != nil || h.Agent.Status != memory.Running {
		t.Errorf("%+v, %v", h.Agent, err)
	}
	for _, spoil := range []string{"UPDATE meta SET value = '1000' WHERE key = 'works_from'", "DELETE FROM meta WHERE key = 'works_from'"} {
		postgrestest.Exec(t, url, spoil)
		s, err := store.OpenPostgres(t.Context(), postgres.Options{URL: url}, engine.Options{})
		if err == nil {
			_ = s.Close()
			t.Fatalf("after %s it was opened", spoil)
		}
		if text := err.Error(); !strings.Contains(text, "written by a newer version") || strings.Contains(text, "reached") {
			t.Errorf("after %s: %s", spoil, text)
		}
	}
}
