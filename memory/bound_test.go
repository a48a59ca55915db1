package memory_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/heardlog/heardlog/memory"
)

// TestNote: an agent's notes about its memory follow every change of a message.
func TestNote(t *testing.T) {
	t.Parallel()
	list := func(from, n int64) (out []int64) {
		for seq := from; seq < from+n; seq++ {
			out = append(out, seq)
		}
		return out
	}
	rule := func(seq int64, s memory.State) memory.Message {
		return memory.Message{Seq: seq, Role: memory.Developer, Content: "be brief", State: s}
	}
	said := func(seq int64, s memory.State) memory.Message {
		return memory.Message{Seq: seq, Role: memory.User, Content: "hello", State: s}
	}
	rules := func(from, n int64) (out []memory.Message) {
		for _, seq := range list(from, n) {
			out = append(out, rule(seq, memory.Final))
		}
		return out
	}
	for _, tt := range []struct {
		name      string
		was, want memory.Memory
		c         memory.Change
	}{
		{"words", memory.Memory{}, memory.Memory{}, memory.Change{Append: []memory.Message{said(1, memory.Final)}}},
		{"a rule", memory.Memory{Instructions: []int64{1}}, memory.Memory{Instructions: []int64{1, 4}}, memory.Change{Append: []memory.Message{said(3, memory.Final), rule(4, memory.Final)}}},
		{"one that comes late", memory.Memory{Instructions: []int64{1, 4}}, memory.Memory{Instructions: []int64{1, 3, 4}}, memory.Change{Append: []memory.Message{rule(3, memory.Final)}}},
		{"one that leaves", memory.Memory{Instructions: []int64{1, 4}}, memory.Memory{Instructions: []int64{4}}, memory.Change{Replace: []memory.Message{rule(1, memory.Dropped)}}},
		{"one that comes back", memory.Memory{Instructions: []int64{4}}, memory.Memory{Instructions: []int64{1, 4}}, memory.Change{Replace: []memory.Message{rule(1, memory.Final)}}},
		{"a later start", memory.Memory{BaseSeq: 4, Instructions: []int64{1, 4}}, memory.Memory{BaseSeq: 4, Instructions: []int64{4}}, memory.Change{}},
		{"too many", memory.Memory{}, memory.Memory{Instructions: list(4, 64)}, memory.Change{Append: rules(1, 67)}},
		{
			"too many, some of them before From", memory.Memory{Instructions: list(3, 64), ConversationFrom: 50}, memory.Memory{Instructions: list(5, 64), ConversationFrom: 3},
			memory.Change{Append: rules(67, 2)},
		},
		{"a full list stays full", memory.Memory{Instructions: list(4, 64)}, memory.Memory{Instructions: list(4, 64)}, memory.Change{Replace: []memory.Message{rule(5, memory.Dropped)}}},
		{"words before From", memory.Memory{ConversationFrom: 9}, memory.Memory{ConversationFrom: 7}, memory.Change{Append: []memory.Message{said(7, memory.Final)}}},
		{"words that come back before From", memory.Memory{ConversationFrom: 9}, memory.Memory{ConversationFrom: 8}, memory.Change{Replace: []memory.Message{said(8, memory.Final), said(7, memory.Dropped)}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := tt.was
			noted := got.NoteInstructions(&tt.c)
			if d := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if changed := !cmp.Equal(tt.was, tt.want, cmpopts.EquateEmpty()); noted != changed {
				t.Errorf("reported %t", noted)
			}
		})
	}
}
