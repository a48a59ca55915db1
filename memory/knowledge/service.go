package knowledge

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/heardlog/heardlog/internal/cache"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/record"
	"github.com/heardlog/heardlog/memory/redact"
)

// Config is what a Service needs. All fields are required.
type Config struct {
	Store record.Store
	MaxMB int // memory for all indexes; one takes at most half of it
	// Sealed is set if the store encrypts records. It then cannot find them by words.
	Sealed bool
	Now    func() time.Time
	NewID  func() string // of imports; the IDs sort by time
	// Redact returns what replaces personal data in a project's entries, or nil.
	Redact func(project string) *redact.Redactor
	// OnError is called when an import could not go on. It is tried again.
	OnError func(what string, err error)
}

// Service keeps knowledge bases. Its methods are safe for concurrent use. Imports run only while
// Run runs.
type Service struct {
	cfg     Config
	indexes *cache.Cache[baseKey, *resident]
	loads   chan struct{} // has a value for each index that is being read from its beginning
	wake    chan struct{} // has a value when there may be an import to run
}

type baseKey struct{ project, base string }

// New returns a Service.
func New(cfg Config) *Service {
	return &Service{cfg: cfg, loads: make(chan struct{}, loaders), wake: make(chan struct{}, 1), indexes: cache.New[baseKey](int64(cfg.MaxMB)<<20, (*resident).bytes)}
}

func (s *Service) nowMS() int64 { return s.cfg.Now().UnixMilli() }

// retry is record.Retry for entries.
func retry(ctx context.Context, change func() error) error {
	return record.Retry(ctx, "the entries of this knowledge base", change)
}

// settings is the body of a base's record.
type settings struct {
	Kind       string          `json:"kind"`
	Schema     json.RawMessage `json:"schema,omitempty"`
	Versioning bool            `json:"versioning"`
	MaxEntries int             `json:"max_entries"`
	CreatedMS  int64           `json:"created_ms"`
	UpdatedMS  int64           `json:"updated_ms"`
}

func base(project string, r *record.Record) (Base, error) {
	var in settings
	if err := json.Unmarshal(r.Body, &in); err != nil {
		return Base{}, fault.Wrap(fault.Internal, err, fmt.Sprintf("the record of knowledge base %q cannot be read", r.ID))
	}
	return Base{project, r.ID, in.Kind, in.Schema, in.Versioning, in.MaxEntries, in.CreatedMS, in.UpdatedMS}, nil
}

// PutBase creates a base or replaces the settings of one. Entries that are stored already are not
// checked again.
func (s *Service) PutBase(ctx context.Context, b Base) (Base, error) {
	if err := b.check(); err != nil {
		return Base{}, err
	}
	err := record.Retry(ctx, "the settings of this knowledge base", func() error {
		b.UpdatedMS = s.nowMS()
		b.CreatedMS = b.UpdatedMS
		old, err := s.cfg.Store.Record(ctx, baseSpace(b.Project), b.Name)
		switch {
		case err == nil:
			was, err := base(b.Project, &old)
			if err != nil {
				return err
			}
			b.CreatedMS = was.CreatedMS
		case !fault.Is(err, fault.NotFound):
			return err
		}
		body, err := json.Marshal(settings{b.Kind, b.Schema, b.Versioning, b.MaxEntries, b.CreatedMS, b.UpdatedMS})
		if err != nil {
			return err
		}
		_, err = s.cfg.Store.ChangeRecords(ctx, baseSpace(b.Project), []record.Change{{ID: b.Name, Body: body, If: old.Rev}}, record.Limit{Records: MaxBases, Of: "knowledge bases"}, nil, b.UpdatedMS)
		return err
	})
	return b, err
}

// Configure creates a base, or gives it the settings of b; its JSON Schema stays.
func (s *Service) Configure(ctx context.Context, b Base) error {
	old, err := s.load(ctx, b.Project, b.Name)
	switch {
	case err != nil && !fault.Is(err, fault.NotFound):
		return err
	case err == nil && old.Kind == b.Kind && old.Versioning == b.Versioning && old.MaxEntries == b.MaxEntries:
		return nil
	case b.Kind == JSONSchema:
		b.Schema = old.Schema
	}
	_, err = s.PutBase(ctx, b)
	return err
}

// load returns a base, or fault.NotFound.
func (s *Service) load(ctx context.Context, project, name string) (Base, error) {
	b := DefaultBase(project, name)
	if err := b.check(); err != nil {
		return b, err
	}
	r, err := s.cfg.Store.Record(ctx, baseSpace(project), name)
	if fault.Is(err, fault.NotFound) {
		return b, fault.New(fault.NotFound, "there is no knowledge base %q; create it with PUT /v1/knowledge/%s", name, name)
	}
	if err != nil {
		return b, err
	}
	return base(project, &r)
}

// Base returns a base with what it holds, or fault.NotFound.
func (s *Service) Base(ctx context.Context, project, name string) (Info, error) {
	b, err := s.load(ctx, project, name)
	if err != nil {
		return Info{}, err
	}
	return s.info(ctx, b)
}

func (s *Service) info(ctx context.Context, b Base) (Info, error) {
	_, state, err := s.cfg.Store.Records(ctx, b.space(), record.Query{Limit: 1})
	return Info{Base: b, Entries: state.Count, Bytes: state.Bytes}, err
}

// Bases returns the bases of a project by their names, after the given one ("" = from the
// beginning), limit at most.
func (s *Service) Bases(ctx context.Context, project, after string, limit int) ([]Info, error) {
	list, _, err := s.cfg.Store.Records(ctx, baseSpace(project), record.Query{AfterID: after, Limit: limit})
	if err != nil {
		return nil, err
	}
	out := make([]Info, len(list))
	for i := range list {
		b, err := base(project, &list[i])
		if err == nil {
			out[i], err = s.info(ctx, b)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// DeleteBase deletes a base with its entries, their versions and its imports; one that is not there
// is not an error. An entry that is stored meanwhile may go or stay.
func (s *Service) DeleteBase(ctx context.Context, project, name string) error {
	b := DefaultBase(project, name)
	if err := b.check(); err != nil {
		return err
	}
	if _, err := s.cfg.Store.ChangeRecords(ctx, baseSpace(project), []record.Change{{ID: name, If: record.Any}}, record.Limit{}, nil, s.nowMS()); err != nil {
		return err
	}
	for _, space := range []record.Space{importSpace(project, name), b.space()} {
		if _, err := s.cfg.Store.EraseRecords(ctx, project, "", space.Name); err != nil {
			return err
		}
	}
	s.indexes.Remove(baseKey{project, name})
	return nil
}

// Put stores an entry and returns it with its version. What has not changed keeps its version.
// ifVersion is the version that the entry must have, 0 for none; nil is any. Else Put fails with
// fault.Conflict.
func (s *Service) Put(ctx context.Context, project, name string, e Entry, ifVersion *int64) (Entry, error) {
	b, err := s.load(ctx, project, name)
	if err != nil {
		return Entry{}, err
	}
	schema, err := compile(b.Schema)
	if err != nil {
		return Entry{}, err
	}
	if err := s.checkEntry(&b, schema, "", &e); err != nil {
		return Entry{}, err
	}
	var out Entry
	err = retry(ctx, func() error {
		change, next, err := s.decide(ctx, &b, e, ifVersion)
		if err != nil {
			return err
		}
		out = next
		return s.change(ctx, &b, change)
	})
	return out, err
}

// checkEntry checks an entry that is to be stored in a base.
func (s *Service) checkEntry(b *Base, schema *jsonschema.Schema, field string, e *Entry) error {
	if err := e.check(field, s.cfg.Redact(b.Project)); err != nil {
		return err
	}
	return meets(schema, field+"data", e.Data)
}

// decide returns the change that stores an entry, without a body if nothing changes.
func (s *Service) decide(ctx context.Context, b *Base, e Entry, ifVersion *int64) (record.Change, Entry, error) {
	change := record.Change{ID: e.ID}
	var was stored
	r, err := s.cfg.Store.Record(ctx, b.space(), e.ID)
	if err == nil {
		change.If = r.Rev
		was, err = read(&r)
	} else if fault.Is(err, fault.NotFound) {
		err = nil
	}
	if err == nil {
		err = checkVersion(e.ID, was.Version, ifVersion)
	}
	if err != nil || was.Version > 0 && was.same(&e) {
		return change, was.Entry, err
	}
	next, body, err := was.replaced(e, b.Versioning, s.cfg.Now())
	change.Body = body
	return change, next.Entry, err
}

func checkVersion(id string, is int64, want *int64) error {
	if want == nil || *want == is {
		return nil
	}
	has := "version " + strconv.FormatInt(is, 10)
	if is == 0 {
		has = "no version"
	}
	return fault.New(fault.Conflict, "if_version: is %d, but entry %q has %s", *want, id, has)
}

// change stores changes that have a body.
func (s *Service) change(ctx context.Context, b *Base, changes ...record.Change) error {
	var list []record.Change
	for _, c := range changes {
		if c.Body != nil {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return nil
	}
	_, err := s.cfg.Store.ChangeRecords(ctx, b.space(), list, record.Limit{Records: int64(b.MaxEntries), Of: "entries in this knowledge base"}, nil, s.nowMS())
	return err
}

// Get returns an entry with its earlier versions, the newest first, or fault.NotFound.
func (s *Service) Get(ctx context.Context, project, name, id string) (Entry, []Entry, error) {
	b, err := s.load(ctx, project, name)
	if err != nil {
		return Entry{}, nil, err
	}
	if err := checkID("id", id); err != nil {
		return Entry{}, nil, err
	}
	r, err := s.cfg.Store.Record(ctx, b.space(), id)
	if fault.Is(err, fault.NotFound) {
		return Entry{}, nil, fault.New(fault.NotFound, "knowledge base %q has no entry %q", name, id)
	}
	if err != nil {
		return Entry{}, nil, err
	}
	e, err := read(&r)
	return e.Entry, e.Older, err
}

// Delete deletes an entry with its versions. One that is not there is no error, unless ifVersion
// names a version.
func (s *Service) Delete(ctx context.Context, project, name, id string, ifVersion *int64) error {
	b, err := s.load(ctx, project, name)
	if err != nil {
		return err
	}
	if err := checkID("id", id); err != nil {
		return err
	}
	return retry(ctx, func() error {
		r, err := s.cfg.Store.Record(ctx, b.space(), id)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		var e stored
		if err == nil {
			if e, err = read(&r); err != nil {
				return err
			}
		}
		if err := checkVersion(id, e.Version, ifVersion); err != nil || e.Version == 0 {
			return err
		}
		_, err = s.cfg.Store.ChangeRecords(ctx, b.space(), []record.Change{{ID: id, If: r.Rev}}, record.Limit{}, nil, s.nowMS())
		return err
	})
}

// List returns the entries of a base by their IDs, after the given one ("" = from the beginning),
// limit at most, and how many the base holds.
func (s *Service) List(ctx context.Context, project, name, after string, limit int) ([]Entry, int64, error) {
	b, err := s.load(ctx, project, name)
	if err != nil {
		return nil, 0, err
	}
	list, state, err := s.cfg.Store.Records(ctx, b.space(), record.Query{AfterID: after, Limit: limit})
	if err != nil {
		return nil, 0, err
	}
	out := make([]Entry, len(list))
	for i := range list {
		e, err := read(&list[i])
		if err != nil {
			return nil, 0, err
		}
		out[i] = e.Entry
	}
	return out, state.Count, nil
}
