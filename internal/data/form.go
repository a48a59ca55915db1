package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/internal/backup"
)

const (
	// maxPassphrase limits files with passphrases and keys.
	maxPassphrase = 1 << 20
	// maxWork limits the work that a file may demand for a passphrase: about 15 s.
	maxWork = 22
)

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
		return "", errors.New("--passphrase-file: the first line, the passphrase, must have at least 12 bytes")
	}
	return line, nil
}

// ownRecipients returns what encrypts a file for the key of the settings, nil without one.
func ownRecipients(c config.Config) ([]age.Recipient, error) {
	key := c.FileKey()
	if key == "" {
		return nil, nil
	}
	r, _, err := backup.ForKey(key)
	return []age.Recipient{r}, err
}

// ownIdentities returns what opens the files of ownRecipients, those of before there was a data key
// too.
func ownIdentities(c config.Config) (out []age.Identity, err error) {
	keys := []string{c.FileKey(), c.SecretKey.Reveal()}
	for _, key := range slices.Compact(keys) {
		if key == "" {
			continue
		}
		_, i, err := backup.ForKey(key)
		if err != nil {
			return nil, err
		}
		out = append(out, i)
	}
	return out, nil
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
			return nil, fmt.Errorf("--identity: %s is not a file of age identities", name)
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
		out = append(out, &backup.CachedIdentity{Identity: i})
	}
	return out, nil
}
