package memories_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
)

// TestStored: the stored columns of a row give it back, and what follows from its place is short.
func TestStored(t *testing.T) {
	t.Parallel()
	const uuid = "01a22398-b361-7333-9e9c-f79ee4aa25e1"
	scope := memory.Scope{UserID: "u"}
	for _, tt := range []struct {
		name, agent string
		seq         int64
		item        *memory.Item
		id, of      string // columns; "*" for a long one
	}{
		{"in the ledger of its agent", uuid, 1, nil, "", "="},
		{"a high number", uuid, 1 << 40, nil, "*", "="},
		{"an agent with another ID", "desk", 7, nil, "*", "="},
		{"an ID of its own", uuid, 3, &memory.Item{ID: "note-3", AgentID: uuid}, "note-3", "="},
		{"of another agent", uuid, 3, &memory.Item{AgentID: "desk"}, "", "desk"},
		{"of an agent whose ID looks like a mark", uuid, 3, &memory.Item{AgentID: "="}, "", "=="},
		{"of no agent", uuid, 3, &memory.Item{}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := memory.Message{Seq: tt.seq, Role: memory.User, Content: "x"}
			m.Amend(func(d *memory.Details) { d.Scope, d.Item = scope, tt.item })
			want, ok := memories.RowOf(&m, "p", tt.agent)
			if !ok {
				t.Fatal("it has no row")
			}
			id, of := want.Stored("p", tt.agent, tt.seq)
			if tt.id == "*" && (id == "" || id != want.ID) || tt.id != "*" && id != tt.id || of != tt.of {
				t.Errorf("the columns are %q and %q", id, of)
			}
			got := want
			got.ID, got.AgentID = id, of
			got.Restore("p", tt.agent, tt.seq)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			prefix, seq, ok := memories.PlaceOf(want.ID)
			if wantOK := tt.id == ""; ok != wantOK && len(want.ID) != 32 || wantOK && (prefix != uuid[:28] || seq != tt.seq) {
				t.Errorf("the ID says %q, %d, %t", prefix, seq, ok)
			}
		})
	}
}
