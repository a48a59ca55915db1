// Package backup writes copies of a store to a blob store and reads them back. A Writer makes one;
// a Schedule makes them at intervals. A copy is an export, compressed and perhaps encrypted.
package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"regexp"
	"slices"
	"time"

	"filippo.io/age"

	"github.com/heardlog/heardlog/internal/blob"
	"github.com/heardlog/heardlog/store/export"
)

// Label is the start of the file names by default.
const Label = "heardlog"

// Names of backups sort by the time of their start.
const (
	nameTime  = "20060102T150405.000Z"
	packedEnd = ".jsonl.zst"
	ageEnd    = ".age"
)

// name is the form of a name: label, time, and whether it is encrypted. Only files with such names
// are ever removed.
var name = regexp.MustCompile(`^([a-z0-9][a-z0-9-]*)-(\d{8}T\d{6}\.\d{3}Z)\.jsonl\.zst(\.age)?$`)

// Name returns the name of a backup that starts at a time.
func Name(label string, at time.Time, encrypted bool) string {
	out := label + "-" + at.UTC().Format(nameTime) + packedEnd
	if encrypted {
		out += ageEnd
	}
	return out
}

// IsName reports whether a file may be a backup of some label.
func IsName(s string) bool { return name.MatchString(s) }

// List returns the names of the backups of a label, oldest first.
func List(ctx context.Context, d blob.Store, label string) ([]string, error) {
	names, err := d.List(ctx, label+"-")
	return slices.DeleteFunc(names, func(s string) bool { return !isOf(s, label) }), err
}

// isOf reports whether a name is that of a backup with the label.
func isOf(s, label string) bool {
	m := name.FindStringSubmatch(s)
	return m != nil && m[1] == label
}

// Writer writes one backup.
type Writer struct {
	To      []age.Recipient // none = not encrypted
	From    export.Source
	Where   blob.Store
	Secrets bool
	Show    func(export.Counts) // is called with the progress
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

// Write writes the file and reads it back. It returns the end of the export and the file's size.
// After an error there is no such file.
func (b *Writer) Write(ctx context.Context, name string) (last export.End, size int64, err error) {
	sent := &counter{hash: sha256.New()}
	err = b.Where.Put(ctx, name, func(w io.Writer) error {
		sent.w = w
		return Pack(sent, b.To, func(w io.Writer) error {
			var err error
			last, err = export.Write(ctx, w, b.From, export.Scope{}, b.Secrets, b.Show)
			return err
		})
	})
	if err != nil {
		return last, 0, err
	}
	r, err := b.Where.Open(ctx, name)
	if err != nil {
		return last, 0, err
	}
	back := &counter{w: io.Discard, hash: sha256.New()}
	_, err = io.Copy(back, ContextReader{Ctx: ctx, R: r})
	_ = r.Close()
	if err == nil && (back.n != sent.n || hex.EncodeToString(back.hash.Sum(nil)) != hex.EncodeToString(sent.hash.Sum(nil))) {
		err = errors.New("what was read back differs from what was written: check the disk, or the bucket's server")
	}
	if err != nil {
		return last, 0, errors.Join(err, b.Where.Remove(context.WithoutCancel(ctx), name))
	}
	return last, sent.n, nil
}

// RemoveOld removes all backups of a label but the newest keep, and the parts of interrupted ones.
// It returns the names and the number of parts. It never removes the backup just made, even if the
// clock was set back.
func RemoveOld(ctx context.Context, where blob.Store, label, made string, keep int) (removed []string, parts int, err error) {
	names, err := List(ctx, where, label)
	if err != nil {
		return nil, 0, err
	}
	for _, name := range names[:max(0, len(names)-keep)] {
		if name == made {
			continue
		}
		if err := where.Remove(ctx, name); err != nil {
			return removed, 0, err
		}
		removed = append(removed, name)
	}
	parts, err = where.Sweep(ctx, func(name string) bool { return isOf(name, label) })
	return removed, parts, err
}
