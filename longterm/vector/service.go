package vector

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/longterm/resident"
	"github.com/heardlog/heardlog/store/record"
)

// Config is what a Service needs. All fields are required.
type Config struct {
	Store record.Store
	MaxMB int // memory for all indexes; one takes at most half of it
	Now   func() time.Time
	NewID func() string // of documents that come without one

	// Embedder makes embeddings of documents and queries without one; nil = none. Endpoint and
	// ModelName identify its model.
	Embedder            Embedder
	Endpoint, ModelName string
}

// Service holds the rules of collections over a store. Its methods are safe for concurrent use.
type Service struct {
	cfg     Config
	indexes *resident.Spaces[*live]
	place   atomic.Int64 // the last one in the order of insertion

	model atomic.Pointer[Model] // of the Embedder; nil until it is known
	queue *job.Queue            // of collections with documents that have no embedding
}

// New returns a Service whose embeddings the jobs make.
func New(jobs *job.Runner, cfg Config) *Service {
	s := &Service{cfg: cfg}
	fresh := func(record.Space) *live { return &live{index: newIndex(s.ModelID())} }
	s.indexes = resident.NewSpaces(cfg.Store, int64(cfg.MaxMB)<<20, fresh, s.refuse)
	s.handle(jobs)
	return s
}

// about is the record of a collection, in a space of its own.
type about struct {
	Dimensions int `json:"dimensions,omitempty"`
}

// aboutSpace is the space of the collections' own records, by their names.
func (c Collection) aboutSpace() record.Space {
	return record.Space{Project: c.Project, Name: "vectors", User: c.User}
}

// open makes sure that a collection has a record, and that its embeddings have the given dimension;
// 0 = any.
func (s *Service) open(ctx context.Context, c Collection, dims int) error {
	_, err := record.Update{
		Space: c.aboutSpace(), IDs: []string{c.Name}, What: "the collections", Limit: record.Limit{Records: MaxCollections, Of: "collections"}, NowMS: s.nowMS(),
		Decide: func(_ int, old record.Record) ([]byte, bool, error) {
			a, err := readAbout(&old)
			switch {
			case err != nil:
				return nil, false, err
			case dims != 0 && a.Dimensions != 0 && dims != a.Dimensions:
				return nil, false, fault.At(fault.Invalid, "embedding", "has %d numbers, but the embeddings of collection %q have %d", dims, c.Name, a.Dimensions)
			case old.Rev != 0 && (dims == 0 || dims == a.Dimensions):
				return nil, false, nil
			}
			body, err := json.Marshal(about{Dimensions: dims})
			return body, true, err
		},
	}.Apply(ctx, s.cfg.Store)
	return err
}

// readAbout decodes a collection's record, of which there may be none.
func readAbout(r *record.Record) (a about, err error) {
	if r.Rev != 0 {
		err = json.Unmarshal(r.Body, &a)
	}
	return a, err
}

func (s *Service) nowMS() int64 { return s.cfg.Now().UnixMilli() }

// nextPlace returns the next place in the order of insertion, Unix µs.
func (s *Service) nextPlace() int64 {
	for {
		last := s.place.Load()
		next := max(s.cfg.Now().UnixMicro(), last+1)
		if s.place.CompareAndSwap(last, next) {
			return next
		}
	}
}

// Put stores documents and returns their IDs. One without an ID gets a new one. One whose ID is
// there replaces that document and keeps its place in the order of insertion. Of several with the
// same ID the last one wins, at the place of the first.
//
// More than a few hundred are stored in pieces: if one fails, those before it are stored.
func (s *Service) Put(ctx context.Context, c Collection, docs []Document) ([]string, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if len(docs) == 0 || len(docs) > MaxBatch {
		return nil, fault.At(fault.Invalid, "documents", "has %d; it must have 1 to %d", len(docs), MaxBatch)
	}
	dims := 0
	ids, different, last := make([]string, len(docs)), []string(nil), map[string]int{}
	for i := range docs {
		d, field := &docs[i], ""
		if len(docs) > 1 {
			field = fmt.Sprintf("documents[%d].", i)
		}
		if err := d.check(field); err != nil {
			return nil, err
		}
		if n := len(d.Embedding); n > 0 {
			if dims != 0 && n != dims {
				return nil, fault.At(fault.Invalid, field+"embedding", "has %d numbers, but one before it has %d", n, dims)
			}
			dims = n
		}
		if ids[i] = d.ID; ids[i] == "" {
			ids[i] = s.cfg.NewID()
		}
		if _, twice := last[ids[i]]; !twice {
			different = append(different, ids[i])
		}
		last[ids[i]] = i
	}
	if err := s.open(ctx, c, dims); err != nil {
		return nil, err
	}
	_, err := record.Update{
		Space: c.space(), IDs: different, What: documents, Limit: record.Limit{Records: MaxDocuments, Of: "documents in this collection"}, NowMS: s.nowMS(),
		Absent: func(i int) bool { return docs[last[different[i]]].ID == "" },
		Decide: func(i int, old record.Record) ([]byte, bool, error) {
			d := docs[last[different[i]]]
			if old.Rev != 0 {
				was, err := document(&old)
				if err != nil {
					return nil, false, err
				}
				d.CreatedUS = was.CreatedUS
			}
			if d.CreatedUS == 0 {
				d.CreatedUS = s.nextPlace()
			}
			d.UpdatedMS = max(s.nowMS(), d.CreatedUS/1000)
			body, err := d.body()
			return body, true, err
		},
	}.Apply(ctx, s.cfg.Store)
	s.embedPending(c)
	return ids, err
}

// documents is the name of a collection's documents in errors.
const documents = "the documents of this collection"

// Get returns a document, or fault.NotFound.
func (s *Service) Get(ctx context.Context, c Collection, id string) (Document, error) {
	if err := c.check(); err != nil {
		return Document{}, err
	}
	if err := text.ValidID("id", id, MaxID); err != nil {
		return Document{}, err
	}
	r, err := s.cfg.Store.Record(ctx, c.space(), id)
	if fault.Is(err, fault.NotFound) {
		return Document{}, fault.New(fault.NotFound, "collection %q has no document %q", c.Name, id)
	}
	if err != nil {
		return Document{}, err
	}
	return document(&r)
}

// Delete deletes documents and returns how many were there. Others are ignored.
func (s *Service) Delete(ctx context.Context, c Collection, ids []string) (int, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	if len(ids) > MaxBatch {
		return 0, fault.At(fault.Invalid, "ids", "has %d; at most %d are allowed", len(ids), MaxBatch)
	}
	for i, id := range ids {
		if err := text.ValidID(fmt.Sprintf("ids[%d]", i), id, MaxID); err != nil {
			return 0, err
		}
	}
	return s.remove(ctx, c, ids, nil)
}

// DeleteWhere deletes the documents whose metadata have all members of filter, an object with at
// least one, and returns how many those were.
func (s *Service) DeleteWhere(ctx context.Context, c Collection, filter json.RawMessage) (int, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	values, err := members("filter", filter)
	if err != nil {
		return 0, err
	}
	if len(values) == 0 {
		return 0, fault.At(fault.Invalid, "filter", "is empty; to delete all documents, delete the collection")
	}
	r, err := s.upToDate(ctx, c)
	if err != nil {
		return 0, err
	}
	var ids []string
	r.mu.RLock()
	keep := r.index.filter(values)
	for i := range r.index.docs {
		if e := &r.index.docs[i]; e.id != "" && keep(e) {
			ids = append(ids, e.id)
		}
	}
	r.mu.RUnlock()
	return s.remove(ctx, c, ids, values)
}

// remove deletes the documents that still match a filter; nil = any.
func (s *Service) remove(ctx context.Context, c Collection, ids []string, filter map[string]string) (int, error) {
	return record.Update{
		Space: c.space(), IDs: slices.Compact(slices.Sorted(slices.Values(ids))), What: documents, NowMS: s.nowMS(),
		Decide: func(_ int, old record.Record) ([]byte, bool, error) {
			if old.Rev == 0 {
				return nil, false, nil
			}
			d, err := document(&old)
			return nil, err == nil && d.matches(filter), err
		},
	}.Apply(ctx, s.cfg.Store)
}

// matches reports whether the metadata have all members of a filter. A null matches none, too.
func (d *Document) matches(filter map[string]string) bool {
	if len(filter) == 0 {
		return true
	}
	own, err := members("metadata", d.Metadata)
	if err != nil {
		return false
	}
	for name, want := range filter {
		if got, ok := own[name]; got != want && (ok || want != "null") {
			return false
		}
	}
	return true
}

// Clear deletes all documents of a collection, and returns how many there were. Without a user it
// deletes those of all users, too. A document that is stored meanwhile may go or stay.
func (s *Service) Clear(ctx context.Context, c Collection) (int, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	const page = 200
	users := []string{c.User}
	for after := (record.Space{}); c.User == ""; {
		spaces, err := s.cfg.Store.RecordSpaces(ctx, c.Project, c.space().Name, after, page)
		if err != nil {
			return 0, err
		}
		for _, at := range spaces {
			users = append(users, at.User)
			after = at
		}
		if len(spaces) < page {
			break
		}
	}
	n, err := s.cfg.Store.EraseRecords(ctx, c.Project, c.User, c.space().Name)
	if err != nil {
		return n, err
	}
	for _, user := range users {
		of := Collection{c.Project, c.Name, user}
		if _, err := s.cfg.Store.ChangeRecords(ctx, of.aboutSpace(), []record.Change{{ID: c.Name, If: record.Any}}, record.Limit{}, nil, s.nowMS()); err != nil {
			return n, err
		}
		s.indexes.Remove(of.space())
	}
	return n, nil
}

// Forget drops the indexes of all collections of a user who was erased from memory.
func (s *Service) Forget(project, user string) {
	for _, at := range s.indexes.Keys() {
		if at.Project == project && at.User == user {
			s.indexes.Remove(at)
		}
	}
}

// Info describes a collection.
type Info struct {
	Name       string
	Dimensions int // of its embeddings; 0 without any
	Documents  int
	Bytes      int64
}

// Describe returns what a collection holds. One that was never written to is empty.
func (s *Service) Describe(ctx context.Context, c Collection) (Info, error) {
	r, err := s.cfg.Store.Record(ctx, c.aboutSpace(), c.Name)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return Info{}, err
	}
	a, err := readAbout(&r)
	if err != nil {
		return Info{}, err
	}
	_, state, err := s.cfg.Store.Records(ctx, c.space(), record.Query{Limit: 1})
	return Info{Name: c.Name, Dimensions: a.Dimensions, Documents: int(state.Count), Bytes: state.Bytes}, err
}

// List returns the documents of a collection by their IDs, after the given one ("" = from the
// beginning), limit at most.
func (s *Service) List(ctx context.Context, c Collection, after string, limit int) ([]Document, Info, error) {
	if err := c.check(); err != nil {
		return nil, Info{}, err
	}
	info, err := s.Describe(ctx, c)
	if err != nil {
		return nil, Info{}, err
	}
	list, _, err := s.cfg.Store.Records(ctx, c.space(), record.Query{AfterID: after, Limit: limit})
	if err != nil {
		return nil, Info{}, err
	}
	out := make([]Document, len(list))
	for i := range list {
		if out[i], err = document(&list[i]); err != nil {
			return nil, Info{}, err
		}
	}
	return out, info, nil
}

// Collections returns the collections of a project by their names, after the given one ("" = from
// the beginning), limit at most. A user sees those that hold documents of theirs.
func (s *Service) Collections(ctx context.Context, project, user, after string, limit int) ([]Info, error) {
	of := Collection{Project: project, Name: "any", User: user}
	if err := of.check(); err != nil {
		return nil, err
	}
	list, _, err := s.cfg.Store.Records(ctx, of.aboutSpace(), record.Query{AfterID: after, Limit: limit})
	if err != nil {
		return nil, err
	}
	var out []Info
	for _, r := range list {
		info, err := s.Describe(ctx, Collection{project, strings.Clone(r.ID), of.User})
		if err != nil {
			return nil, err
		}
		out = append(out, info)
	}
	return out, nil
}
