package ruletest_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// A line that is only a comment may have maxColumns, a line with code in front of its comment
// maxTrailing, because gofmt aligns such comments. A tab counts as four columns.
const (
	maxColumns  = 100
	maxTrailing = 120
)

var (
	// oddVerb matches a doc comment whose verb is not the usual one: say returns, reports whether,
	// or what it does.
	oddVerb = regexp.MustCompile(`^\w+ (gives|tells|says)\b`)
	// oddWord matches words that read oddly in technical comments. Values and processes are "it",
	// callers are "the caller".
	oddWord = regexp.MustCompile(`(?i)\b(somebody|whoever|nobody|anybody|he|his|him|anew|told of|tells of|put right|looked at)\b`)
	// calque matches phrases that are not plain English: "it is no ID" is "it is not an ID", and an
	// event that "tells of" an agent refers to it.
	calque = regexp.MustCompile(`(?i)(\S+ )?\b(is|are) no \w+|\bthat there (is|are) none of\b|\btells? of\b|\bmust not stand beside\b`)
	// english matches what is right of what calque matches: "there is no ID", "it is no longer".
	english = regexp.MustCompile(`(?i)^\W*t?here (is|are) no |\b(is|are) no (longer|more|such)$`)
	// elsewhere matches citations of pages that are not in this repository.
	elsewhere = regexp.MustCompile(`\breference/[a-z-]+\.md|\b(DESIGN|STYLE)\b`)
	ownPages  = regexp.MustCompile(`docs/reference/[a-z-]+\.md`)
)

// TestComments checks how comments read: each package has a package comment, each exported
// function, method and type a doc comment that starts with its name and a plain verb, and no line
// of a comment is wider than 100 columns.
func TestComments(t *testing.T) {
	t.Parallel()
	packages := map[string]bool{} // by folder: whether it has a package comment
	for _, f := range goFiles(t) {
		checkLines(t, f)
		if strings.HasSuffix(f.name, "_test.go") {
			continue
		}
		packages[path.Dir(f.name)] = packages[path.Dir(f.name)] || f.Doc != nil
		checkDocs(t, f)
	}
	if len(packages) == 0 {
		t.Fatal("no packages found")
	}
	for dir, documented := range packages {
		if !documented {
			t.Errorf("%s: the package has no package comment", dir)
		}
	}
}

// TestPhrases checks the phrases of comments and string literals outside of tests, of the API's
// description and of the pages.
func TestPhrases(t *testing.T) {
	t.Parallel()
	check := func(where, text string) {
		for _, phrase := range calque.FindAllString(strings.Join(strings.Fields(text), " "), -1) {
			if !english.MatchString(phrase) {
				t.Errorf("%s: %q is not plain English", where, phrase)
			}
		}
	}
	for _, f := range goFiles(t) {
		if strings.HasSuffix(f.name, "_test.go") {
			continue
		}
		at := func(n ast.Node) string { return fmt.Sprintf("%s:%d", f.name, f.fset.Position(n.Pos()).Line) }
		for _, group := range f.Comments {
			check(at(group), group.Text())
		}
		ast.Inspect(f.File, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				check(at(lit), lit.Value)
			}
			return true
		})
	}
	description, err := os.ReadFile(filepath.Join(root, "openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(description), "\n") {
		check(fmt.Sprintf("openapi.yaml:%d", i+1), line)
	}
	for page, text := range pages(t) {
		for paragraph := range strings.SplitSeq(strings.Join(prose(text), "\n"), "\n\n") {
			check(page, paragraph)
		}
	}
}

// checkLines checks the width and the words of every comment of a file.
func checkLines(t *testing.T, f goFile) {
	lines := strings.Split(f.src, "\n")
	for _, group := range f.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:") {
				continue
			}
			first := f.fset.Position(c.Pos()).Line
			for i, text := range strings.Split(c.Text, "\n") {
				at := first + i
				width := utf8.RuneCountInString(strings.ReplaceAll(lines[at-1], "\t", "    "))
				most := maxColumns
				if !strings.HasPrefix(strings.TrimSpace(lines[at-1]), "//") {
					most = maxTrailing
				}
				if width > most && !strings.Contains(text, "://") {
					t.Errorf("%s:%d: the line of the comment is %d columns wide, more than %d", f.name, at, width, most)
				}
				if strings.HasSuffix(f.name, "_test.go") {
					continue
				}
				if w := oddWord.FindString(text); w != "" {
					t.Errorf("%s:%d: %q reads oddly in a comment: %s", f.name, at, w, strings.TrimSpace(text))
				}
				if w := elsewhere.FindString(ownPages.ReplaceAllString(text, "")); w != "" {
					t.Errorf("%s:%d: %q is not in this repository", f.name, at, w)
				}
			}
		}
	}
}

// checkDocs checks the doc comments of a file's declarations.
func checkDocs(t *testing.T, f goFile) {
	check := func(pos token.Pos, ident string, doc *ast.CommentGroup, required bool) {
		at := f.fset.Position(pos)
		if doc == nil {
			if required {
				t.Errorf("%s:%d: %s has no doc comment", f.name, at.Line, ident)
			}
			return
		}
		text := doc.Text()
		if required && !strings.HasPrefix(text, ident+" ") && !strings.HasPrefix(text, ident+"'s ") && !strings.HasPrefix(text, "A "+ident) &&
			!strings.HasPrefix(text, "An "+ident) && !strings.HasPrefix(text, "Deprecated:") {
			t.Errorf("%s:%d: the doc comment of %s does not start with its name", f.name, at.Line, ident)
		}
		if oddVerb.MatchString(text) {
			t.Errorf("%s:%d: say what %s returns, reports or does: %q", f.name, at.Line, ident, firstLine(text))
		}
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			check(d.Pos(), d.Name.Name, d.Doc, d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))))
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					doc := s.Doc
					if doc == nil {
						doc = d.Doc
					}
					check(s.Pos(), s.Name.Name, doc, s.Name.IsExported() && !d.Lparen.IsValid())
				}
			}
		}
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
