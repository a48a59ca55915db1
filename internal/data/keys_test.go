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
			type shown struct {
				ID, Secret string
				CreatedAt  time.Time `json:"created_at"`
				ExpiresAt  time.Time `json:"expires_at"`
				RevokedAt  time.Time `json:"revoked_at"`
			}
			var made, short shown
			first := []string{"create", "--if-none", "--project", "p", "--name", "ops", "--scopes", "admin,read"}
			for _, setting := range []string{"HEARDLOG_CREDENTIALS", "HEARDLOG_AGORA_CERTIFICATES"} {
				if out, _, err := run(t, map[string]string{"HEARDLOG_STORE": tt.url, setting: "x"}, "", "keys", first...); err != nil || out != "" {
					t.Errorf("with %s: %v %s", setting, err, out)
				}
			}
			keys(&made, first...)
			if out, _, err := run(t, env, "", "keys", first...); err != nil || out != "" {
				t.Errorf("a second key: %v %s", err, out)
			}
			keys(&short, "create", "--project", "p", "--name", "short", "--scopes", "read", "--expires", "2100-01-01")
			if !short.ExpiresAt.Equal(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)) || time.Since(short.CreatedAt) > time.Minute {
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
			var revoked shown
			keys(&revoked, "revoke", short.ID)
			var list struct{ Keys []shown }
			keys(&list, "list", "--project", "p")
			if len(list.Keys) != 2 || list.Keys[0].ID != made.ID || list.Keys[1].RevokedAt.IsZero() || !revoked.RevokedAt.Equal(list.Keys[1].RevokedAt) {
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
			if name == "sqlite" { // which is open now
				if out, _, err := run(t, env, "", "keys", first...); err != nil || out != "" {
					t.Errorf("beside a server: %v %s", err, out)
				}
				if out, _, err := run(t, env, "", "keys", "create", "--project", "p", "--name", "x", "--scopes", "read"); err == nil || out != "" {
					t.Errorf("beside a server: %v %s", err, out)
				}
			}
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
