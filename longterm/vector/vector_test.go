package vector_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/longterm/vector"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/storetest"
)

// collection is a collection under test.
type collection struct {
	t *testing.T
	*vector.Service
	vector.Collection
}

func newService(store record.Store) *vector.Service {
	n := 0
	return vector.New(job.New(job.Config{}), vector.Config{Store: store, MaxMB: 64, Now: time.Now, NewID: func() string { n++; return fmt.Sprintf("new-%d", n) }})
}

func open(t *testing.T) collection {
	t.Helper()
	return collection{t, newService(storetest.New(t)), vector.Collection{Project: "p", Name: "docs"}}
}

// put stores documents, each "id: content".
func (c collection) put(docs ...string) {
	c.t.Helper()
	var list []vector.Document
	for _, d := range docs {
		id, content, _ := strings.Cut(d, ": ")
		list = append(list, vector.Document{ID: id, Content: content})
	}
	c.store(list...)
}

func (c collection) store(docs ...vector.Document) {
	c.t.Helper()
	if _, err := c.Put(c.t.Context(), c.Collection, docs); err != nil {
		c.t.Fatal(err)
	}
}

// search returns the hits as "id score".
func (c collection) search(q vector.Query) []string {
	c.t.Helper()
	found, err := c.Search(c.t.Context(), c.Collection, q)
	if err != nil {
		c.t.Fatal(err)
	}
	out := []string{}
	for _, h := range found.Hits {
		out = append(out, fmt.Sprintf("%s %.4g", h.ID, h.Score))
	}
	return out
}

func (c collection) want(q vector.Query, want ...string) {
	c.t.Helper()
	if d := cmp.Diff(append([]string{}, want...), c.search(q)); d != "" {
		c.t.Errorf("%+v (-want +got):\n%s", q, d)
	}
}

func words(text string) vector.Query { return vector.Query{Text: text, K: 5} }

// TestTextSearch: scores are cosines of TF-IDF vectors, documents without a common word fill up the
// answer, and ties keep the order of insertion.
func TestTextSearch(t *testing.T) {
	t.Parallel()
	c := open(t)
	c.want(words("anything"))
	c.put("z: The cat sat.")
	c.want(words("cat"), "z 0") // a word that every document has weighs nothing
	c.put("b: The dog ran.", "a: The cat and the dog!", "m: Zebra")
	// N = 4: idf(the) = ln 5/4, idf(cat) = idf(dog) = ln 5/3, others ln 5/2.
	the, two, one := math.Log(5.0/4), math.Log(5.0/3), math.Log(5.0/2)
	norm := func(w ...float64) (n float64) {
		for _, x := range w {
			n += x * x
		}
		return math.Sqrt(n)
	}
	z, a := two/norm(the, two, one), two/norm(2*the, two, two, one)
	c.want(words("CAT"), fmt.Sprintf("z %.4g", z), fmt.Sprintf("a %.4g", a), "b 0", "m 0")
	c.want(vector.Query{Text: "CAT", K: 2}, fmt.Sprintf("z %.4g", z), fmt.Sprintf("a %.4g", a))
	c.want(words("zebra"), "m 1", "z 0", "b 0", "a 0")
	c.want(words("unknown"), "z 0", "b 0", "a 0", "m 0")
	c.want(words("!?"), "z 0", "b 0", "a 0", "m 0")
	for _, q := range []vector.Query{words(""), words(" \n"), {Text: "cat"}, {Text: "cat", K: -3}} {
		c.want(q)
	}
	// Unknown words count in the query's length: idf = ln 5.
	c.want(words("zebra elephant"), fmt.Sprintf("m %.4g", one/norm(one, math.Log(5))), "z 0", "b 0", "a 0")

	// A replaced document keeps its place.
	c.put("z: Nothing of this.")
	c.want(words("nothing"), "z 0.5774", "b 0", "a 0", "m 0")
	c.put("z: The mouse.", "new: The mouse.")
	got := c.search(words("mouse"))
	if len(got) != 5 || !strings.HasPrefix(got[0], "z ") || !strings.HasPrefix(got[1], "new ") {
		t.Errorf("a tie: %q", got)
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"Can't stop2go, 3.5!": {"can", "t", "stop2go", "3", "5"},
		"naïve CAFÉ":          {"na", "ve", "caf"},
		"cafe\u0301":          {"caf"}, // the same letters
		"Привет, мир":         {"привет", "мир"},
		"日本語 x 語":             {"日本", "本語", "x", "語"},
		"":                    nil,
	} {
		var got []string
		vector.EachWord(text, func(w string) { got = append(got, w) })
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q (-want +got):\n%s", text, d)
		}
	}
}

// TestFilter: every member must be equal, whatever the search; null stands for an absent one.
func TestFilter(t *testing.T) {
	t.Parallel()
	c := open(t)
	for i, m := range []string{`{"lang":"en","n":1}`, `{"lang":"en","n":1.0,"tags":["a","b"],"o":{"x":1,"y":null}}`, `{"lang":"de","n":9007199254740993,"b":true}`, `null`, `{"lang":null}`} {
		c.store(vector.Document{ID: fmt.Sprint(i), Content: "x", Metadata: json.RawMessage(m)})
	}
	for filter, want := range map[string][]string{
		`{}`: {"0 0", "1 0", "2 0", "3 0", "4 0"}, `null`: {"0 0", "1 0", "2 0", "3 0", "4 0"}, `{"lang":"en"}`: {"0 0", "1 0"}, `{"lang":"en","n":1}`: {"0 0", "1 0"}, `{"n":10e-1}`: {"0 0", "1 0"},
		`{"n":"1"}`: nil, `{"lang":"en","n":2}`: nil, `{"n":9007199254740993}`: {"2 0"}, `{"n":9007199254740992}`: nil,
		`{"b":true}`: {"2 0"}, `{"b":1}`: nil, `{"tags":["a","b"]}`: {"1 0"}, `{"tags":["b","a"]}`: nil, `{"tags":"a"}`: nil, `{"o":{"y":null,"x":1.0}}`: {"1 0"},
		`{"lang":null}`: {"3 0", "4 0"}, `{"lang":null,"x":null}`: {"3 0", "4 0"},
	} {
		q := words("x")
		q.Filter = json.RawMessage(filter)
		c.want(q, want...)
		if want != nil {
			q.K = 1 // the filter works before k
			c.want(q, want[0])
		}
	}
	n, err := c.DeleteWhere(t.Context(), c.Collection, json.RawMessage(`{"lang":"en"}`))
	if err != nil || n != 2 {
		t.Errorf("deleted %d, %v", n, err)
	}
	c.want(words("x"), "2 0", "3 0", "4 0")
	if _, err := c.DeleteWhere(t.Context(), c.Collection, json.RawMessage(`{}`)); !fault.Is(err, fault.Invalid) {
		t.Errorf("an empty filter: %v", err)
	}
}

// TestEmbeddings: scores of each metric are exact, and documents without an embedding score 0.
func TestEmbeddings(t *testing.T) {
	t.Parallel()
	c := open(t)
	c.put("text: no embedding")
	c.want(vector.Query{Embedding: []float32{1, 0}, K: 5}, "text 0")
	c.store(
		vector.Document{ID: "east", Embedding: []float32{2, 0}}, vector.Document{ID: "north", Embedding: []float32{0, 3}}, vector.Document{ID: "west", Embedding: []float32{-1, 0}},
		vector.Document{ID: "zero", Embedding: []float32{0, 0}}, vector.Document{ID: "both", Embedding: []float32{3, 4}},
	)
	e := []float32{1, 0}
	c.want(vector.Query{Embedding: e, K: 9}, "east 1", "both 0.6", "text 0", "north 0", "zero 0", "west -1")
	c.want(vector.Query{Embedding: e, K: 2, Metric: vector.Dot}, "both 3", "east 2")
	c.want(vector.Query{Embedding: e, K: 9, Metric: vector.Euclidean}, "east 0.5", "zero 0.5", "west 0.3333", "north 0.2403", "both 0.1827", "text 0")
	least := 0.3
	c.want(vector.Query{Embedding: e, K: 9, MinScore: &least}, "east 1", "both 0.6")
	if got, err := c.Get(t.Context(), c.Collection, "both"); err != nil || !slices.Equal(got.Embedding, []float32{3, 4}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for what, err := range map[string]error{
		"search": second(c.Search(t.Context(), c.Collection, vector.Query{Embedding: []float32{1, 2, 3}, K: 1})),
		"put":    second(c.Put(t.Context(), c.Collection, []vector.Document{{Embedding: []float32{1, 2, 3}}})),
		"batch":  second(c.Put(t.Context(), c.Collection, []vector.Document{{Embedding: []float32{1, 2}}, {Embedding: []float32{1, 2, 3}}})),
	} {
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "3") || !strings.Contains(err.Error(), "2") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, v := range [][]float32{{}, {float32(math.NaN()), 0}, {float32(math.Inf(1)), 0}, make([]float32, vector.MaxDimensions+1)} {
		if _, err := c.Put(t.Context(), c.Collection, []vector.Document{{Embedding: v}}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%d numbers: %v", len(v), err)
		}
	}
	if n, err := c.Clear(t.Context(), c.Collection); err != nil || n != 6 {
		t.Errorf("cleared %d, %v", n, err)
	}
	c.want(vector.Query{Embedding: e, K: 9})
	c.store(vector.Document{ID: "3d", Embedding: []float32{1, 2, 2}})
	c.want(vector.Query{Embedding: []float32{0, 0, 1}, K: 9}, "3d 0.6667")
}

func second[T any](_ T, err error) error { return err }

// TestManyEmbeddings compares the index with a search of every vector, for odd dimensions and the
// extremes of a byte.
func TestManyEmbeddings(t *testing.T) {
	t.Parallel()
	const n = 5000 // enough for two goroutines
	for _, dims := range []int{1, 7, 8, 33, 100} {
		c := open(t)
		rnd := rand.New(rand.NewPCG(1, uint64(dims)))
		vectors := make([][]float32, n)
		for i := range vectors {
			vectors[i] = make([]float32, dims)
			for k := range vectors[i] {
				vectors[i][k] = float32(rnd.NormFloat64())
				if i%50 == 0 {
					vectors[i][k] = []float32{-1, 1, 0}[rnd.IntN(3)]
				}
			}
		}
		for start := 0; start < n; start += 1000 {
			var docs []vector.Document
			for i := start; i < start+1000; i++ {
				docs = append(docs, vector.Document{ID: fmt.Sprint(i), Embedding: vectors[i]})
			}
			c.store(docs...)
		}
		for _, metric := range []vector.Metric{vector.Cosine, vector.Euclidean, vector.Dot} {
			probe := vectors[rnd.IntN(n)]
			found, err := c.Search(t.Context(), c.Collection, vector.Query{Embedding: probe, K: 20, Metric: metric})
			if err != nil {
				t.Fatal(err)
			}
			var all []float64
			for _, v := range vectors {
				var dot, a, b, far float64
				for k := range v {
					x, y := float64(v[k]), float64(probe[k])
					dot, a, b, far = dot+x*y, a+x*x, b+y*y, far+(x-y)*(x-y)
				}
				score := dot
				switch {
				case metric == vector.Euclidean:
					score = 1 / (1 + math.Sqrt(far))
				case metric == vector.Cosine && a*b > 0:
					score = dot / math.Sqrt(a*b)
				}
				all = append(all, score)
			}
			slices.SortFunc(all, func(a, b float64) int { return -cmpFloat(a, b) })
			for i, h := range found.Hits {
				if math.Abs(h.Score-all[i]) > 1e-9 && dims > 7 {
					t.Errorf("%d dimensions, %s: hit %d scores %v, want %v", dims, metric, i, h.Score, all[i])
				}
			}
		}
	}
}

func cmpFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// TestTwoServers: a search finds what another server has stored or deleted before, also after its
// deletions were swept or the collection erased.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	store := storetest.New(t)
	here := collection{t, newService(store), vector.Collection{Project: "p", Name: "docs"}}
	there := collection{t, newService(store), here.Collection}
	var docs []string
	for i := range 450 { // more than two pages
		docs = append(docs, fmt.Sprintf("%d: word%d", i, i))
	}
	there.put(docs...)
	here.want(vector.Query{Text: "word7", K: 1}, "7 1")
	there.put("7: other")
	here.want(vector.Query{Text: "word7", K: 1}, "0 0")
	here.want(vector.Query{Text: "other", K: 1}, "7 1")
	if n, err := there.Delete(t.Context(), there.Collection, []string{"7", "8", "8", "unknown"}); n != 2 || err != nil {
		t.Errorf("deleted %d, %v", n, err)
	}
	if err := store.SweepRecords(t.Context(), time.Now().Add(time.Hour).UnixMilli()); err != nil {
		t.Fatal(err)
	}
	here.want(vector.Query{Text: "other word8 word9", K: 1}, "9 0.5311")
	if got := here.search(vector.Query{Text: "x", K: 1000}); len(got) != 448 {
		t.Errorf("%d documents", len(got))
	}
	if n, err := there.Clear(t.Context(), there.Collection); n != 448 || err != nil {
		t.Errorf("cleared %d, %v", n, err)
	}
	there.put("new: word9")
	here.want(words("word9"), "new 0")
}

// TestUsers: the documents of a caller are apart from others, and go with the caller.
func TestUsers(t *testing.T) {
	t.Parallel()
	store := storetest.New(t)
	service := newService(store)
	of := func(project, name, user string) collection {
		return collection{t, service, vector.Collection{Project: project, Name: name, User: user}}
	}
	all := of("p", "docs", "")
	all.put("1: shared")
	of("p", "docs", "anna").put("1: anna's")
	of("p", "docs", "ben").put("1: ben's")
	of("p", "docs2", "").put("1: others")
	of("q", "docs", "").put("1: another project's")
	for _, c := range []collection{all, of("p", "docs", "anna"), of("p", "docs2", ""), of("q", "docs", "")} {
		c.want(words("x"), "1 0")
	}
	if _, err := store.EraseRecords(t.Context(), "p", "anna", ""); err != nil {
		t.Fatal(err)
	}
	of("p", "docs", "anna").want(words("x"))
	all.want(words("x"), "1 0")
	list, err := service.Collections(t.Context(), "p", "", "", 10)
	if err != nil || len(list) != 2 || list[0].Name != "docs" || list[0].Documents != 1 {
		t.Errorf("collections %+v, %v", list, err)
	}
	if n, err := service.Clear(t.Context(), all.Collection); n != 2 || err != nil {
		t.Errorf("cleared %d, %v", n, err)
	}
	for _, c := range []collection{all, of("p", "docs", "ben")} {
		c.want(words("x"))
	}
	of("p", "docs2", "").want(words("x"), "1 0")
	of("q", "docs", "").want(words("x"), "1 0")
	of("r", "docs", "b\xffn").put("1: of a broken name")
	of("r", "docs", "b\ufffdn").want(words("x"), "1 0") // as erasing finds it
	if list, err = service.Collections(t.Context(), "p", "ben", "", 10); err != nil || len(list) != 0 {
		t.Errorf("ben's collections %+v, %v", list, err)
	}
}

// TestPut: IDs, places and pieces of large batches.
func TestPut(t *testing.T) {
	t.Parallel()
	c := open(t)
	ids, err := c.Put(t.Context(), c.Collection, []vector.Document{{Content: "a"}, {ID: "x", Content: "b"}, {ID: "x", Content: "c", Metadata: json.RawMessage(`{"k":1}`)}, {Content: "d"}})
	if err != nil || !slices.Equal(ids, []string{"new-1", "x", "x", "new-2"}) {
		t.Fatalf("%q, %v", ids, err)
	}
	c.want(words("c"), "x 1", "new-1 0", "new-2 0")
	got, err := c.Get(t.Context(), c.Collection, "x")
	if err != nil || got.Content != "c" || string(got.Metadata) != `{"k":1}` {
		t.Errorf("%+v, %v", got, err)
	}
	c.put("x: again")
	if again, err := c.Get(t.Context(), c.Collection, "x"); err != nil || string(again.Metadata) != "{}" || again.CreatedUS != got.CreatedUS {
		t.Errorf("replaced: %+v, %v", again, err)
	}
	if _, err := c.Get(t.Context(), c.Collection, "nothing"); !fault.Is(err, fault.NotFound) {
		t.Errorf("unknown: %v", err)
	}
	var large []vector.Document
	for i := range 100 { // over two commits
		large = append(large, vector.Document{ID: fmt.Sprintf("l%02d", i), Content: strings.Repeat("y ", 30_000)})
	}
	c.store(large...)
	small := make([]vector.Document, 1000)
	for i := range small { // their bodies fill commits to the last byte
		small[i] = vector.Document{Embedding: make([]float32, 1536)}
	}
	if ids, err := c.Put(t.Context(), vector.Collection{Project: "p", Name: "small"}, small); err != nil || len(ids) != 1000 {
		t.Errorf("%d IDs, %v", len(ids), err)
	}
	docs, info, err := c.List(t.Context(), c.Collection, "l97", 10)
	if err != nil || info.Documents != 103 || len(docs) != 5 || docs[1].ID != "l99" {
		t.Errorf("list: %d, %+v, %v", len(docs), info, err)
	}
	for what, d := range map[string]vector.Document{
		"content": {Content: strings.Repeat("x", vector.MaxContent+1)}, "metadata": {Metadata: json.RawMessage(`[1]`)}, "id": {ID: "a\nb"},
	} {
		if _, err := c.Put(t.Context(), c.Collection, []vector.Document{d}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, name := range []string{"", ".", "a/b", "ä", strings.Repeat("x", 129)} {
		if _, err := c.Put(t.Context(), vector.Collection{Project: "p", Name: name}, []vector.Document{{Content: "x"}}); !fault.Is(err, fault.Invalid) {
			t.Errorf("collection %q: %v", name, err)
		}
	}
}

// counted counts the records that are listed.
type counted struct {
	record.Store
	records int
}

func (s *counted) Records(ctx context.Context, space record.Space, q record.Query) ([]record.Record, record.State, error) {
	list, state, err := s.Store.Records(ctx, space, q)
	s.records += len(list)
	return list, state, err
}

// TestEmptyCollections: collections without documents leave the memory, too.
func TestEmptyCollections(t *testing.T) {
	t.Parallel()
	service := vector.New(job.New(job.Config{}), vector.Config{Store: storetest.New(t), MaxMB: 1, Now: time.Now})
	for i := range 3000 {
		if _, err := service.Search(t.Context(), vector.Collection{Project: "p", Name: fmt.Sprint(i)}, words("x")); err != nil {
			t.Fatal(err)
		}
	}
	if n := service.Residents(); n > 1024 {
		t.Errorf("%d empty collections are in memory", n)
	}
}

// TestMemory: an index that would exceed its memory is refused, and smaller ones still work.
func TestMemory(t *testing.T) {
	t.Parallel()
	reads := &counted{Store: storetest.New(t)}
	service := vector.New(job.New(job.Config{}), vector.Config{Store: reads, MaxMB: 1, Now: time.Now, NewID: func() string { return "x" }})
	c := collection{t, service, vector.Collection{Project: "p", Name: "large"}}
	for i := range 20 {
		var b strings.Builder
		for k := range 1000 {
			fmt.Fprintf(&b, "w%dx%d ", i, k)
		}
		c.put(fmt.Sprintf("%d: %s", i, b.String()))
	}
	if _, err := c.Search(t.Context(), c.Collection, words("x")); !fault.Is(err, fault.Quota) || !strings.Contains(err.Error(), "HEARDLOG_VECTORS_MB") {
		t.Errorf("a large collection: %v", err)
	}
	reads.records = 0
	if _, err := c.Search(t.Context(), c.Collection, words("x")); !fault.Is(err, fault.Quota) || reads.records > 1 {
		t.Errorf("again: %v after reading %d records", err, reads.records)
	}
	for i := range 18 {
		if _, err := c.Delete(t.Context(), c.Collection, []string{fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	c.want(words("x"), "18 0", "19 0")
	small := collection{t, service, vector.Collection{Project: "p", Name: "small"}}
	small.put("1: one")
	small.want(words("x"), "1 0")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := small.Search(ctx, small.Collection, words("x")); err == nil {
		t.Error("a search without a client succeeded")
	}
}
