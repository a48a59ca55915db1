package data

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/sqlite"
)

type keysCommand struct {
	Create keysCreate `cmd:"" help:"Create a key and write it with its secret."`
	List   keysList   `cmd:"" help:"List the keys of a project."`
	Revoke keysRevoke `cmd:"" help:"Revoke a key."`
	Rotate keysRotate `cmd:"" help:"Replace the HEARDLOG_DATA_KEY of a store."`
	Seal   keysSeal   `cmd:"" help:"Encrypt texts that were stored before there was a HEARDLOG_DATA_KEY."`
}

// Help returns the details.
func (*keysCommand) Help() string {
	return "create, list and revoke are about API keys, rotate and seal about the key that encrypts texts.\n\nThe commands work on the store, without credentials. The first key closes a server that was open: from then on it asks every caller for credentials.\n\nAn SQLite file must not be in use by a server. Ask the server for POST /v1/keys, GET /v1/keys or DELETE /v1/keys/{id} instead."
}

type keysCreate struct {
	StoreFlag
	Project string   `required:"" help:"Project of the key."`
	Name    string   `required:"" help:"Name of the key, for people."`
	Scopes  []string `required:"" help:"What the key opens, comma separated: read, write, proxy, webhooks, admin, which includes the others."`
	IfNone  bool     `help:"Do nothing if there is a key already, if the settings have credentials, or while a server uses an SQLite file."`
	Expires string   `placeholder:"DATE" help:"When the key ends: a date such as 2027-06-30 (UTC) or a time as of RFC 3339. Without it, never."`
}

// Run creates a key.
func (r *keysCreate) Run(ctx context.Context, e Env) error {
	if !config.ValidProject(r.Project) {
		return fmt.Errorf("--project: %q is not a project", r.Project)
	}
	k := access.Key{Name: r.Name}
	for _, s := range r.Scopes {
		k.Scopes = append(k.Scopes, access.Scope(strings.TrimSpace(s)))
	}
	if r.Expires != "" {
		at, err := parseEnd(r.Expires)
		if err != nil {
			return err
		}
		k.ExpiresMS = at.UnixMilli()
	}
	if r.IfNone && (e.Getenv("HEARDLOG_CREDENTIALS") != "" || e.Getenv("HEARDLOG_AGORA_CERTIFICATES") != "") {
		return nil
	}
	err := withKeys(ctx, e, r.Store, func(keys *access.Keys, audit *access.Audit) (any, error) {
		if r.IfNone {
			if exist, err := keys.Exist(ctx); err != nil || exist {
				return nil, err
			}
		}
		made, err := keys.Create(ctx, r.Project, k)
		if err != nil {
			return nil, err
		}
		shown := newShownKey(made.Key)
		shown.Secret = made.Secret
		return shown, recordAct(ctx, audit, r.Project, "key.create", made.ID)
	})
	if r.IfNone && errors.Is(err, sqlite.ErrInUse) {
		return nil
	}
	return err
}

// shownKey is a key as POST /v1/keys answers it.
type shownKey struct {
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Scopes    []access.Scope `json:"scopes"`
	CreatedAt string         `json:"created_at"`
	ExpiresAt string         `json:"expires_at,omitempty"`
	RevokedAt string         `json:"revoked_at,omitempty"`
	Secret    string         `json:"secret,omitempty"`
}

func newShownKey(k access.Key) shownKey {
	at := func(ms int64) string {
		if ms == 0 {
			return ""
		}
		return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
	}
	return shownKey{ID: k.ID, Name: k.Name, Scopes: k.Scopes, CreatedAt: at(k.CreatedMS), ExpiresAt: at(k.ExpiresMS), RevokedAt: at(k.RevokedMS)}
}

// parseEnd reads a date or a time.
func parseEnd(s string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, s); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("--expires: must be a date such as 2027-06-30 or a time such as 2027-06-30T12:00:00Z, not %q", s)
}

type keysList struct {
	StoreFlag
	Project string `required:"" help:"Project of the keys."`
}

// Run lists keys, revoked ones too.
func (r *keysList) Run(ctx context.Context, e Env) error {
	return withKeys(ctx, e, r.Store, func(keys *access.Keys, _ *access.Audit) (any, error) {
		list, err := keys.List(ctx, r.Project)
		if err != nil {
			return nil, err
		}
		shown := make([]shownKey, len(list))
		for i, k := range list {
			shown[i] = newShownKey(k)
		}
		return map[string]any{"keys": shown}, nil
	})
}

type keysRevoke struct {
	StoreFlag
	ID string `arg:"" help:"ID of the key."`
}

// Run revokes a key.
func (r *keysRevoke) Run(ctx context.Context, e Env) error {
	return withKeys(ctx, e, r.Store, func(keys *access.Keys, audit *access.Audit) (any, error) {
		project := access.ProjectOf(r.ID)
		k, err := keys.Revoke(ctx, project, r.ID)
		if err != nil {
			return nil, err
		}
		return newShownKey(k), recordAct(ctx, audit, project, "key.revoke", r.ID)
	})
}

// recordAct adds what a subcommand did to the audit log of the project.
func recordAct(ctx context.Context, audit *access.Audit, project, what, on string) error {
	if err := audit.Record(ctx, project, access.Act{By: access.CommandLine, What: what, On: on}); err != nil {
		return fmt.Errorf("it was done, but could not be added to the audit log: %w", err)
	}
	return nil
}

// withKeys opens the store of the settings, calls do with its keys, and writes the result as JSON.
// A store that is missing is created, so that a server's first key can be made before its first
// start.
func withKeys(ctx context.Context, e Env, url string, do func(*access.Keys, *access.Audit) (any, error)) (err error) {
	c, err := loadStore(ctx, e, url)
	if err != nil {
		return err
	}
	store, err := openKeys(ctx, c)
	if err != nil {
		return fmt.Errorf("open the store %s: %w", storeName(c), err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	out, err := do(access.NewKeys(store, time.Now), &access.Audit{Store: store, Now: time.Now})
	if out != nil { // a secret is shown even if the audit log failed
		err = errors.Join(err, json.NewEncoder(e.Stdout).Encode(out))
	}
	return err
}

func openKeys(ctx context.Context, c config.Config) (interface {
	kv.Store
	io.Closer
}, error) {
	if c.StoreURL != "" {
		return openTables(ctx, c, nil)
	}
	return store.OpenSQLite(ctx, fileOptions(c), engine.Options{})
}
