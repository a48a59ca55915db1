package page_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"io"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/page"
)

// TestSize: all files of the pages take at most 60 KiB when they are compressed together, and
// what is sent compressed is the same as what is not.
func TestSize(t *testing.T) {
	t.Parallel()
	list, err := os.ReadDir("static")
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list, func(a, b os.DirEntry) int { // files of a kind have much in common
		return cmp.Or(cmp.Compare(path.Ext(a.Name()), path.Ext(b.Name())), cmp.Compare(a.Name(), b.Name()))
	})
	var together bytes.Buffer
	z, _ := gzip.NewWriterLevel(&together, gzip.BestCompression)
	apart := 0
	for _, f := range list {
		plain, small := httptest.NewRecorder(), httptest.NewRecorder()
		if !page.File(plain, httptest.NewRequest("GET", "/", nil), f.Name()) {
			t.Fatal(f.Name(), "is not served")
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept-Encoding", "gzip")
		page.File(small, r, f.Name())
		if !strings.HasSuffix(f.Name(), ".txt") { // a licence is not loaded
			apart += small.Body.Len()
			_, _ = z.Write(plain.Body.Bytes())
		}
		r2, err := gzip.NewReader(small.Body)
		if err != nil {
			t.Fatal(f.Name(), err)
		}
		if got, err := io.ReadAll(r2); err != nil || !bytes.Equal(got, plain.Body.Bytes()) {
			t.Errorf("%s: compressed it is another file: %v", f.Name(), err)
		}
		again := httptest.NewRequest("GET", "/", nil)
		again.Header.Set("If-None-Match", plain.Header().Get("ETag"))
		if w := httptest.NewRecorder(); page.File(w, again, f.Name()) && w.Code != 304 && f.Name() != "index.html" {
			t.Errorf("%s: asked again, it is sent again: %d", f.Name(), w.Code)
		}
	}
	_ = z.Close()
	t.Logf("%d bytes together, %d as they are sent", together.Len(), apart)
	if together.Len() > 60<<10 {
		t.Errorf("the pages take %d bytes compressed, more than %d", together.Len(), 60<<10)
	}
}
