package data

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/app"
	"github.com/heardlog/heardlog/internal/erased"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/caller"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/hold"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/platform"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

// receipt is the output of erase.
type receipt struct {
	Project  string `json:"project"`
	Agent    string `json:"agent,omitempty"`
	User     string `json:"user,omitempty"`
	ErasedAt string `json:"erased_at"` // RFC 3339, UTC
	Erased   any    `json:"erased"`    // by this call
	// Unfinished is set if an error came after Erased: there may be more, and the same command goes
	// on.
	Unfinished bool `json:"unfinished,omitempty"`
	// Shared lists agents that were kept, since other users spoke there too.
	Shared  []string `json:"shared_agents,omitempty"`
	SharedN int      `json:"shared_total,omitempty"`
}

// erasure counts what was erasure of a user or a project.
type erasure struct {
	Agents        int  `json:"agents"`
	Memories      int  `json:"memories"`
	Records       int  `json:"records"`
	Aliases       *int `json:"aliases,omitempty"` // of a user
	Conversations *int `json:"conversations,omitempty"`
	Keys          *int `json:"keys,omitempty"` // of namespaces
	Endpoints     *int `json:"endpoints,omitempty"`
}

// eraser is a store in which data is erased.
type eraser interface {
	memory.Ledger
	memories.Store
	kv.Store
	record.Store
	webhook.Store
	export.Source
}

// sqliteEraser erases through the store and exports through a reader of its own.
type sqliteEraser struct {
	*store.SQLite
	reader *sqlite.Reader
}

// Export calls each for every record of the file.
func (s sqliteEraser) Export(ctx context.Context, sc export.Scope, each func(export.Record) error) error {
	return s.reader.Export(ctx, sc, each)
}

// Close closes both.
func (s sqliteEraser) Close() error { return errors.Join(s.reader.Close(), s.SQLite.Close()) }

// openEraser opens an existing store.
func openEraser(ctx context.Context, c config.Config) (eraser, error) {
	there, err := openRows(ctx, c) // refuses a store that is missing or of another version
	if err != nil {
		return nil, err
	}
	archived, err := app.OpenArchive(c)
	if err != nil {
		return nil, errors.Join(err, there.Close())
	}
	r, file := there.(*sqlite.Reader)
	if !file {
		if err := there.Close(); err != nil {
			return nil, err
		}
		return openTables(ctx, c, archived)
	}
	s, err := store.OpenArchivedSQLite(ctx, fileOptions(c), engine.Options{}, archived)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return sqliteEraser{s, r}, nil
}

type eraseCommand struct {
	StoreFlag
	Project string `help:"Project of what is erased."`
	Agent   string `placeholder:"ID" help:"Erase the agent with this ID."`
	User    string `placeholder:"ID" help:"Erase what belongs to the end user with this ID."`
	Whole   bool   `help:"Erase all that the project has."`
}

// Help returns the details.
func (*eraseCommand) Help() string {
	return "Needs --project and one of --agent, --user and --whole. Erases an agent, live or ended, with its messages, summary, items, working memory, events and deliveries, pending ones too; or all that belongs to an end user, as docs/guides/data.md defines it; or all that a project has. It writes one JSON object with numbers and IDs of what was erased, and no content. It cannot be undone.\n\nAn SQLite file must not be in use by a server. Ask the server for DELETE /v1/agents/{id}, /v1/users/{id} or /v1/projects/{project} instead, which also stop answers that are being made."
}

// Run erases an agent, a user or a project.
func (r *eraseCommand) Run(ctx context.Context, e Env) (err error) {
	n := 0
	for _, said := range []bool{r.Agent != "", r.User != "", r.Whole} {
		if said {
			n++
		}
	}
	if !config.ValidProject(r.Project) || n != 1 {
		return errors.New("--project is required, and one of --agent, --user and --whole")
	}
	c, err := loadStore(ctx, e, r.Store)
	if err != nil {
		return err
	}
	from, err := openEraser(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	out := receipt{Project: r.Project, Agent: r.Agent, User: r.User}
	act, on := "project.erase", r.Project
	switch {
	case r.Agent != "":
		act, on = "agent.erase", r.Agent
	case r.User != "":
		act, on = "user.erase", r.User
	}
	if r.Agent != "" {
		out.Erased, err = eraseAgent(ctx, from, export.Scope{Project: r.Project, Agent: r.Agent})
	} else {
		err = out.eraseMany(ctx, from)
		// What is under hold is refused before anything is erased.
		out.Unfinished = err != nil && !fault.Is(err, fault.Held)
	}
	if err != nil && !out.Unfinished {
		return err
	}
	err = errors.Join(err, recordAct(ctx, &access.Audit{Store: from, Now: time.Now}, r.Project, act, on))
	out.ErasedAt = time.Now().UTC().Format(time.RFC3339)
	return errors.Join(err, json.NewEncoder(e.Stdout).Encode(out))
}

// eraseAgent erases one agent and counts its data.
func eraseAgent(ctx context.Context, from eraser, s export.Scope) (n export.Counts, err error) {
	s.Bad = func(string, error) {} // unreadable data is erased too
	if err := from.Export(ctx, s, func(r export.Record) error { n.Add(r); return nil }); err != nil {
		return n, err
	}
	n.Endpoints = 0 // they stay
	if err := from.Erase(ctx, s.Project, s.Agent); err != nil {
		return n, err
	}
	if _, err := from.Head(ctx, s.Project, s.Agent); !fault.Is(err, fault.NotFound) {
		return n, fmt.Errorf("the agent is still found after it was erased: %v", err)
	}
	return n, nil
}

// eraseMany erases a user or the project. It counts what it has erased even if it fails.
func (r *receipt) eraseMany(ctx context.Context, from eraser) (err error) {
	// It creates nothing.
	holds := &hold.Service{Records: from, Now: time.Now}
	service := memories.Service{
		Holds:  holds,
		Memory: agents.NewService(agents.Config{Ledger: from, Now: time.Now}), Ledger: from, Store: from, Records: from,
		Events: func(ctx context.Context, project, id string, ledger []memory.Message) ([]memory.Event, error) {
			return erased.Events(ctx, from, project, id, ledger)
		},
	}
	var n erasure
	var gone memories.Erased
	defer func() {
		n.Agents, n.Memories, n.Records = gone.Agents, gone.Memories, gone.Records
		r.Erased, r.Shared, r.SharedN = n, gone.Shared, gone.SharedN
	}()
	if r.User != "" {
		if name, ok := platform.Name(r.User); ok { // as it is stored
			r.User = name
		}
		key, err := from.ServerKey(ctx, caller.KeyName)
		if err != nil {
			return err
		}
		callers := caller.Service{Records: from, Ledger: from, Items: service, Now: time.Now, Key: key}
		e, err := callers.Erase(ctx, r.Project, r.User)
		gone, n.Aliases, r.User = e.Erased, &e.Aliases, e.User
		return err
	}
	n.Endpoints, n.Conversations, n.Keys = new(int), new(int), new(int)
	if err := holds.CheckProject(ctx, r.Project); err != nil {
		return err
	}
	// First, so that nothing more is sent.
	if *n.Endpoints, err = (&webhook.Service{Store: from}).DeleteAll(ctx, r.Project); err != nil {
		return err
	}
	if gone, err = service.EraseProject(ctx, r.Project); err != nil {
		return err
	}
	if *n.Conversations, err = from.ClearKeys(ctx, kv.Space{Project: r.Project}, 0); err != nil {
		return err
	}
	*n.Keys, err = kv.EraseProject(ctx, from, r.Project)
	return err
}
