package knowledge_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/longterm/knowledge"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/storetest"
)

// TestStored: records that an earlier version stored are read and changed, and what is stored now
// has the same form.
func TestStored(t *testing.T) {
	t.Parallel()
	b := newService(t, storetest.New(t))
	settings := `{"kind":"json_schema","schema":{"type":"object"},"versioning":true,"max_entries":7,"created_ms":1,"updated_ms":2}`
	entry := `{"version":2,"content":"two","data":{"n":1},"tags":["t"],"source":{"document":"d","heading":"H","from_line":1,"to_line":2},"created_ms":3,"updated_ms":4,` +
		`"older":[{"version":1,"content":"one","data":{"n":1},"created_ms":3,"updated_ms":3}]}`
	for at, body := range map[record.Space]string{{Project: project, Name: "knowledge"}: settings, {Project: project, Name: "knowledge/b/"}: entry} {
		id := map[string]string{"knowledge": base, "knowledge/b/": "e"}[at.Name]
		if _, err := b.store.ChangeRecords(t.Context(), at, []record.Change{{ID: id, Body: []byte(body)}}, record.Limit{}, nil, 4); err != nil {
			t.Fatal(err)
		}
	}
	is, err := b.Base(t.Context(), project, base)
	if err != nil {
		t.Fatal(err)
	}
	want := knowledge.Base{Project: project, Name: base, Kind: knowledge.JSONSchema, Schema: []byte(`{"type":"object"}`), Versioning: true, MaxEntries: 7, CreatedMS: 1, UpdatedMS: 2}
	if d := cmp.Diff(want, is.Base); d != "" {
		t.Errorf("the base (-want +got):\n%s", d)
	}
	e, older, err := b.Get(t.Context(), project, base, "e")
	if err != nil || e.Version != 2 || e.Content != "two" || e.Source.ToLine != 2 || len(older) != 1 || older[0].Content != "one" {
		t.Errorf("the entry: %+v, %+v, %v", e, older, err)
	}
	if got := b.find(knowledge.Query{Text: "two", Tags: []string{"t"}, Document: "d"}); len(got) != 1 {
		t.Errorf("found %q", got)
	}
	if v := b.put("e", "three"); v != 3 {
		t.Errorf("the next version is %d, want 3", v)
	}
	b.settings(func(s *knowledge.Base) { *s = is.Base })
	r, err := b.store.Record(t.Context(), record.Space{Project: project, Name: "knowledge"}, base)
	now, _ := b.Base(t.Context(), project, base)
	want.UpdatedMS = now.UpdatedMS // it has 12 digits more
	if d := cmp.Diff(want, now.Base); err != nil || d != "" || len(r.Body) != len(settings)+12 {
		t.Errorf("the base is stored as %s, %v (-want +got):\n%s", r.Body, err, d)
	}
}
