package data

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/heardlog/heardlog/internal/blob"
	"github.com/heardlog/heardlog/store/archive"
	"github.com/heardlog/heardlog/store/export"
)

// maxFindings limits the findings that are written; the others are counted.
const maxFindings = 1000

type verifyCommand struct {
	StoreFlag
	ScopeFlags
	JSON bool `name:"json" help:"Write one JSON object a finding, and one with the counts."`
	// Archive is checked in place of the store.
	Archive string `placeholder:"PLACE" help:"Check the objects in this folder or bucket, written as in HEARDLOG_ARCHIVE, and no store."`
}

// Help returns the details.
func (*verifyCommand) Help() string {
	return "Reads everything that the store holds and reports: wrong numbers and turns of messages, wrong revisions, values that cannot be read, rows without an owner, errors of the outbox, and damage of the file. Calls in the archive are read there. It changes nothing and may run beside a server. The exit code is 0 if nothing is wrong."
}

// Run writes the findings.
func (v *verifyCommand) Run(ctx context.Context, e Env) (err error) {
	if v.Archive != "" {
		return v.archive(ctx, e)
	}
	s, err := v.scope()
	if err != nil {
		return err
	}
	c, err := loadStore(e, v.Store)
	if err != nil {
		return err
	}
	from, err := openSource(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	n := 0
	say := func(f export.Finding) error {
		if n++; n > maxFindings {
			return nil
		}
		if v.JSON {
			return json.NewEncoder(e.Stdout).Encode(f)
		}
		return printFinding(e, f)
	}
	show, end := progress(e, "verify")
	counts, err := export.Verify(ctx, countedSource{from, show}, s, say)
	end()
	if err != nil {
		return err
	}
	if n > maxFindings && !v.JSON {
		fmt.Fprintf(e.Stdout, "and %d more\n", n-maxFindings)
	}
	if v.JSON {
		err = json.NewEncoder(e.Stdout).Encode(map[string]any{"counts": counts, "findings": n})
	} else {
		_, err = fmt.Fprintf(e.Stdout, "%s: %s; findings: %d\n", storeName(c), counts, n)
	}
	if err == nil && n > 0 {
		err = ErrFound
	}
	return err
}

// archive checks the objects of an archive.
func (v *verifyCommand) archive(ctx context.Context, e Env) error {
	place, err := blob.Open(v.Archive, e.Getenv)
	if err != nil {
		return err
	}
	n := 0
	var wrote error
	counts, err := archive.Verify(ctx, place, func(object string, err error) {
		f := export.Finding{What: "object " + object + ": " + err.Error()}
		if n++; n > maxFindings {
			return
		}
		if v.JSON {
			wrote = errors.Join(wrote, json.NewEncoder(e.Stdout).Encode(f))
		} else {
			wrote = errors.Join(wrote, printFinding(e, f))
		}
	})
	if err = errors.Join(err, wrote); err != nil {
		return err
	}
	if v.JSON {
		err = json.NewEncoder(e.Stdout).Encode(map[string]any{"objects": counts.Objects, "bytes": counts.Bytes, "findings": n})
	} else {
		_, err = fmt.Fprintf(e.Stdout, "%s: %d objects of %d bytes; findings: %d\n", place, counts.Objects, counts.Bytes, n)
	}
	if err == nil && n > 0 {
		err = ErrFound
	}
	return err
}

func printFinding(e Env, f export.Finding) error {
	where := ""
	if f.Agent != "" {
		where = fmt.Sprintf("agent %s of project %s: ", f.Agent, f.Project)
	} else if f.Project != "" {
		where = fmt.Sprintf("project %s: ", f.Project)
	}
	_, err := fmt.Fprintf(e.Stdout, "%s%s\n", where, f.What)
	return err
}

// countedSource is a source that counts its records for the progress display.
type countedSource struct {
	source
	show func(export.Counts)
}

// Export counts the records that it passes on.
func (w countedSource) Export(ctx context.Context, s export.Scope, each func(export.Record) error) error {
	if w.show == nil {
		return w.source.Export(ctx, s, each)
	}
	var n export.Counts
	return w.source.Export(ctx, s, func(r export.Record) error {
		n.Add(r)
		w.show(n)
		return each(r)
	})
}
