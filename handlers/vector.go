package handlers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/longterm/vector"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/redact"
)

// vectorAPI serves collections of documents.
type vectorAPI struct {
	bodies
	vectors  *vector.Service
	messages *agents.Messages
	now      func() time.Time
}

const (
	// maxVectorBody is how long a body with documents may be, in bytes, unless HEARDLOG_MAX_BODY
	// allows more. An embedding of 1,536 numbers takes about 20 KiB.
	maxVectorBody = 16 << 20

	maxVectorPage     = 500
	defaultVectorHits = 5
	// defaultEmbedWithin is how long the embedding of a query may take, in ms.
	defaultEmbedWithin = 30
)

// documentRequest is a document to store.
type documentRequest struct {
	ID        string          `json:"id"`
	Content   *string         `json:"content"`
	Metadata  json.RawMessage `json:"metadata"`
	Embedding []float32       `json:"embedding"`
}

// putDocumentsRequest holds a list of documents, or the fields of one.
type putDocumentsRequest struct {
	documentRequest
	UserID    string            `json:"user_id"`
	Documents []documentRequest `json:"documents"`
}

// collection returns the collection of the path. user is that of the body; without one the query
// may name it.
func (a vectorAPI) collection(r *http.Request, user string) vector.Collection {
	if user == "" {
		user = r.URL.Query().Get("user_id")
	}
	return vector.Collection{Project: projectOf(r), Name: pathName(r, "collection"), User: inE164(user)}
}

// decodePut reads documents to store.
func (a vectorAPI) decodePut(w http.ResponseWriter, r *http.Request) (in putDocumentsRequest, c vector.Collection, err error) {
	body, err := a.readUpTo(w, r, max(a.limit, maxVectorBody))
	if err != nil {
		return in, c, err
	}
	err = a.unmarshal(body, &in, true)
	return in, a.collection(r, in.UserID), err
}

// document returns a document of a request. field is its path in the request.
func (in *documentRequest) document(field string) (vector.Document, error) {
	if in.Content == nil && in.Embedding == nil {
		return vector.Document{}, fault.At(fault.Missing, field+"content", "is required, unless there is an embedding")
	}
	d := vector.Document{ID: in.ID, Embedding: in.Embedding, Metadata: in.Metadata}
	if in.Content != nil {
		d.Content = *in.Content
	}
	return d, nil
}

// store stores documents with personal data replaced, and returns their IDs.
func (a vectorAPI) store(r *http.Request, c vector.Collection, docs []vector.Document) ([]string, error) {
	given := slices.Clone(docs)
	err := a.messages.Redact(r.Context(), &memory.Agent{Project: projectOf(r)}, func(by *redact.Redactor) {
		for i := range docs {
			docs[i].Content, docs[i].Metadata = by.Text(given[i].Content), by.JSON(given[i].Metadata)
		}
	})
	if err != nil {
		return nil, err
	}
	return a.vectors.Put(r.Context(), c, docs)
}

// put serves PUT /v1/vectors/{collection}/{id}.
func (a vectorAPI) put(w http.ResponseWriter, r *http.Request) error {
	in, c, err := a.decodePut(w, r)
	if err != nil {
		return err
	}
	id := pathName(r, "id")
	switch {
	case in.Documents != nil:
		return fault.At(fault.Invalid, "documents", "is not a field of this call; POST several documents to the collection")
	case in.ID != "" && in.ID != id:
		return fault.At(fault.Invalid, "id", "must be the ID in the path, or absent")
	}
	d, err := in.document("")
	if err != nil {
		return err
	}
	d.ID = id
	if _, err := a.store(r, c, []vector.Document{d}); err != nil {
		return err
	}
	return encode(w, http.StatusOK, struct {
		ID string `json:"id"`
	}{id})
}

// add serves POST /v1/vectors/{collection}.
func (a vectorAPI) add(w http.ResponseWriter, r *http.Request) error {
	key, err := idempotencyKey(r, maxKey)
	if err != nil {
		return err
	}
	in, c, err := a.decodePut(w, r)
	if err != nil {
		return err
	}
	list, one := in.Documents, in.documentRequest
	switch alone := one.ID != "" || one.Content != nil || given(one.Metadata) || one.Embedding != nil; {
	case list == nil:
		list = []documentRequest{one}
	case alone:
		return fault.At(fault.Invalid, "documents", "cannot be combined with the fields of one document")
	}
	docs := make([]vector.Document, len(list))
	for i := range list {
		field := ""
		if in.Documents != nil {
			field = fmt.Sprintf("documents[%d].", i)
		}
		if docs[i], err = list[i].document(field); err != nil {
			return err
		}
		if key != "" && docs[i].ID == "" {
			docs[i].ID = uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s\x00%d", c.Project, c.Name, c.User, key, i)).String()
		}
	}
	ids, err := a.store(r, c, docs)
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, struct {
		IDs []string `json:"ids"`
	}{ids})
}

// documentJSON is a document in an answer.
type documentJSON struct {
	ID        string          `json:"id"`
	Content   string          `json:"content"`
	Score     *float64        `json:"score,omitempty"`
	Metadata  json.RawMessage `json:"metadata"`
	Embedding []float32       `json:"embedding,omitempty"`
	CreatedAt string          `json:"created_at"`
	UpdatedAt string          `json:"updated_at"`
}

// newDocument returns a document without its embedding.
func newDocument(d *vector.Document) documentJSON {
	return documentJSON{
		ID: d.ID, Content: d.Content, Metadata: d.Metadata,
		CreatedAt: shownTime(d.CreatedUS / 1000), UpdatedAt: shownTime(d.UpdatedMS),
	}
}

// get serves GET /v1/vectors/{collection}/{id}.
func (a vectorAPI) get(r *http.Request) (any, error) {
	d, err := a.vectors.Get(r.Context(), a.collection(r, ""), pathName(r, "id"))
	out, score := newDocument(&d), 1.0
	out.Score, out.Embedding = &score, d.Embedding
	return out, err
}

// delete serves DELETE /v1/vectors/{collection}/{id}. An unknown document is not an error.
func (a vectorAPI) delete(r *http.Request) error {
	_, err := a.vectors.Delete(r.Context(), a.collection(r, ""), []string{pathName(r, "id")})
	return err
}

// deleteDocumentsRequest names documents by their IDs or their metadata.
type deleteDocumentsRequest struct {
	IDs    []string        `json:"ids"`
	Filter json.RawMessage `json:"filter"`
	UserID string          `json:"user_id"`
}

// deleteMany serves POST /v1/vectors/{collection}/delete.
func (a vectorAPI) deleteMany(r *http.Request, in *deleteDocumentsRequest) (out any, err error) {
	c, n := a.collection(r, in.UserID), 0
	switch {
	case in.IDs != nil && given(in.Filter):
		return nil, fault.At(fault.Invalid, "filter", "cannot be combined with ids")
	case in.IDs != nil:
		n, err = a.vectors.Delete(r.Context(), c, in.IDs)
	case given(in.Filter):
		n, err = a.vectors.DeleteWhere(r.Context(), c, in.Filter)
	default:
		return nil, fault.At(fault.Missing, "ids", "is required, unless there is a filter")
	}
	return removedJSON{Removed: n}, err
}

// clear serves DELETE /v1/vectors/{collection}.
func (a vectorAPI) clear(r *http.Request) error {
	_, err := a.vectors.Clear(r.Context(), a.collection(r, ""))
	return err
}

// searchDocumentsRequest asks for the documents closest to a text or an embedding.
type searchDocumentsRequest struct {
	Query         *string         `json:"query"`
	Embedding     []float32       `json:"embedding"`
	K             *int            `json:"k"`
	Filter        json.RawMessage `json:"filter"`
	Metric        string          `json:"metric" validate:"omitempty,oneof=cosine euclidean dot dot_product"`
	Index         string          `json:"index"`
	MinScore      *float64        `json:"min_score"`
	IncludeScores *bool           `json:"include_scores"`
	EmbedWithinMS *int            `json:"embed_within_ms" validate:"omitempty,gte=1,lte=10000"`
	UserID        string          `json:"user_id"`
}

// searchedJSON is what a search found, best first.
type searchedJSON struct {
	Results  []documentJSON `json:"results"`
	Degraded []string       `json:"degraded"`
	TookMS   float64        `json:"took_ms"`
}

// search serves POST /v1/vectors/{collection}/search.
func (a vectorAPI) search(r *http.Request, in *searchDocumentsRequest) (any, error) {
	began := a.now()
	c := a.collection(r, in.UserID)
	q := vector.Query{Embedding: in.Embedding, K: valueOr(in.K, defaultVectorHits), Filter: in.Filter, MinScore: in.MinScore, Metric: vector.Metric(in.Metric)}
	q.EmbedWithin = time.Duration(valueOr(in.EmbedWithinMS, defaultEmbedWithin)) * time.Millisecond
	switch {
	case in.Query != nil && in.Embedding != nil:
		return nil, fault.At(fault.Invalid, "embedding", "cannot be combined with query")
	case in.Query == nil && in.Embedding == nil:
		return nil, fault.At(fault.Missing, "query", "is required, unless there is an embedding")
	case in.Embedding == nil && in.Metric != "" && q.Metric != vector.Cosine:
		return nil, fault.At(fault.Invalid, "metric", "must be cosine for a query; %s compares embeddings", in.Metric)
	case in.Index != "" && in.Index != "flat":
		return nil, fault.At(fault.Invalid, "index", "%q is not available; searches are exact over all documents (flat)", text.Clip(in.Index, 40))
	}
	if in.Metric == "dot_product" {
		q.Metric = vector.Dot
	}
	if in.Query != nil {
		q.Text = *in.Query
	}
	found, err := a.vectors.Search(r.Context(), c, q)
	if err != nil {
		return nil, err
	}
	hits := found.Hits
	out := searchedJSON{Results: make([]documentJSON, len(hits)), Degraded: append([]string{}, found.Degraded...)}
	for i := range hits {
		out.Results[i] = newDocument(&hits[i].Document)
		if in.IncludeScores == nil || *in.IncludeScores {
			out.Results[i].Score = &hits[i].Score
		}
	}
	out.TookMS = milliseconds(a.now().Sub(began))
	return out, nil
}

// collectionJSON describes a collection.
type collectionJSON struct {
	Collection string `json:"collection"`
	Documents  int    `json:"documents"`
	Dimensions int    `json:"dimensions,omitempty"`
	Bytes      int64  `json:"bytes"`
}

func newCollection(i *vector.Info) collectionJSON {
	return collectionJSON{Collection: i.Name, Documents: i.Documents, Dimensions: i.Dimensions, Bytes: i.Bytes}
}

// list serves GET /v1/vectors/{collection}.
func (a vectorAPI) list(r *http.Request) (any, error) {
	after, limit, err := pageOf(r, maxVectorPage, vector.MaxID)
	if err != nil {
		return nil, err
	}
	docs, info, err := a.vectors.List(r.Context(), a.collection(r, ""), after, limit+1)
	docs, next := cutPage(docs, limit, func(x vector.Document) string { return x.ID })
	return struct {
		Documents  []documentJSON `json:"documents"`
		Total      int            `json:"total"`
		Dimensions int            `json:"dimensions,omitempty"`
		NextCursor string         `json:"next_cursor,omitempty"`
	}{each(docs, newDocument), info.Documents, info.Dimensions, next}, err
}

// collections serves GET /v1/vectors.
func (a vectorAPI) collections(r *http.Request) (any, error) {
	after, limit, err := pageOf(r, maxVectorPage, vector.MaxID)
	if err != nil {
		return nil, err
	}
	list, err := a.vectors.Collections(r.Context(), projectOf(r), inE164(r.URL.Query().Get("user_id")), after, limit+1)
	list, next := cutPage(list, limit, func(x vector.Info) string { return x.Name })
	return struct {
		Collections []collectionJSON `json:"collections"`
		NextCursor  string           `json:"next_cursor,omitempty"`
	}{each(list, newCollection), next}, err
}
