package told_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/told"
)

// TestRuns records the prompts of a long call. Each record is short, and knows its body byte
// for byte whatever is heard, added or changed later.
func TestRuns(t *testing.T) {
	t.Parallel()
	const prompt = `{"messages":[{"role":"system","content":"You are the receptionist of a small practice with three doctors."}`
	var list []*memory.Message
	var seqs []int64
	var record memory.Told
	var body []byte
	same := func(b []byte) []byte { return b }
	for i := range int64(200) {
		seq := 3*i + 1 // a place before each answer stays free
		list = append(list, &memory.Message{Seq: seq, Rev: 2*i + 1, Role: memory.User, Content: fmt.Sprintf("Question \"%d\"?", i)})
		seqs = append(seqs, seq)
		body = []byte(prompt)
		for _, m := range list {
			body = fmt.Appendf(body, `,{"role":%q,"content":%q}`, m.Role, m.Content)
		}
		body = append(body, `],"stream":true}`...)
		record = memory.Told{}
		if !told.Record(&record, bytes.Clone(body), list, seqs, same) {
			t.Fatalf("prompt %d was not recorded", i)
		}
		answer := &memory.Message{Seq: seq + 2, Rev: 2*i + 2, Role: memory.Assistant, Content: "At nine from platform two."}
		answer.Amend(func(r *memory.Rare) { r.Told = new(record) })
		list, seqs = append(list, answer), append(seqs, answer.Seq)
	}
	if len(record.Parts) > 16 || len(record.Texts) > 3 {
		t.Errorf("the record of 399 messages has the parts %v and the texts %+v", record.Parts, record.Texts)
	}
	ledger := map[int64]*memory.Message{}
	for _, m := range list {
		ledger[m.Seq] = new(*m)
	}
	want := func(exact bool, changed ...int64) {
		t.Helper()
		got, said, ok := told.Body(&record, ledger)
		if ok != exact || exact && !bytes.Equal(got, body) || len(said) != 399 {
			t.Errorf("exact is %t, with %d messages: %s", ok, len(said), got)
		}
		var list []int64
		for _, p := range said {
			if p.Changed {
				list = append(list, p.Seq)
			}
		}
		if fmt.Sprint(list) != fmt.Sprint(changed) {
			t.Errorf("changed are %v, not %v", list, changed)
		}
	}
	want(true)
	late := ledger[3]
	late.Content, late.Generated, late.Rev, late.Marks.Born = "At nine", late.Content, 900, late.Rev // heard later
	ledger[2] = &memory.Message{Seq: 2, Rev: 901, Role: memory.User, Content: "Added later."}
	want(true)
	newest := ledger[598] // a transcript that grows
	newest.Content, newest.Rev, newest.Marks.Born = newest.Content+" And back?", 903, newest.Rev
	want(true)
	edited := ledger[7]
	edited.Content, edited.Rev, edited.Marks.Born = "Another question?", 902, edited.Rev
	want(false, 3, 7)
}
