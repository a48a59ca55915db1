package data_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/sqlite"
)

// TestKeys: the first key is created on a store that no server has opened yet.
func TestKeys(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "new", "h.db")
	url := postgrestest.URL(t)
	for name, tt := range map[string]struct {
		url  string
		open func() (kv.Store, func() error, error)
	}{
		"sqlite": {"sqlite:" + file, func() (kv.Store, func() error, error) {
			s, err := store.OpenSQLite(t.Context(), sqlite.Options{Path: file}, engine.Options{})
			return s, s.Close, err
		}},
		"postgres": {url, func() (kv.Store, func() error, error) {
			s, err := store.OpenPostgres(t.Context(), postgres.Options{URL: url}, engine.Options{})
			return s, s.Close, err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{"HEARDLOG_STORE": tt.url}
			keys := func(into any, args ...string) {
				t.Helper()
				out, errs, err := run(t, env, "", "keys", args...)
				if err != nil {
					t.Fatalf("%q: %v %s", args, err, errs)
				}
				if err := json.Unmarshal([]byte(out), into); err != nil {
					t.Fatal(err)
				}
			}
			var made, short access.NewKey
			keys(&made, "create", "--project", "p", "--name", "ops", "--scopes", "admin,read")
			keys(&short, "create", "--project", "p", "--name", "short", "--scopes", "read", "--expires", "2100-01-01")
			if short.ExpiresMS != time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() {
				t.Errorf("%+v", short)
			}
			for _, wrong := range [][]string{
				{"create", "--project", "p", "--name", "x", "--scopes", "root"},
				{"create", "--project", "~keys", "--name", "x", "--scopes", "read"},
				{"create", "--project", "p", "--name", "x", "--scopes", "read", "--expires", "tomorrow"},
				{"create", "--project", "p", "--name", "x"},
				{"revoke", "p.0000"},
			} {
				if out, _, err := run(t, env, "", "keys", wrong...); err == nil || out != "" {
					t.Errorf("%q: %v %s", wrong, err, out)
				}
			}
			var revoked access.Key
			keys(&revoked, "revoke", short.ID)
			var list struct{ Keys []access.Key }
			keys(&list, "list", "--project", "p")
			if len(list.Keys) != 2 || list.Keys[0].ID != made.ID || list.Keys[1].RevokedMS == 0 || revoked.RevokedMS != list.Keys[1].RevokedMS {
				t.Errorf("%+v", list)
			}
			store, closeStore, err := tt.open()
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := closeStore(); err != nil {
					t.Error(err)
				}
			}()
			caller, err := access.NewKeys(store, time.Now).Check(t.Context(), made.ID, made.Secret)
			if err != nil || caller.Project != "p" || caller.ID != made.ID {
				t.Errorf("%+v, %v", caller, err)
			}
			if _, err := access.NewKeys(store, time.Now).Check(t.Context(), "", short.Secret); err == nil || !strings.Contains(err.Error(), "revoked") {
				t.Error(err)
			}
		})
	}
}
