package compat_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// bins is the folder of the binaries, built once for all tests. COMPAT_RACE=1 builds them with the
// race detector.
var bins = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "heardlog-compat-")
	if err != nil {
		return "", err
	}
	args, cgo := []string{"build", "-o", dir + string(filepath.Separator)}, "CGO_ENABLED=0"
	// The race detector in the server is slower and needs a C compiler.
	if os.Getenv("COMPAT_RACE") != "" {
		args, cgo = append(args, "-race"), "CGO_ENABLED=1"
	}
	cmd := exec.Command("go", append(args, "./cmd/api", "./examples/fakellm", "./examples/receiver")...)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	dir, err := bins()
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	if dir != "" {
		_ = os.RemoveAll(dir) // the system's temporary folder is swept anyway
	}
	os.Exit(code)
}

// program returns the path of a built command.
func program(t testing.TB, name string) string {
	t.Helper()
	dir, err := bins()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}
