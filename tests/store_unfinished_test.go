package tests

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/sqlite"
)

// TestUnfinishedImport: a server warns if it starts on a store with an unfinished import, and
// serves. On others it does not warn.
func TestUnfinishedImport(t *testing.T) {
	t.Parallel()
	path, url := filepath.Join(t.TempDir(), "h.db"), postgrestest.URL(t)
	for store, open := range map[string]func() (export.Target, func() error, error){
		"sqlite:" + path: func() (export.Target, func() error, error) {
			m, err := sqlite.OpenImporter(sqlite.Options{Path: path})
			return m, m.Close, err
		},
		url: func() (export.Target, func() error, error) {
			s, err := postgres.Open(t.Context(), postgres.Options{URL: url})
			return s, s.Close, err
		},
	} {
		kind, _, _ := strings.Cut(store, ":")
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			move := func(had, mark []byte) {
				t.Helper()
				to, done, err := open()
				if err != nil {
					t.Fatal(err)
				}
				if err := to.Import(t.Context(), nil, had, mark); err != nil {
					t.Error(err)
				}
				if err := done(); err != nil {
					t.Error(err)
				}
			}
			const said = "was not finished or is still running"
			s := start(t, "HEARDLOG_STORE="+store)
			s.stop()
			if strings.Contains(s.log.String(), said) {
				t.Error("told of an import that there never was")
			}
			move(nil, []byte("mark"))
			s = s.again()
			if a := s.do("GET", "/readyz", nil); a.status != 200 {
				t.Errorf("readiness: status %d, want 200", a.status)
			}
			s.stop()
			if !strings.Contains(s.log.String(), said) {
				t.Errorf("nothing is said of an import that was not finished:\n%s", s.log)
			}
			move([]byte("mark"), nil)
			s = s.again()
			s.stop()
			if strings.Contains(s.log.String(), said) {
				t.Error("told of an import that is over")
			}
		})
	}
}
