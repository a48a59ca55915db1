package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store/encryption"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/webhook"
)

// SealedStore is a store that seals texts.
type SealedStore interface {
	memory.Ledger
	record.Store
	kv.Store
	webhook.Store
}

// SealedPlace is where the stores of a test keep their data.
type SealedPlace interface {
	// Open opens a store, with a data key or none.
	Open(key []byte) (SealedStore, error)
	// Dump returns all bytes on disk. No store is open then.
	Dump() []byte
	// Rotate wraps the data keys by another key. No store is open then.
	Rotate(from, to []byte) (int, error)
	// Seal seals what is stored in clear, and returns how much that was. No store is open then.
	Seal(ctx context.Context, key []byte) (int, error)
}

// RunSealed runs the contract of data keys. place returns a new one.
func RunSealed(t *testing.T, place func(*testing.T) SealedPlace) {
	for name, test := range map[string]func(t *testing.T, p SealedPlace){
		"NothingInClear": testNothingInClear, "WrongKeys": testWrongKeys, "Rotate": testRotate,
		"EraseCaller": testEraseCaller, "EraseCallerKept": testEraseCallerKept, "SealOld": testSealOld,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, place(t)) })
	}
}

// canary is what must not be found on disk.
const canary = "Xq7canary9Zk"

var keyA, keyB = []byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), []byte("bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb")

func openSealed(t *testing.T, p SealedPlace, key []byte) SealedStore {
	t.Helper()
	s, err := p.Open(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeSealed(t *testing.T, s SealedStore) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// sealedAgent returns an agent of a caller whose settings hold the canary.
func sealedAgent(n int, user string) memory.Agent {
	a := newAgent(n)
	a.Settings.Scope.UserID = user
	a.Properties = json.RawMessage(`{"p":"` + canary + `"}`)
	return a
}

var sealedFact = setRecord("f", `"`+canary+` likes tea"`)

// fill stores the canary everywhere.
func fill(t *testing.T, s SealedStore) {
	t.Helper()
	ctx := t.Context()
	if err := webhook.PutEndpoint(ctx, s, webhook.Endpoint{ID: "e", Project: project, URL: "https://a.example", Events: []string{event.Name(event.Message)}}); err != nil {
		t.Fatal(err)
	}
	for i, user := range []string{"", "ann"} {
		a := create(t, ctx, s, sealedAgent(i, user))
		update(t, ctx, s, a, says(canary+" one", canary+" two"))
		update(t, ctx, s, a, func(v memory.AgentView) (memory.Change, error) {
			m := v.Head().Last
			m.Content, m.Rev = canary+" three", v.Head().Rev+1
			return memory.Change{Replace: []memory.Message{m}, Events: []memory.Event{
				{ID: fmt.Sprint("ev", i), Type: event.Message, CreatedMS: 10, Body: []byte(`{"text":"` + canary + `"}`)},
			}}, nil
		})
	}
	for _, at := range []record.Space{factsOf("ann"), factsOf("")} {
		if _, err := s.ChangeRecords(ctx, at, []record.Change{sealedFact}, record.Limit{}, nil, 10); err != nil {
			t.Fatal(err)
		}
	}
	if err := kv.Put(ctx, s, kv.Space{Project: project}, kv.Entry{Key: "k", Value: []byte(`"` + canary + `"`), ExpiresMS: kv.Never}, kv.Limit{}, 0); err != nil {
		t.Fatal(err)
	}
}

// wantFilled checks that all of fill can be read.
func wantFilled(t *testing.T, s SealedStore) {
	t.Helper()
	ctx := t.Context()
	for i := range 2 {
		h, list, err := s.Recent(ctx, project, newAgent(i).ID, 10, false)
		if err != nil || len(list) != 2 || list[0].Content != canary+" one" || list[1].Content != canary+" three" || !bytes.Contains(h.Agent.Properties, []byte(canary)) {
			t.Errorf("agent %d: %v, %v", i, contents(list), err)
		}
		if e, err := s.Event(ctx, project, fmt.Sprint("ev", i)); err != nil || !bytes.Contains(e.Body, []byte(canary)) {
			t.Errorf("event %d: %q, %v", i, e.Body, err)
		}
	}
	for _, at := range []record.Space{factsOf("ann"), factsOf("")} {
		if r, err := s.Record(ctx, at, "f"); err != nil || !bytes.Equal(r.Body, sealedFact.Body) {
			t.Errorf("record of %q: %q, %v", at.User, r.Body, err)
		}
	}
	if e, err := kv.Get(ctx, s, kv.Space{Project: project}, "k", 0); err != nil || !bytes.Contains(e.Value, []byte(canary)) {
		t.Errorf("key: %q, %v", e.Value, err)
	}
}

func copies(p SealedPlace) int { return bytes.Count(p.Dump(), []byte(canary)) }

func testNothingInClear(t *testing.T, p SealedPlace) {
	s := openSealed(t, p, keyA)
	fill(t, s)
	wantFilled(t, s)
	closeSealed(t, s)
	if n := copies(p); n != 0 {
		t.Errorf("the disk holds the canary %d times", n)
	}
	s = openSealed(t, p, keyA)
	wantFilled(t, s)
	closeSealed(t, s)
}

func testWrongKeys(t *testing.T, p SealedPlace) {
	s := openSealed(t, p, keyA)
	fill(t, s)
	closeSealed(t, s)
	for key, want := range map[string]error{"": encryption.ErrNoDataKey, string(keyB): encryption.ErrWrongDataKey} {
		if s, err := p.Open([]byte(key)); !errors.Is(err, want) {
			t.Errorf("with the key %q: %v, want %v", key, err, want)
			if err == nil {
				closeSealed(t, s)
			}
		}
	}
	if s, err := p.Open(keyA[:16]); !fault.Is(err, fault.Invalid) {
		t.Errorf("with half a key: %v", err)
		if err == nil {
			closeSealed(t, s)
		}
	}
}

func testRotate(t *testing.T, p SealedPlace) {
	s := openSealed(t, p, keyA)
	fill(t, s)
	closeSealed(t, s)
	if n, err := p.Rotate(keyB, keyA); err == nil {
		t.Errorf("%d keys were wrapped anew with a wrong key", n)
	}
	if n, err := p.Rotate(keyA, keyB); err != nil || n < 2 {
		t.Fatalf("%d keys, %v", n, err)
	}
	if _, err := p.Open(keyA); !errors.Is(err, encryption.ErrWrongDataKey) {
		t.Errorf("the old key: %v", err)
	}
	s = openSealed(t, p, keyB)
	wantFilled(t, s)
	update(t, t.Context(), s, newAgent(1), says("more"))
	closeSealed(t, s)
}

func testEraseCaller(t *testing.T, p SealedPlace) {
	ctx := t.Context()
	s := openSealed(t, p, keyA)
	fill(t, s)
	if err := s.Erase(ctx, project, newAgent(1).ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.EraseRecords(ctx, project, "ann", ""); err != nil {
		t.Fatal(err)
	}
	// The caller comes again, and has another key.
	create(t, ctx, s, sealedAgent(2, "ann"))
	update(t, ctx, s, newAgent(2), says("again"))
	closeSealed(t, s)
	if n, err := p.Rotate(keyA, keyB); err != nil || n != 2 { // of the project, and of the caller
		t.Errorf("%d keys are left: %v", n, err)
	}
	s = openSealed(t, p, keyB)
	if _, list, err := s.Recent(ctx, project, newAgent(2).ID, 10, false); err != nil || len(list) != 1 {
		t.Errorf("the new call: %v, %v", contents(list), err)
	}
	// Nothing is left of the caller, so the key goes with the last call.
	if err := s.Erase(ctx, project, newAgent(2).ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.EraseRecords(ctx, project, "ann", ""); err != nil {
		t.Fatal(err)
	}
	closeSealed(t, s)
	if n, err := p.Rotate(keyB, keyA); err != nil || n != 1 {
		t.Errorf("%d keys are left: %v", n, err)
	}
}

// testEraseCallerKept: a call that was stored while its caller was erased can be read afterwards.
func testEraseCallerKept(t *testing.T, p SealedPlace) {
	ctx := t.Context()
	s := openSealed(t, p, keyA)
	fill(t, s)
	if _, err := s.EraseRecords(ctx, project, "ann", ""); err != nil {
		t.Fatal(err)
	}
	update(t, ctx, s, newAgent(1), says("more"))
	closeSealed(t, s)
	s = openSealed(t, p, keyA)
	if _, list, err := s.Recent(ctx, project, newAgent(1).ID, 10, false); err != nil || len(list) != 3 {
		t.Errorf("the call: %v, %v", contents(list), err)
	}
	closeSealed(t, s)
}

func testSealOld(t *testing.T, p SealedPlace) {
	s := openSealed(t, p, nil)
	fill(t, s)
	closeSealed(t, s)
	if copies(p) == 0 {
		t.Fatal("the canary cannot be found: the test proves nothing")
	}
	s = openSealed(t, p, keyA)
	wantFilled(t, s)
	closeSealed(t, s)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Seal(canceled, keyA); err == nil {
		t.Error("a call that was canceled sealed all")
	}
	if n, err := p.Seal(t.Context(), keyA); err != nil || n < 10 {
		t.Errorf("%d values were sealed: %v", n, err)
	}
	if n := copies(p); n != 0 {
		t.Errorf("the disk holds the canary %d times", n)
	}
	if n, err := p.Seal(t.Context(), keyA); err != nil || n != 0 {
		t.Errorf("the second time %d values were sealed: %v", n, err)
	}
	s = openSealed(t, p, keyA)
	wantFilled(t, s)
	closeSealed(t, s)
}
