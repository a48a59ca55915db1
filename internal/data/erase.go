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
	"github.com/heardlog/heardlog/internal/erasure"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
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
	ID       string `json:"erasure_id"`
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
	return "Needs --project and one of --agent, --user and --whole. Erases an agent, live or ended, with its messages, summary, items, working memory, events and deliveries, pending ones too, and the facts that rest on it alone; or all that belongs to an end user, as docs/guides/data.md defines it; or all that a project has. It writes one JSON object with numbers and IDs of what was erased, and no content. It cannot be undone. Keys at a provider such as Redis (HEARDLOG_MEMORY_MODEL) are not reached. The erasure is noted in the ledger of erasures (HEARDLOG_ERASURES), and applied again to what is restored or imported.\n\nAn SQLite file must not be in use by a server. Ask the server for DELETE /v1/agents/{id}, /v1/users/{id} or /v1/projects/{project} instead, which also stop answers that are being made."
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
	ledger, err := app.OpenErasures(c)
	if err != nil {
		return err
	}
	service, err := newErasures(ctx, ledger, from)
	if err != nil {
		return err
	}
	out := receipt{Project: r.Project, Agent: r.Agent, User: r.User}
	act, on := "project.erase", r.Project
	switch {
	case r.Agent != "":
		act, on = "agent.erase", r.Agent
		err = out.eraseAgent(ctx, from, service)
	case r.User != "":
		act, on = "user.erase", r.User
		err = out.eraseUser(ctx, service)
	default:
		var n erasure.Entry
		n, err = service.Project(ctx, r.Project, access.CommandLine)
		out.ID, out.Erased = n.ID, n.Erased
	}
	// What is under hold is refused before anything is erased, unless the hold was set meanwhile.
	if err != nil && (r.Agent != "" || fault.Is(err, fault.Held) || out.Erased == any(erasure.Counts{})) {
		return err
	}
	out.Unfinished = err != nil
	err = errors.Join(err, recordAct(ctx, &access.Audit{Store: from, Now: time.Now}, r.Project, act, on))
	if e.Getenv("HEARDLOG_MEMORY_MODEL") != "" {
		fmt.Fprintln(e.Stderr, "WARNING: keys that HEARDLOG_MEMORY_MODEL keeps at a provider such as Redis were not reached: delete them there")
	}
	out.ErasedAt = time.Now().UTC().Format(time.RFC3339)
	return errors.Join(err, json.NewEncoder(e.Stdout).Encode(out))
}

// eraseAgent erases one agent and counts its data.
func (r *receipt) eraseAgent(ctx context.Context, from eraser, service *erasure.Service) error {
	var n export.Counts
	s := export.Scope{Project: r.Project, Agent: r.Agent, Bad: func(string, error) {}} // unreadable data is erased too
	if err := from.Export(ctx, s, func(x export.Record) error { n.Add(x); return nil }); err != nil {
		return err
	}
	n.Endpoints = 0 // they stay
	entry, err := service.Agent(ctx, s.Project, s.Agent, access.CommandLine)
	if err != nil {
		return err
	}
	n.Records += int64(entry.Erased.Records) // facts that rest on the call alone
	if _, err := from.Head(ctx, s.Project, s.Agent); !fault.Is(err, fault.NotFound) {
		return fmt.Errorf("the agent is still found after it was erased: %v", err)
	}
	r.ID, r.Erased = entry.ID, n
	return nil
}

// eraseUser erases a user. It counts what it has erased even if it fails.
func (r *receipt) eraseUser(ctx context.Context, service *erasure.Service) error {
	if name, ok := platform.Name(r.User); ok { // as it is stored
		r.User = name
	}
	n, gone, err := service.User(ctx, r.Project, r.User, access.CommandLine)
	r.ID, r.Erased, r.User, r.Shared, r.SharedN = n.ID, n.Erased, gone.User, gone.Shared, gone.SharedN
	return err
}
