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
	"github.com/heardlog/heardlog/memory/record"
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
	batch        = 100              // entries stored at once
	slice        = 2 * time.Second  // of one import, before the next gets its turn
	lease        = time.Minute      // how long a job is one server's alone
	pauseAfter   = 10 * time.Second // after a failure; doubles with each, up to longestPause
	longestPause = time.Hour
	lookEvery    = 30 * time.Second // for jobs of other servers
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

// jobSpace has the imports of all projects that run, so that a server finds all of them. No project
// has this name.
var jobSpace = record.Space{Project: "~", Name: "knowledge/job"}

// job is an import that runs.
type job struct {
	Project string `json:"project"`
	Base    string `json:"base"`
	Import  string `json:"import"`
	DueMS   int64  `json:"due_ms"`          // not before, since a server works on it or it failed
	Tries   int    `json:"tries,omitempty"` // that failed, since one went well

	rev int64 // of its record
}

func (j *job) id() string { return j.Project + "/" + j.Base + "/" + j.Import }

func (s *Service) putJob(ctx context.Context, j *job) error {
	rev, err := s.put(ctx, jobSpace, j.id(), j.rev, j)
	if err == nil {
		j.rev = rev
	}
	return err
}

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
	j := job{Project: project, Base: name, Import: m.ID, DueMS: now + lease.Milliseconds(), rev: record.Absent}
	if err := s.putJob(ctx, &j); err != nil {
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
	j.DueMS = 0
	if err := s.putJob(ctx, &j); err != nil { // it is due after the lease, then
		s.cfg.OnError("start an import", err)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
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
	if err := checkID("id", id); err != nil {
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

// Run imports documents until ctx is done, and returns nil. Imports take turns.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		more, err := s.runDue(ctx)
		if err != nil && ctx.Err() == nil {
			s.cfg.OnError("import documents", err)
		}
		if more {
			continue
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-s.wake:
		}
	}
	return nil
}

// runDue runs each import that is due for a while. It reports whether one of them has more to do.
// An import that fails is reported and keeps no other from running.
func (s *Service) runDue(ctx context.Context) (more bool, err error) {
	for after := ""; ; {
		list, _, err := s.cfg.Store.Records(ctx, jobSpace, record.Query{AfterID: after, Limit: page, Broken: true})
		if err != nil {
			return more, err
		}
		for i := range list {
			after = list[i].ID
			left, err := s.runRecord(ctx, &list[i])
			if err != nil && ctx.Err() == nil {
				s.cfg.OnError("import a document, job "+list[i].ID, err)
			}
			more = more || left
		}
		if len(list) < page {
			return more, nil
		}
	}
}

// readJob returns the job of a record. One whose body is damaged is due at once: its ID says what
// it is for.
func readJob(r *record.Record) (j job, err error) {
	if json.Unmarshal(r.Body, &j) != nil || j.id() != r.ID {
		parts := strings.Split(r.ID, "/")
		if len(parts) != 3 {
			return j, fmt.Errorf("the record %q is not a job of an import", r.ID)
		}
		j = job{Project: parts[0], Base: parts[1], Import: parts[2]}
	}
	j.rev = r.Rev
	return j, nil
}

// runRecord runs the import of a job for a while, if it is due. It reports whether there is more to
// do at once.
func (s *Service) runRecord(ctx context.Context, r *record.Record) (more bool, err error) {
	j, err := readJob(r)
	if err != nil || j.DueMS > s.nowMS() || ctx.Err() != nil {
		return false, err
	}
	j.DueMS = s.nowMS() + lease.Milliseconds()
	if err := s.putJob(ctx, &j); err != nil {
		return false, unlessStale(err) // another server has it
	}
	ended, err := s.runJob(ctx, &j)
	end := context.WithoutCancel(ctx)
	if ended {
		_, lost := s.cfg.Store.ChangeRecords(end, jobSpace, []record.Change{{ID: j.id(), If: record.Any}}, record.Limit{}, nil, s.nowMS())
		return false, errors.Join(err, lost)
	}
	if err != nil && ctx.Err() == nil {
		j.DueMS = s.nowMS() + min(pauseAfter<<min(j.Tries, 16), longestPause).Milliseconds()
		j.Tries++
	} else {
		j.DueMS, j.Tries, more = 0, 0, true
	}
	return more, errors.Join(err, unlessStale(s.putJob(end, &j)))
}

// unlessStale returns an error other than record.ErrStale.
func unlessStale(err error) error {
	if errors.Is(err, record.ErrStale) {
		return nil
	}
	return err
}

// runJob imports a part of a document. It reports whether the import has ended.
func (s *Service) runJob(ctx context.Context, j *job) (ended bool, err error) {
	content := contentSpace(j.Project, j.Base, j.Import)
	erase := func(err error) (bool, error) {
		if err == nil {
			_, err = s.cfg.Store.EraseRecords(ctx, j.Project, "", content.Name)
		}
		return err == nil, err
	}
	r, err := s.cfg.Store.Record(ctx, importSpace(j.Project, j.Base), j.Import)
	if fault.Is(err, fault.NotFound) { // it was deleted, or was never answered
		return erase(nil)
	}
	if err != nil {
		return false, err
	}
	m, err := readImport(&r)
	if err != nil || m.State != Running {
		return erase(err)
	}
	w := &work{s: s, j: j, m: m, rev: r.Rev}
	switch err = w.run(ctx, content); {
	case errors.Is(err, record.ErrStale): // it was deleted, or another server has it
		return false, nil
	case fault.Is(err, fault.Quota), fault.Is(err, fault.Invalid), fault.Is(err, fault.NotFound):
		w.m.State, w.m.Detail = Failed, text.Clip(err.Error(), 500)
		err = w.save(ctx)
	}
	if err != nil || w.m.State == Running {
		return false, err
	}
	return erase(nil)
}
