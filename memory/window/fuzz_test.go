package window_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory/window"
)

// dice gives small numbers out of a fuzzer's bytes, 0 when they are used up.
type dice struct{ b []byte }

func (d *dice) roll(n int) int {
	if len(d.b) == 0 {
		return 0
	}
	v := int(d.b[0]) % n
	d.b = d.b[1:]
	return v
}

// message makes any message: both formats of tools, ids that collide, texts long enough to be
// shortened.
func (d *dice) message(i int) window.Message {
	id := func() string { return []string{"a", "b", "c", "d", ""}[d.roll(5)] }
	text := func() string {
		switch d.roll(8) {
		case 0:
			return ""
		case 1:
			return strings.Repeat("é", 300+d.roll(256)*4)
		}
		return strings.Repeat("word ", d.roll(20))
	}
	m := window.Message{Ref: i}
	switch d.roll(12) {
	case 0:
		m.Role, m.Text = window.System, text()
	case 1:
		m.Role, m.Text = window.Developer, text()
	case 2, 3, 4:
		m.Role, m.Text = window.User, text()
	case 5, 6:
		m.Role, m.Text = window.Assistant, text()
	case 7:
		m.Role, m.Text = window.Assistant, text()
		m.ToolCalls = call(id(), id()).ToolCalls
	case 8:
		m = call(id())
	case 9:
		m = result(id(), text())
	case 10:
		m.Role = window.Assistant
		m.Parts = fmt.Appendf(nil, `[{"type":"text","text":%q},{"type":"tool_use","id":%q,"name":"f","input":{}}]`, text(), id())
	case 11:
		m.Role = window.User
		m.Parts = fmt.Appendf(nil, `[{"type":"tool_result","tool_use_id":%q,"content":%q}]`, id(), text())
		if d.roll(3) == 0 {
			m.Parts = fmt.Appendf(nil, `[{"type":"tool_result","tool_use_id":%q,"content":"r"},{"type":"text","text":%q}]`, id(), text())
		}
	}
	m.Ref = i
	m.Interrupted = d.roll(7) == 1
	if d.roll(6) == 1 {
		m.Importance = new(float64(d.roll(5)) / 4)
	}
	if d.roll(12) == 1 {
		m.Status = []window.Status{window.Draft, window.Discard, window.Accepted}[d.roll(3)]
	}
	return m
}

func (d *dice) list() []window.Message {
	out := make([]window.Message, d.roll(14))
	for i := range out {
		out[i] = d.message(i)
	}
	return out
}

func (d *dice) policy() window.Policy {
	limit := func(n int) *int { return new(max(0, d.roll(n)-2)) }
	flag := func() *bool { return new(d.roll(3) > 0) }
	return window.Policy{
		Preset: window.PresetNames()[d.roll(6)], MaxMessages: limit(9), MaxTokens: limit(200), MaxRounds: limit(5),
		KeepSystem: flag(), IncludeSystem: flag(), IncludeToolResults: flag(), KeepLastUser: flag(),
		Strategy:          []window.Strategy{window.SlidingWindow, window.ImportanceBased, window.OldestFirst, window.Summarize}[d.roll(4)],
		ToolCallIntegrity: []window.Integrity{window.IntegrityNone, window.IntegrityTrailing, window.IntegrityAtomic, window.IntegrityHeal}[d.roll(4)],
		Apply:             []window.Apply{window.OnRead, window.OnWrite}[d.roll(2)],
		Normalise:         &window.Normalise{DropHangingUser: flag(), MergeAssistant: flag()},
	}
}

func clone(list []window.Message) []window.Message {
	out := slices.Clone(list)
	for i := range out {
		out[i].Parts, out[i].ToolCalls = slices.Clone(out[i].Parts), slices.Clone(out[i].ToolCalls)
	}
	return out
}

func of(v window.View) []window.Message {
	var out []window.Message
	for _, e := range v.Entries {
		out = append(out, *e.Message)
	}
	return out
}

// TestRandomLists holds random lists against the invariants that the fuzzers below look after.
func TestRandomLists(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range randomLists {
		b := make([]byte, 40+r.IntN(300))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		fuzzRead(t, b)
		fuzzTrim(t, b, r.IntN(12))
		fuzzTokens(t, b, 1+r.IntN(300))
	}
}

const randomLists = 1000

func FuzzRead(f *testing.F) {
	f.Add([]byte{12, 0, 2, 2, 2, 9, 0, 3, 5, 2, 7, 1, 1, 2, 2, 2, 2, 2, 2, 9, 9, 9})
	f.Add([]byte(strings.Repeat("\x05\x01\xff\x07", 60)))
	f.Add([]byte(strings.Repeat("conversation memory", 20)))
	f.Fuzz(fuzzRead)
}

func fuzzRead(t *testing.T, b []byte) {
	d := &dice{b}
	p, list := d.policy(), d.list()
	x := window.Extras{}
	if d.roll(3) == 1 {
		x = window.Extras{System: talk("s prompt", "s "), Summary: "summary", Utterance: new(" now ")}
	}
	before := clone(list)
	v := p.Read(list, nil, x)
	if diff := cmp.Diff(before, list); diff != "" {
		t.Fatalf("the list was changed: %s", diff)
	}
	if diff := cmp.Diff(v, p.Read(clone(list), nil, x)); diff != "" {
		t.Fatalf("the same input gave another output: %s", diff)
	}
	checkView(t, p.Full(), list, x, v)
	if x.Utterance == nil {
		again := p.Read(of(v), nil, window.Extras{})
		if diff := cmp.Diff(texts(v), texts(again)); diff != "" {
			t.Fatalf("reading what was read changes it: %s\n%s", diff, dump(p, list))
		}
	}
}

func dump(p window.Policy, list []window.Message) string {
	a, _ := json.Marshal(p)
	var b strings.Builder
	for i, m := range list {
		l := m.ReadLinks()
		fmt.Fprintf(&b, "%d %s %q parts %s calls %q results %q status %q\n", i, m.Role, m.Text, m.Parts, l.Calls, l.Results, m.Status)
	}
	return string(a) + "\n" + b.String()
}

// checkView holds a view against the invariants.
func checkView(t *testing.T, p window.Policy, list []window.Message, x window.Extras, v window.View) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf(format+"\n%s\nview %q", append(args, dump(p, list), texts(v))...)
	}
	last, inView := -1, map[int]bool{}
	var own []window.Message // without what was added
	for _, e := range v.Entries {
		if e.Kind == window.Kept && e.Message != &list[e.Index] {
			fail("entry %d is not the list's own", e.Index)
		}
		if e.Kind <= window.StandIn {
			own = append(own, *e.Message)
		}
		if e.Index < 0 {
			continue
		}
		if e.Index <= last {
			fail("order: %d stands behind %d", e.Index, last)
		}
		last, inView[e.Index] = e.Index, true
		if s := list[e.Index].Status; s == window.Draft || s == window.Discard {
			fail("a message that is %s is told", s)
		}
	}
	kept := 0
	for i, m := range list {
		if m.Status == window.Draft || m.Status == window.Discard {
			continue
		}
		if !inView[i] {
			kept++
		}
		if m.IsSystem() && *p.KeepSystem && *p.IncludeSystem && !inView[i] {
			fail("system message %d left", i)
		}
		if m.IsSystem() && !*p.IncludeSystem && inView[i] {
			fail("system message %d is told", i)
		}
	}
	if v.Dropped != kept {
		fail("dropped %d, want %d", v.Dropped, kept)
	}
	checkBudget(fail, p, own, v)
	checkTools(fail, p, own, x)
}

func checkBudget(fail func(string, ...any), p window.Policy, own []window.Message, v window.View) {
	if got := window.EstimateTokens(own, nil); got != v.Tokens {
		fail("tokens %d, want %d", v.Tokens, got)
	}
	lastUser := len(own)
	if *p.KeepLastUser {
		// Where the user says nothing, the newest exchange stays: nothing is asked of it here.
		lastUser = 0
		for i, m := range own {
			if m.Role == window.User && !onlyResults(m) {
				lastUser = i
			}
		}
	}
	mayLeave, cuttable := 0, 0
	for i, m := range own {
		if *p.KeepSystem && m.IsSystem() {
			continue
		}
		cuttable++
		if i < lastUser {
			mayLeave++
		}
	}
	if n := *p.MaxMessages; n > 0 && cuttable > n && (p.Strategy != window.ImportanceBased || mayLeave > 0 && !linked(own, lastUser)) {
		fail("%d messages, at most %d", cuttable, n)
	}
	if n := *p.MaxTokens; n > 0 && sum(own) > 4*n {
		if mayLeave > 0 && (p.Strategy != window.ImportanceBased || !linked(own, lastUser)) {
			fail("%d code points for %d tokens, and %d messages may leave", sum(own), n, mayLeave)
		}
		for _, m := range own {
			if longest(m) > window.MinPiece {
				fail("over budget, and a text of %d was not shortened", longest(m))
			}
		}
	}
}

// linked tells whether a result at or behind i answers a call in front of it: with importance they
// then leave or stay together.
func linked(own []window.Message, i int) bool {
	for k := 0; k < i; k++ {
		for _, id := range own[k].ReadLinks().Calls {
			for _, m := range own[i:] {
				if slices.Contains(m.ReadLinks().Results, id) {
					return true
				}
			}
		}
	}
	return false
}

func checkTools(fail func(string, ...any), p window.Policy, own []window.Message, x window.Extras) {
	if p.ToolCallIntegrity != window.IntegrityAtomic && p.ToolCallIntegrity != window.IntegrityHeal {
		return
	}
	made := map[string]bool{}
	for i, m := range own {
		l := m.ReadLinks()
		for _, id := range l.Results {
			if !made[id] {
				fail("result %q without its call", id)
			}
		}
		for _, id := range l.Calls {
			made[id] = true
			if p.ToolCallIntegrity != window.IntegrityHeal || id == "" || *p.Normalise.DropHangingUser && x.Utterance != nil {
				continue
			}
			moved, answered := x.Utterance != nil, false
			for _, n := range own[i+1:] {
				moved = moved || !onlyResults(n)
				answered = answered || slices.Contains(n.ReadLinks().Results, id)
			}
			if moved && !answered {
				fail("call %q without a result", id)
			}
		}
	}
}

func onlyResults(m window.Message) bool {
	return m.Role == window.Tool || m.Role == window.User && len(m.ReadLinks().Results) > 0 && !strings.Contains(string(m.Parts), `"type":"text"`)
}

func sum(list []window.Message) int {
	n := 0
	for _, m := range list {
		n += window.Chars(m.Text, m.Parts)
	}
	return n
}

// longest gives the code points of the longest text that may be shortened.
func longest(m window.Message) int {
	if len(m.Parts) == 0 {
		return len([]rune(m.Text))
	}
	var blocks []struct{ Text, Content string }
	if json.Unmarshal(m.Parts, &blocks) != nil {
		return 0
	}
	n := 0
	for _, b := range blocks {
		n = max(n, len([]rune(b.Text)), len([]rune(b.Content)))
	}
	return n
}

// FuzzTrim: the calls that change a memory keep calls and results together and agree with each
// other.
func FuzzTrim(f *testing.F) {
	f.Add([]byte{12, 7, 2, 2, 2, 9, 0, 3, 5, 2, 7, 1, 1, 2, 2, 2, 2, 2, 2, 9, 9, 9}, 3)
	f.Add([]byte(strings.Repeat("\x05\x09\x07\x08", 40)), 1)
	f.Fuzz(fuzzTrim)
}

func fuzzTrim(t *testing.T, b []byte, n int) {
	d := &dice{b}
	p, list := d.policy(), d.list()
	n = min(max(n, 0), 50)
	before := clone(list)

	if gone := p.Cut(list, nil); !slices.IsSorted(gone) || *p.Full().KeepSystem && slices.ContainsFunc(gone, func(i int) bool { return list[i].IsSystem() }) {
		t.Fatalf("cut %v\n%s", gone, dump(p, list))
	}
	older, recent := window.Summarizable(list, n), window.TrimToRecent(list, n)
	both := append(slices.Clone(older), recent...)
	slices.Sort(both)
	var all []int
	for i, m := range list {
		if m.IsSystem() || m.Status == "" || m.Status == window.Accepted {
			all = append(all, i)
		}
	}
	if diff := cmp.Diff(all, both); diff != "" && len(all)+len(both) > 0 {
		t.Fatalf("what is summarised and what stays are not the whole: %s\n%s", diff, dump(p, list))
	}
	stays := func(i int) bool { return slices.Contains(recent, i) }
	if n > 0 {
		for i, m := range list {
			if len(m.ReadLinks().Results) == 0 || !stays(i) {
				continue
			}
			for _, id := range m.ReadLinks().Results {
				if c := callOf(list, i, id); c >= 0 && !stays(c) {
					t.Fatalf("result %d stays without its call %d\n%s", i, c, dump(p, list))
				}
			}
		}
	}
	trimmed := window.TrimToTokens(list, n+1, nil)
	if !slices.IsSorted(trimmed.Keep) {
		t.Fatalf("trim: %v", trimmed)
	}
	rep := window.Repair(list)
	for _, p := range window.Repair(put(list, rep.Insert)).Problems {
		if p.Code == window.MissingResults {
			t.Fatalf("a second repair finds %v\n%s", p, dump(window.Policy{}, list))
		}
	}
	if diff := cmp.Diff(before, list); diff != "" {
		t.Fatalf("the list was changed: %s", diff)
	}
}

// callOf gives the newest message in front of i that makes the call, -1 if there is none.
func callOf(list []window.Message, i int, id string) int {
	for k := i - 1; k >= 0; k-- {
		m := list[k]
		if (m.Status == "" || m.Status == window.Accepted) && !m.IsSystem() && slices.Contains(m.ReadLinks().Calls, id) {
			return k
		}
	}
	return -1
}

func put(list []window.Message, in []window.Insertion) []window.Message {
	var out []window.Message
	for i, m := range list {
		out = append(out, m)
		for _, x := range in {
			if x.After == i {
				out = append(out, x.Messages...)
			}
		}
	}
	return out
}

// FuzzTokens holds reading by tokens against the rule as it is written: take away the oldest
// exchange until the rest fits (001-10).
func FuzzTokens(f *testing.F) {
	f.Add([]byte(strings.Repeat("\x05\x09\x07\x08\x02", 40)), 30)
	f.Fuzz(fuzzTokens)
}

func fuzzTokens(t *testing.T, b []byte, n int) {
	d := &dice{b}
	list := d.list()
	n = min(max(n, 1), 1000)
	p := window.Policy{Preset: "full", MaxTokens: &n, KeepLastUser: new(false)}
	left := slices.DeleteFunc(clone(list), func(m window.Message) bool { return m.Status == window.Draft || m.Status == window.Discard })
	for sum(left) > 4*n {
		i := slices.IndexFunc(left, func(m window.Message) bool { return !m.IsSystem() })
		if i < 0 {
			break
		}
		end := i + 1
		if len(left[i].ReadLinks().Calls) > 0 {
			for end < len(left) && onlyResults(left[end]) {
				end++
			}
		}
		left = slices.Delete(left, i, end)
	}
	var want, got []int
	for _, m := range left {
		want = append(want, m.Ref)
	}
	for _, e := range p.Read(list, nil, window.Extras{}).Entries {
		got = append(got, e.Message.Ref)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s\n%s", diff, dump(p, list))
	}
}

// FuzzDecode: whatever comes as a policy is refused by field or can be used.
func FuzzDecode(f *testing.F) {
	for _, p := range window.Presets() {
		b, _ := json.Marshal(p.Policy)
		f.Add(b)
	}
	f.Add([]byte(`{"normalise":{"separator":null},"max_tokens":1e3,"summarize_at":0.5}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := window.Decode("policy", b)
		if err != nil {
			if msg := err.Error(); len(msg) > 2000 || !strings.HasPrefix(msg, "policy") {
				t.Fatalf("error %q", msg)
			}
			return
		}
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := window.Decode("policy", raw)
		if diff := cmp.Diff(p, again); err != nil || diff != "" {
			t.Fatalf("%v %s", err, diff)
		}
		p.Read(talk("u a", "a b"), nil, window.Extras{})
	})
}
