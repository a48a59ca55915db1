package sqlite_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/sqlite"
)

// TestUpgrade opens a file that a server of schema 2 has filled. All that it holds reads as
// that server exported it, and a call goes on.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "m.db")
	in, err := os.Open("testdata/schema2.db.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	packed, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	file, err := io.ReadAll(packed)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/schema2.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, sqlite.Options{Path: path})
	r, err := sqlite.OpenReader(sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got bytes.Buffer
	if _, err := export.Write(t.Context(), &got, r, export.Scope{}, true, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(bytes.Split(want, []byte("\n")), bytes.Split(got.Bytes(), []byte("\n"))); diff != "" {
		t.Error(diff)
	}
	live := memory.Ref{Project: "default", ID: "01a22398-9e88-75ad-984b-aeeade4ccfd8"}
	err = s.Update(t.Context(), live.Project, live.ID, func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		m, err := view.Seq(2)
		m.Rev, m.Confidence = h.Rev+1, 99
		return memory.Change{
			Append:  []memory.Message{{Seq: h.NextSeq, Rev: h.Rev + 1, TurnID: 1, Role: memory.User, Content: "Still there?"}},
			Replace: []memory.Message{m},
		}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.Messages(t.Context(), live.Project, live.ID, memory.MessageQuery{Limit: 10})
	if err != nil || len(list) != 3 || list[0].Content != "Hello?" || list[1].Content != "You said: Hello?" || list[1].Confidence != 99 || list[2].Content != "Still there?" {
		t.Errorf("%+v, %v", list, err)
	}
}
