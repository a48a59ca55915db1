package ruletest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPromises checks that the tests which SECURITY.md names for its promises are there.
func TestPromises(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(b), "| promise | tests |")
	named := 0
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		if len(cells) < 4 || strings.HasPrefix(cells[1], " ---") {
			continue
		}
		for _, group := range strings.Split(cells[2], ";") {
			folders := regexp.MustCompile("`([a-z/]+)`").FindAllStringSubmatch(group, -1)
			names := regexp.MustCompile(`Test\w+`).FindAllString(group, -1)
			if len(folders) == 0 || len(names) == 0 {
				t.Errorf("the row names no folder or no test: %s", row)
			}
			for _, folder := range folders {
				for _, name := range names {
					named++
					if !hasTest(t, filepath.Join(root, folder[1]), name) {
						t.Errorf("SECURITY.md names %s of %s, which does not exist", name, folder[1])
					}
				}
			}
		}
	}
	if named < 20 {
		t.Errorf("%d tests are named: the table was not found", named)
	}
}

// hasTest reports whether a folder has a test of that name.
func hasTest(t *testing.T, folder, name string) bool {
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "\nfunc "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}
