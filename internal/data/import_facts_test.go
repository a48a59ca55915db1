package data_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/longterm/facts"
	"github.com/heardlog/heardlog/store/record"
)

// TestImportFacts: an import keeps all times of facts.
func TestImportFacts(t *testing.T) {
	t.Parallel()
	at := record.Space{Project: "p", Name: facts.Space, User: "anna"}
	want := facts.Fact{
		Content: "Lives in Bonn", Kind: facts.Profile, Confidence: .8, State: facts.Superseded, SupersededBy: "g",
		CreatedUS: 1_600_000_000_000_001, SeenUS: 1_700_000_000_000_002, UpdatedUS: 1_700_000_000_000_003, OrderUS: 1_500_000_000_000_004,
		ValidFromMS: 1_600_000_000_005, ValidToMS: 1_900_000_000_006, ActiveMS: 1_600_000_000_007, EndedMS: 1_700_000_000_008,
		By: facts.ByAPI, History: []facts.Event{{AtMS: 1_600_000_000_009, Name: facts.EventAdded, State: facts.Active, Confidence: 1}},
	}
	body, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	from := sqliteURL(t)
	s := openStore(t, from)
	if _, err := s.ChangeRecords(t.Context(), at, []record.Change{{ID: "f", Body: body, If: record.Absent}}, record.Limit{}, nil, 1_700_000_000_010); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	all := exported(t, from)
	for kind, open := range stores() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			into := open(t)
			if _, errs, err := run(t, settingsOf(into), all, "import"); err != nil {
				t.Fatalf("%v\n%s", err, errs)
			}
			s := openStore(t, into)
			r, err := s.Record(t.Context(), at, "f")
			var got facts.Fact
			if err := json.Unmarshal(r.Body, &got); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(want, got); err != nil || diff != "" || r.UpdatedMS != 1_700_000_000_010 {
				t.Errorf("%v, updated %d\n%s", err, r.UpdatedMS, diff)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
