package agents_test

import (
	"testing"

	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// TestToldWords: a record leaves words to messages of the ledger, and has them whatever becomes of
// these: cut, other words, other words again, and other words for what no record refers to.
func TestToldWords(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	a := join(t, s, nil)
	told := func(texts ...string) *memory.Request {
		out := &memory.Request{Parts: []memory.RequestPart{{Text: `{"messages":[`}}}
		for i, s := range texts {
			out.Parts = append(out.Parts, memory.RequestPart{Text: `{"content":` + string(text.AppendJSON(nil, s)) + `}`, Seqs: []int64{int64(1 + 2*i)}})
		}
		return out
	}
	const first, answer, second = "When does \"it\" go to foam? \U0001F682", "At nine from platform two.", "And back again?"
	one := settle(t, s, begin(t, s, a.ID, nil, user(first)), agents.Answer{Generated: answer, Request: told(first)})
	two := settle(t, s, begin(t, s, a.ID, nil, user(second)), agents.Answer{Generated: "Never again.", Request: told(first, second)})
	get := func(seq int64) memory.Message {
		t.Helper()
		list, err := s.Messages.Page(t.Context(), "p", a.ID, memory.MessageQuery{AfterSeq: seq - 1, Limit: 1})
		if err != nil || len(list) != 1 || list[0].Seq != seq {
			t.Fatal(list, err)
		}
		return list[0]
	}
	find := func(seq int64) *memory.Message {
		m := get(seq)
		return &m
	}
	wantWords := func(after string, lost bool) {
		t.Helper()
		for _, seq := range []int64{one.Seq, two.Seq} {
			r := find(seq).Made().Request
			whole := told(first, second).Parts[:len(r.Parts)]
			for i, p := range r.Parts {
				if s, ok := p.Whole(find); i > 0 && p.Words == 0 || ok == lost && i == 1 || !lost && s != whole[i].Text {
					t.Errorf("after %s: part %d of answer %d is %q, whole %t", after, i, seq, s, ok)
				}
				if i > 0 && !lost && (p.Is([]byte(whole[i].Text+" "), find) || !p.Is([]byte(whole[i].Text), find)) {
					t.Errorf("after %s: part %d of answer %d is not like itself", after, i, seq)
				}
			}
		}
	}
	change := func(seq int64, edit func(*memory.Message)) {
		t.Helper()
		err := s.Messages.Change(t.Context(), "p", a.ID, func(view memory.AgentView) (memory.Change, error) {
			m, err := view.Seq(seq)
			m.Rev = view.Head().Rev + 1
			edit(&m)
			return memory.Change{Replace: []memory.Message{m}}, err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	wantWords("nothing", false)
	change(1, func(m *memory.Message) { m.Content = first + " On Monday?" })
	wantWords("more words", false)
	if was := find(1).Made().Was; was != nil {
		t.Errorf("%q is kept twice", was)
	}
	for _, words := range []string{"When does it go to Rome?", "Where?"} {
		change(1, func(m *memory.Message) { m.Content = words })
		wantWords(words, false)
	}
	change(one.Seq, func(m *memory.Message) { m.Content = "No record refers to this." })
	change(1, func(m *memory.Message) { m.Details = nil })
	wantWords("other details", false)
	if was, none := find(1).Made().Was, find(one.Seq).Made().Was; len(was) != 1 || was[0] != first || none != nil {
		t.Errorf("%q and %q are kept", was, none)
	}
	// Whoever removes a message drops the records that refer to it; see requests.Drop.
	change(1, func(m *memory.Message) { *m = memory.Message{Seq: 1, Rev: m.Rev, Role: m.Role, State: memory.Removed} })
	wantWords("the removal", true)
}
