package config_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/config"
)

// TestReadDataKey: a key comes as it is, from a file or from a command, and errors hold neither it
// nor what a command wrote.
func TestReadDataKey(t *testing.T) {
	t.Parallel()
	key := bytes.Repeat([]byte("k"), 32)
	b64, digits := base64.StdEncoding.EncodeToString(key), hex.EncodeToString(key)
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct {
		name, from, want string // want is part of the error; "" for the key
	}{
		{"base64", b64, ""},
		{"hex", digits, ""},
		{"file", "file:" + write("good", digits+"\n"), ""},
		{"command", "command:/bin/echo " + b64, ""},
		{"short file", "file:" + write("short", "hidden"), "gives no key"},
		{"missing file", "file:" + filepath.Join(dir, "none"), "no such file"},
		{"failing command", "command:/bin/ls " + filepath.Join(dir, "hidden"), "the command /bin/ls failed: exit status"},
		{"endless command", "command:/bin/cat /dev/zero", "more than 4096 bytes"},
		{"no shell", "command:/bin/echo $HOME `hidden`", "gives no key"},
		{"missing command", "command:/nowhere/hidden-client", "no such file"},
		{"empty command", "command: ", "must be 32 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := config.ReadDataKey(t.Context(), tt.from)
			switch {
			case tt.want == "" && (err != nil || got.Reveal() != string(key)):
				t.Errorf("%v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hidden ") || strings.Contains(err.Error(), "cannot access")):
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	if _, err := config.Load(func(name string) string { return map[string]string{"HEARDLOG_DATA_KEY": "hidden-and-short"}[name] }); err == nil || strings.Contains(err.Error(), "hidden") || !strings.Contains(err.Error(), "32 bytes in base64 or hex") {
		t.Errorf("a key that is none: %v", err)
	}
}
