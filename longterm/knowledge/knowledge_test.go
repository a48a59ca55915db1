package knowledge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/job"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/knowledge"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/storetest"
)

const project, base = "p", "b"

// bases is a service under test with an empty base.
type bases struct {
	t *testing.T
	*knowledge.Service
	store record.Store
	jobs  *job.Runner
}

// with returns a service on a store, with what tests do not set.
func with(t *testing.T, store record.Store, c knowledge.Config, log io.Writer) bases {
	c.Store, c.Redact = store, func(_ context.Context, _ string, fn func(*redact.Redactor)) error { fn(nil); return nil }
	if c.MaxMB == 0 {
		c.MaxMB = 64
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NewID == nil {
		c.NewID = func() string { return "" }
	}
	jobs := job.New(job.Config{Store: store, Now: c.Now, Log: zerolog.New(log)})
	return bases{t, knowledge.New(jobs, c), store, jobs}
}

func newService(t *testing.T, store record.Store) bases {
	var mu sync.Mutex
	n := 0
	return with(t, store, knowledge.Config{
		NewID: func() string { mu.Lock(); defer mu.Unlock(); n++; return fmt.Sprintf("%06d", n) },
	}, t.Output())
}

func open(t *testing.T) bases {
	t.Helper()
	b := newService(t, storetest.New(t))
	b.settings(func(*knowledge.Base) {})
	return b
}

// settings stores the base with changed settings.
func (b bases) settings(edit func(*knowledge.Base)) {
	b.t.Helper()
	s := knowledge.DefaultBase(project, base)
	edit(&s)
	if _, err := b.PutBase(b.t.Context(), s); err != nil {
		b.t.Fatal(err)
	}
}

// put stores an entry and returns its version.
func (b bases) put(id, content string) int64 {
	b.t.Helper()
	e, err := b.Put(b.t.Context(), project, base, knowledge.Entry{ID: id, Content: content}, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return e.Version
}

// find returns the IDs of the entries that a search finds.
func (b bases) find(q knowledge.Query) []string {
	b.t.Helper()
	if q.K == 0 {
		q.K = 10
	}
	hits, _, err := b.Search(b.t.Context(), project, base, q)
	if err != nil {
		b.t.Fatal(err)
	}
	out := []string{}
	for _, h := range hits {
		out = append(out, h.ID)
	}
	return out
}

// ids returns all IDs of the base.
func (b bases) ids() []string {
	b.t.Helper()
	list, _, err := b.List(b.t.Context(), project, base, "", 1000)
	if err != nil {
		b.t.Fatal(err)
	}
	out := []string{}
	for _, e := range list {
		out = append(out, e.ID)
	}
	return out
}

// TestVersions: a write is the next version, the same again is none, and writes are compared.
func TestVersions(t *testing.T) {
	t.Parallel()
	b := open(t)
	if v := b.put("e", "one"); v != 1 {
		t.Errorf("version %d", v)
	}
	if v := b.put("e", "one"); v != 1 {
		t.Errorf("the same again is version %d", v)
	}
	for i := range 30 {
		b.put("e", fmt.Sprint("text ", i))
	}
	e, older, err := b.Get(t.Context(), project, base, "e")
	if err != nil || e.Version != 31 || len(older) != knowledge.MaxVersions || older[0].Version != 30 || older[0].Content != "text 28" {
		t.Errorf("%v: version %d, %d older", err, e.Version, len(older))
	}
	stale, none, now := int64(30), int64(0), int64(31)
	for name, version := range map[string]*int64{"stale": &stale, "none": &none} {
		if _, err := b.Put(t.Context(), project, base, knowledge.Entry{ID: "e", Content: "x"}, version); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: %v", name, err)
		}
		if err := b.Delete(t.Context(), project, base, "e", version); !fault.Is(err, fault.Conflict) {
			t.Errorf("delete, %s: %v", name, err)
		}
	}
	if _, err := b.Put(t.Context(), project, base, knowledge.Entry{ID: "e", Content: "x"}, &now); err != nil {
		t.Error(err)
	}
	if _, err := b.Put(t.Context(), project, base, knowledge.Entry{ID: "new", Content: "x"}, &none); err != nil {
		t.Error(err)
	}
	if err := b.Delete(t.Context(), project, base, "e", nil); err != nil {
		t.Error(err)
	}
	if _, _, err := b.Get(t.Context(), project, base, "e"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	b.settings(func(s *knowledge.Base) { s.Versioning = false })
	b.put("new", "y")
	if e, older, err := b.Get(t.Context(), project, base, "new"); err != nil || e.Version != 2 || len(older) != 0 {
		t.Errorf("without versioning: %v, version %d, %d older", err, e.Version, len(older))
	}
}

// TestConcurrentWrites: of many writers that compare versions, each version has one.
func TestConcurrentWrites(t *testing.T) {
	t.Parallel()
	b := open(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 20 {
		all.Go(func() {
			none := int64(0)
			_, err := b.Put(t.Context(), project, base, knowledge.Entry{ID: "e", Content: fmt.Sprint(i)}, &none)
			if mu.Lock(); err == nil {
				won++
			} else if !fault.Is(err, fault.Conflict) {
				t.Error(err)
			}
			mu.Unlock()
		})
	}
	if all.Wait(); won != 1 {
		t.Errorf("%d writers created the entry", won)
	}
}

// TestBounds: what is too much or no valid value is refused with a text that names the field.
func TestBounds(t *testing.T) {
	t.Parallel()
	b := open(t)
	long := strings.Repeat("x", knowledge.MaxContent+1)
	for name, tt := range map[string]struct {
		entry knowledge.Entry
		want  string
	}{
		"nothing":      {knowledge.Entry{ID: "e"}, "content: is required"},
		"no ID":        {knowledge.Entry{Content: "x"}, "id"},
		"a dot":        {knowledge.Entry{ID: ".", Content: "x"}, "id"},
		"long":         {knowledge.Entry{ID: "e", Content: long}, "content"},
		"a list":       {knowledge.Entry{ID: "e", Data: json.RawMessage("[1]")}, "data: must be an object"},
		"much data":    {knowledge.Entry{ID: "e", Data: json.RawMessage(`{"x":"` + long + `"}`)}, "data: is"},
		"tags":         {knowledge.Entry{ID: "e", Content: "x", Tags: slices.Repeat([]string{"t"}, knowledge.MaxTags+1)}, "tags: has 33"},
		"an empty tag": {knowledge.Entry{ID: "e", Content: "x", Tags: []string{""}}, "tags[0]"},
		"lines":        {knowledge.Entry{ID: "e", Content: "x", Source: &knowledge.Source{Document: "d", FromLine: 9, ToLine: 3}}, "source.to_line"},
	} {
		if _, err := b.Put(t.Context(), project, base, tt.entry, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.settings(func(s *knowledge.Base) { s.MaxEntries = 2 })
	b.put("1", "x")
	b.put("2", "x")
	if _, err := b.Put(t.Context(), project, base, knowledge.Entry{ID: "3", Content: "x"}, nil); !fault.Is(err, fault.Quota) {
		t.Errorf("one too many: %v", err)
	}
	b.put("2", "another version always fits")
}

// TestSchema: data meet the schema of their base. A schema cannot load or burn anything.
func TestSchema(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.settings(func(s *knowledge.Base) {
		s.Schema = json.RawMessage(`{"$defs":{"n":{"type":"integer","minimum":1}},"type":"object","required":["days"],"properties":{"days":{"$ref":"#/$defs/n"}}}`)
	})
	for data, want := range map[string]string{`{"days":5}`: "", `{"days":"5"}`: "data.days: got string, want integer", `{"days":0}`: "data.days", `{}`: "days", "": "days"} {
		_, err := b.Put(t.Context(), project, base, knowledge.Entry{ID: "e", Content: "x", Data: json.RawMessage(data)}, nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", data, err)
		}
	}
	doubling := `{"$defs":{"a0":{"type":"object"}`
	for i := range 20 {
		doubling += fmt.Sprintf(`,"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]}`, i+1, i, i)
	}
	for schema, want := range map[string]string{
		`[]`: "must be an object", `{"type":"nothing"}`: "is not a JSON Schema", `{"$ref":"file:///etc/passwd"}`: "must be a pointer",
		`{"$ref":"#/$defs/a","$defs":{"a":{"properties":{"x":{"$ref":"#/$defs/a"}}}}}`: "refers to itself", `{"$ref":"#/$defs/a"}`: "refers to nothing",
		doubling + `},"$ref":"#/$defs/a20"}`: "parts", `{"title":"` + strings.Repeat("x", knowledge.MaxSchema) + `"}`: "bytes long",
		`{"$schema":"https://example.com/mine","type":"object"}`: "is not a JSON Schema",
	} {
		s := knowledge.DefaultBase(project, "other")
		s.Schema = json.RawMessage(schema)
		if _, err := b.PutBase(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v", schema, err)
		}
	}
	for kind, want := range map[string]string{"rdf": "rdf is not supported", "xml": "must be json_schema or custom"} {
		s := knowledge.DefaultBase(project, "other")
		s.Kind = kind
		if _, err := b.PutBase(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestSearch: a search finds what was stored before it, on another server too, and nothing that was
// deleted.
func TestSearch(t *testing.T) {
	t.Parallel()
	b := open(t)
	other := newService(t, b.store)
	for i := range 300 { // more than a page
		b.put(fmt.Sprint("n", i), fmt.Sprintf("Number %d is about nothing", i))
	}
	b.put("refund", "Refunds take five days.")
	wantFound := func(text string, want ...string) {
		t.Helper()
		for _, s := range []bases{b, other} {
			if got := s.find(knowledge.Query{Text: text, K: 1}); !slices.Equal(got, want) {
				t.Errorf("%q: %q", text, got)
			}
		}
	}
	wantFound("How long does a refund take?", "refund")
	other.put("refund", "Nothing here.")
	other.put("ship", "We ship to Norway.")
	wantFound("shipping to Norway", "ship")
	wantFound("refunds")
	if err := b.Delete(t.Context(), project, base, "ship", nil); err != nil {
		t.Fatal(err)
	}
	wantFound("Norway")
	if err := b.DeleteBase(t.Context(), project, base); err != nil {
		t.Fatal(err)
	}
	b.settings(func(*knowledge.Base) {})
	wantFound("Number 5")
	b.put("n5", "Number 5 is back")
	wantFound("Number 5", "n5")
}

// TestSearchFilters: tags and documents narrow a search, data are searched, and names that stand in
// every entry are words as well.
func TestSearchFilters(t *testing.T) {
	t.Parallel()
	b := open(t)
	for id, e := range map[string]knowledge.Entry{
		"a": {Content: "Heardlog keeps calls.", Tags: []string{"x", "y"}, Source: &knowledge.Source{Document: "one"}},
		"b": {Content: "Heardlog keeps turns.", Tags: []string{"x"}, Source: &knowledge.Source{Document: "two"}},
		"c": {Data: json.RawMessage(`{"name":["Heardlog keeps facts"],"price":417}`)},
	} {
		e.ID = id
		if _, err := b.Put(t.Context(), project, base, e, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		q    knowledge.Query
		want []string
	}{
		{knowledge.Query{Text: "Heardlog"}, []string{"a", "b", "c"}},
		{knowledge.Query{Text: "Heardlog", Tags: []string{"x"}}, []string{"a", "b"}},
		{knowledge.Query{Text: "Heardlog", Tags: []string{"y", "x"}}, []string{"a"}},
		{knowledge.Query{Text: "Heardlog", Document: "two"}, []string{"b"}},
		{knowledge.Query{Text: "417", K: 1}, []string{"c"}},
		{knowledge.Query{Text: "zebra"}, []string{}},
	} {
		got := b.find(tt.q)
		if slices.Sort(got); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %q", tt.q, got)
		}
	}
}

// wait waits until an import has ended.
func (b bases) wait(id string) knowledge.Import {
	b.t.Helper()
	for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
		m, err := b.Import(b.t.Context(), project, base, id)
		if err != nil {
			b.t.Fatal(err)
		}
		if m.State != knowledge.Running {
			return m
		}
	}
}

// run runs imports until the test ends or the function is called.
func (b bases) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = b.jobs.Run(ctx) }()
	stop = func() { cancel(); <-done }
	b.t.Cleanup(stop)
	return stop
}

func (b bases) importDocument(document, format, content string) knowledge.Import {
	b.t.Helper()
	m, err := b.StartImport(b.t.Context(), project, base, "", knowledge.Document{Name: document, Format: format, Content: content})
	if err != nil {
		b.t.Fatal(err)
	}
	return b.wait(m.ID)
}

// TestImport: documents become entries that cite them, and a second import replaces the first.
func TestImport(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.run()
	md := "Before.\n\n# Guide\n\n## Shipping\nTo Norway.\n\n```\n# no heading\n```\n\nReturns\n-------\n\nBack.\n"
	if m := b.importDocument("g.md", knowledge.Markdown, md); m.State != knowledge.Done || m.Total != 3 || m.Done != 3 || m.Failed != 0 {
		t.Errorf("%+v", m)
	}
	list, _, err := b.List(t.Context(), project, base, "", 10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		got = append(got, fmt.Sprintf("%s %s %d-%d %q", e.ID, e.Source.Heading, e.Source.FromLine, e.Source.ToLine, e.Content))
	}
	if d := cmp.Diff([]string{
		`g.md#1  1-1 "Before."`, `g.md#2 Guide > Shipping 5-10 "## Shipping\nTo Norway.\n\n` + "```\\n# no heading\\n```" + `"`, `g.md#3 Guide > Returns 12-15 "Returns\n-------\n\nBack."`,
	}, got); d != "" {
		t.Error(d)
	}
	if got := b.find(knowledge.Query{Text: "shipping to Norway", K: 1}); !slices.Equal(got, []string{"g.md#2"}) {
		t.Errorf("found %q", got)
	}
	if m := b.importDocument("g.md", knowledge.Text, "Only this.\n"); m.Removed != 2 || !slices.Equal(b.ids(), []string{"g.md#1"}) {
		t.Errorf("%+v, left %q", m, b.ids())
	}
	b.importDocument("r.jsonl", knowledge.JSONL, `{"id":"x","content":"one","price":3}`+"\n\n[1]\n"+`{"content":"two","data":{"a":1},"tags":["t"]}`+"\n"+`{"id":7,"content":"three"}`)
	e, _, err := b.Get(t.Context(), project, base, "x")
	if err != nil || string(e.Data) != `{"price":3}` || e.Source.FromLine != 1 {
		t.Errorf("%v %+v", err, e)
	}
	m := b.importDocument("t.csv", knowledge.CSV, "id,content,tags,price\ny,\"two\nlines\",\"a, b\",4\nz,too few\nw,x,,5\n,no ID,,6\n")
	if m.Failed != 1 || len(m.Faults) != 1 || m.Faults[0].Line != 4 || !strings.Contains(m.Faults[0].Detail, "2 fields") {
		t.Errorf("%+v", m)
	}
	if e, _, err := b.Get(t.Context(), project, base, "y"); err != nil || string(e.Data) != `{"price":"4"}` || !slices.Equal(e.Tags, []string{"a", "b"}) || e.Content != "two\nlines" {
		t.Errorf("%v %+v", err, e)
	}
	if d := cmp.Diff([]string{"7", "g.md#1", "r.jsonl#4", "t.csv#6", "w", "x", "y"}, b.ids()); d != "" {
		t.Error(d)
	}
	if list, err := b.Imports(t.Context(), project, base); err != nil || len(list) != 4 || list[0].Document != "t.csv" {
		t.Errorf("%v %+v", err, list)
	}
	if spaces, err := b.store.RecordSpaces(t.Context(), project, "knowledge.import/b/0", record.Space{}, 10); err != nil || len(spaces) != 0 {
		t.Errorf("%v: contents stay: %v", err, spaces)
	}
}

// TestImportPieces: a long text is cut at blank lines, no piece is too long, and nothing is lost.
func TestImportPieces(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.run()
	var text strings.Builder
	for i := range 400 {
		fmt.Fprintf(&text, "Paragraph %d says something.\nAnd more.\n\n", i)
	}
	text.WriteString(strings.Repeat("ä", 3*knowledge.MaxPiece))
	m := b.importDocument("t", knowledge.Text, text.String())
	list, _, err := b.List(t.Context(), project, base, "", 1000)
	if err != nil || len(list) != m.Total || m.Total < 10 {
		t.Fatalf("%v: %d of %d", err, len(list), m.Total)
	}
	slices.SortFunc(list, func(a, b knowledge.Entry) int { return a.Source.Part - b.Source.Part })
	var all strings.Builder
	for _, e := range list {
		if len(e.Content) > knowledge.MaxPiece {
			t.Errorf("%s has %d bytes", e.ID, len(e.Content))
		}
		all.WriteString(e.Content)
	}
	plain := strings.NewReplacer("\n", "", " ", "").Replace
	if plain(all.String()) != plain(text.String()) {
		t.Error("some of the text is missing")
	}
}

// TestImportFails: an import that cannot go on says why, and others go on.
func TestImportFails(t *testing.T) {
	t.Parallel()
	b := open(t)
	for name, tt := range map[string]struct{ document, format, content, want string }{
		"no name":    {"", knowledge.Text, "x", "document"},
		"no format":  {"d", "pdf", "x", "format: must be"},
		"nothing":    {"d", knowledge.Markdown, "# only\n\n## headings", "content: has nothing"},
		"two of one": {"d", knowledge.CSV, "a,a\n1,2", "content: column 2"},
	} {
		if _, err := b.StartImport(t.Context(), project, base, "", knowledge.Document{Name: tt.document, Format: tt.format, Content: tt.content}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.settings(func(s *knowledge.Base) { s.MaxEntries = 1 })
	var last knowledge.Import
	for i := range 10 {
		m, err := b.StartImport(t.Context(), project, base, "", knowledge.Document{Name: fmt.Sprint("d", i), Format: knowledge.Text, Content: strings.Repeat("A line of words.\n\n", 300)})
		if err != nil {
			t.Fatal(err)
		}
		last = m
	}
	if _, err := b.StartImport(t.Context(), project, base, "", knowledge.Document{Name: "one more", Format: knowledge.Text, Content: "x"}); !fault.Is(err, fault.Quota) {
		t.Errorf("an eleventh: %v", err)
	}
	b.run()
	if m := b.wait(last.ID); m.State != knowledge.Failed || m.Done != 0 || !strings.Contains(m.Detail, "at most 1 entries") {
		t.Errorf("%+v", m)
	}
}

// stopping is a store that fails all writes after the n-th, as if the server had been killed.
type stopping struct {
	record.Store
	mu   sync.Mutex
	left int
	dead chan struct{}
}

func (s *stopping) ChangeRecords(ctx context.Context, sp record.Space, c []record.Change, l record.Limit, e []memory.Event, now int64) (record.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left--; s.left < 0 {
		if s.left == -1 {
			close(s.dead)
		}
		return record.State{}, errors.New("killed")
	}
	return s.Store.ChangeRecords(ctx, sp, c, l, e, now)
}

// TestImportKilled: whichever write a server dies after, another one brings the import to its end,
// with the same entries.
func TestImportKilled(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 350 {
		fmt.Fprintf(&text, `{"content":"line %d"}`+"\n", i)
	}
	for n := range 12 {
		t.Run(fmt.Sprint("after ", n), func(t *testing.T) {
			t.Parallel()
			whole := storetest.New(t)
			b := newService(t, whole)
			b.settings(func(*knowledge.Base) {})
			m, err := b.StartImport(t.Context(), project, base, "", knowledge.Document{Name: "d", Format: knowledge.JSONL, Content: text.String()})
			if err != nil {
				t.Fatal(err)
			}
			broken := &stopping{Store: whole, left: n, dead: make(chan struct{})}
			// When another server may begin what this one has not begun.
			soon := knowledge.Config{Now: func() time.Time { return time.Now().Add(2 * time.Minute) }}
			stop := with(t, broken, soon, t.Output()).run()
			for ended := false; !ended; {
				select {
				case <-broken.dead:
					ended = true
				default:
					now, err := b.Import(t.Context(), project, base, m.ID)
					ended = err != nil || now.State != knowledge.Running
				}
			}
			stop()
			later := knowledge.Config{Now: func() time.Time { return time.Now().Add(time.Hour) }}
			with(t, whole, later, t.Output()).run()
			if m := b.wait(m.ID); m.State != knowledge.Done || m.Done != 350 || m.Failed != 0 {
				t.Errorf("%+v", m)
			}
			list, total, err := b.List(t.Context(), project, base, "", 1000)
			if err != nil || total != 350 {
				t.Errorf("%v: %d entries", err, total)
			}
			for _, e := range list {
				if e.Version != 1 {
					t.Errorf("%s has version %d", e.ID, e.Version)
				}
			}
		})
	}
}

// TestImportGoesOn: jobs that cannot be read, or whose import cannot be, keep no other project's
// import from running, and are tried again less and less often. A job whose body is damaged runs.
func TestImportGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := storetest.New(t)
		b := newService(t, store)
		b.settings(func(*knowledge.Base) {})
		put := func(at record.Space, id, body string) {
			t.Helper()
			if _, err := store.ChangeRecords(t.Context(), at, []record.Change{{ID: id, Body: []byte(body), If: record.Any}}, record.Limit{}, nil, 1); err != nil {
				t.Fatal(err)
			}
		}
		jobs := record.Space{Project: "~", Name: "knowledge/job"}
		put(jobs, "!", "{{{")
		put(jobs, "a/b/c", `{"project":"a","base":"b","import":"c"}`)
		put(record.Space{Project: "a", Name: "knowledge.import/b/"}, "c", "{{{")
		m, err := b.StartImport(t.Context(), project, base, "", knowledge.Document{Name: "d", Format: knowledge.JSONL, Content: `{"content":"one"}`})
		if err != nil {
			t.Fatal(err)
		}
		put(jobs, project+"/"+base+"/"+m.ID, "{{{")
		var log bytes.Buffer
		stop := with(t, store, knowledge.Config{}, &log).run()
		synctest.Wait()
		if m, err := b.Import(t.Context(), project, base, m.ID); err != nil || m.State != knowledge.Done {
			t.Errorf("%+v, %v", m, err)
		}
		time.Sleep(24 * time.Hour)
		stop()
		if n := strings.Count(log.String(), `"project":"a"`); n < 24 || n > 50 {
			t.Errorf("the broken import was tried %d times in a day", n)
		}
	})
}
