package config

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/secret"
)

const (
	dataKeyLen     = 32
	dataKeyFile    = "file:"
	dataKeyCommand = "command:"
	// dataKeyMax limits what a file or a command gives, in bytes; dataKeyWait how long it may take.
	dataKeyMax  = 4096
	dataKeyWait = 30 * time.Second
)

var errDataKey = fmt.Errorf("must be %d bytes in base64 or hex, %sPATH or %sPROGRAM ARGUMENTS", dataKeyLen, dataKeyFile, dataKeyCommand)

// checkDataKey checks the form of a data key. Errors do not repeat it.
func checkDataKey(v string) error {
	for _, form := range []string{dataKeyFile, dataKeyCommand} {
		if rest, ok := strings.CutPrefix(v, form); ok {
			if strings.TrimSpace(rest) == "" {
				return errDataKey
			}
			return nil
		}
	}
	if decodeDataKey(v) == nil {
		return errDataKey
	}
	return nil
}

// decodeDataKey returns the bytes of a key in base64 or hex, nil if it is not one.
func decodeDataKey(v string) []byte {
	v = strings.TrimSpace(v)
	if b, err := hex.DecodeString(v); err == nil && len(b) == dataKeyLen {
		return b
	}
	if b, err := base64.StdEncoding.DecodeString(v); err == nil && len(b) == dataKeyLen {
		return b
	}
	return nil
}

// FetchDataKey sets TextKey to the key that HEARDLOG_DATA_KEY gives. It reads the file, or runs the
// command, without a shell and without Heardlog's own settings. Errors hold neither the key nor
// what the command wrote.
func (c *Config) FetchDataKey(ctx context.Context) error {
	key, err := ReadDataKey(ctx, c.DataKey.Reveal())
	if err != nil {
		return fmt.Errorf("HEARDLOG_DATA_KEY: %w", err)
	}
	c.TextKey = key
	return nil
}

// ReadDataKey returns the 32 bytes of a key that is given in a form of HEARDLOG_DATA_KEY, none for
// an empty one.
func ReadDataKey(ctx context.Context, v string) (secret.String, error) {
	var err error
	if path, ok := strings.CutPrefix(v, dataKeyFile); ok {
		v, err = readKeyFile(path)
	} else if line, ok := strings.CutPrefix(v, dataKeyCommand); ok {
		v, err = runKeyCommand(ctx, strings.Fields(line))
	} else if v == "" {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	key := decodeDataKey(v)
	if key == nil {
		return "", fmt.Errorf("gives no key: it must be %d bytes in base64 or hex", dataKeyLen)
	}
	return secret.String(key), nil
}

func readKeyFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, dataKeyMax))
	return string(b), err
}

func runKeyCommand(ctx context.Context, words []string) (string, error) {
	if len(words) == 0 {
		return "", errDataKey
	}
	ctx, cancel := context.WithTimeout(ctx, dataKeyWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "HEARDLOG_") })
	cmd.WaitDelay = time.Second
	var out limited
	cmd.Stdout = &out
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("the command %s gave no key within %s", words[0], dataKeyWait)
	case out.over:
		return "", fmt.Errorf("the command %s wrote more than %d bytes", words[0], dataKeyMax)
	case err != nil:
		return "", fmt.Errorf("the command %s failed: %w", words[0], err)
	}
	return out.b.String(), nil
}

// limited is a buffer that takes no more than dataKeyMax bytes.
type limited struct {
	b    bytes.Buffer
	over bool
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if l.b.Len()+len(p) > dataKeyMax {
		l.over = true
		return 0, errors.New("too long")
	}
	return l.b.Write(p)
}

// FileKey returns the key that encrypts whole files, such as exports and backups: a passphrase of
// age. It is empty without keys.
func (c *Config) FileKey() string {
	if c.TextKey != "" {
		return base64.StdEncoding.EncodeToString([]byte(c.TextKey.Reveal()))
	}
	return c.SecretKey.Reveal()
}

// Sealed reports whether the store encrypts what it keeps.
func (c *Config) Sealed() bool { return c.SecretKey != "" || c.DataKey != "" && !c.InMemory() }
