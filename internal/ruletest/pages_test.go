package ruletest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

var (
	pageLink  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	anchor    = regexp.MustCompile(`<a id="([^"]+)">`)
	linkText  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	codeNames = regexp.MustCompile("`([^`]+)`")
)

// pages returns the text of every Markdown file of the project by its path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "deploy/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			path, err := filepath.Rel(root, file)
			if err != nil {
				t.Fatal(err)
			}
			out[filepath.ToSlash(path)] = string(b)
		}
	}
	if len(out) < 40 {
		t.Fatalf("found %d pages", len(out))
	}
	return out
}

// prose returns the lines of a page that are outside of fenced blocks.
func prose(page string) []string {
	var out []string
	fenced := false
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		} else if !fenced {
			out = append(out, line)
		}
	}
	return out
}

// anchors returns the places of a page that a link can name: headings, and marks of its own.
func anchors(page string) map[string]bool {
	out := map[string]bool{}
	for _, line := range prose(page) {
		for _, m := range anchor.FindAllStringSubmatch(line, -1) {
			out[m[1]] = true
		}
		if !strings.HasPrefix(line, "#") {
			continue
		}
		heading := linkText.ReplaceAllString(strings.TrimSpace(strings.TrimLeft(line, "#")), "$1")
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsNumber(r):
				return unicode.ToLower(r)
			}
			return -1
		}, heading)
		out[slug] = true
	}
	return out
}

// TestPageLinks checks that every relative link leads to a file that exists, and to a heading of
// it.
func TestPageLinks(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for path, page := range all {
		for _, m := range pageLink.FindAllStringSubmatch(strings.Join(prose(page), "\n"), -1) {
			if strings.Contains(m[1], ":") {
				continue
			}
			file, at, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(path), file))
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
				continue
			}
			if at != "" && !anchors(all[target])[at] {
				t.Errorf("%s links to %s, but that page has no such heading", path, m[1])
			}
		}
	}
}

// TestPageReceivers checks that what a receiver prints of a call has as many messages as its line
// says.
func TestPageReceivers(t *testing.T) {
	t.Parallel()
	history := regexp.MustCompile(`" history: (\d+) messages .*\n((?:  .*\n)*)`)
	found := 0
	for path, page := range pages(t) {
		for _, m := range history.FindAllStringSubmatch(page, -1) {
			found++
			if n := strings.Count(m[2], "\n"); strconv.Itoa(n) != m[1] {
				t.Errorf("%s: %s messages, and %d below", path, m[1], n)
			}
		}
	}
	if found < 6 {
		t.Errorf("%d calls are shown", found)
	}
}

// TestPageStart checks that all pages but those on Agora start a call in one way: POST /v1/agents.
func TestPageStart(t *testing.T) {
	t.Parallel()
	for path, page := range pages(t) {
		if strings.HasSuffix(path, "/agora.md") {
			continue
		}
		for line := range strings.Lines(page) {
			if strings.Contains(line, "curl") && strings.Contains(line, "/join ") {
				t.Errorf("%s starts a call with join: %s", path, line)
			}
		}
	}
}

// TestPageIndex checks that docs/README.md links to every page of docs.
func TestPageIndex(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for path := range all {
		if name, ok := strings.CutPrefix(path, "docs/"); ok && name != "README.md" && !strings.Contains(all["docs/README.md"], "]("+name+")") {
			t.Errorf("docs/README.md has no link to %s", name)
		}
	}
}

// TestPageWidth checks that the text of documents wraps at 100 columns. Tables, and lines with one
// long word such as a link, may be longer.
func TestPageWidth(t *testing.T) {
	t.Parallel()
	for path, page := range pages(t) {
		for _, line := range prose(page) {
			if utf8.RuneCountInString(line) > maxColumns && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "!") {
				t.Errorf("%s: a line is wider than %d columns: %s", path, maxColumns, line)
			}
		}
	}
}

// TestPackageTable checks that the tables in docs/internals/architecture.md name every package of
// the module, and no other.
func TestPackageTable(t *testing.T) {
	t.Parallel()
	var named []string
	section, _, _ := strings.Cut(pages(t)[walks], "## Where to look")
	for line := range strings.Lines(section) {
		if cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok && strings.HasPrefix(line, "| `") {
			for _, m := range codeNames.FindAllStringSubmatch(cell, -1) {
				named = append(named, m[1])
			}
		}
	}
	var have []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || path == root {
			return err
		}
		if strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules" {
			return filepath.SkipDir
		}
		if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
			return filepath.SkipDir
		}
		if files, err := filepath.Glob(filepath.Join(path, "*.go")); err != nil || len(files) == 0 {
			return err
		}
		name, err := filepath.Rel(root, path)
		have = append(have, filepath.ToSlash(name))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range have {
		if !slices.Contains(named, name) {
			t.Errorf("%s has no row for package %s", walks, name)
		}
	}
	for _, name := range named {
		if !slices.Contains(have, name) {
			t.Errorf("%s names package %s, which does not exist", walks, name)
		}
	}
}
