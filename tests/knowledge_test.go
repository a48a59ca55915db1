package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

const knowledgePath = v1 + "/knowledge"

type knowledgeEntry struct {
	ID, Content string
	Version     int
	Source      *struct {
		Document, Heading string
		FromLine          int `json:"from_line"`
		ToLine            int `json:"to_line"`
	}
}

type knowledgeImport struct {
	ID, State, Detail string
	Total, Done       int
	Failed, Removed   int
}

// findEntries searches a knowledge base and returns the IDs, best first.
func (s *server) findEntries(base, query string) []string {
	s.t.Helper()
	var out struct {
		Results []knowledgeEntry
		TookMS  *float64 `json:"took_ms"`
	}
	s.post(knowledgePath+"/"+base+"/search", map[string]any{"query": query}).ok(&out)
	ids := []string{}
	for _, e := range out.Results {
		ids = append(ids, e.ID)
	}
	return ids
}

// imports imports a document and waits until that has ended.
func (s *server) imports(base, document, format, content string) (m knowledgeImport) {
	s.t.Helper()
	got := s.post(knowledgePath+"/"+base+"/imports", map[string]string{"document": document, "format": format, "content": content})
	if got.status != http.StatusAccepted {
		s.t.Fatalf("%d %s", got.status, got.body)
	}
	var all struct{ Imports []knowledgeImport }
	s.get(knowledgePath + "/" + base + "/imports").ok(&all)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if s.get(knowledgePath + "/" + base + "/imports/" + all.Imports[0].ID).ok(&m); m.State != "running" {
			return m
		}
	}
	s.t.Fatalf("%+v", m)
	return m
}

// TestKnowledge is the life of a knowledge base, over a restart.
func TestKnowledge(t *testing.T) {
	t.Parallel()
	s := start(t)
	const b, e = knowledgePath + "/faq", knowledgePath + "/faq/entries/refund"
	for _, path := range []string{b, e, e + "/versions", b + "/entries", b + "/imports", b + "/imports/x"} {
		s.get(path).refused(http.StatusNotFound, "TaskNotFound", "create it with PUT /v1/knowledge/faq")
	}
	s.do(http.MethodPut, e, `{"content":"x"}`).refused(http.StatusNotFound, "TaskNotFound")
	s.do(http.MethodDelete, e, nil).absent()
	s.post(b+"/search", `{"query":"x"}`).refused(http.StatusNotFound, "TaskNotFound")
	s.post(b+"/imports", `{"document":"d","format":"text","content":"x"}`).refused(http.StatusNotFound, "TaskNotFound")

	s.do(http.MethodPut, b, `{"json_schema":{"properties":{"days":{"type":"integer"}}},"max_entries":1000}`).ok(nil)
	s.do(http.MethodPut, e, `{"content":"Refunds take five days.","data":{"days":5},"tags":["money"]}`).ok(nil)
	var entry knowledgeEntry
	s.do(http.MethodPut, e, `{"content":"Refunds take six days.","data":{"days":6},"source":{"document":"handbook","heading":"Refunds","from_line":3,"to_line":4},"if_version":1}`).ok(&entry)
	if entry.Version != 2 || entry.Source.FromLine != 3 {
		t.Errorf("%+v", entry)
	}
	s.do(http.MethodPut, e, `{"content":"x","if_version":1}`).refused(http.StatusConflict, "TaskConflict", "if_version", "has version 2")
	s.do(http.MethodDelete, e+"?if_version=1", nil).refused(http.StatusConflict, "TaskConflict", "has version 2")
	s.do(http.MethodPut, e, `{"data":{"days":"six"}}`).refused(http.StatusBadRequest, "InvalidFieldValue", "data.days: got string, want integer")
	s.do(http.MethodPut, knowledgePath+"/rdf", `{"schema":"rdf"}`).refused(http.StatusBadRequest, "InvalidFieldValue", "rdf is not supported")
	m := s.imports("faq", "guide.md", "markdown", "# Guide\n\n## Shipping\n\nWe ship to Norway in two days.\n\n## Returns\n\nSend it back.\n")
	if m.State != "done" || m.Total != 2 || m.Done != 2 {
		t.Errorf("%+v", m)
	}

	var first, second knowledgeImport
	for _, m := range []*knowledgeImport{&first, &second} {
		got := s.post(b+"/imports", `{"document":"again","format":"text","content":"Zebras."}`, "Idempotency-Key", "k")
		if err := json.Unmarshal(got.body, m); err != nil || got.status != http.StatusAccepted {
			t.Errorf("%d %s", got.status, got.body)
		}
		s = s.again()
	}
	if first.ID != second.ID || first.ID == "" {
		t.Errorf("%+v, then %+v", first, second)
	}
	s.post(b+"/imports", `{"document":"again","format":"text","content":"Lions."}`, "Idempotency-Key", "k").refused(http.StatusConflict, "TaskConflict", "Idempotency-Key")
	s.post(b+"/imports", `{"document":"again","format":"text","content":"Lions."}`, "Idempotency-Key", "é").refused(http.StatusBadRequest, "InvalidFieldValue", "Idempotency-Key")
	s.imports("faq", "again", "text", "Lions.") // all before it have ended
	s.do(http.MethodDelete, b+"/entries/again%231", nil)

	if got := s.findEntries("faq", "Do you ship to Norway?"); len(got) == 0 || got[0] != "guide.md#1" {
		t.Errorf("found %q", got)
	}
	if s.get(b + "/entries/guide.md%231").ok(&entry); entry.Source.Heading != "Guide > Shipping" || entry.Source.FromLine != 3 || entry.Source.ToLine != 5 {
		t.Errorf("%+v", entry.Source)
	}
	var versions struct{ Versions []knowledgeEntry }
	if s.get(e + "/versions").ok(&versions); len(versions.Versions) != 2 || versions.Versions[1].Content != "Refunds take five days." {
		t.Errorf("%+v", versions)
	}
	var page struct {
		Entries    []knowledgeEntry
		Total      int
		NextCursor string `json:"next_cursor"`
	}
	if s.get(b + "/entries?limit=2").ok(&page); len(page.Entries) != 2 || page.Total != 3 || page.NextCursor != "guide.md#2" {
		t.Errorf("%+v", page)
	}
	var list struct {
		Bases      []struct{ Base string }
		NextCursor string `json:"next_cursor"`
	}
	s.get(b).ok(nil)
	s.do(http.MethodPut, knowledgePath+"/other", `{}`).ok(nil)
	if s.get(knowledgePath + "?limit=1").ok(&list); len(list.Bases) != 1 || list.NextCursor != "faq" {
		t.Errorf("%+v", list)
	}
	if got := s.do(http.MethodDelete, e, nil); got.status != http.StatusNoContent {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := s.do(http.MethodDelete, b, nil); got.status != http.StatusNoContent {
		t.Errorf("%d %s", got.status, got.body)
	}
	s.get(b).refused(http.StatusNotFound, "TaskNotFound")
	s.do(http.MethodPut, b, `{}`).ok(nil)
	if got := s.findEntries("faq", "Norway"); len(got) != 0 {
		t.Errorf("a deleted base holds %q", got)
	}
}

// TestKnowledgeInvalid: what cannot be read is refused, with the field.
func TestKnowledgeInvalid(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_MAX_BODY=70000")
	const b, e = knowledgePath + "/b", knowledgePath + "/b/entries/e"
	s.do(http.MethodPut, b, `{}`).ok(nil)
	for _, c := range []struct{ method, path, body, word string }{
		{"GET", knowledgePath + "?limit=0.5", "", "limit"}, {"PUT", knowledgePath + "/.b", `{}`, "base"}, {"GET", knowledgePath + "/.b", "", "base"},
		{"DELETE", knowledgePath + "/.b", "", "base"}, {"PUT", b, `{"max_entries":0}`, "max_entries"}, {"PUT", e, `{}`, "content"}, {"GET", e + "?x=1", "", "x"},
		{"DELETE", e + "?if_version=x", "", "if_version"}, {"PUT", e, `{"content":"x","if_version":-1}`, "if_version"}, {"GET", e + "/versions?x=1", "", "x"},
		{"GET", b + "/entries?limit=1000", "", "limit"}, {"POST", b + "/search", `{}`, "query"}, {"POST", b + "/search", `{"query":"x","k":0}`, "k"},
		{"POST", b + "/imports", `{"document":"d","format":"pdf","content":"x"}`, "format"}, {"GET", b + "/imports?x=1", "", "x"}, {"GET", b + "/imports/x?x=1", "", "x"},
	} {
		var body any
		if c.body != "" {
			body = c.body
		}
		if got := s.do(c.method, c.path, body); got.status != http.StatusBadRequest || !strings.Contains(string(got.body), c.word) {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, got.status, got.body)
		}
	}
	large := `{"query":"` + strings.Repeat("x", 70_000) + `"}`
	s.do(http.MethodPut, b, large).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody")
	s.do(http.MethodPut, e, large).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody")
	s.post(b+"/search", large).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody")
	s.post(b+"/imports", strings.Repeat("x", 32<<20+1)).refused(http.StatusRequestEntityTooLarge, "InvalidRequestBody")
}

// TestKnowledgeFull: what a project stores in its bases counts. An encrypted base is searched in
// memory, and refused if its index needs too much.
func TestKnowledgeFull(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_MAX_PROJECT_MB=1", "HEARDLOG_VECTORS_MB=1", "HEARDLOG_SECRET_KEY=a key that is long enough")
	const b = knowledgePath + "/b"
	s.do(http.MethodPut, b, `{}`).ok(nil)
	word, size := 0, 62_000
	for i := 0; size > 100; i++ {
		var text strings.Builder
		for text.Len() < size {
			word++
			fmt.Fprintf(&text, "word%d ", word*7919)
		}
		if s.do(http.MethodPut, fmt.Sprint(b, "/entries/", i), map[string]string{"content": text.String()}).status != http.StatusOK {
			size /= 4
		}
	}
	s.post(b+"/search", `{"query":"word"}`).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "HEARDLOG_VECTORS_MB")
	s.post(b+"/search", `{"query":"word"}`).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "HEARDLOG_VECTORS_MB")
	more := strings.Repeat("x", 30_000)
	s.do(http.MethodPut, b+"/entries/x", map[string]string{"content": more}).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "HEARDLOG_MAX_PROJECT_MB")
	s.do(http.MethodPut, b, map[string]any{"json_schema": map[string]string{"title": more[:16000]}}).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "HEARDLOG_MAX_PROJECT_MB")
	s.post(b+"/imports", map[string]string{"document": "d", "format": "text", "content": more}).refused(http.StatusUnprocessableEntity, "ResourceQuotaLimitExceeded", "HEARDLOG_MAX_PROJECT_MB")
}

// TestKnowledgeProjects: bases of one project are not those of another, and personal data are
// replaced before they are stored.
func TestKnowledgeProjects(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_CREDENTIALS=one=a:secret-of-one,two=b:secret-of-two", "HEARDLOG_REDACT=email")
	one, two := []string{"Authorization", basic("a", "secret-of-one")}, []string{"Authorization", basic("b", "secret-of-two")}
	s.do(http.MethodPut, knowledgePath+"/b", `{}`, one...).ok(nil)
	var e struct {
		Content string
		Data    map[string]string
	}
	s.do(http.MethodPut, knowledgePath+"/b/entries/e", `{"content":"Ask anna@example.com","data":{"to":"ben@example.com"}}`, one...).ok(&e)
	if strings.Contains(fmt.Sprint(e), "example.com") {
		t.Errorf("stored %+v", e)
	}
	s.get(knowledgePath+"/b", two...).refused(http.StatusNotFound, "TaskNotFound")
	s.do(http.MethodPut, knowledgePath+"/b", `{}`, two...).ok(nil)
	s.get(knowledgePath+"/b/entries/e", two...).refused(http.StatusNotFound, "TaskNotFound")
}

// TestKnowledgeReplicas: a search finds what another server has stored before it.
func TestKnowledgeReplicas(t *testing.T) {
	t.Parallel()
	two := replicas(t, 2)
	two[0].do(http.MethodPut, knowledgePath+"/b", `{}`).ok(nil)
	for i := range 10 {
		id := fmt.Sprintf("e%d", i)
		two[i%2].do(http.MethodPut, knowledgePath+"/b/entries/"+id, fmt.Sprintf(`{"content":"The colour number %d is blue."}`, i+100)).ok(nil)
		if got := two[1-i%2].findEntries("b", fmt.Sprintf("colour %d", i+100)); len(got) == 0 || got[0] != id {
			t.Errorf("%s: %q", id, got)
		}
	}
	if m := two[1].imports("b", "d", "text", "Green is nice.\n"); m.State != "done" {
		t.Errorf("%+v", m)
	}
	if got := two[0].findEntries("b", "Is green nice?"); !slices.Contains(got, "d#1") {
		t.Errorf("%q", got)
	}
}

// TestKnowledgeGuards: every call about bases and patterns needs credentials and counts as a
// request.
func TestKnowledgeGuards(t *testing.T) {
	t.Parallel()
	closed := start(t, "HEARDLOG_CREDENTIALS=p=id:a-secret-of-p")
	limited := start(t, "HEARDLOG_RATE_LIMIT=requests=1")
	const b, e = knowledgePath + "/b", knowledgePath + "/b/entries/e"
	for _, c := range [][2]string{
		{"GET", knowledgePath}, {"PUT", b}, {"GET", b}, {"DELETE", b}, {"GET", b + "/entries"}, {"PUT", e}, {"GET", e}, {"DELETE", e}, {"GET", e + "/versions"},
		{"POST", b + "/search"}, {"POST", b + "/imports"}, {"GET", b + "/imports"}, {"GET", b + "/imports/i"},
		{"GET", v1 + "/patterns"}, {"PUT", v1 + "/patterns/p"}, {"GET", v1 + "/patterns/p"}, {"DELETE", v1 + "/patterns/p"}, {"POST", v1 + "/patterns/p/feedback"},
	} {
		closed.do(c[0], c[1], nil).refused(http.StatusUnauthorized, "InvalidPermission")
		for limited.do(c[0], c[1], nil).status != http.StatusTooManyRequests {
		}
	}
}
