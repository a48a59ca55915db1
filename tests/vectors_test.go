package tests

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const vectorsPath = v1 + "/vectors"

type vectorDocument struct {
	ID, Content string
	Score       *float64
	Metadata    map[string]any
	Embedding   []float64
	CreatedAt   string `json:"created_at"`
	UpdatedAt   string `json:"updated_at"`
}

// storeDocuments stores documents in a collection and returns their IDs.
func (s *server) storeDocuments(collection, body string, headers ...string) []string {
	s.t.Helper()
	var out struct{ IDs []string }
	s.post(vectorsPath+"/"+collection, body, headers...).ok(&out)
	return out.IDs
}

// findDocuments searches a collection and returns "id score", or "id" without a score.
func (s *server) findDocuments(collection, body string, headers ...string) []string {
	s.t.Helper()
	var out struct {
		Results []vectorDocument
		TookMS  *float64 `json:"took_ms"`
	}
	s.post(vectorsPath+"/"+collection+"/search", body, headers...).ok(&out)
	found := []string{}
	for _, r := range out.Results {
		if r.Score != nil {
			r.ID += fmt.Sprintf(" %.3g", *r.Score)
		}
		found = append(found, r.ID)
	}
	if out.Results == nil || out.TookMS == nil {
		s.t.Errorf("%s: %+v", body, out)
	}
	return found
}

// wantDocuments checks what a search finds.
func (s *server) wantDocuments(collection, body string, want ...string) {
	s.t.Helper()
	if d := cmp.Diff(append([]string{}, want...), s.findDocuments(collection, body)); d != "" {
		s.t.Errorf("%s: %s (-want +got):\n%s", collection, body, d)
	}
}

// TestVectors is the life of a collection, over a restart.
func TestVectors(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.wantDocuments("faq", `{"query":"refund"}`)
	ids := s.storeDocuments("faq", `{"content":"Refunds take five days.","metadata":{"lang":"en"}}`)
	if len(ids) != 1 || len(ids[0]) != 36 {
		t.Fatalf("IDs %q", ids)
	}
	s.wantDocuments("faq", `{"query":"refunds"}`, ids[0]+" 0")
	if got := s.storeDocuments("faq", `{"documents":[{"id":"b","content":"Shipping takes two days."},{"id":"a/1","content":"Wir liefern nach Norwegen.","metadata":{"lang":"de","tags":["x"]}},{"id":"b","content":"Shipping is free."}]}`); cmp.Diff([]string{"b", "a/1", "b"}, got) != "" {
		t.Errorf("IDs %q", got)
	}
	s.do(http.MethodPut, vectorsPath+"/faq/twice", `{"id":"twice","content":"refunds refunds"}`).ok(nil)
	s = s.again()
	s.wantDocuments("faq", `{"query":"refunds"}`, "twice 1", ids[0]+" 0.306", "b 0", "a/1 0")
	s.wantDocuments("faq", `{"query":"refunds","k":1,"include_scores":false}`, "twice")
	s.wantDocuments("faq", `{"query":"refunds","min_score":0.2}`, "twice 1", ids[0]+" 0.306")
	s.wantDocuments("faq", `{"query":"refunds","filter":{"lang":"de"}}`, "a/1 0")
	for _, body := range []string{`{"query":" "}`, `{"query":"x","k":0}`, `{"query":"x","k":-1}`, `{"query":"x","filter":{"lang":"fr"}}`} {
		s.wantDocuments("faq", body)
	}

	var d vectorDocument
	s.get(vectorsPath + "/faq/a%2F1").ok(&d)
	if d.ID != "a/1" || *d.Score != 1 || d.Content != "Wir liefern nach Norwegen." || cmp.Diff(map[string]any{"lang": "de", "tags": []any{"x"}}, d.Metadata) != "" || d.CreatedAt == "" || d.CreatedAt != d.UpdatedAt {
		t.Errorf("%+v", d)
	}
	s.do(http.MethodPut, vectorsPath+"/faq/a%2F1", `{"content":"x"}`).ok(nil)
	d = vectorDocument{}
	s.get(vectorsPath + "/faq/a%2F1").ok(&d)
	if d.Content != "x" || len(d.Metadata) != 0 || d.Metadata == nil {
		t.Errorf("replaced: %+v", d)
	}
	s.get(vectorsPath+"/faq/unknown").refused(http.StatusNotFound, "TaskNotFound", `"unknown"`)

	var list struct {
		Documents  []vectorDocument
		Total      int
		NextCursor string `json:"next_cursor"`
	}
	s.get(vectorsPath + "/faq?limit=3").ok(&list)
	if len(list.Documents) != 3 || list.Total != 4 || list.NextCursor != list.Documents[2].ID {
		t.Errorf("%+v", list)
	}
	list.NextCursor = ""
	s.get(vectorsPath + "/faq?cursor=" + list.Documents[2].ID).ok(&list)
	if len(list.Documents) != 1 || list.NextCursor != "" {
		t.Errorf("second page %+v", list)
	}
	s.storeDocuments("books", `{"content":"x","embedding":[1,2]}`)
	var collections struct {
		Collections []struct {
			Collection            string
			Documents, Dimensions int
		}
		NextCursor string `json:"next_cursor"`
	}
	s.get(vectorsPath + "?limit=1").ok(&collections)
	if len(collections.Collections) != 1 || collections.Collections[0].Dimensions != 2 || collections.NextCursor != "books" {
		t.Errorf("%+v", collections)
	}
	s.get(vectorsPath + "?cursor=books").ok(&collections)
	if len(collections.Collections) != 1 || collections.Collections[0].Collection != "faq" || collections.Collections[0].Documents != 4 {
		t.Errorf("%+v", collections)
	}

	for range 2 { // the second finds nothing and is no error
		if got := s.do(http.MethodDelete, vectorsPath+"/faq/twice", nil); got.status != http.StatusNoContent {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	s.removed(vectorsPath+"/faq/delete", `{"ids":["a/1","unknown"]}`, 1)
	s.removed(vectorsPath+"/faq/delete", `{"filter":{"lang":"en"}}`, 1)
	s.removed(vectorsPath+"/faq/delete", `{"ids":[]}`, 0)
	s.wantDocuments("faq", `{"query":"refunds"}`, "b 0")
	s.do(http.MethodDelete, vectorsPath+"/faq", nil).is(http.StatusNoContent, nil)
	s.wantDocuments("faq", `{"query":"refunds"}`)
}

func (s *server) removed(path, body string, want int) {
	s.t.Helper()
	var out struct{ Removed int }
	s.post(path, body).ok(&out)
	if out.Removed != want {
		s.t.Errorf("%s: removed %d, want %d", body, out.Removed, want)
	}
}

// TestVectorEmbeddings: given embeddings are kept exactly and compared by each metric.
func TestVectorEmbeddings(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.storeDocuments("e", `{"documents":[{"id":"x","embedding":[1,0,0]},{"id":"y","content":"y","embedding":[0,2,0]},{"id":"xy","content":"","embedding":[0.1,0.3,-1e-30]},{"id":"text","content":"only text"}]}`)
	var d vectorDocument
	s.get(vectorsPath + "/e/xy").ok(&d)
	if cmp.Diff([]float64{0.1, 0.3, -1e-30}, d.Embedding) != "" {
		t.Errorf("embedding %v", d.Embedding)
	}
	s.wantDocuments("e", `{"embedding":[1,0,0]}`, "x 1", "xy 0.316", "y 0", "text 0")
	s.wantDocuments("e", `{"embedding":[0,1,0],"metric":"dot_product","k":2}`, "y 2", "xy 0.3")
	s.wantDocuments("e", `{"embedding":[0,1,0],"metric":"euclidean","index":"flat"}`, "xy 0.586", "y 0.5", "x 0.414", "text 0")
	s.wantDocuments("e", `{"query":"only y"}`, "y 0.707", "text 0.5", "x 0", "xy 0")
	for body, words := range map[string]string{`{"embedding":[1,2],"content":"x"}`: "2 numbers", `{"embedding":[]}`: "0 numbers", `{"embedding":[1e39]}`: "embedding", `{"embedding":"x"}`: "embedding", `{"documents":[{"content":"x"},{"embedding":[1,2]}]}`: "2 numbers"} {
		s.post(vectorsPath+"/e", body).refused(http.StatusBadRequest, "InvalidFieldValue", words)
	}
	s.post(vectorsPath+"/e/search", `{"embedding":[1,2]}`).refused(http.StatusBadRequest, "InvalidFieldValue", `have 3`)
	s.post(vectorsPath+"/e/search", `{"embedding":[1,2,3],"index":"hnsw"}`).refused(http.StatusBadRequest, "InvalidFieldValue", `"hnsw" is not available`)
}

// TestVectorBounds: what is refused, with the field's name.
func TestVectorBounds(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_MAX_BODY=20000", "HEARDLOG_VECTORS_MB=1")
	many := `{"documents":[` + strings.Repeat(`{"content":"x"},`, 1000) + `{"content":"x"}]}`
	for _, c := range []struct{ path, body, reason, words string }{
		{"", `{}`, "MissingRequiredField", "content"},
		{"", `{"documents":[{"content":"x"},{"id":"y"}]}`, "MissingRequiredField", "documents[1].content"},
		{"", `{"documents":[]}`, "InvalidFieldValue", "documents"},
		{"", many, "InvalidFieldValue", "1000"},
		{"", `{"documents":[{"content":"x"}],"content":"y"}`, "InvalidFieldValue", "documents"},
		{"", `{"content":"` + strings.Repeat("x", 65537) + `"}`, "InvalidFieldValue", "65536"},
		{"", `{"content":"x","metadata":[]}`, "InvalidFieldValue", "metadata"},
		{"", `{"content":"x","metadata":{"a":"` + strings.Repeat("x", 16384) + `"}}`, "InvalidFieldValue", "16384"},
		{"", `{"content":"x","id":"a\nb"}`, "InvalidFieldValue", "id"},
		{"", `{"content":"x","ID":"a"}`, "InvalidFieldValue", "ID"},
		{"/search", `{}`, "MissingRequiredField", "query"},
		{"/search", `{"query":"x","embedding":[1]}`, "InvalidFieldValue", "embedding"},
		{"/search", `{"query":"x","k":1001}`, "InvalidFieldValue", "1000"},
		{"/search", `{"query":"x","k":1.5}`, "InvalidFieldValue", "k"},
		{"/search", `{"query":"x","metric":"manhattan"}`, "InvalidFieldValue", "metric"},
		{"/search", `{"query":"x","metric":"dot"}`, "InvalidFieldValue", "metric"},
		{"/search", `{"query":"x","filter":"y"}`, "InvalidFieldValue", "filter"},
		{"/search", `{"query":"` + strings.Repeat("x", 4001) + `"}`, "InvalidFieldValue", "4000"},
		{"/delete", `{}`, "MissingRequiredField", "ids"},
		{"/delete", `{"ids":["a"],"filter":{"b":1}}`, "InvalidFieldValue", "filter"},
		{"/delete", `{"filter":{}}`, "InvalidFieldValue", "filter"},
	} {
		s.post(vectorsPath+"/c"+c.path, c.body).refused(http.StatusBadRequest, c.reason, c.words)
	}
	for _, c := range []struct{ method, path string }{{"POST", "/.c"}, {"GET", "/a%2Fb"}, {"DELETE", "/%20"}, {"PUT", "/c/%2E%2E"}, {"GET", "/c/%00"}, {"DELETE", "/c/%00"}, {"GET", "/c?limit=501"}, {"GET", "?cursor=%00"}} {
		s.do(c.method, vectorsPath+c.path, `{"content":"x"}`).refused(http.StatusBadRequest, "InvalidFieldValue")
	}
	s.do("PUT", vectorsPath+"/c/x", `{"id":"y","content":"x"}`).refused(http.StatusBadRequest, "InvalidFieldValue", "id")
	large := `{"query":"` + strings.Repeat("x", 20_000) + `"}`
	for _, path := range []string{"/c/search", "/c/delete"} {
		s.post(vectorsPath+path, large).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody", "20000")
	}
	huge := `{"content":"` + strings.Repeat("x", 16<<20) + `"}`
	for _, c := range []struct{ method, path string }{{"POST", "/c"}, {"PUT", "/c/x"}} {
		s.do(c.method, vectorsPath+c.path, huge).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody")
	}
	for i := range 20 {
		var b strings.Builder
		for k := range 1000 {
			fmt.Fprintf(&b, "w%dx%d ", i, k)
		}
		s.storeDocuments("large", `{"content":"`+b.String()+`"}`)
	}
	s.post(vectorsPath+"/large/search", `{"query":"x"}`).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "HEARDLOG_VECTORS_MB")
	s.post(vectorsPath+"/large/delete", `{"filter":{"a":1}}`).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "HEARDLOG_VECTORS_MB")
}

// TestVectorRepeat: with an Idempotency-Key a repeated call stores nothing twice.
func TestVectorRepeat(t *testing.T) {
	t.Parallel()
	s := start(t)
	body := `{"documents":[{"content":"x"},{"content":"y"}]}`
	first := s.storeDocuments("c", body, "Idempotency-Key", "k1")
	if d := cmp.Diff(first, s.storeDocuments("c", body, "Idempotency-Key", "k1")); d != "" || first[0] == first[1] {
		t.Errorf("%q: %s", first, d)
	}
	if got := s.findDocuments("c", `{"query":"x"}`); len(got) != 2 {
		t.Errorf("%q", got)
	}
}

// TestVectorTenants: collections are apart by project and by caller, and each call needs its scope.
func TestVectorTenants(t *testing.T) {
	t.Parallel()
	s := start(t, twoTenants)
	alice, bob := []string{"Authorization", basic("alice", "wonder")}, []string{"Authorization", basic("bob", "builder")}
	s.storeDocuments("c", `{"id":"1","content":"alice's"}`, alice...)
	s.storeDocuments("c", `{"id":"1","content":"anna's","user_id":"anna"}`, alice...)
	if got := s.findDocuments("c", `{"query":"x"}`, bob...); len(got) != 0 {
		t.Errorf("bob finds %q", got)
	}
	s.get(vectorsPath+"/c/1", bob...).refused(http.StatusNotFound, "TaskNotFound")
	var d vectorDocument
	s.get(vectorsPath+"/c/1?user_id=anna", alice...).ok(&d)
	if d.Content != "anna's" {
		t.Errorf("anna's: %+v", d)
	}
	if got := s.findDocuments("c", `{"query":"x","user_id":"anna"}`, alice...); len(got) != 1 {
		t.Errorf("anna's: %q", got)
	}
	d = vectorDocument{}
	s.get(vectorsPath+"/c/1", alice...).ok(&d)
	if d.Content != "alice's" {
		t.Errorf("alice's: %+v", d)
	}
}

// TestVectorRefusals: each call needs credentials and a page that may call, and is limited.
func TestVectorRefusals(t *testing.T) {
	t.Parallel()
	path := func(p string) string {
		if below, ok := strings.CutPrefix(p, "/../"); ok {
			return v1 + "/" + below
		}
		return vectorsPath + p
	}
	closed, open, limited := start(t, twoTenants), start(t), start(t, "HEARDLOG_RATE_LIMIT=1")
	for _, c := range []struct{ method, path string }{
		{"GET", ""}, {"POST", "/c"}, {"GET", "/c"}, {"DELETE", "/c"}, {"POST", "/c/search"}, {"POST", "/c/delete"}, {"PUT", "/c/1"}, {"GET", "/c/1"}, {"DELETE", "/c/1"},
		{"GET", "/../embeddings/models"}, {"POST", "/../embeddings/rebuild"},
	} {
		closed.do(c.method, path(c.path), `{}`).refused(http.StatusUnauthorized, "InvalidPermission")
		open.do(c.method, path(c.path), `{}`, "Host", "evil.example").refused(http.StatusForbidden, "InvalidPermission", "evil.example")
		for limited.do(c.method, path(c.path), `{}`).status != http.StatusTooManyRequests {
		}
	}
}

// fakeModel makes embeddings that say whether a text is about animals or about plants.
type fakeModel struct {
	mu    sync.Mutex
	texts []string
	fails bool     // the next calls
	lost  []string // texts of calls that failed
	shift float32
}

func (m *fakeModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var in struct {
		Model      string
		Input      []string
		Dimensions int
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || m.fails || r.Header.Get("Authorization") != "Bearer key-of-the-model" || in.Dimensions != 3 {
		m.lost = append(m.lost, in.Input...)
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if slices.Contains(in.Input, "bad cat") {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var out struct {
		Data []map[string]any `json:"data"`
	}
	for i, text := range in.Input {
		v := []float32{0.1, 0.1, m.shift}
		for word, at := range map[string]int{"cat": 0, "dog": 0, "oak": 1, "rose": 1} {
			if strings.Contains(strings.ToLower(text), word) {
				v[at]++
			}
		}
		out.Data = append(out.Data, map[string]any{"index": i, "embedding": v})
		m.texts = append(m.texts, text)
	}
	_ = json.NewEncoder(w).Encode(out)
}

// TestEmbeddings: a model's embeddings of documents and queries count beside their words, and
// without them the words alone.
func TestEmbeddings(t *testing.T) {
	t.Parallel()
	model := &fakeModel{}
	srv := httptest.NewServer(model)
	t.Cleanup(srv.Close)
	s := start(t, "HEARDLOG_EMBEDDINGS_URL="+srv.URL, "HEARDLOG_EMBEDDINGS_KEY=key-of-the-model", "HEARDLOG_EMBEDDINGS_MODEL=m1", "HEARDLOG_EMBEDDINGS_DIMENSIONS=3")
	s.storeDocuments("pets", `{"documents":[{"id":"plant","content":"An oak in the garden."},{"id":"animal","content":"A cat on the roof."},{"id":"given","content":"A dog.","embedding":[1,2]},{"id":"refused","content":"bad cat"}]}`)
	search := func(s *server, query string) (ids []string, degraded []string) {
		var out struct {
			Results  []vectorDocument
			Degraded []string
		}
		s.post(vectorsPath+"/pets/search", `{"query":"`+query+`","k":2,"embed_within_ms":10000}`).ok(&out)
		for _, r := range out.Results {
			ids = append(ids, r.ID)
		}
		return ids, out.Degraded
	}
	// found waits until a search for a word that no document has finds the one that means it.
	found := func(s *server) {
		t.Helper()
		waitFor(t, "a search by meaning", func() bool {
			ids, degraded := search(s, "dogs")
			return len(degraded) == 0 && ids[0] == "animal"
		})
	}
	found(s)
	var models struct {
		Models []struct {
			ID, Name   string
			Dimensions int
			Current    bool
		}
	}
	s.get(v1 + "/embeddings/models").ok(&models)
	if len(models.Models) != 1 || !models.Models[0].Current || models.Models[0].Dimensions != 3 || models.Models[0].Name != "m1" {
		t.Errorf("%+v", models)
	}
	s = s.again()
	found(s)
	model.mu.Lock()
	if n := len(slices.DeleteFunc(slices.Clone(model.texts), func(text string) bool { return text != "A cat on the roof." })); n != 1 {
		t.Errorf("a document was embedded %d times", n)
	}
	if slices.Contains(model.texts, "A dog.") {
		t.Error("a document with an embedding was embedded")
	}
	model.fails = true
	model.mu.Unlock()
	if ids, degraded := search(s, "roof"); len(ids) != 2 || ids[0] != "animal" || !slices.Equal(degraded, []string{"embeddings"}) {
		t.Errorf("without the endpoint: %q, degraded %q", ids, degraded)
	}
	model.mu.Lock()
	model.fails, model.shift = false, 0.5 // another model behind the same name
	model.mu.Unlock()
	var rebuilt struct{ Documents int }
	s.post(v1+"/embeddings/rebuild", `{"collection":"pets"}`).is(http.StatusAccepted, &rebuilt)
	if rebuilt.Documents != 3 {
		t.Errorf("rebuilt %+v", rebuilt)
	}
	s = s.again()
	found(s)
	s.get(v1 + "/embeddings/models").ok(&models)
	if len(models.Models) != 2 || models.Models[0].Current == models.Models[1].Current {
		t.Errorf("%+v", models)
	}
	s.post(v1+"/embeddings/rebuild", `{}`).refused(http.StatusBadRequest, "MissingRequiredField", "collection")
	if strings.Contains(s.log.String(), "key-of-the-model") {
		t.Error("the log has the key")
	}
	bare := start(t, "HEARDLOG_MAX_BODY=2000")
	bare.post(v1+"/embeddings/rebuild", `{"collection":"pets"}`).refused(http.StatusConflict, "TaskConflict", "HEARDLOG_EMBEDDINGS_URL")
	bare.post(v1+"/embeddings/rebuild", strings.Repeat(" ", 3000)).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody")
}

// TestVectorRedaction: what is hidden of other texts is hidden of documents, and numbers of an
// embedding are not taken for any.
func TestVectorRedaction(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_REDACT=card")
	s.storeDocuments("c", `{"id":"1","content":"Card 4111 1111 1111 1111","metadata":{"n":"4111111111111111"},"embedding":[4111111111111111]}`)
	var d vectorDocument
	s.get(vectorsPath + "/c/1").ok(&d)
	if strings.Contains(d.Content, "4111") || strings.Contains(fmt.Sprint(d.Metadata), "4111") || math.Abs(d.Embedding[0]-4111111111111111) > 1e9 {
		t.Errorf("%+v", d)
	}
}
