package tests

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompaction: a server whose memory model says so returns the space of what was deleted.
func TestCompaction(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path, model := filepath.Join(folder, "heardlog.db"), filepath.Join(folder, "model.yaml")
	text := "apiVersion: ossa/v0.3.2\nkind: MemoryModel\nshort_term: {enabled: true}\nlong_term: {enabled: false}\nlifecycle: {compaction: {threshold_percent: 20}}\n"
	if err := os.WriteFile(model, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "HEARDLOG_STORE=sqlite:"+path)
	const values, size = 100, 64 << 10
	for i := range values {
		s.do(http.MethodPut, kvPath("n", fmt.Sprint(i)), `{"value":"`+strings.Repeat("x", size)+`"}`).ok(nil)
	}
	s.deleted204(kvPath("n"))
	s.stop()
	length := func() int64 {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	if n := length(); n < values*size {
		t.Fatalf("the file has only %d bytes", n)
	}
	s = start(t, "HEARDLOG_STORE=sqlite:"+path, "HEARDLOG_MEMORY_MODEL="+model)
	waitFor(t, "the log to say so", func() bool { return strings.Contains(s.log.String(), "returned to the disk") })
	s.stop()
	if n := length(); n > values*size/10 {
		t.Errorf("the file still has %d bytes", n)
	}
}
