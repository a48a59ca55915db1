package postgres_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// TestUpgrade opens a database that a server of schema 2 has filled. All that it holds reads as
// that server exported it, and a call goes on.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	url := postgrestest.URL(t)
	dump, err := os.ReadFile("testdata/schema2.sql")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/schema2.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	postgrestest.Exec(t, url, string(dump))
	s := open(t, postgres.Options{URL: url})
	var got bytes.Buffer
	if _, err := export.Write(t.Context(), &got, s.Store, export.Scope{}, true, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(bytes.Split(want, []byte("\n")), bytes.Split(got.Bytes(), []byte("\n"))); diff != "" {
		t.Error(diff)
	}
	live := memory.Ref{Project: "default", ID: "01a22398-b9cb-737b-86b8-05748b122f58"}
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
