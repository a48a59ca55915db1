package backup

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
)

// A stored export is compressed with zstd and then, if wanted, encrypted with age. Its first bytes
// tell the forms apart.

const (
	ageMagic  = "age-encryption.org/"
	zstdMagic = "\x28\xb5\x2f\xfd"
	// maxWindow limits the memory of decompression; files written here need 8 MiB.
	maxWindow = 64 << 20
)

// Pack compresses the output of write and, if there are recipients, encrypts it.
func Pack(w io.Writer, to []age.Recipient, write func(io.Writer) error) error {
	out := w
	var sealed io.WriteCloser
	if len(to) > 0 {
		var err error
		if sealed, err = age.Encrypt(w, to...); err != nil {
			return err
		}
		out = sealed
	}
	z, err := zstd.NewWriter(out)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(z, 1<<20)
	err = write(b)
	if err == nil {
		err = b.Flush()
	}
	if err != nil {
		z.Reset(io.Discard) // so that a failed file gets no valid end
	}
	err = errors.Join(err, z.Close())
	if sealed != nil && err == nil {
		err = sealed.Close()
	}
	return err
}

// Unpack reads the output of Pack, or plain lines. The caller closes the result.
func Unpack(r io.Reader, with []age.Identity) (io.ReadCloser, error) {
	in := bufio.NewReaderSize(r, 1<<20)
	is := func(magic string) bool {
		b, _ := in.Peek(len(magic))
		return bytes.Equal(b, []byte(magic))
	}
	if is(ageMagic) {
		if len(with) == 0 {
			return nil, errors.New("it is encrypted: the HEARDLOG_DATA_KEY that it was made with, --identity or --passphrase-file is required")
		}
		plain, err := age.Decrypt(in, with...)
		if err != nil {
			return nil, fmt.Errorf("it is encrypted and cannot be decrypted: %w; another HEARDLOG_DATA_KEY, --identity or --passphrase-file is required", err)
		}
		in = bufio.NewReaderSize(plain, 1<<16)
	}
	if !is(zstdMagic) {
		return io.NopCloser(in), nil
	}
	z, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}

// CachedIdentity caches the key of a file: deriving it from a passphrase takes a second, and a file
// is read three times.
type CachedIdentity struct {
	age.Identity
	file string
	key  []byte
}

// Unwrap returns the key of a file.
func (r *CachedIdentity) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	var file strings.Builder
	for _, s := range stanzas {
		fmt.Fprintf(&file, "%s %q %x\n", s.Type, s.Args, s.Body)
	}
	if r.key != nil && r.file == file.String() {
		return bytes.Clone(r.key), nil
	}
	key, err := r.Identity.Unwrap(stanzas)
	if err == nil {
		r.file, r.key = file.String(), bytes.Clone(key)
	}
	return key, err
}

// ContextReader is a reader that fails when its context ends.
type ContextReader struct {
	Ctx context.Context
	R   io.Reader
}

// Read reads from R.
func (s ContextReader) Read(b []byte) (int, error) {
	if err := s.Ctx.Err(); err != nil {
		return 0, err
	}
	return s.R.Read(b)
}

// ForKey returns what encrypts for a long key, such as HEARDLOG_SECRET_KEY, and what decrypts.
func ForKey(key string) (age.Recipient, age.Identity, error) {
	r, err := age.NewScryptRecipient(key)
	if err != nil {
		return nil, nil, err
	}
	r.SetWorkFactor(12) // the key is long and cannot be guessed
	i, err := age.NewScryptIdentity(key)
	return r, &CachedIdentity{Identity: i}, err
}
