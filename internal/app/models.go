package app

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/quota"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/retention"
	"github.com/heardlog/heardlog/ossa"
	"github.com/heardlog/heardlog/ossa/checkpoint"
	"github.com/heardlog/heardlog/ossa/model"
	"github.com/heardlog/heardlog/store/record"
)

// newModels creates the memory models, with the server's own of HEARDLOG_MEMORY_MODEL.
func newModels(c config.Config, records record.Store, now func() time.Time) (*model.Service, error) {
	own, err := defaultModel(c)
	here := hostOf(c)
	here.KV = externalKV(own)
	return &model.Service{Records: records, Host: here, Default: own, Now: now}, err
}

// newSaves creates what saves the memories of agents, and what erases calls at the end of their own
// retention.
func (a *App) newSaves() (err error) {
	a.saves, err = checkpoint.New(a.jobs, checkpoint.Config{
		Records: quota.Records{Store: a.store, Keeper: a.quota}, Ledger: a.store, Memory: a.contexts, Now: a.now,
		First: func(ctx context.Context, g *memory.Agent) error { return a.retention.Note(ctx, g) },
	})
	a.retention = &retention.Keeper{
		Records: a.store, Server: a.cfg.Retention, Agent: a.service.Agents.Agent, Erase: a.service.Agents.Erase, Forget: a.agentErased, Now: a.now,
	}
	a.retention.Handle(a.jobs)
	return err
}

// hostOf returns what the server can do for a memory model.
func hostOf(c config.Config) ossa.Host {
	store := "sqlite"
	switch {
	case c.InMemory():
		store = "memory"
	case c.StoreURL != "":
		store = "postgres"
	}
	const day = 24 * time.Hour
	return ossa.Host{Store: store, RetentionDays: int64((c.Retention + day - 1) / day), EmbeddingModel: c.Embeddings.Model, MaxWorkingMB: int64(c.WorkingMB), NoSummaries: c.Summaries == 0}
}

// defaultModel reads the server's own model, nil if there is none. The operator wrote it, so its
// variables are those of the environment.
func defaultModel(c config.Config) (*model.Model, error) {
	if c.MemoryModel == "" {
		return nil, nil
	}
	wrap := func(err error) (*model.Model, error) { return nil, fmt.Errorf("HEARDLOG_MEMORY_MODEL: %w", err) }
	f, err := os.Open(c.MemoryModel)
	if err != nil {
		return wrap(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, model.MaxBytes+1))
	if err != nil {
		return wrap(err)
	}
	if len(text) > model.MaxBytes {
		return wrap(fmt.Errorf("the file has more than %d bytes", model.MaxBytes))
	}
	document, err := ossa.ToJSON(text)
	if err != nil {
		return wrap(err)
	}
	here := hostOf(c)
	here.Connects, here.Uploads = true, allows(c, uploadSecret)
	m, err := model.Read(model.Default, document, environment(string(text)), here)
	if err != nil {
		return wrap(err)
	}
	return &m, nil
}

// logUnsupported logs what has no effect of the server's own model.
func (a *App) logUnsupported() {
	if a.models.Default == nil {
		return
	}
	for _, p := range a.models.Default.Report.NotSupported {
		a.log.Warn().Str("path", p.Path).Str("why", p.Message).Msg("a part of HEARDLOG_MEMORY_MODEL has no effect")
	}
}

// environment returns the environment variables whose names occur in a text.
func environment(text string) map[string]string {
	out := map[string]string{}
	for _, e := range os.Environ() {
		if name, value, _ := strings.Cut(e, "="); strings.Contains(text, "${"+name) {
			out[name] = value
		}
	}
	return out
}
