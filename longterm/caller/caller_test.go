package caller_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/caller"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/storetest"
)

func newService(t testing.TB, now func() time.Time) *caller.Service {
	return &caller.Service{Records: storetest.New(t).Store, Now: now}
}

// TestAliases: an alias belongs to one caller at most, and to none any more once it is left out.
func TestAliases(t *testing.T) {
	t.Parallel()
	s := newService(t, time.Now)
	ctx := t.Context()
	set := func(code fault.Code, name string, aliases ...string) {
		t.Helper()
		if _, err := s.SetAliases(ctx, "p", name, aliases); fault.CodeOf(err) != code {
			t.Errorf("%s %q: %v, want %q", name, aliases, err, code)
		}
	}
	is := func(name string, want ...string) {
		t.Helper()
		user, all, err := s.Resolve(ctx, "p", name)
		if err != nil || user != want[0] || !cmp.Equal(all, want) {
			t.Errorf("%s is %q %q, %v; want %q", name, user, all, err, want)
		}
	}
	is("anna", "anna")
	set("", "anna", "crm-17", "+49")
	is("crm-17", "anna", "+49", "crm-17")
	set(fault.Conflict, "ben", "+49")
	set(fault.Conflict, "ben", "anna") // it has aliases of its own
	set("", "crm-17", "crm-17x")       // of the caller whose alias it is
	is("crm-17x", "anna", "crm-17x")
	is("crm-17", "crm-17")
	set("", "ben", "+49", "crm-17")
	set(fault.Invalid, "ben", "ben")
	set(fault.Invalid, "ben", "x", "x")
	is("+49", "ben", "+49", "crm-17")
	set("", "ben")
	is("ben", "ben")
	set("", "anna")
	set("", "ben", "anna")
	is("anna", "ben", "anna")
	if _, err := s.SetAliases(ctx, "other", "carl", []string{"anna"}); err != nil { // of another project
		t.Error(err)
	}
	many := make([]string, caller.MaxAliases+1)
	for i := range many {
		many[i] = fmt.Sprint("a", i)
	}
	set(fault.Invalid, "ben", many...)
	set("", "ben", many[1:]...)
}

// TestAliasesAtOnce: of many callers who want one alias at once, one gets it.
func TestAliasesAtOnce(t *testing.T) {
	t.Parallel()
	s := newService(t, time.Now)
	var got sync.Map
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			name := fmt.Sprint("caller", i)
			_, err := s.SetAliases(t.Context(), "p", name, []string{"+49", name + "x"})
			if err == nil {
				got.Store(name, true)
			} else if !fault.Is(err, fault.Conflict) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	n := 0
	got.Range(func(name, _ any) bool {
		n++
		if user, _, err := s.Resolve(t.Context(), "p", "+49"); err != nil || user != name {
			t.Errorf("+49 is %q, want %q: %v", user, name, err)
		}
		return true
	})
	if n != 1 {
		t.Errorf("%d callers got the alias", n)
	}
}

// TestConsent: of two callers that become one the stricter consent counts, and a former alias keeps
// it.
func TestConsent(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_000_000)
	s := newService(t, func() time.Time { return now })
	ctx := t.Context()
	set := func(name string, r caller.Remember, until int64) {
		t.Helper()
		if _, err := s.SetConsent(ctx, "p", name, caller.Consent{Remember: r, UntilMS: until}, ""); err != nil {
			t.Error(err)
		}
	}
	alias := func(name string, aliases ...string) {
		t.Helper()
		if _, err := s.SetAliases(ctx, "p", name, aliases); err != nil {
			t.Error(err)
		}
	}
	is := func(name string, want caller.Remember) {
		t.Helper()
		c, err := s.Get(ctx, "p", name)
		if got := c.Consent.At(now); err != nil || got != want {
			t.Errorf("%s allows %q, want %q: %v", name, got, want, err)
		}
		_, names, err := s.Recallable(ctx, "p", name)
		if err != nil || (len(names) == 0) != (want == caller.None) {
			t.Errorf("of %s %q may be recalled: %v", name, names, err)
		}
	}
	is("anna", caller.All)
	set("anna", caller.Turns, 0)
	is("anna", caller.Turns)
	set("+49", caller.None, 0)
	alias("anna", "+49")
	is("anna", caller.None)
	is("+49", caller.None)
	alias("anna")
	is("+49", caller.None)
	set("anna", caller.All, 0)
	is("anna", caller.All)
	is("+49", caller.None)
	set("ben", caller.All, 2_000_000)
	alias("carl", "ben")
	is("carl", caller.All)
	now = time.UnixMilli(2_000_000)
	is("carl", caller.None)
	is("ben", caller.None)
	set("ben", caller.Turns, 0) // by the alias
	is("carl", caller.Turns)
}

// TestMovedFacts: the facts of a name that becomes an alias come beside those that the caller has,
// however large they are, and what they name follows them.
func TestMovedFacts(t *testing.T) {
	t.Parallel()
	s := newService(t, time.Now)
	ctx := t.Context()
	at := func(user string) record.Space { return record.Space{Project: "p", Name: "fact", User: user} }
	put := func(user, id, content, more string) {
		t.Helper()
		body := fmt.Appendf(nil, `{"content":%q,"created_us":1%s}`, content, more)
		if _, err := s.Records.ChangeRecords(ctx, at(user), []record.Change{{ID: id, Body: body}}, record.Limit{}, nil, 1); err != nil {
			t.Fatal(err)
		}
	}
	put("anna", "diet", "eats fish", "")
	put("anna", "moved", "by a move that failed", `,"updated_us":7`)
	put("+49", "diet", "eats no fish", `,"superseded_by":"diet2"`)
	put("+49", "diet2", "eats eggs", `,"supersedes":"diet"`)
	put("+49", "moved", "by a move that failed", `,"updated_us":6`)
	large := strings.Repeat("x", 30_000)
	for i := range 100 {
		put("+49", fmt.Sprint("large", i), large, "")
	}
	for range 2 {
		if _, err := s.SetAliases(ctx, "p", "anna", []string{"+49"}); err != nil {
			t.Fatal(err)
		}
	}
	left, _, err := s.Records.Records(ctx, at("+49"), record.Query{Limit: 10})
	if err != nil || len(left) != 0 {
		t.Errorf("%d are left: %v", len(left), err)
	}
	list, _, err := s.Records.Records(ctx, at("anna"), record.Query{Limit: 500})
	if err != nil || len(list) != 104 {
		t.Fatalf("%d, %v", len(list), err)
	}
	renamed := ""
	for _, r := range list {
		if strings.Contains(string(r.Body), "eats no fish") {
			renamed = r.ID
		}
	}
	for id, want := range map[string]string{
		"diet": `"eats fish"`, "diet2": `"supersedes":"` + renamed + `"`, renamed: `"superseded_by":"diet2"`, "moved": `"updated_us":7`,
	} {
		if r, err := s.Records.Record(ctx, at("anna"), id); err != nil || !strings.Contains(string(r.Body), want) {
			t.Errorf("%s: %s, %v; want %s", id, r.Body, err, want)
		}
	}
}
