package data

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/app"
	"github.com/heardlog/heardlog/internal/backup"
	"github.com/heardlog/heardlog/internal/blob"
	"github.com/heardlog/heardlog/internal/erasure"
	"github.com/heardlog/heardlog/store/export"
)

// ErrChanged is returned after a complete copy if the source has changed since.
var ErrChanged = errors.New("the source has changed since it was copied: what came later is not in the target. Stop the servers of the source, empty the target, and migrate again; or use the target as it is")

type migrateCommand struct {
	From         string `placeholder:"URL" help:"Source, in the form of HEARDLOG_STORE, which is the default."`
	To           string `placeholder:"URL" help:"Target."`
	Spool        string `default:"." placeholder:"FOLDER" help:"Folder for the file in between, which takes about a tenth of the source and is removed at the end. The default is the current folder."`
	Resume       bool   `help:"Go on with a migration between the same stores that was interrupted; without one, start."`
	IntoExisting bool   `help:"Add to what the target holds. Nothing in it is overwritten."`
}

// Help returns the details.
func (*migrateCommand) Help() string {
	return "Moves all data of one store into another, which must be empty. The source is copied as of one moment to a file in --spool, written from there to the target in batches, and compared with the target, record by record and by checksum. The source may be in use; the target must not. After an interruption, --resume goes on where it was. At the end, migrate checks whether the source has changed since it was copied. Both stores are opened with HEARDLOG_SECRET_KEY. The ledger of erasures of the source (HEARDLOG_ERASURES) is copied to that of the target, but not with --into-existing: then HEARDLOG_ERASURES must name the ledger of the target.\n\nExit codes: 0 if all was copied and the source is still the same; 2 if all was copied as of that moment, but the source has changed since; 1 if it failed."
}

// Run moves a store.
func (g *migrateCommand) Run(ctx context.Context, e Env) (err error) {
	if g.To == "" {
		return errors.New("--to is required: the URL of the target")
	}
	source, err := loadStore(ctx, e, g.From)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	target, err := loadStore(ctx, e, g.To)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	if source.StoreURL == target.StoreURL && samePath(source.StorePath, target.StorePath) {
		return errors.New("--to: source and target are the same store")
	}
	m := migration{e: e, source: source, target: target, existing: g.IntoExisting}
	if err := m.spoolIn(g.Spool); err != nil {
		return err
	}
	_, there := os.Stat(m.path)
	if there == nil && !g.Resume {
		return fmt.Errorf("%s: a migration between these stores was cut short: --resume goes on with it; to start again, remove that file and empty the target", m.path)
	}
	began := time.Now()
	if there != nil {
		if err := m.checkTarget(ctx); err != nil {
			return err
		}
		if err := m.copy(ctx); err != nil {
			return fmt.Errorf("%w; nothing was written to the target", err)
		}
	}
	if err := m.move(ctx); err != nil {
		return fmt.Errorf("%w; --resume goes on where it was", err)
	}
	said, err := m.erasures(ctx)
	if err != nil {
		return fmt.Errorf("all is copied, but what was erased before may be back; the next start of a server erases it again: %w", err)
	}
	fmt.Fprintf(e.Stderr, "migrated %s to %s and compared it in %s: %s, sha256:%s\n%s", storeName(source), storeName(target), time.Since(began).Round(time.Second), m.kept.end.Counts, m.kept.end.SHA256, said)
	changed, err := m.changed(ctx)
	if err != nil {
		return fmt.Errorf("all is copied, but whether the source has changed since is not known: %w", err)
	}
	if err := os.Remove(m.path); err != nil {
		return err
	}
	if changed {
		return ErrChanged
	}
	return nil
}

func samePath(a, b string) bool {
	x, errX := filepath.Abs(a)
	y, errY := filepath.Abs(b)
	return errX == nil && errY == nil && x == y
}

// migration is a running migration. It goes through a file, so it can be resumed although the
// source changes, and the source is read only for a short time: meanwhile an SQLite log grows, and
// PostgreSQL cannot vacuum.
type migration struct {
	e              Env
	source, target config.Config
	existing       bool
	path           string // of the file in between, which exists once it is complete
	to             []age.Recipient
	kept           kept
}

// spoolIn sets the path of the file in between, and its encryption if the stores are encrypted.
func (m *migration) spoolIn(folder string) error {
	id := sha256.Sum256([]byte(m.source.StoreURL.Reveal() + "\x00" + m.source.StorePath + "\x00" + m.target.StoreURL.Reveal() + "\x00" + m.target.StorePath))
	name := fmt.Sprintf("heardlog-migrate-%x.spool", id[:6])
	m.path = filepath.Join(folder, name)
	from, err := blob.Open(folder, m.e.Getenv)
	if err != nil {
		return err
	}
	if blob.IsURL(folder) {
		return errors.New("--spool: must be a folder")
	}
	m.kept = kept{e: m.e, from: from, name: name}
	if m.to, err = ownRecipients(m.source); err == nil {
		m.kept.with, err = ownIdentities(m.source)
	}
	return err
}

// checkTarget returns an error if the target is not empty.
func (m *migration) checkTarget(ctx context.Context) (err error) {
	if m.existing {
		return nil
	}
	if m.target.StoreURL == "" {
		if _, err := os.Stat(m.target.StorePath); errors.Is(err, os.ErrNotExist) {
			return nil
		}
	}
	to, err := m.open(ctx)
	if err != nil {
		return err
	}
	mark, err := to.Mark(ctx)
	if err = errors.Join(err, to.Close()); err != nil {
		return err
	}
	there, err := openSource(ctx, m.target)
	if err != nil {
		return err
	}
	empty, err := export.Empty(ctx, there)
	if err = errors.Join(err, there.Close()); err != nil {
		return err
	}
	if !empty || mark != nil {
		return fmt.Errorf("--to: %s is not empty; --into-existing adds the source's data to it", storeName(m.target))
	}
	return nil
}

func (m *migration) open(ctx context.Context) (target, error) { return openTarget(ctx, m.target) }

// copy writes the file in between.
func (m *migration) copy(ctx context.Context) (err error) {
	from, err := openSource(ctx, m.source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	show, end := progress(m.e, "read "+storeName(m.source))
	defer end()
	return blob.WriteFile(m.path, func(w io.Writer) error {
		return backup.Pack(w, m.to, func(w io.Writer) error {
			_, err := export.Write(ctx, w, from, export.Scope{}, true, show)
			return err
		})
	})
}

// move imports the file into the target and compares. If an earlier run has imported all of it, it
// only compares.
func (m *migration) move(ctx context.Context) (err error) {
	if err := m.kept.check(ctx); err != nil {
		return fmt.Errorf("%s: %w", m.path, err)
	}
	to, err := m.open(ctx)
	if err != nil {
		return err
	}
	mark, err := to.Mark(ctx)
	if err == nil && mark == nil { // nothing or everything was stored
		if c, err := m.compare(ctx); err == nil && c.Lacks == "" && c.Want != (export.Counts{}) {
			return errors.Join(m.checkCopy(c), to.Close())
		}
	}
	if err == nil && m.existing {
		err = m.checkConflicts(ctx, to)
	}
	if err == nil && m.existing {
		err = erasure.BeginImport(ctx, to, app.NewIDs(time.Now)(), time.Now().UnixMilli())
	}
	if err == nil {
		err = m.kept.fill(ctx, "write "+storeName(m.target), to)
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return err
	}
	c, err := m.compare(ctx)
	if err != nil {
		return err
	}
	return m.checkCopy(c)
}

// checkConflicts fails if records of the source conflict with the target.
func (m *migration) checkConflicts(ctx context.Context, to target) error {
	lines, done, err := m.kept.open(ctx)
	if err != nil {
		return err
	}
	defer done()
	into, err := checkConflicts(ctx, m.e, lines, to)
	if err == nil && into != export.Target(to) {
		err = errors.New("the target has reports of the same time, which a copy would change: migrate into an empty store, or use export and import")
	}
	return err
}

// erasures copies the ledger of erasures of the source to that of the target, and applies it there.
// The ledger of a target that was in use stays as it is: what was erased of a project of the source
// would be erased of the target's project with the same name.
func (m *migration) erasures(ctx context.Context) (said string, err error) {
	from, err := app.OpenErasures(m.source)
	if err != nil {
		return "", err
	}
	to, err := app.OpenErasures(m.target)
	if err != nil {
		return "", err
	}
	if from != nil && to != nil && !m.existing {
		n, err := to.Copy(ctx, from)
		if err != nil {
			return "", err
		}
		if n > 0 {
			fmt.Fprintf(m.e.Stderr, "copied %d erasures from the ledger %s to %s\n", n, from, to)
		}
	}
	return applyErasures(ctx, m.target, m.target, m.existing)
}

func (m *migration) compare(ctx context.Context) (export.Comparison, error) {
	from, err := openSource(ctx, m.target)
	if err != nil {
		return export.Comparison{}, err
	}
	c, err := m.kept.compare(ctx, from)
	return c, errors.Join(err, from.Close())
}

// checkCopy returns an error if the target does not hold what it should.
func (m *migration) checkCopy(c export.Comparison) error {
	switch {
	case c.Same, m.existing && c.Lacks == "":
		return nil
	case c.Lacks != "":
		return fmt.Errorf("%w: %s is missing in the target or other there; it holds %s, and the source %s", errDiffers, c.Lacks, c.Have, c.Want)
	}
	return fmt.Errorf("%w: the target holds %s, and the source %s; has a server begun to use it?", errDiffers, c.Have, c.Want)
}

// changed reports whether the source differs from the copy.
func (m *migration) changed(ctx context.Context) (bool, error) {
	from, err := openSource(ctx, m.source)
	if err != nil {
		return false, err
	}
	show, end := progress(m.e, "look at "+storeName(m.source)+" again")
	last, err := export.Write(ctx, io.Discard, from, export.Scope{}, true, show)
	end()
	return last.SHA256 != m.kept.end.SHA256, errors.Join(err, from.Close())
}
