package data

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	// maxPassphrase limits files with passphrases and keys.
	maxPassphrase = 1 << 20
	// maxWork limits the work that a file may demand for a passphrase: about 15 s.
	maxWork = 22
)

// pack compresses the output of write and, if there are recipients, encrypts it.
func pack(w io.Writer, to []age.Recipient, write func(io.Writer) error) error {
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

// unpack reads the output of pack, or plain lines. The caller closes the result.
func unpack(r io.Reader, with []age.Identity) (io.ReadCloser, error) {
	in := bufio.NewReaderSize(r, 1<<20)
	is := func(magic string) bool {
		b, _ := in.Peek(len(magic))
		return bytes.Equal(b, []byte(magic))
	}
	if is(ageMagic) {
		if len(with) == 0 {
			return nil, errors.New("it is encrypted: --identity or --passphrase-file is required")
		}
		plain, err := age.Decrypt(in, with...)
		if err != nil {
			return nil, fmt.Errorf("it cannot be decrypted: %w", err)
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

// readSecretFile returns the content of a small file.
func readSecretFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxPassphrase+1))
	if err == nil && len(b) > maxPassphrase {
		err = fmt.Errorf("%s has more than %d bytes", name, maxPassphrase)
	}
	return b, err
}

// passphrase reads a passphrase from the first line of a file.
func passphrase(file string) (string, error) {
	b, err := readSecretFile(file)
	if err != nil {
		return "", fmt.Errorf("--passphrase-file: %w", err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	line = strings.TrimSuffix(line, "\r")
	if len(line) < 12 {
		return "", errors.New("--passphrase-file: its first line is the passphrase, and needs 12 bytes at least")
	}
	return line, nil
}

// recipients returns the recipients of the flags; none means no encryption.
func recipients(keys []string, file, passFile string) (out []age.Recipient, err error) {
	if passFile != "" {
		if len(keys) > 0 || file != "" {
			return nil, errors.New("--passphrase-file: stands alone; age cannot encrypt for a passphrase and for keys")
		}
		p, err := passphrase(passFile)
		if err != nil {
			return nil, err
		}
		r, err := age.NewScryptRecipient(p)
		return []age.Recipient{r}, err
	}
	if file != "" {
		b, err := readSecretFile(file)
		if err != nil {
			return nil, fmt.Errorf("--recipients-file: %w", err)
		}
		if out, err = age.ParseRecipients(bytes.NewReader(b)); err != nil {
			return nil, fmt.Errorf("--recipients-file: %w", err)
		}
	}
	for _, k := range keys {
		list, err := age.ParseRecipients(strings.NewReader(k))
		if err != nil {
			return nil, fmt.Errorf("--recipient: must be an age public key, age1…, not %q", k)
		}
		out = append(out, list...)
	}
	return out, nil
}

// identities returns the identities of the flags.
func identities(files []string, passFile string) (out []age.Identity, err error) {
	for _, name := range files {
		b, err := readSecretFile(name)
		if err != nil {
			return nil, fmt.Errorf("--identity: %w", err)
		}
		list, err := age.ParseIdentities(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("--identity: %s is no file of age identities", name)
		}
		out = append(out, list...)
	}
	if passFile != "" {
		p, err := passphrase(passFile)
		if err != nil {
			return nil, err
		}
		i, err := age.NewScryptIdentity(p)
		if err != nil {
			return nil, err
		}
		i.SetMaxWorkFactor(maxWork)
		out = append(out, &cachedIdentity{Identity: i})
	}
	return out, nil
}

// cachedIdentity caches the key of a file: deriving it from a passphrase takes a second, and a file
// is read three times.
type cachedIdentity struct {
	age.Identity
	file string
	key  []byte
}

// Unwrap returns the key of a file.
func (r *cachedIdentity) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
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

// contextReader is a reader that fails when its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (s contextReader) Read(b []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(b)
}
