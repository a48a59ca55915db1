package compat_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// need returns the path of a program that Go and curl do without. It skips the test if the program
// is missing, or if TEST_PROGRAMS is none.
func need(t testing.TB, program, install string) string {
	t.Helper()
	if os.Getenv("TEST_PROGRAMS") == "none" {
		t.Skip("browsers, node and Python are left out; make test-rest runs them")
	}
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("%s is not on this machine: %s", program, install)
	}
	return path
}

// needChromium is need for the browser.
func needChromium(t testing.TB) string {
	t.Helper()
	return need(t, "chromium", "install it, for example with apt-get install chromium")
}

// needNode is need for node with the packages of a folder. If node is here, they may not be missing
// in CI.
func needNode(t testing.TB, folder string, packages ...string) string {
	t.Helper()
	install := "run npm ci --ignore-scripts in " + filepath.Join("compat", folder)
	node := need(t, "node", "install node and npm, and "+install)
	for _, name := range append(packages, "") { // "" is the folder of all
		if _, err := os.Stat(filepath.Join(folder, "node_modules", name)); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("node is here and its packages are not; %s: %v", install, err)
			}
			t.Skipf("packages of node are missing: %s", install)
		}
	}
	return node
}
