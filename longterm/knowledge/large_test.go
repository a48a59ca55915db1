package knowledge_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/knowledge"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/store/storetest"
)

// stores are those that a large base is searched in.
var stores = map[string]func(*testing.T) record.Store{
	"memory": func(t *testing.T) record.Store {
		return storetest.NewWith(t, sqlite.Options{Terms: knowledge.Terms})
	},
	"sqlite": func(t *testing.T) record.Store {
		s, err := store.OpenSQLite(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "db"), Terms: knowledge.Terms}, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	},
	"postgres": func(t *testing.T) record.Store {
		s, err := store.OpenPostgres(t.Context(), postgres.Options{URL: postgrestest.URL(t), Terms: knowledge.Terms, Timeout: time.Minute}, engine.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	},
}

// fill stores entries of 5 MB that no query finds, and some that are to be found.
func (b bases) fill() {
	b.t.Helper()
	for i := range 85 {
		b.put(fmt.Sprint("filler-", i), strings.Repeat("x", 60_000)+fmt.Sprint(" filler ", i))
	}
	for id, content := range map[string]string{
		"refunds": "Refunds take five days.", "refund-form": "The form for a refund is on page two of the annual handbook for customers.",
		"hours": "We open at nine.", "parking": "Parken ist hinter dem Haus m\u00f6glich, die Pl\u00e4tze sind numeriert.", "tokyo": "\u6771\u4eac\u306e\u5e97\u306f\u5348\u524d\u5341\u6642\u304b\u3089\u3067\u3059",
	} {
		b.put(id, content)
	}
	e := knowledge.Entry{ID: "lamp", Data: []byte(`{"name":"Desk lamp","price":49}`), Tags: []string{"shop", "light"}, Source: &knowledge.Source{Document: "list.csv"}}
	if _, err := b.Put(b.t.Context(), project, base, e, nil); err != nil {
		b.t.Fatal(err)
	}
}

// TestLargeBase: a large base is searched in the store, with the results of an index in memory.
func TestLargeBase(t *testing.T) {
	t.Parallel()
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := open(t)
			large := newService(t, store)
			large.settings(func(*knowledge.Base) {})
			large.fill()
			inMemory := with(t, store, knowledge.Config{MaxMB: 512, Sealed: true}, t.Output())
			for _, tt := range []struct {
				query knowledge.Query
				want  []string // the first of what is found
			}{
				{knowledge.Query{Text: "How long does a refund take?"}, []string{"refunds", "refund-form"}},
				{knowledge.Query{Text: "refunding forms"}, []string{"refund-form"}},
				{knowledge.Query{Text: "Wo kann ich parken? Wie sind die Pl\u00e4tze numeriert?"}, []string{"parking"}},
				{knowledge.Query{Text: "\u6771\u4eac\u306e\u5e97"}, []string{"tokyo"}},
				{knowledge.Query{Text: "lamp for 49"}, []string{"lamp"}},
				{knowledge.Query{Text: "a refund for the lamp", Tags: []string{"light", "shop"}}, []string{"lamp"}},
				{knowledge.Query{Text: "lamp", Document: "list.csv"}, []string{"lamp"}},
				{knowledge.Query{Text: "lamp", Document: "another.csv"}, []string{}},
				{knowledge.Query{Text: "lamp", Tags: []string{"light", "garden"}}, []string{}},
				{knowledge.Query{Text: "quantum chromodynamics"}, []string{}},
				{knowledge.Query{Text: "the of and"}, []string{}},
			} {
				tt.query.K = 3
				for _, b := range []bases{large, inMemory} {
					hits, strength, err := b.Search(t.Context(), project, base, tt.query)
					if err != nil {
						t.Fatal(err)
					}
					var got []string
					for _, h := range hits {
						got = append(got, h.ID)
					}
					if len(got) < len(tt.want) || !cmp.Equal(append([]string{}, got[:len(tt.want)]...), tt.want) || len(tt.want) == 0 && strength != "none" || len(tt.want) > 0 && strength != "strong" {
						t.Errorf("%+v in memory %v: %v, %s; want %v", tt.query, b == inMemory, got, strength, tt.want)
					}
				}
			}

			// What was stored just now is found, and what was replaced or deleted is not.
			large.put("refunds", "We give vouchers now.")
			large.put("late", "A refund again.")
			if err := large.Delete(t.Context(), project, base, "refund-form", nil); err != nil {
				t.Fatal(err)
			}
			if got := large.find(knowledge.Query{Text: "refund"}); !cmp.Equal(got, []string{"late"}) {
				t.Errorf("found %v", got)
			}
		})
	}
}

// TestLittleMemory: a base that is not large is searched in the store if its index does not fit.
func TestLittleMemory(t *testing.T) {
	t.Parallel()
	store := stores["memory"](t)
	b := with(t, store, knowledge.Config{MaxMB: 1}, t.Output())
	b.settings(func(*knowledge.Base) {})
	for i := range 20 {
		b.put(fmt.Sprint(i), strings.Repeat("x", 50_000)+fmt.Sprint(" parrot ", i))
	}
	for range 2 {
		if got := b.find(knowledge.Query{Text: "parrot 17", K: 1}); !cmp.Equal(got, []string{"17"}) {
			t.Errorf("found %v", got)
		}
	}
}

// TestLargeSealed: a store that encrypts keeps no words, so a large base needs its index in memory.
func TestLargeSealed(t *testing.T) {
	t.Parallel()
	s, err := store.OpenSQLite(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "db"), Terms: knowledge.Terms, SealKey: []byte("key")}, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	b := newService(t, s)
	b.settings(func(*knowledge.Base) {})
	b.fill()
	found, err := s.FindRecords(t.Context(), record.Space{Project: project, Name: "knowledge/" + base + "/"}, record.Find{Words: [][]string{{"refund"}}, Limit: 9})
	if err != nil || len(found.Records) != 0 || found.Count != 91 {
		t.Errorf("%d records of %d, %v", len(found.Records), found.Count, err)
	}
	small := with(t, s, knowledge.Config{MaxMB: 8, Sealed: true}, t.Output())
	_, _, err = small.Search(t.Context(), project, base, knowledge.Query{Text: "refund", K: 1})
	if !fault.Is(err, fault.Quota) || !strings.Contains(err.Error(), "HEARDLOG_SECRET_KEY") {
		t.Errorf("%v", err)
	}
}
