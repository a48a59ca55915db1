package app

import (
	"github.com/google/uuid"

	"github.com/heardlog/heardlog/internal/quota"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/longterm/recall"
	"github.com/heardlog/heardlog/longterm/vector"
)

// newRecall creates the service that searches calls, also by the embeddings of the model.
func (a *App) newRecall() {
	c := recall.Config{
		Ledger: a.store, Items: a.store, MaxMB: a.cfg.RecallMB, Who: a.callers.Recallable, OnError: a.problem, Now: a.now,
	}
	if a.cfg.RecallEmbeddings {
		c.Embedder = a.vectors
	}
	a.recall = recall.NewService(c)
	if c.Embedder != nil {
		a.recall.Embed(a.jobs)
	}
	a.runs("recall", a.recall.Run)
	a.onCallerErased(a.recall.Forget)
}

// newVectors creates the service of vector collections, with the model of the settings.
func (a *App) newVectors() {
	c := vector.Config{
		Store: quota.Records{Store: a.store, Keeper: a.quota}, MaxMB: a.cfg.VectorsMB, Now: a.now, NewID: uuid.NewString,
	}
	if e := a.cfg.Embeddings; e.URL != "" {
		c.Embedder = &llmadapter.Embedder{URL: e.URL, Key: e.Key.Reveal(), Model: e.Model, Dimensions: e.Dimensions, Transport: a.transport}
		c.Endpoint, c.ModelName = e.URL, e.Model
	}
	a.vectors = vector.New(a.jobs, c)
	a.onCallerErased(a.vectors.Forget)
}
