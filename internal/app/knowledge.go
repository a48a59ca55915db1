package app

import (
	"context"

	"github.com/heardlog/heardlog/internal/quota"
	"github.com/heardlog/heardlog/longterm/knowledge"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
	"github.com/heardlog/heardlog/ossa/model"
	"github.com/heardlog/heardlog/ossa/pattern"
)

// newKnowledge creates the services of knowledge bases and of learned patterns. The indexes of
// bases take half as much memory as those of vector collections.
func (a *App) newKnowledge() {
	records := quota.Records{Store: a.store, Keeper: a.quota}
	redacting := func(ctx context.Context, project string, fn func(*redact.Redactor)) error {
		return a.service.Messages.Redact(ctx, &memory.Agent{Project: project}, fn)
	}
	a.patterns = pattern.New(pattern.Config{Store: records, Now: a.now, Redact: redacting})
	a.knowledge = knowledge.New(a.jobs, knowledge.Config{
		Store: records, MaxMB: max(1, a.cfg.VectorsMB/2), Sealed: a.cfg.Sealed(), Now: a.now, NewID: a.ids.next,
		Redact: redacting,
	})
	a.models.Setup = a.setUp
}

// setUp creates the knowledge base of a memory model, which has the model's name, and sets the
// half-life of the project's patterns.
func (a *App) setUp(ctx context.Context, project string, m *model.Model) error {
	if k := m.Report.KnowledgeBase; k != nil {
		b := knowledge.Base{Project: project, Name: m.Name, Kind: k.Schema, Versioning: k.Versioning, MaxEntries: int(k.MaxEntries)}
		if err := a.knowledge.Configure(ctx, b); err != nil {
			return err
		}
	}
	if p := m.Report.Patterns; p != nil {
		return a.patterns.SetHalfLife(ctx, project, int(p.HalfLifeDays))
	}
	return nil
}
