package requests_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/requests"
)

// call is a call whose prompts are recorded.
type call struct {
	t      *testing.T
	ledger []memory.Message
	bodies map[int64]string // by the Seq of the answer
	seqs   map[int64][]int64
}

func asIs(b []byte) []byte { return b }

// ask records the prompt with the newest n messages, of which the record may see the newest look.
func (c *call) ask(n, look int, question, front string) *memory.Request {
	c.t.Helper()
	seq, rev := int64(1), int64(1)
	if last := len(c.ledger) - 1; last >= 0 {
		seq, rev = c.ledger[last].Seq+2, c.ledger[last].Rev+1
	}
	c.ledger = append(c.ledger, memory.Message{Seq: seq, Rev: rev, Role: memory.User, Content: question})
	body := `{"messages":[{"role":"system","content":"You are the receptionist of a small practice with three doctors."}` + front
	seqs := []int64{}
	for _, m := range c.ledger[max(0, len(c.ledger)-n):] {
		words, err := json.Marshal(m.Content)
		if err != nil {
			c.t.Fatal(err)
		}
		body += fmt.Sprintf(`,{"role":%q,"content":%s}`, m.Role, words)
		seqs = append(seqs, m.Seq)
	}
	body += fmt.Sprintf(`],"turn_id":%d,"tools":[{"type":"function","function":{"name":"book"}}],"stream":true}`, seq)
	var near []*memory.Message
	for i := max(0, len(c.ledger)-look); i < len(c.ledger); i++ {
		near = append(near, &c.ledger[i])
	}
	record := &memory.Request{}
	requests.Record(record, []byte(body), near, seqs, asIs)
	record.Refer(c.find)
	answer := memory.Message{Seq: seq + 1, Rev: rev + 1, Role: memory.Assistant, Content: fmt.Sprintf("At %d from platform two.", seq)}
	answer.Amend(func(r *memory.Details) { r.Request = record })
	c.ledger, c.bodies[answer.Seq], c.seqs[answer.Seq] = append(c.ledger, answer), body, seqs
	return record
}

func (c *call) find(seq int64) *memory.Message {
	for i := range c.ledger {
		if c.ledger[i].Seq == seq {
			return &c.ledger[i]
		}
	}
	return nil
}

func newCall(t *testing.T) *call {
	return &call{t: t, bodies: map[int64]string{}, seqs: map[int64][]int64{}}
}

// wantBodies checks that the record of each answer has its body, or that it is gone.
func (c *call) wantBodies(gone func(seq int64) bool) {
	c.t.Helper()
	find := func(seq int64) *memory.Request {
		if m := c.find(seq); m != nil {
			return m.Made().Request
		}
		return nil
	}
	for seq, body := range c.bodies {
		record := find(seq)
		if gone(seq) {
			if record != nil {
				c.t.Errorf("answer %d has the record %+v", seq, record)
			}
			continue
		}
		if record == nil {
			c.t.Errorf("answer %d has no record", seq)
			continue
		}
		parts, ok := requests.Parts(record, find)
		got, seqs := "", []int64{}
		for _, p := range parts {
			text, whole := p.Whole(c.find)
			got, ok = got+text, ok && whole
			seqs = append(seqs, p.Seqs...)
		}
		seqs = append(seqs, record.Unplaced...)
		slices.Sort(seqs)
		if !ok || got != body || fmt.Sprint(seqs) != fmt.Sprint(c.seqs[seq]) {
			c.t.Errorf("answer %d: %t, messages %v not %v, body\n%s\nnot\n%s", seq, ok, seqs, c.seqs[seq], got, body)
		}
	}
}

// TestRepeats: each record of a long call has its body byte for byte, and repeats what the body
// before has, if the prompt grows and if its window moves.
func TestRepeats(t *testing.T) {
	t.Parallel()
	for _, window := range []int{7, 32, 1000} {
		c := newCall(t)
		size := 0
		for i := range 100 {
			front := ""
			if i%3 > 0 {
				front = fmt.Sprintf(`,{"role":"system","content":"Recalled: %d"}`, i/3)
			}
			record := c.ask(window, max(48, window), []string{"Yes.", fmt.Sprintf("Question \"%d\"?", i), "42"}[i%3], front)
			b, err := json.Marshal(record)
			if err != nil {
				t.Fatal(err)
			}
			if size += len(b); record.Unplaced != nil {
				t.Errorf("%v have no place", record.Unplaced)
			}
		}
		c.wantBodies(func(int64) bool { return false })
		all := 0
		for _, b := range c.bodies {
			all += len(b)
		}
		if size > 75_000 || window == 1000 && size > all/7 {
			t.Errorf("with %d messages, records of %d bytes for bodies of %d", window, size, all)
		}
	}
}

// TestDrop removes messages of calls at random. No record has words of these any more, and each has
// its body or is gone. Those before the first removed message stay.
func TestDrop(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		c := newCall(t)
		window, look := 1+r.IntN(12), 1+r.IntN(80)
		for i := range 1 + r.IntN(60) {
			c.ask(window, look, fmt.Sprintf("Question %d", i%7), "")
		}
		last, removed := c.ledger[len(c.ledger)-1].Seq, map[int64]bool{}
		for range 1 + r.IntN(3) {
			removed[1+r.Int64N(last)] = true
		}
		dropped := map[int64]bool{}
		for _, m := range requests.Drop(c.ledger, func(seq int64) bool { return removed[seq] }) {
			dropped[m.Seq] = true
			if at := slices.IndexFunc(c.ledger, func(o memory.Message) bool { return o.Seq == m.Seq }); m.Made().Request == nil {
				c.ledger[at] = m
			}
		}
		for i, m := range c.ledger {
			if removed[m.Seq] {
				c.ledger[i] = memory.Message{Seq: m.Seq, Rev: m.Rev, State: memory.Removed}
			}
		}
		for seq, seqs := range c.seqs {
			if slices.ContainsFunc(seqs, func(seq int64) bool { return removed[seq] }) {
				if dropped[seq] = true; c.ledger[slices.IndexFunc(c.ledger, func(m memory.Message) bool { return m.Seq == seq })].Made().Request != nil {
					t.Errorf("answer %d has a record with %v", seq, seqs)
				}
			}
			if dropped[seq] && seq < slices.Min(slices.Collect(maps.Keys(removed))) {
				t.Errorf("answer %d has no record", seq)
			}
		}
		c.wantBodies(func(seq int64) bool { return dropped[seq] || removed[seq] })
		if t.Failed() {
			t.Fatalf("window %d, look %d, removed %v", window, look, removed)
		}
	}
}

// TestDropOtherWords: a record of a body that has a message in other words is dropped with it.
func TestDropOtherWords(t *testing.T) {
	t.Parallel()
	question := &memory.Message{Seq: 1, Rev: 1, Role: memory.User, Content: "My code is canary."}
	answer := memory.Message{Seq: 2, Rev: 2, Role: memory.Assistant}
	record := &memory.Request{}
	requests.Record(record, []byte(`{"messages":[{"role":"user","content":"[14:02] my code is Canary"}]}`), []*memory.Message{question}, []int64{1}, asIs)
	answer.Amend(func(r *memory.Details) { r.Request = record })
	got := requests.Drop([]memory.Message{*question, answer}, func(seq int64) bool { return seq == 1 })
	if len(got) != 1 || got[0].Seq != 2 || got[0].Made().Request != nil {
		t.Errorf("%+v", got)
	}
}

// TestForms records bodies of other forms, each after one that is almost the same.
func TestForms(t *testing.T) {
	t.Parallel()
	parts := `[{"type":"text","text":"And this?"},{"type":"image_url","image_url":{"url":"data:,"}}]`
	calls := `[{"id":"c1","function":{"name":"f","arguments":"{\"a\":[{}],\"b\":2}"}}]`
	ledger := []*memory.Message{
		{Seq: 1, Role: memory.User, Content: "42", Parts: json.RawMessage(parts)},
		{Seq: 2, Role: memory.Assistant, ToolCalls: json.RawMessage(calls)},
		{Seq: 3, Role: memory.Tool, Content: `{"rows":[{"a":1}],"n":2}`},
		{Seq: 4, Role: memory.User, Content: "42"},
	}
	for _, body := range []string{
		`{"messages":[{"role":"user","content":` + parts + `},{"role":"assistant","content":null,"tool_calls":` + calls + `},{"role":"tool","content":"{\"rows\":[{\"a\":1}],\"n\":2}","tool_call_id":"c42"},{"role":"user","content":"42"}],"n":42,"tools":[{"x":"42"}]}`,
		`{"a":"42","messages":[{"content":` + parts + `,"role":"user"},{"content":null,"role":"assistant","tool_calls":` + calls + `},{"content":"{\"rows\":[{\"a\":1}],\"n\":2}","role":"tool"},{"content":"42","role":"user"}]}`,
		`{"messages":[],"stream":true}`, `{}`, ``, `{"messages":[{"role":"user","content":"\\"}],"x":[{}],"y":{}}`,
	} {
		list := slices.Clone(ledger)
		for i, suffix := range []string{"", "", " ", `,"z":1}`} {
			record := &memory.Request{}
			requests.Record(record, []byte(body+suffix), list, []int64{1, 2, 3, 4}, asIs)
			answer := &memory.Message{Seq: int64(5 + i), Role: memory.Assistant}
			answer.Amend(func(r *memory.Details) { r.Request = record })
			list = append(list, answer)
			got, ok := requests.Parts(record, func(seq int64) *memory.Request { return list[seq-1].Made().Request })
			text, seqs := "", []int64{}
			for _, p := range got {
				text, seqs = text+p.Text, append(seqs, p.Seqs...)
			}
			if !ok || text != body+suffix || strings.Contains(body, "rows") && fmt.Sprint(seqs) != "[1 2 3 4]" {
				t.Errorf("%t, with messages %v: %s\nnot %s", ok, seqs, text, body+suffix)
			}
		}
	}
	long := &memory.Request{}
	if requests.Record(long, make([]byte, 2<<20), ledger, []int64{1, 2}, asIs); len(long.Parts) != 0 || len(long.Own()) != 2 {
		t.Errorf("%+v", long)
	}
}
