package handlers

import (
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/knowledge"
)

// knowledgeAPI serves knowledge bases.
type knowledgeAPI struct {
	bodies
	knowledge *knowledge.Service
	now       func() time.Time
}

// maxImportBody is how long the body of an import may be, in bytes: a document whose characters are
// all escaped.
const maxImportBody = 2 * knowledge.MaxImport

const defaultEntryHits = 5 // of a search in a knowledge base

// baseRequest has the settings of a base; absent ones are the defaults.
type baseRequest struct {
	Schema     *string         `json:"schema"`
	JSONSchema json.RawMessage `json:"json_schema"`
	Versioning *bool           `json:"versioning"`
	MaxEntries *int            `json:"max_entries"`
}

// baseJSON is a base in answers.
type baseJSON struct {
	Base       string          `json:"base"`
	Schema     string          `json:"schema"`
	JSONSchema json.RawMessage `json:"json_schema,omitempty"`
	Versioning bool            `json:"versioning"`
	MaxEntries int             `json:"max_entries"`
	Entries    int64           `json:"entries"`
	Bytes      int64           `json:"bytes"`
	CreatedAt  string          `json:"created_at"`
	UpdatedAt  string          `json:"updated_at"`
}

func newBaseJSON(b *knowledge.Info) baseJSON {
	return baseJSON{b.Name, b.Kind, b.Schema, b.Versioning, b.MaxEntries, b.Entries, b.Bytes, shownTime(b.CreatedMS), shownTime(b.UpdatedMS)}
}

// putBase serves PUT /v1/knowledge/{base}.
func (a knowledgeAPI) putBase(r *http.Request, in *baseRequest) (any, error) {
	b := knowledge.DefaultBase(projectOf(r), pathName(r, "base"))
	b.Kind, b.Versioning, b.MaxEntries = valueOr(in.Schema, b.Kind), valueOr(in.Versioning, b.Versioning), valueOr(in.MaxEntries, b.MaxEntries)
	if string(in.JSONSchema) != "null" {
		b.Schema = in.JSONSchema
	}
	if _, err := a.knowledge.PutBase(r.Context(), b); err != nil {
		return nil, err
	}
	return a.base(r)
}

// base serves GET /v1/knowledge/{base}.
func (a knowledgeAPI) base(r *http.Request) (any, error) {
	return shown(newBaseJSON)(a.knowledge.Base(r.Context(), projectOf(r), pathName(r, "base")))
}

// bases serves GET /v1/knowledge.
func (a knowledgeAPI) bases(r *http.Request) (any, error) {
	after, limit, err := pageOf(r, maxVectorPage, knowledge.MaxID)
	if err != nil {
		return nil, err
	}
	list, err := a.knowledge.Bases(r.Context(), projectOf(r), after, limit+1)
	list, next := cutPage(list, limit, func(x knowledge.Info) string { return x.Name })
	return struct {
		Bases      []baseJSON `json:"bases"`
		NextCursor string     `json:"next_cursor,omitempty"`
	}{each(list, newBaseJSON), next}, err
}

// deleteBase serves DELETE /v1/knowledge/{base}.
func (a knowledgeAPI) deleteBase(r *http.Request) error {
	return a.knowledge.DeleteBase(r.Context(), projectOf(r), pathName(r, "base"))
}

// entrySourceJSON is where an entry was taken from.
type entrySourceJSON struct {
	Document string `json:"document"`
	Heading  string `json:"heading,omitempty"`
	FromLine int    `json:"from_line,omitempty"`
	ToLine   int    `json:"to_line,omitempty"`
}

// entryRequest is an entry to store.
type entryRequest struct {
	Content   string           `json:"content"`
	Data      json.RawMessage  `json:"data"`
	Tags      []string         `json:"tags"`
	Source    *entrySourceJSON `json:"source"`
	IfVersion *int64           `json:"if_version"`
}

// entryJSON is an entry in answers.
type entryJSON struct {
	ID        string           `json:"id"`
	Version   int64            `json:"version"`
	Content   string           `json:"content"`
	Data      json.RawMessage  `json:"data,omitempty"`
	Tags      []string         `json:"tags"`
	Source    *entrySourceJSON `json:"source,omitempty"`
	Score     *float64         `json:"score,omitempty"`
	CreatedAt string           `json:"created_at"`
	UpdatedAt string           `json:"updated_at"`
}

func newEntryJSON(e *knowledge.Entry) entryJSON {
	out := entryJSON{ID: e.ID, Version: e.Version, Content: e.Content, Data: e.Data, Tags: append([]string{}, e.Tags...), CreatedAt: shownTime(e.CreatedMS), UpdatedAt: shownTime(e.UpdatedMS)}
	if s := e.Source; s != nil {
		out.Source = &entrySourceJSON{s.Document, s.Heading, s.FromLine, s.ToLine}
	}
	return out
}

// put serves PUT /v1/knowledge/{base}/entries/{id}.
func (a knowledgeAPI) put(r *http.Request, in *entryRequest) (any, error) {
	if in.IfVersion != nil && *in.IfVersion < 0 {
		return nil, fault.At(fault.Invalid, "if_version", "must be a version, or 0 for an entry that is not there, not %d", *in.IfVersion)
	}
	e := knowledge.Entry{ID: pathName(r, "id"), Content: in.Content, Data: in.Data, Tags: in.Tags}
	if s := in.Source; s != nil {
		e.Source = &knowledge.Source{Document: s.Document, Heading: s.Heading, FromLine: s.FromLine, ToLine: s.ToLine}
	}
	return shown(newEntryJSON)(a.knowledge.Put(r.Context(), projectOf(r), pathName(r, "base"), e, in.IfVersion))
}

// get serves GET /v1/knowledge/{base}/entries/{id}.
func (a knowledgeAPI) get(r *http.Request) (any, error) {
	e, _, err := a.read(r)
	return newEntryJSON(&e), err
}

func (a knowledgeAPI) read(r *http.Request) (e knowledge.Entry, older []knowledge.Entry, err error) {
	return a.knowledge.Get(r.Context(), projectOf(r), pathName(r, "base"), pathName(r, "id"))
}

// versions serves GET /v1/knowledge/{base}/entries/{id}/versions.
func (a knowledgeAPI) versions(r *http.Request) (any, error) {
	e, older, err := a.read(r)
	return struct {
		Versions []entryJSON `json:"versions"`
	}{append([]entryJSON{newEntryJSON(&e)}, each(older, newEntryJSON)...)}, err
}

// delete serves DELETE /v1/knowledge/{base}/entries/{id}.
func (a knowledgeAPI) delete(r *http.Request) error {
	ifVersion, err := versionParam(r.URL.Query())
	if err != nil {
		return err
	}
	return a.knowledge.Delete(r.Context(), projectOf(r), pathName(r, "base"), pathName(r, "id"), ifVersion)
}

// versionParam returns the parameter if_version, nil if it is absent.
func versionParam(query url.Values) (*int64, error) {
	if query.Get("if_version") == "" {
		return nil, nil
	}
	n, err := intParam(query, "if_version", 1, 1, 1<<31-1)
	version := int64(n)
	return &version, err
}

// list serves GET /v1/knowledge/{base}/entries.
func (a knowledgeAPI) list(r *http.Request) (any, error) {
	after, limit, err := pageOf(r, maxVectorPage, knowledge.MaxID)
	if err != nil {
		return nil, err
	}
	list, total, err := a.knowledge.List(r.Context(), projectOf(r), pathName(r, "base"), after, limit+1)
	list, next := cutPage(list, limit, func(x knowledge.Entry) string { return x.ID })
	return struct {
		Entries    []entryJSON `json:"entries"`
		Total      int64       `json:"total"`
		NextCursor string      `json:"next_cursor,omitempty"`
	}{each(list, newEntryJSON), total, next}, err
}

// searchKnowledgeRequest asks for entries.
type searchKnowledgeRequest struct {
	Query    string   `json:"query"`
	K        *int     `json:"k"`
	Tags     []string `json:"tags"`
	Document string   `json:"document"`
}

// search serves POST /v1/knowledge/{base}/search.
func (a knowledgeAPI) search(r *http.Request, in *searchKnowledgeRequest) (any, error) {
	began := a.now()
	name := pathName(r, "base")
	q := knowledge.Query{Text: in.Query, K: valueOr(in.K, defaultEntryHits), Tags: in.Tags, Document: in.Document}
	hits, strength, err := a.knowledge.Search(r.Context(), projectOf(r), name, q)
	if err != nil {
		return nil, err
	}
	out := struct {
		Results  []entryJSON `json:"results"`
		Strength string      `json:"strength"`
		TookMS   float64     `json:"took_ms"`
	}{Results: make([]entryJSON, len(hits)), Strength: strength}
	for i := range hits {
		out.Results[i] = newEntryJSON(&hits[i].Entry)
		out.Results[i].Score = &hits[i].Score
	}
	out.TookMS = milliseconds(a.now().Sub(began))
	return out, nil
}

// importRequest is a document to import.
type importRequest struct {
	Document string `json:"document" validate:"required"`
	Format   string `json:"format" validate:"required,oneof=markdown text jsonl csv"`
	Content  string `json:"content" validate:"required"`
}

// importJSON is an import in answers.
type importJSON struct {
	ID        string            `json:"id"`
	Base      string            `json:"base"`
	Document  string            `json:"document"`
	Format    string            `json:"format"`
	State     string            `json:"state"`
	Total     int               `json:"total"`
	Done      int               `json:"done"`
	Failed    int               `json:"failed"`
	Removed   int               `json:"removed"`
	Faults    []knowledge.Fault `json:"faults"`
	Detail    string            `json:"detail,omitempty"`
	CreatedAt string            `json:"created_at"`
	UpdatedAt string            `json:"updated_at"`
}

func newImportJSON(base string, m *knowledge.Import) importJSON {
	return importJSON{
		m.ID, base, m.Document, m.Format, m.State, m.Total, m.Done, m.Failed, m.Removed, append([]knowledge.Fault{}, m.Faults...), m.Detail,
		shownTime(m.CreatedMS), shownTime(m.UpdatedMS),
	}
}

// startImport serves POST /v1/knowledge/{base}/imports.
func (a knowledgeAPI) startImport(w http.ResponseWriter, r *http.Request) error {
	name := pathName(r, "base")
	body, err := a.readUpTo(w, r, max(a.limit, maxImportBody))
	if err != nil {
		return err
	}
	var in importRequest
	if err := a.unmarshal(body, &in, true); err != nil {
		return err
	}
	key, err := idempotencyKey(r, maxKey)
	if err != nil {
		return err
	}
	m, err := a.knowledge.StartImport(r.Context(), projectOf(r), name, key, knowledge.Document{Name: in.Document, Format: in.Format, Content: in.Content})
	if err != nil {
		return err
	}
	return encode(w, http.StatusAccepted, newImportJSON(name, &m))
}

// imports serves GET /v1/knowledge/{base}/imports.
func (a knowledgeAPI) imports(r *http.Request) (any, error) {
	base := pathName(r, "base")
	list, err := a.knowledge.Imports(r.Context(), projectOf(r), base)
	return struct {
		Imports []importJSON `json:"imports"`
	}{each(list, func(m *knowledge.Import) importJSON { return newImportJSON(base, m) })}, err
}

// getImport serves GET /v1/knowledge/{base}/imports/{id}.
func (a knowledgeAPI) getImport(r *http.Request) (any, error) {
	base := pathName(r, "base")
	m, err := a.knowledge.Import(r.Context(), projectOf(r), base, pathName(r, "id"))
	return newImportJSON(base, &m), err
}
