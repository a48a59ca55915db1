package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/kv/kvtest"
	"github.com/heardlog/heardlog/store/sqlite"
)

func TestNamespaces(t *testing.T) {
	t.Parallel()
	kvtest.Run(t, false, func(t *testing.T) kv.Store {
		s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "x.db"), SealKey: []byte("a long enough secret")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	})
}
