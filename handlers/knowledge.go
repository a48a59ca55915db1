package handlers

import (
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/knowledge"
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
func (a knowledgeAPI) putBase(w http.ResponseWriter, r *http.Request) error {
	name, err := pathName(r, "base")
	if err != nil {
		return err
	}
	in, err := decode[baseRequest](a.bodies, w, r, true)
	if err != nil {
		return err
	}
	b := knowledge.DefaultBase(projectOf(r), name)
	b.Kind, b.Versioning, b.MaxEntries = valueOr(in.Schema, b.Kind), valueOr(in.Versioning, b.Versioning), valueOr(in.MaxEntries, b.MaxEntries)
	if string(in.JSONSchema) != "null" {
		b.Schema = in.JSONSchema
	}
	if _, err := a.knowledge.PutBase(r.Context(), b); err != nil {
		return err
	}
	return a.showBase(w, r, name)
}

// base serves GET /v1/knowledge/{base}.
func (a knowledgeAPI) base(w http.ResponseWriter, r *http.Request) error {
	name, err := pathName(r, "base")
	if err != nil {
		return err
	}
	return a.showBase(w, r, name)
}

func (a knowledgeAPI) showBase(w http.ResponseWriter, r *http.Request, name string) error {
	b, err := a.knowledge.Base(r.Context(), projectOf(r), name)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, newBaseJSON(&b))
}

// bases serves GET /v1/knowledge.
func (a knowledgeAPI) bases(w http.ResponseWriter, r *http.Request) error {
	after, limit, err := vectorPage(r, knowledge.MaxID)
	if err != nil {
		return err
	}
	list, err := a.knowledge.Bases(r.Context(), projectOf(r), after, limit+1)
	if err != nil {
		return err
	}
	out := struct {
		Bases      []baseJSON `json:"bases"`
		NextCursor string     `json:"next_cursor,omitempty"`
	}{Bases: []baseJSON{}}
	list, out.NextCursor = cutPage(list, limit, func(x knowledge.Info) string { return x.Name })
	for i := range list {
		out.Bases = append(out.Bases, newBaseJSON(&list[i]))
	}
	return encode(w, http.StatusOK, out)
}

// deleteBase serves DELETE /v1/knowledge/{base}.
func (a knowledgeAPI) deleteBase(w http.ResponseWriter, r *http.Request) error {
	name, err := pathName(r, "base")
	if err != nil {
		return err
	}
	return noContent(w, a.knowledge.DeleteBase(r.Context(), projectOf(r), name))
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
func (a knowledgeAPI) put(w http.ResponseWriter, r *http.Request) error {
	name, id, err := a.target(r)
	if err != nil {
		return err
	}
	in, err := decode[entryRequest](a.bodies, w, r, true)
	if err != nil {
		return err
	}
	if in.IfVersion != nil && *in.IfVersion < 0 {
		return fault.At(fault.Invalid, "if_version", "must be a version, or 0 for an entry that is not there, not %d", *in.IfVersion)
	}
	e := knowledge.Entry{ID: id, Content: in.Content, Data: in.Data, Tags: in.Tags}
	if s := in.Source; s != nil {
		e.Source = &knowledge.Source{Document: s.Document, Heading: s.Heading, FromLine: s.FromLine, ToLine: s.ToLine}
	}
	e, err = a.knowledge.Put(r.Context(), projectOf(r), name, e, in.IfVersion)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, newEntryJSON(&e))
}

// target returns the base and the ID of a path.
func (a knowledgeAPI) target(r *http.Request) (name, id string, err error) {
	if name, err = pathName(r, "base"); err != nil {
		return "", "", err
	}
	id, err = pathName(r, "id")
	return name, id, err
}

// get serves GET /v1/knowledge/{base}/entries/{id}.
func (a knowledgeAPI) get(w http.ResponseWriter, r *http.Request) error {
	e, _, err := a.read(r)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, newEntryJSON(&e))
}

func (a knowledgeAPI) read(r *http.Request) (e knowledge.Entry, older []knowledge.Entry, err error) {
	name, id, err := a.target(r)
	if err != nil {
		return e, nil, err
	}
	return a.knowledge.Get(r.Context(), projectOf(r), name, id)
}

// versions serves GET /v1/knowledge/{base}/entries/{id}/versions.
func (a knowledgeAPI) versions(w http.ResponseWriter, r *http.Request) error {
	e, older, err := a.read(r)
	if err != nil {
		return err
	}
	out := struct {
		Versions []entryJSON `json:"versions"`
	}{[]entryJSON{newEntryJSON(&e)}}
	for i := range older {
		out.Versions = append(out.Versions, newEntryJSON(&older[i]))
	}
	return encode(w, http.StatusOK, out)
}

// delete serves DELETE /v1/knowledge/{base}/entries/{id}.
func (a knowledgeAPI) delete(w http.ResponseWriter, r *http.Request) error {
	name, id, err := a.target(r)
	if err != nil {
		return err
	}
	ifVersion, err := versionParam(r.URL.Query())
	if err != nil {
		return err
	}
	return noContent(w, a.knowledge.Delete(r.Context(), projectOf(r), name, id, ifVersion))
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
func (a knowledgeAPI) list(w http.ResponseWriter, r *http.Request) error {
	after, limit, err := vectorPage(r, knowledge.MaxID)
	if err != nil {
		return err
	}
	name, err := pathName(r, "base")
	if err != nil {
		return err
	}
	list, total, err := a.knowledge.List(r.Context(), projectOf(r), name, after, limit+1)
	if err != nil {
		return err
	}
	out := struct {
		Entries    []entryJSON `json:"entries"`
		Total      int64       `json:"total"`
		NextCursor string      `json:"next_cursor,omitempty"`
	}{Entries: []entryJSON{}, Total: total}
	list, out.NextCursor = cutPage(list, limit, func(x knowledge.Entry) string { return x.ID })
	for i := range list {
		out.Entries = append(out.Entries, newEntryJSON(&list[i]))
	}
	return encode(w, http.StatusOK, out)
}

// searchKnowledgeRequest asks for entries.
type searchKnowledgeRequest struct {
	Query    string   `json:"query"`
	K        *int     `json:"k"`
	Tags     []string `json:"tags"`
	Document string   `json:"document"`
}

// search serves POST /v1/knowledge/{base}/search.
func (a knowledgeAPI) search(w http.ResponseWriter, r *http.Request) error {
	began := a.now()
	name, err := pathName(r, "base")
	if err != nil {
		return err
	}
	in, err := decode[searchKnowledgeRequest](a.bodies, w, r, true)
	if err != nil {
		return err
	}
	q := knowledge.Query{Text: in.Query, K: valueOr(in.K, defaultEntryHits), Tags: in.Tags, Document: in.Document}
	hits, strength, err := a.knowledge.Search(r.Context(), projectOf(r), name, q)
	if err != nil {
		return err
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
	return encode(w, http.StatusOK, out)
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
	name, err := pathName(r, "base")
	if err != nil {
		return err
	}
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
func (a knowledgeAPI) imports(w http.ResponseWriter, r *http.Request) error {
	name, err := pathName(r, "base")
	if err != nil {
		return err
	}
	list, err := a.knowledge.Imports(r.Context(), projectOf(r), name)
	if err != nil {
		return err
	}
	out := struct {
		Imports []importJSON `json:"imports"`
	}{[]importJSON{}}
	for i := range list {
		out.Imports = append(out.Imports, newImportJSON(name, &list[i]))
	}
	return encode(w, http.StatusOK, out)
}

// getImport serves GET /v1/knowledge/{base}/imports/{id}.
func (a knowledgeAPI) getImport(w http.ResponseWriter, r *http.Request) error {
	name, id, err := a.target(r)
	if err != nil {
		return err
	}
	m, err := a.knowledge.Import(r.Context(), projectOf(r), name, id)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, newImportJSON(name, &m))
}
