// Package ruletest_test keeps docs/reference/memory-semantics.md true: which test proves which
// rule. A test names the rules that it proves in its doc comment, in a paragraph that begins with
// "Rules:". Run it with -update to rewrite the page.
package ruletest_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/reference/memory-semantics.md")

const (
	root = "../.."
	page = "docs/reference/memory-semantics.md"
)

// TestEveryRuleIsProved: each rule has a test, or a reason why none can prove it, never both;
// nothing names a rule that is none; and the page says so.
func TestEveryRuleIsProved(t *testing.T) {
	t.Parallel()
	tests := proofs(t)
	var b strings.Builder
	b.WriteString(intro)
	system := ""
	for _, r := range table() {
		if s := r.id[:3]; s != system {
			system = s
			fmt.Fprintf(&b, "\n## %s: %s\n\n| rule | what it says | proved by |\n| --- | --- | --- |\n", s, systems[s])
		}
		by := tests[r.id]
		delete(tests, r.id)
		switch {
		case len(by) == 0 && r.why == "":
			t.Errorf("%s (%s) has no test and no reason for having none", r.id, r.says)
		case len(by) > 0 && r.why != "":
			t.Errorf("%s has tests (%s) and a reason for having none", r.id, strings.Join(by, ", "))
		}
		proof := "`" + strings.Join(by, "`, `") + "`"
		if len(by) == 0 {
			proof = "none: " + r.why
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", r.id, r.says, proof)
	}
	for id, by := range tests {
		t.Errorf("%s, which %s names, is no rule of the table", id, strings.Join(by, ", "))
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, page), []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != b.String() {
		t.Errorf("%s is stale: go test ./internal/ruletest -update", page)
	}
}

// proofs gives the tests by the rules that they name, each as package.Test, sorted.
func proofs(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	id := regexp.MustCompile(`\b\d{3}-\d+\b`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || f.Doc == nil {
				continue
			}
			for paragraph := range strings.SplitSeq(f.Doc.Text(), "\n\n") {
				_, rules, ok := strings.Cut(paragraph, "Rules:")
				if !ok {
					continue
				}
				if !strings.HasPrefix(f.Name.Name, "Test") && !strings.HasPrefix(f.Name.Name, "Fuzz") {
					t.Errorf("%s: %s names rules and is no test", path, f.Name.Name)
				}
				for _, r := range id.FindAllString(rules, -1) {
					if name := dir + "." + f.Name.Name; !slices.Contains(out[r], name) {
						out[r] = append(out[r], name)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range out {
		slices.Sort(by)
	}
	return out
}

var systems = map[string]string{
	"000": "OVOS, basic short-term memory",
	"001": "lauren-ai, short-term memory and conversation store",
	"002": "Agora, short-term memory",
	"003": "Orbiter, short-term memory",
	"004": "OSSA, short-term part of the memory model",
}

const intro = `# Whose short-term memory this is

The rules of five known systems that Heardlog's short-term memory covers, and the tests that prove
each. The page is generated from the tests' comments: a test fails if it is out of date or if a rule
has no test any more. See [policy](../guides/policy.md), [context](../guides/context.md),
[conversations](../guides/conversations.md) and [memories](../guides/memories.md).
`
