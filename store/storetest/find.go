package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/store/record"
)

// Terms is the record.Terms of the stores of RunFinding: the words of records in spaces whose names
// begin with "text/".
func Terms(at record.Space, body []byte) []string {
	if !strings.HasPrefix(at.Name, "text/") {
		return nil
	}
	return strings.Fields(string(body))
}

// RunFinding runs the contract of FindRecords. open returns an empty store with Terms that encrypts
// nothing.
func RunFinding(t *testing.T, open func(*testing.T) RecordStore) {
	for name, test := range map[string]func(*testing.T, context.Context, RecordStore){
		"Ranked": testFindRanked, "Changed": testFindChanged, "Erased": testFindErased, "Frequent": testFindFrequent,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, t.Context(), open(t)) })
	}
}

var textSpace = record.Space{Project: project, Name: "text/a/"}

// wantFound wants the records of a space, and how many have each word.
func wantFound(t *testing.T, ctx context.Context, s record.Store, at record.Space, q record.Find, ids []string, with ...int) {
	t.Helper()
	found, err := s.FindRecords(ctx, at, q)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, "found", recordIDs(found.Records), ids)
	wantSame(t, "with", found.With, with)
	for _, r := range found.Records {
		one, err := s.Record(ctx, at, r.ID)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, "record", r, one)
	}
}

func find(limit int, words ...string) record.Find {
	q := record.Find{Limit: limit}
	for _, w := range words {
		q.Words = append(q.Words, strings.Split(w, "|"))
	}
	return q
}

func testFindRanked(t *testing.T, ctx context.Context, s RecordStore) {
	wantFound(t, ctx, s, textSpace, find(9, "red"), nil, 0)
	other := record.Space{Project: "other", Name: "text/a/"}
	changeRecords(t, ctx, s, other, 1, setRecord("x", "red green"))
	changeRecords(t, ctx, s, record.Space{Project: project, Name: "text/b/"}, 1, setRecord("y", "red green"))
	changeRecords(t, ctx, s, record.Space{Project: project, Name: "fact"}, 1, setRecord("z", "red green"))
	changeRecords(t, ctx, s, textSpace, 1, setRecord("both", "red green"), setRecord("long", "red and some more"), setRecord("short", "red"), setRecord("rare", "green \u00e9t\u00e9 \U0001F600"), setRecord("none", "blue"))
	wantFound(t, ctx, s, textSpace, find(9, "red", "green"), []string{"both", "rare", "short", "long"}, 3, 2)
	wantFound(t, ctx, s, textSpace, find(2, "red"), []string{"short", "both"}, 3)
	wantFound(t, ctx, s, textSpace, find(9, "reds|red", "absent"), []string{"short", "both", "long"}, 3, 0)
	wantFound(t, ctx, s, textSpace, find(9, "\u00e9t\u00e9|\U0001F600"), []string{"rare"}, 1)
	wantFound(t, ctx, s, textSpace, find(9, "AND", "red OR green", "*", "\""), nil, 0, 0, 0, 0)
	wantFound(t, ctx, s, other, find(9, "red"), []string{"x"}, 1)
	wantFound(t, ctx, s, record.Space{Project: project, Name: "fact"}, find(9, "red"), nil, 0)
	q := find(9, "red", "green")
	q.All = []string{"and", "some"}
	wantFound(t, ctx, s, textSpace, q, []string{"long"}, 3, 2)
	found, err := s.FindRecords(ctx, textSpace, q)
	if err != nil || found.Count != 5 {
		t.Errorf("%+v, %v", found, err)
	}
}

func testFindChanged(t *testing.T, ctx context.Context, s RecordStore) {
	changeRecords(t, ctx, s, textSpace, 1, setRecord("a", "red"), setRecord("b", "red"), setRecord("c", "red"))
	changeRecords(t, ctx, s, textSpace, 2, setRecord("a", "green"), deleteRecord("b"))
	wantFound(t, ctx, s, textSpace, find(9, "red", "green"), []string{"c", "a"}, 1, 1)
	changeRecords(t, ctx, s, textSpace, 3, setRecord("b", "green"))
	if err := tryRecords(ctx, s, textSpace, record.Limit{}, record.Change{ID: "c", Body: []byte("green"), If: 99}); err == nil {
		t.Error("a stale change was stored")
	}
	wantFound(t, ctx, s, textSpace, find(9, "green"), []string{"a", "b"}, 2)
	wantFound(t, ctx, s, textSpace, find(9, "red"), []string{"c"}, 1)
}

func testFindErased(t *testing.T, ctx context.Context, s RecordStore) {
	changeRecords(t, ctx, s, textSpace, 1, setRecord("a", "red"), setRecord("b", "red"))
	changeRecords(t, ctx, s, textSpace, 1, deleteRecord("b"))
	if err := s.SweepRecords(ctx, 2); err != nil {
		t.Fatal(err)
	}
	wantFound(t, ctx, s, textSpace, find(9, "red"), []string{"a"}, 1)
	if n, err := s.EraseRecords(ctx, project, "", textSpace.Name); err != nil || n != 1 {
		t.Fatalf("erased %d, %v", n, err)
	}
	changeRecords(t, ctx, s, textSpace, 1, setRecord("new", "green"))
	wantFound(t, ctx, s, textSpace, find(9, "red", "green"), []string{"new"}, 0, 1)
}

// testFindFrequent: beyond MaxMatches, records with all words are found.
func testFindFrequent(t *testing.T, ctx context.Context, s RecordStore) {
	const more = record.MaxMatches + record.MaxChanges
	for i := 0; i < more; i += record.MaxChanges {
		var changes []record.Change
		for j := range record.MaxChanges {
			changes = append(changes, setRecord(fmt.Sprintf("%06d", i+j), "red"))
		}
		changeRecords(t, ctx, s, textSpace, 1, changes...)
	}
	changeRecords(t, ctx, s, textSpace, 1, setRecord("wanted", "a longer text that is green and red"), setRecord("other", "green"))
	wantFound(t, ctx, s, textSpace, find(2, "red", "green"), []string{"wanted", "other"}, record.MaxMatches, 2)
	wantFound(t, ctx, s, textSpace, find(1, "green", "absent", "red"), []string{"wanted"}, 2, 0, record.MaxMatches)
}
