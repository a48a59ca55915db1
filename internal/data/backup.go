package data

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"regexp"
	"slices"
	"time"

	"filippo.io/age"

	"github.com/heardlog/heardlog/internal/depot"
	"github.com/heardlog/heardlog/memory/export"
)

// Names of backups sort by the time of their start.
const (
	nameTime  = "20060102T150405.000Z"
	packedEnd = ".jsonl.zst"
	ageEnd    = ".age"
)

// backupName is the form of a name: label, time, and whether it is encrypted. Only files with such
// names are ever removed.
var (
	backupName = regexp.MustCompile(`^([a-z0-9][a-z0-9-]*)-(\d{8}T\d{6}\.\d{3}Z)\.jsonl\.zst(\.age)?$`)
	labelForm  = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)
)

// backupsOf returns the names of the backups of a label, oldest first.
func backupsOf(ctx context.Context, d depot.Depot, label string) ([]string, error) {
	names, err := d.List(ctx, label+"-")
	return slices.DeleteFunc(names, func(name string) bool { return !isBackup(name, label) }), err
}

// isBackup reports whether a name is that of a backup with the label.
func isBackup(name, label string) bool {
	m := backupName.FindStringSubmatch(name)
	return m != nil && m[1] == label
}

type backupCommand struct {
	StoreFlag
	Keep           int      `default:"0" placeholder:"N" help:"Then remove all backups of this label but the newest N. 0, the default, removes none."`
	Label          string   `default:"heardlog" placeholder:"NAME" help:"Start of the file names: one label for each store that shares the place. Default: heardlog."`
	Recipient      []string `sep:"none" placeholder:"KEY" help:"Encrypt for this age1… public key; may be repeated."`
	RecipientsFile string   `placeholder:"FILE" help:"Encrypt for the public keys in this file."`
	PassphraseFile string   `placeholder:"FILE" help:"Encrypt with the passphrase in the first line of this file."`
	Plain          bool     `help:"Write secrets in clear although the store has them encrypted."`
	NoSecrets      bool     `help:"Leave secrets out: LLM keys, properties of joins, secrets of endpoints, the server's own keys."`
	Place          string   `arg:"" optional:"" help:"A folder, or s3://bucket/prefix?endpoint=URL&region=NAME&path-style=true."`
}

// Help returns the details.
func (*backupCommand) Help() string {
	return "Writes all that the store holds, as of one moment, to a new file in PLACE. For s3:// the keys are read from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. It may run beside a server. The file is an export, compressed with zstd and, if asked, encrypted with age. It gets its name when it is complete and was read back. restore puts it into a store of any kind."
}

// Run writes a backup.
func (b *backupCommand) Run(ctx context.Context, e Env) (err error) {
	switch {
	case b.Place == "" || b.Place == "-":
		return errors.New("PLACE is required: a folder or s3://bucket/prefix; see --help")
	case b.Keep < 0:
		return fmt.Errorf("--keep: %d is below 0", b.Keep)
	case !labelForm.MatchString(b.Label):
		return fmt.Errorf("--label: %q is none: small letters, digits and dashes, 64 at most, a dash not first", b.Label)
	}
	to, err := recipients(b.Recipient, b.RecipientsFile, b.PassphraseFile)
	if err != nil {
		return err
	}
	c, err := loadStore(e, b.Store)
	if err != nil {
		return err
	}
	if c.SecretKey != "" && len(to) == 0 && !b.Plain && !b.NoSecrets {
		return errors.New("the store is encrypted with HEARDLOG_SECRET_KEY, and the backup would hold its secrets in clear: encrypt it with --recipient, --recipients-file or --passphrase-file, leave them out with --no-secrets, or use --plain")
	}
	where, err := depot.Open(b.Place, e.Getenv)
	if err != nil {
		return err
	}
	from, err := openSource(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	w := backupWriter{e: e, to: to, from: from, where: where, secrets: !b.NoSecrets}
	name := b.Label + "-" + time.Now().UTC().Format(nameTime) + packedEnd
	if len(to) > 0 {
		name += ageEnd
	}
	last, size, err := w.write(ctx, name)
	if err != nil {
		return fmt.Errorf("%s: %w; no backup was made", where, err)
	}
	fmt.Fprintf(e.Stderr, "backed up %s: %s\n", storeName(c), last.Counts)
	fmt.Fprintf(e.Stdout, "%s/%s %s sha256:%s\n", where, name, bytesText(size), last.SHA256)
	if len(to) == 0 && w.secrets && last.Counts.Agents+last.Counts.Endpoints > 0 {
		fmt.Fprintln(e.Stderr, "it holds secrets in clear: guard it as you guard keys, or use --recipient")
	}
	if b.Keep == 0 {
		return nil
	}
	if err := removeOld(ctx, e, where, b.Label, name, b.Keep); err != nil {
		return fmt.Errorf("the backup was made, but older ones could not be removed: %w", err)
	}
	return nil
}

// backupWriter writes one backup.
type backupWriter struct {
	e       Env
	to      []age.Recipient
	from    source
	where   depot.Depot
	secrets bool
}

// counter counts and hashes the bytes that are written through it.
type counter struct {
	w    io.Writer
	n    int64
	hash hash.Hash
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	c.hash.Write(b[:n])
	return n, err
}

// write writes the file and reads it back. It returns the end of the export and the file's size.
func (b *backupWriter) write(ctx context.Context, name string) (last export.End, size int64, err error) {
	show, end := progress(b.e, "backup")
	sent := &counter{hash: sha256.New()}
	err = b.where.Put(ctx, name, func(w io.Writer) error {
		sent.w = w
		return pack(sent, b.to, func(w io.Writer) error {
			var err error
			last, err = export.Write(ctx, w, b.from, export.Scope{}, b.secrets, show)
			return err
		})
	})
	end()
	if err != nil {
		return last, 0, err
	}
	r, err := b.where.Open(ctx, name)
	if err != nil {
		return last, 0, err
	}
	back := &counter{w: io.Discard, hash: sha256.New()}
	_, err = io.Copy(back, contextReader{ctx, r})
	_ = r.Close()
	if err == nil && (back.n != sent.n || hex.EncodeToString(back.hash.Sum(nil)) != hex.EncodeToString(sent.hash.Sum(nil))) {
		err = errors.New("what was read back differs from what was written: check the disk, or the bucket's server")
	}
	if err != nil {
		return last, 0, errors.Join(err, b.where.Remove(context.WithoutCancel(ctx), name))
	}
	return last, sent.n, nil
}

// removeOld removes the oldest backups of a label and the parts of interrupted ones. It never
// removes the backup just made, even if the clock was set back.
func removeOld(ctx context.Context, e Env, where depot.Depot, label, made string, keep int) error {
	names, err := backupsOf(ctx, where, label)
	if err != nil {
		return err
	}
	for _, name := range names[:max(0, len(names)-keep)] {
		if name == made {
			continue
		}
		if err := where.Remove(ctx, name); err != nil {
			return err
		}
		fmt.Fprintf(e.Stderr, "removed %s\n", name)
	}
	n, err := where.Sweep(ctx, func(name string) bool { return isBackup(name, label) })
	if n > 0 {
		fmt.Fprintf(e.Stderr, "removed %d parts of interrupted backups\n", n)
	}
	return err
}
