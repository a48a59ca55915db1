package ruletest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	walks   = "docs/internals/architecture.md"
	maxHops = 8 // of one walk
)

var (
	walkHeading = regexp.MustCompile(`^### Walk: (.+)`)
	hop         = regexp.MustCompile("^[0-9]+\\. `([a-z0-9/]+)`: `([A-Za-z0-9_.]+)`: .+")
)

// TestWalks checks the walks through the code in docs/internals/architecture.md: each has at most
// eight hops, and each hop names a function or method that exists in its package.
func TestWalks(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, walks))
	if err != nil {
		t.Fatal(err)
	}
	// By package folder: functions, and methods as Type.Method.
	names := map[string]map[string]bool{}
	hops := map[string]int{}
	walk := ""
	for line := range strings.Lines(string(page)) {
		if m := walkHeading.FindStringSubmatch(line); m != nil {
			walk = m[1]
			continue
		}
		if strings.HasPrefix(line, "#") {
			walk = ""
		}
		if walk == "" || line == "" || line[0] < '0' || line[0] > '9' {
			continue
		}
		m := hop.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			t.Errorf("walk %q: a hop is \"N. `package`: `Function`: what it adds\", not %q", walk, line)
			continue
		}
		hops[walk]++
		if names[m[1]] == nil {
			names[m[1]] = functions(t, m[1])
		}
		if !names[m[1]][m[2]] {
			t.Errorf("walk %q: package %s has no function %s", walk, m[1], m[2])
		}
	}
	for _, want := range []string{"a chat completion", "a history read", "a webhook"} {
		if hops[want] == 0 {
			t.Errorf("there is no walk of %s", want)
		}
	}
	for walk, n := range hops {
		if n > maxHops {
			t.Errorf("walk %q has %d hops, more than %d", walk, n, maxHops)
		}
	}
}

// functions returns the functions of a package, and its methods as Type.Method.
func functions(t *testing.T, dir string) map[string]bool {
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("%s is not a package: %v", dir, err)
	}
	out := map[string]bool{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || strings.HasSuffix(file, "_test.go") {
				continue
			}
			name := fn.Name.Name
			if fn.Recv != nil {
				name = receiver(fn) + "." + name
			}
			out[name] = true
		}
	}
	return out
}
