package webhook_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// faultCases is the number of cases in the table of docs/guides/webhooks.md.
const faultCases = 34

// TestFaultList compares the table of docs/guides/webhooks.md with the tests: each case has a row,
// each test that a row names exists, and each test that carries a case's number is named in its
// row.
func TestFaultList(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/guides/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \| (.+) \|$`).FindAllStringSubmatch(string(page), -1) {
		if rows[m[1]] != "" {
			t.Errorf("case %s has two rows", m[1])
		}
		rows[m[1]] = m[2]
	}
	named := regexp.MustCompile("`([a-z/0-9]+)\\.([tT]est[A-Za-z0-9]+)`")
	folders := map[string]map[string]bool{}
	for n := range faultCases {
		n++
		row := rows[fmt.Sprint(n)]
		if row == "" {
			t.Errorf("case %d has no row", n)
			continue
		}
		tests := named.FindAllStringSubmatch(row, -1)
		if len(tests) == 0 && !strings.Contains(row, "Cannot be one here") {
			t.Errorf("case %d names neither a test nor why there is none", n)
		}
		for _, m := range tests {
			if folders[m[1]] == nil {
				folders[m[1]] = testsOf(t, m[1])
			}
			if !folders[m[1]][m[2]] {
				t.Errorf("case %d: %s has no test %s", n, m[1], m[2])
			}
		}
	}
	for _, folder := range []string{"webhook", "compat", "tests", "store/sqlite"} {
		for name := range testsOf(t, folder) {
			m := regexp.MustCompile(`^TestFault(\d\d)`).FindStringSubmatch(name)
			if m != nil && !strings.Contains(rows[strings.TrimPrefix(m[1], "0")], "`"+folder+"."+name+"`") {
				t.Errorf("the row of case %s does not name %s.%s", m[1], folder, name)
			}
		}
	}
}

// testsOf returns the names of the test functions of a package, and of the parts of a suite.
func testsOf(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no files: %v", folder, err)
	}
	out := map[string]bool{}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func ([tT]est\w+)\(`).FindAllSubmatch(src, -1) {
			out[string(m[1])] = true
		}
	}
	return out
}
