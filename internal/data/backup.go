package data

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/heardlog/heardlog/internal/backup"
	"github.com/heardlog/heardlog/internal/blob"
)

var labelForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

type backupCommand struct {
	StoreFlag
	Keep           int      `default:"0" placeholder:"N" help:"Then remove all backups of this label but the newest N. 0, the default, removes none."`
	Label          string   `default:"heardlog" placeholder:"NAME" help:"Start of the file names: one label for each store that shares the place. Default: heardlog."`
	Recipient      []string `sep:"none" placeholder:"KEY" help:"Encrypt for this age1… public key; may be repeated."`
	RecipientsFile string   `placeholder:"FILE" help:"Encrypt for the public keys in this file."`
	PassphraseFile string   `placeholder:"FILE" help:"Encrypt with the passphrase in the first line of this file."`
	Plain          bool     `help:"Write in clear what the store has encrypted."`
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
		return fmt.Errorf("--label: must have 1 to 64 small letters, digits and dashes, and not begin with a dash, not %q", b.Label)
	}
	to, err := recipients(b.Recipient, b.RecipientsFile, b.PassphraseFile)
	if err != nil {
		return err
	}
	c, err := loadStore(ctx, e, b.Store)
	if err != nil {
		return err
	}
	if c.TextKey != "" && len(to) == 0 && !b.Plain {
		if to, err = ownRecipients(c); err != nil {
			return err
		}
	}
	if c.SecretKey != "" && len(to) == 0 && !b.Plain && !b.NoSecrets {
		return errors.New("the store is encrypted with HEARDLOG_SECRET_KEY, and the backup would hold its secrets in clear: encrypt it with --recipient, --recipients-file or --passphrase-file, leave them out with --no-secrets, or use --plain")
	}
	where, err := blob.Open(b.Place, e.Getenv)
	if err != nil {
		return err
	}
	from, err := openSource(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	show, end := progress(e, "backup")
	w := backup.Writer{To: to, From: from, Where: where, Secrets: !b.NoSecrets, Show: show}
	name := backup.Name(b.Label, time.Now(), len(to) > 0)
	last, size, err := w.Write(ctx, name)
	end()
	if err != nil {
		return fmt.Errorf("%s: %w; no backup was made", where, err)
	}
	fmt.Fprintf(e.Stderr, "backed up %s: %s\n", storeName(c), last.Counts)
	fmt.Fprintf(e.Stdout, "%s/%s %s sha256:%s\n", where, name, bytesText(size), last.SHA256)
	if c.TextKey != "" && len(to) == 0 {
		fmt.Fprintln(e.Stderr, "it holds all texts in clear, which the store has encrypted")
	}
	if len(to) == 0 && w.Secrets && last.Counts.Agents+last.Counts.Endpoints > 0 {
		fmt.Fprintln(e.Stderr, "it holds secrets in clear: guard it as you guard keys, or use --recipient")
	}
	if b.Keep == 0 {
		return nil
	}
	removed, parts, err := backup.RemoveOld(ctx, where, b.Label, name, b.Keep)
	for _, old := range removed {
		fmt.Fprintf(e.Stderr, "removed %s\n", old)
	}
	if parts > 0 {
		fmt.Fprintf(e.Stderr, "removed %d parts of interrupted backups\n", parts)
	}
	if err != nil {
		return fmt.Errorf("the backup was made, but older ones could not be removed: %w", err)
	}
	return nil
}
