package app

import (
	"github.com/heardlog/heardlog/internal/quota"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/knowledge"
	"github.com/heardlog/heardlog/memory/redact"
)

// newKnowledge creates the service of knowledge bases. Their indexes take half as much memory as
// those of vector collections.
func (a *App) newKnowledge() {
	a.knowledge = knowledge.New(knowledge.Config{
		Store: quota.Records{Store: a.store, Keeper: a.quota}, MaxMB: max(1, a.cfg.VectorsMB/2), Now: a.now, NewID: a.ids.next,
		Redact:  func(project string) *redact.Redactor { return a.service.Redactor(&memory.Agent{Project: project}) },
		OnError: func(what string, err error) { a.log.Error().Err(err).Msg(what) },
	})
}
