// Package model keeps the memory models of projects: OSSA documents under names. A Service stores
// and finds them; Model.Apply puts what a document says into the settings of a new agent.
package model

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/window"
	"github.com/heardlog/heardlog/ossa"
	"github.com/heardlog/heardlog/store/record"
)

// Bounds of the documents of a project.
const (
	MaxModels = 100
	MaxBytes  = 256 << 10 // of one document with its variables
	MaxName   = 64
)

// Default is the name of the server's own model, which no project can replace.
const Default = "default"

// Model is a memory model of a project: a document of the Open Standard for Software Agents that
// says how an agent remembers, such as its window, the size of its working memory and how long
// calls are kept. An agent that joins with a model takes from it what its own settings leave open.
// A Model is a document that this server can run.
type Model struct {
	Name      string
	UpdatedMS int64 // Unix ms
	// Document and Variables are as they were given; the document is JSON.
	Document  json.RawMessage
	Variables map[string]string
	Report    ossa.Report
}

// Service holds the rules of memory models over a store. Its methods are safe for concurrent use.
type Service struct {
	Records record.Store
	Host    ossa.Host // what this server can do
	// Default is the model of joins that name none; nil for none.
	Default *Model
	Now     func() time.Time
	// Setup is called before an agent joins with a model, to configure what is the project's.
	Setup func(ctx context.Context, project string, m *Model) error
}

// stored is the body of a record.
type stored struct {
	Document  json.RawMessage   `json:"document"`
	Variables map[string]string `json:"variables,omitempty"`
}

func space(project string) record.Space {
	return record.Space{Project: project, Name: "memory-model"}
}

// Read checks a document, which is JSON. It fails with fault.Invalid, and names what is wrong, if
// the document is not valid or this server cannot run it.
func Read(name string, document []byte, variables map[string]string, here ossa.Host) (Model, error) {
	m := Model{Name: name, Document: document, Variables: variables}
	var err error
	if m.Report, err = ossa.Validate(ossa.Document{JSON: document, Variables: variables, Host: here}); err != nil {
		return m, err
	}
	if len(m.Report.Errors) > 0 {
		return m, fault.At(fault.Invalid, "document", "is not a valid memory model: %s", list(m.Report.Errors))
	}
	if len(m.Report.Refused) > 0 {
		return m, fault.At(fault.Invalid, "document", "asks for what this server cannot do: %s", list(m.Report.Refused))
	}
	return m, nil
}

// maxListed is how many problems an error names.
const maxListed = 10

func list(problems []ossa.Problem) string {
	var b strings.Builder
	for i, p := range problems {
		if i == maxListed {
			fmt.Fprintf(&b, "; and %d more", len(problems)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(p.Path + ": " + p.Message)
	}
	return b.String()
}

// CheckName returns fault.Invalid for a name that no model can have.
func CheckName(field, name string) error {
	ok := name != "" && len(name) <= MaxName
	for i := 0; i < len(name) && ok; i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || i > 0 && (c == '.' || c == '-' || c == '_')
	}
	if !ok {
		return fault.At(fault.Invalid, field, "must have 1 to %d letters, digits, dots, dashes and underscores, and begin with a letter or digit", MaxName)
	}
	return nil
}

// Put stores a document in place of an earlier one of that name. It is on disk when Put returns. It
// fails as CheckName and Read do, with fault.TooLarge, and with fault.Quota for too many.
func (s *Service) Put(ctx context.Context, project, name string, document []byte, variables map[string]string) (Model, error) {
	if err := CheckName("name", name); err != nil {
		return Model{}, err
	}
	if name == Default {
		return Model{}, fault.At(fault.Invalid, "name", "%q is the server's own model: HEARDLOG_MEMORY_MODEL", name)
	}
	m, err := Read(name, document, variables, s.Host)
	if err != nil {
		return Model{}, err
	}
	body, err := json.Marshal(stored{document, variables})
	if err != nil {
		return Model{}, fault.Wrap(fault.Internal, err, "the document could not be stored")
	}
	if len(body) > MaxBytes {
		return Model{}, fault.New(fault.TooLarge, "the document has %d bytes; at most %d are allowed", len(body), MaxBytes)
	}
	m.UpdatedMS = s.Now().UnixMilli()
	_, err = s.Records.ChangeRecords(ctx, space(project), []record.Change{{ID: name, Body: body, If: record.Any}},
		record.Limit{Records: MaxModels, Of: "memory models"}, nil, m.UpdatedMS)
	return m, err
}

// Get returns a model, or fault.NotFound. A document that this server could run once but cannot any
// more has its reasons in the report.
func (s *Service) Get(ctx context.Context, project, name string) (Model, error) {
	if err := CheckName("name", name); err != nil {
		return Model{}, err
	}
	r, err := s.Records.Record(ctx, space(project), name)
	if fault.Is(err, fault.NotFound) {
		return Model{}, fault.New(fault.NotFound, "there is no memory model %q", name)
	}
	if err != nil {
		return Model{}, err
	}
	var body stored
	if err := json.Unmarshal(r.Body, &body); err != nil {
		return Model{}, fault.Wrap(fault.Internal, err, "a stored memory model could not be read")
	}
	m := Model{Name: name, UpdatedMS: r.UpdatedMS, Document: body.Document, Variables: body.Variables}
	m.Report, err = ossa.Validate(ossa.Document{JSON: body.Document, Variables: body.Variables, Host: s.Host})
	return m, err
}

// Delete deletes a model. Agents that have joined with it keep their settings. It is not an error
// if there is none.
func (s *Service) Delete(ctx context.Context, project, name string) error {
	if err := CheckName("name", name); err != nil {
		return err
	}
	_, err := s.Records.ChangeRecords(ctx, space(project), []record.Change{{ID: name, If: record.Any}}, record.Limit{}, nil, s.Now().UnixMilli())
	return err
}

// List returns up to limit models after the given name, by name, without their reports.
func (s *Service) List(ctx context.Context, project, after string, limit int) ([]Model, error) {
	page, _, err := s.Records.Records(ctx, space(project), record.Query{AfterID: after, Limit: limit})
	out := make([]Model, 0, len(page))
	for _, r := range page {
		out = append(out, Model{Name: r.ID, UpdatedMS: r.UpdatedMS})
	}
	return out, err
}

// ForJoin returns the model that a join names in field, or the server's own if name is "": nil if
// there is none. It configures what the model says about the project. It fails with fault.Invalid
// for an unknown model, and as Read does.
func (s *Service) ForJoin(ctx context.Context, project, field, name string) (*Model, error) {
	m, err := s.find(ctx, project, field, name)
	if err == nil && m != nil && s.Setup != nil {
		err = s.Setup(ctx, project, m)
	}
	return m, err
}

func (s *Service) find(ctx context.Context, project, field, name string) (*Model, error) {
	if name == "" || name == Default {
		if name == Default && s.Default == nil {
			return nil, fault.At(fault.Invalid, field, "%q is the server's own model, and HEARDLOG_MEMORY_MODEL is not set", name)
		}
		return s.Default, nil
	}
	if err := CheckName(field, name); err != nil {
		return nil, err
	}
	m, err := s.Get(ctx, project, name)
	if fault.Is(err, fault.NotFound) {
		return nil, fault.At(fault.Invalid, field, "there is no memory model %q; store it with PUT /v1/memory-models/%s", name, name)
	}
	if err != nil {
		return nil, err
	}
	if bad := append(m.Report.Errors, m.Report.Refused...); len(bad) > 0 {
		return nil, fault.At(fault.Invalid, field, "%q cannot run here any more: %s", name, list(bad))
	}
	return &m, nil
}

// Apply sets what the document says and the settings leave open, and returns what is inherited.
// What is open has its zero value, and IdleTimeoutS is below 0.
func (m *Model) Apply(s *memory.Settings, inherit memory.Inherit) memory.Inherit {
	r := &m.Report
	s.Memory.Model = m.Name
	if p := r.Policy; p != nil {
		levels := []window.Policy{*p}
		if n := s.LLM.MaxHistory; n > 0 {
			levels = append(levels, window.Policy{MaxMessages: &n})
		}
		if own := s.Memory.Policy; own != nil {
			levels = append(levels, *own)
		}
		s.Memory.Policy = new(window.Merge(levels...))
	}
	if w, own := r.WorkingMemory, &s.Memory.Working; w != nil {
		own.Off = own.Off || !w.Enabled
		if own.MaxSizeMB == 0 {
			own.MaxSizeMB = int(w.MaxSizeMB)
		}
		if own.TTL == 0 {
			own.TTL = int(w.TTLSeconds)
		}
	}
	if own := &s.Memory.Working; own.GC.Strategy == "" {
		own.GC = m.GC()
	}
	if session := r.Session; session != nil {
		if s.IdleTimeoutS < 0 {
			s.IdleTimeoutS = int(session.TTLSeconds)
		}
		if inherit == "" && session.Persist {
			inherit = memory.InheritFull
		}
		s.Memory.MaxSessions = int(r.MaxSessions)
	}
	if c := r.AgentState; c != nil {
		s.Memory.Checkpoints = memory.Checkpoints{EverySeconds: int(c.IntervalSeconds), Max: int(c.MaxCheckpoints), Plain: !c.Compression}
	}
	if h := r.History; h != nil {
		s.Memory.Kept = memory.Kept{Days: int(h.RetentionDays), Unindexed: !h.Indexing, Summarize: h.Summarization}
	}
	if p := r.Patterns; p != nil && s.Memory.Remember.Patterns == nil {
		if own := &s.Memory.Remember; own.Position == "" { // prompts have nothing else
			*own = memory.DefaultRemember()
			own.Inject = false
		}
		s.Memory.Remember.Patterns = p.Types
	}
	return inherit
}

// GC returns how the document has keys and values make room.
func (m *Model) GC() memory.GC {
	c := m.Report.GarbageCollection
	if c == nil {
		return memory.GC{}
	}
	return memory.GC{Strategy: c.Strategy, EverySeconds: int(c.RunIntervalSeconds), MaxPercent: int(c.MaxPercent), TargetPercent: int(c.TargetPercent)}
}
