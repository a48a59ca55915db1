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
	c, err := loadStore(ctx, e, v.Store)
	if err != nil {
		return err
	}
	from, err := openSource(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	say := findings{e: e, asJSON: v.JSON}
	show, end := progress(e, "verify")
	counts, err := export.Verify(ctx, countedSource{from, show}, s, say.one)
	end()
	if err != nil {
		return err
	}
	return say.end(fmt.Sprintf("%s: %s", storeName(c), counts), map[string]any{"counts": counts})
}

// archive checks the objects of an archive.
func (v *verifyCommand) archive(ctx context.Context, e Env) error {
	place, err := blob.Open(v.Archive, e.Getenv)
	if err != nil {
		return err
	}
	say := findings{e: e, asJSON: v.JSON}
	var wrote error
	counts, err := archive.Verify(ctx, place, func(object string, err error) {
		wrote = errors.Join(wrote, say.one(export.Finding{What: "object " + object + ": " + err.Error()}))
	})
	if err = errors.Join(err, wrote); err != nil {
		return err
	}
	return say.end(fmt.Sprintf("%s: %d objects of %d bytes", place, counts.Objects, counts.Bytes), map[string]any{"objects": counts.Objects, "bytes": counts.Bytes})
}

// findings writes what was found.
type findings struct {
	e      Env
	asJSON bool
	n      int
}

// one writes a finding, unless there were too many.
func (w *findings) one(f export.Finding) error {
	if w.n++; w.n > maxFindings {
		return nil
	}
	if w.asJSON {
		return json.NewEncoder(w.e.Stdout).Encode(f)
	}
	return printFinding(w.e, f)
}

// end writes the last line: what was read, as a text or as members of JSON, and how many findings
// there were. It returns ErrFound if there were any.
func (w *findings) end(read string, members map[string]any) (err error) {
	if w.asJSON {
		members["findings"] = w.n
		err = json.NewEncoder(w.e.Stdout).Encode(members)
	} else {
		if w.n > maxFindings {
			fmt.Fprintf(w.e.Stdout, "and %d more\n", w.n-maxFindings)
		}
		_, err = fmt.Fprintf(w.e.Stdout, "%s; findings: %d\n", read, w.n)
	}
	if err == nil && w.n > 0 {
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
	archive.Reader
	show func(export.Counts)
}

// Export counts the records that it passes on.
func (w countedSource) Export(ctx context.Context, s export.Scope, each func(export.Record) error) error {
	if w.show == nil {
		return w.Reader.Export(ctx, s, each)
	}
	var n export.Counts
	return w.Reader.Export(ctx, s, func(r export.Record) error {
		n.Add(r)
		w.show(n)
		return each(r)
	})
}
