package knowledge

import (
	"context"
	"strconv"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/longterm/resident"
	"github.com/heardlog/heardlog/memory/redact"
	"github.com/heardlog/heardlog/store/record"
)

// Config is what a Service needs. All fields are required.
type Config struct {
	Store record.Store
	MaxMB int // memory for all indexes; one takes at most half of it
	// Sealed is set if the store encrypts records. It then cannot find them by words.
	Sealed bool
	Now    func() time.Time
	NewID  func() string // of imports; the IDs sort by time
	// Redact runs a function with what replaces personal data in a project's entries, perhaps more
	// than once; see agents.Messages.Redact.
	Redact func(ctx context.Context, project string, fn func(*redact.Redactor)) error
}

// Service keeps knowledge bases. Its methods are safe for concurrent use. Imports
// are jobs.
type Service struct {
	cfg     Config
	bases   record.Map[Base]
	indexes *resident.Spaces[*index]
	queue   *job.Queue // of imports
}

// New returns a Service whose imports the jobs make.
func New(jobs *job.Runner, cfg Config) *Service {
	s := &Service{cfg: cfg, bases: record.Map[Base]{Store: cfg.Store, Noun: "knowledge base", Limit: MaxBases, Fill: func(b *Base, r *record.Record) { b.Name = r.ID }}}
	s.indexes = resident.NewSpaces(cfg.Store, int64(cfg.MaxMB)<<20, newIndex, s.refuse)
	s.queue = jobs.Handle(s.kind())
	return s
}

func (s *Service) nowMS() int64 { return s.cfg.Now().UnixMilli() }

// PutBase creates a base or replaces the settings of one. Entries that are stored already are not
// checked again.
func (s *Service) PutBase(ctx context.Context, b Base) (Base, error) {
	if err := b.check(); err != nil {
		return Base{}, err
	}
	b.UpdatedMS = s.nowMS()
	return s.bases.Update(ctx, baseSpace(b.Project), b.Name, b.UpdatedMS, func(stored *Base, is bool) (bool, error) {
		b.CreatedMS = b.UpdatedMS
		if is {
			b.CreatedMS = stored.CreatedMS
		}
		*stored = b
		return true, nil
	})
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
	err := b.check()
	if err != nil {
		return b, err
	}
	b, err = s.bases.Get(ctx, baseSpace(project), name)
	b.Project = project
	if fault.Is(err, fault.NotFound) {
		return b, fault.New(fault.NotFound, "there is no knowledge base %q; create it with PUT /v1/knowledge/%s", name, name)
	}
	return b, err
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
	list, _, err := s.bases.List(ctx, baseSpace(project), after, limit)
	if err != nil {
		return nil, err
	}
	out := make([]Info, len(list))
	for i, b := range list {
		b.Project = project
		if out[i], err = s.info(ctx, b); err != nil {
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
	if err := s.bases.Delete(ctx, baseSpace(project), name, s.nowMS()); err != nil {
		return err
	}
	for _, space := range []record.Space{importSpace(project, name), b.space()} {
		if _, err := s.cfg.Store.EraseRecords(ctx, project, "", space.Name); err != nil {
			return err
		}
	}
	s.indexes.Remove(b.space())
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
	if err := s.checkEntry(ctx, &b, schema, &e); err != nil {
		return Entry{}, err
	}
	list := []Entry{e}
	err = s.store(ctx, &b, ifVersion, list)
	return list[0], err
}

// checkEntry checks an entry that is to be stored in a base.
func (s *Service) checkEntry(ctx context.Context, b *Base, schema *jsonschema.Schema, e *Entry) error {
	given := *e
	var err error
	if unchecked := s.cfg.Redact(ctx, b.Project, func(r *redact.Redactor) {
		*e = given
		err = e.check("", r)
	}); unchecked != nil {
		return unchecked
	}
	if err != nil {
		return err
	}
	return meets(schema, "data", e.Data)
}

// store stores entries of different IDs in a base, and sets them to what it then holds.
func (s *Service) store(ctx context.Context, b *Base, ifVersion *int64, entries []Entry) error {
	ids := make([]string, len(entries))
	for i := range entries {
		ids[i] = entries[i].ID
	}
	_, err := record.Update{
		Space: b.space(), IDs: ids, What: theEntries, Limit: record.Limit{Records: int64(b.MaxEntries), Of: "entries in this knowledge base"}, NowMS: s.nowMS(),
		Decide: func(i int, old record.Record) ([]byte, bool, error) {
			was, err := read(&old)
			if err == nil {
				err = checkVersion(ids[i], was.Version, ifVersion)
			}
			if err != nil {
				return nil, false, err
			}
			if was.Version > 0 && was.same(&entries[i]) {
				entries[i] = was.Entry
				return nil, false, nil
			}
			next, body, err := was.replaced(entries[i], b.Versioning, s.cfg.Now())
			entries[i] = next.Entry
			return body, true, err
		},
	}.Apply(ctx, s.cfg.Store)
	return err
}

// theEntries is the name of a base's entries in errors.
const theEntries = "the entries of this knowledge base"

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

// Get returns an entry with its earlier versions, the newest first, or fault.NotFound.
func (s *Service) Get(ctx context.Context, project, name, id string) (Entry, []Entry, error) {
	b, err := s.load(ctx, project, name)
	if err != nil {
		return Entry{}, nil, err
	}
	if err := text.ValidID("id", id, MaxID); err != nil {
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
	if err := text.ValidID("id", id, MaxID); err != nil {
		return err
	}
	_, err = record.Update{
		Space: b.space(), IDs: []string{id}, What: theEntries, NowMS: s.nowMS(),
		Decide: func(_ int, old record.Record) ([]byte, bool, error) {
			e, err := read(&old)
			if err == nil {
				err = checkVersion(id, e.Version, ifVersion)
			}
			return nil, true, err
		},
	}.Apply(ctx, s.cfg.Store)
	return err
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
