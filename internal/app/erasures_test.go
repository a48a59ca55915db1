package app_test

import (
	"testing"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/app"
)

// TestErasuresPlace: without a setting, the ledger of erasures is beside the SQLite file or the
// archive, and never within the archive.
func TestErasuresPlace(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ store, archive, erasures, want string }{
		{"sqlite:/data/h.db", "", "", "/data/h.db.erasures"},
		{"sqlite:/data/h.db", "/archive", "/ledger", "/ledger"},
		{"memory:", "", "", ""},
		{"memory:", "", "/ledger", "/ledger"},
		{"postgres://x@h/d", "", "", ""},
		{"postgres://x@h/d", "/data/archive/", "", "/data/archive.erasures"},
		{"postgres://x@h/d", "s3://b/calls?region=r", "", "s3://b/calls.erasures?region=r"},
		{"postgres://x@h/d", "s3://b/a/calls/", "", "s3://b/a/calls.erasures"},
		{"postgres://x@h/d", "s3://b?region=r", "", ""},
		{"postgres://x@h/d", "s3://b/", "", ""},
	} {
		settings := map[string]string{"HEARDLOG_STORE": tt.store, "HEARDLOG_ARCHIVE": tt.archive, "HEARDLOG_ERASURES": tt.erasures}
		c, err := config.Load(func(name string) string { return settings[name] })
		if err != nil {
			t.Errorf("%v: %v", settings, err)
		}
		if got := app.ErasuresPlace(c); got != tt.want {
			t.Errorf("%v: %q, want %q", settings, got, tt.want)
		}
	}
}
