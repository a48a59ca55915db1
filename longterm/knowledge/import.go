package knowledge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/store/record"
)

// The states of an import.
const (
	Running = "running"
	Done    = "done"
	Failed  = "failed" // Import.Detail says why; entries that were stored before stay
)

const (
	maxImports   = 10  // of a base that run
	keepImports  = 100 // of a base that have ended
	maxFaults    = 20  // that an import lists
	contentPiece = 1 << 20
	batch        = 100             // entries stored at once
	slice        = 2 * time.Second // of one import, before the next gets its turn
	startFor     = time.Minute     // how long it may take to store a document that is to be imported
)

// Import is a document that becomes entries.
type Import struct {
	ID       string  `json:"-"`
	Document string  `json:"document"`
	Format   string  `json:"format"`
	State    string  `json:"state"`
	Total    int     `json:"total"`  // entries of the document
	Done     int     `json:"done"`   // of them stored or failed
	Failed   int     `json:"failed"` // could not be stored
	Removed  int     `json:"removed"`
	Faults   []Fault `json:"faults,omitempty"` // of the first that failed
	Detail   string  `json:"detail,omitempty"`
	Hash     string  `json:"hash,omitempty"` // of a document that was sent with an Idempotency-Key

	CreatedMS int64 `json:"created_ms"`
	UpdatedMS int64 `json:"updated_ms"`
}

// Fault is the reason why a line of a document is not an entry.
type Fault struct {
	Line   int    `json:"line"`
	Detail string `json:"detail"`
}

// importSpace has the imports of a base, by their IDs.
func importSpace(project, base string) record.Space {
	return record.Space{Project: project, Name: "knowledge.import/" + base + "/"}
}

// contentSpace has the document of an import that runs, in pieces.
func contentSpace(project, base, id string) record.Space {
	return record.Space{Project: project, Name: importSpace(project, base).Name + id + "/"}
}

// jobKey names the job of an import. Its kind is kind.
func jobKey(project, base, id string) job.Key { return job.Key{Project: project, ID: base + "/" + id} }

func (s *Service) kind() job.Kind {
	return job.Kind{
		Name: job.Import, Stored: true, Do: s.runJob, Places: 1, Longest: time.Hour, Frequent: true,
		Final: func(err error) bool { return errors.Is(err, errNoImport) },
	}
}

// errNoImport fails a job whose name cannot be read.
var errNoImport = fault.New(fault.Internal, "it does not name an import")

func (s *Service) put(ctx context.Context, space record.Space, id string, rev int64, v any) (int64, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return 0, err
	}
	state, err := s.cfg.Store.ChangeRecords(ctx, space, []record.Change{{ID: id, Body: body, If: rev}}, record.Limit{}, nil, s.nowMS())
	return state.Rev, err
}

// Document is a text to import.
type Document struct{ Name, Format, Content string }

// StartImport stores a document, which then becomes entries in the background: when StartImport
// returns, the document is on disk, and a server that stops goes on later. The entries replace
// those of an earlier import of the same document. A repeat with the same key, unless it is "",
// returns the first import as long as that is listed, or fault.Conflict if the document is another.
func (s *Service) StartImport(ctx context.Context, project, name, key string, d Document) (Import, error) {
	if _, err := s.load(ctx, project, name); err != nil {
		return Import{}, err
	}
	if err := (&Source{Document: d.Name}).check(""); err != nil {
		return Import{}, err
	}
	content, err := text.Clean("content", d.Content, MaxImport)
	if err != nil {
		return Import{}, err
	}
	drafts, err := parse(d.Name, d.Format, content)
	if err != nil {
		return Import{}, err
	}
	id, hash := s.cfg.NewID(), ""
	if key != "" {
		id, hash = hashOf("import", key), hashOf(d.Name, d.Format, content)
		first, err := s.Import(ctx, project, name, id)
		if err == nil && first.Hash != hash {
			err = fault.At(fault.Conflict, "Idempotency-Key", "was used for another document")
		}
		if err == nil || !fault.Is(err, fault.NotFound) {
			return first, err
		}
	}
	if err := s.room(ctx, project, name); err != nil {
		return Import{}, err
	}
	now := s.nowMS()
	m := Import{ID: id, Document: d.Name, Format: d.Format, State: Running, Total: len(drafts), Hash: hash, CreatedMS: now, UpdatedMS: now}
	// The job comes first, so that what follows is removed if this server is killed here.
	if err := s.queue.Put(ctx, jobKey(project, name, m.ID), startFor); err != nil {
		return Import{}, twice(err)
	}
	for i := 0; i*contentPiece < len(content); i++ {
		piece := content[i*contentPiece : min((i+1)*contentPiece, len(content))]
		change := record.Change{ID: fmt.Sprintf("%04d", i), Body: []byte(piece)}
		if _, err := s.cfg.Store.ChangeRecords(ctx, contentSpace(project, name, m.ID), []record.Change{change}, record.Limit{}, nil, now); err != nil {
			return Import{}, err
		}
	}
	if _, err := s.put(ctx, importSpace(project, name), m.ID, record.Absent, m); err != nil {
		return Import{}, twice(err)
	}
	// The import is on disk: if this fails, it begins after startFor.
	_ = s.queue.Start(ctx, jobKey(project, name, m.ID))
	return m, nil
}

// twice returns the error of a call whose Idempotency-Key another call is using.
func twice(err error) error {
	if errors.Is(err, record.ErrStale) {
		return fault.New(fault.Unavailable, "another call with this Idempotency-Key is starting the import; try again in a minute")
	}
	return err
}

// hashOf returns a hash of texts.
func hashOf(texts ...string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", texts))
	return hex.EncodeToString(sum[:16])
}

// room forgets old imports of a base, and returns fault.Quota if too many run.
func (s *Service) room(ctx context.Context, project, name string) error {
	list, err := s.Imports(ctx, project, name)
	if err != nil {
		return err
	}
	running, ended := 0, 0
	var old []record.Change
	for _, m := range list {
		if m.State == Running {
			running++
		} else if ended++; ended > keepImports {
			old = append(old, record.Change{ID: m.ID, If: record.Any})
		}
	}
	if running >= maxImports {
		return fault.New(fault.Quota, "%d imports of this knowledge base are running; at most %d are allowed; wait for one", running, maxImports)
	}
	if len(old) > 0 {
		_, err = s.cfg.Store.ChangeRecords(ctx, importSpace(project, name), old, record.Limit{}, nil, s.nowMS())
	}
	return err
}

// Imports returns the imports of a base, the newest first.
func (s *Service) Imports(ctx context.Context, project, name string) ([]Import, error) {
	if _, err := s.load(ctx, project, name); err != nil {
		return nil, err
	}
	list, _, err := s.cfg.Store.Records(ctx, importSpace(project, name), record.Query{Limit: record.MaxChanges})
	if err != nil {
		return nil, err
	}
	out := make([]Import, len(list))
	for i := range list {
		if out[i], err = readImport(&list[i]); err != nil {
			return nil, err
		}
	}
	slices.Reverse(out)
	slices.SortStableFunc(out, func(a, b Import) int { return cmp.Compare(b.CreatedMS, a.CreatedMS) })
	return out, nil
}

// Import returns an import of a base, or fault.NotFound.
func (s *Service) Import(ctx context.Context, project, name, id string) (Import, error) {
	if _, err := s.load(ctx, project, name); err != nil {
		return Import{}, err
	}
	if err := text.ValidID("id", id, MaxID); err != nil {
		return Import{}, err
	}
	r, err := s.cfg.Store.Record(ctx, importSpace(project, name), id)
	if fault.Is(err, fault.NotFound) {
		return Import{}, fault.New(fault.NotFound, "knowledge base %q has no import %q", name, id)
	}
	if err != nil {
		return Import{}, err
	}
	return readImport(&r)
}

func readImport(r *record.Record) (m Import, err error) {
	if err := json.Unmarshal(r.Body, &m); err != nil {
		return m, fault.Wrap(fault.Internal, err, "the record of an import cannot be read")
	}
	m.ID = r.ID
	return m, nil
}

// runJob imports a part of a document. Imports take turns.
func (s *Service) runJob(ctx context.Context, j job.Key) (job.Result, error) {
	w := &work{s: s, project: j.Project}
	var ok bool
	if w.base, w.m.ID, ok = strings.Cut(j.ID, "/"); !ok {
		return job.Result{}, errNoImport
	}
	content := contentSpace(w.project, w.base, w.m.ID)
	erase := func(err error) (job.Result, error) {
		if err == nil {
			_, err = s.cfg.Store.EraseRecords(ctx, w.project, "", content.Name)
		}
		return job.Done(job.OK), err
	}
	r, err := s.cfg.Store.Record(ctx, importSpace(w.project, w.base), w.m.ID)
	if fault.Is(err, fault.NotFound) { // it was deleted, or was never answered
		return erase(nil)
	}
	if err != nil {
		return job.Result{}, err
	}
	if w.m, err = readImport(&r); err != nil || w.m.State != Running {
		return erase(err)
	}
	w.rev = r.Rev
	switch err = w.run(ctx, content); {
	case errors.Is(err, record.ErrStale): // it was deleted, or another server has it
		return job.Again(time.Second), nil
	case fault.Is(err, fault.Quota), fault.Is(err, fault.Invalid), fault.Is(err, fault.NotFound):
		w.m.State, w.m.Detail = Failed, text.Clip(err.Error(), 500)
		err = w.save(ctx)
	}
	if err != nil || w.m.State == Running {
		return job.Again(0), err
	}
	return erase(nil)
}
