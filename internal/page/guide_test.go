package page_test

import (
	"io/fs"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/heardlog/heardlog"
	"github.com/heardlog/heardlog/internal/page"
)

var (
	links   = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	anchors = regexp.MustCompile(` id="([^"]*)"`)
)

// guide returns a page, and fails the test if there is none.
func guide(t *testing.T, file string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	if !page.Guide(w, httptest.NewRequestWithContext(t.Context(), "GET", "/docs/guide/"+file, nil), file, true) {
		t.Fatalf("there is no %s", file)
	}
	return w
}

// TestLinks follows the links of every page, to other pages, to their headings and to pictures.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages := map[string]string{}
	err := fs.WalkDir(heardlog.Docs, "docs", func(name string, d fs.DirEntry, err error) error {
		if file := strings.TrimPrefix(name, "docs/"); err == nil && path.Ext(name) == ".md" {
			pages[file] = guide(t, file).Body.String()
		}
		return err
	})
	if err != nil || len(pages) < 50 {
		t.Fatalf("%v, %d pages", err, len(pages))
	}
	followed := 0
	for file, html := range pages {
		if title := regexp.MustCompile(`<h1[^>]*>`).FindAllString(html, -1); len(title) != 1 {
			t.Errorf("%s has %d titles", file, len(title))
		}
		for _, m := range links.FindAllStringSubmatch(html, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			root := strings.Repeat("../", strings.Count(file, "/")+2)
			if slices.Contains([]string{root, root + "overview", root + "callers", root + "webhooks", root + "demo", root + "docs"}, target) {
				continue // the header
			}
			if strings.Contains(target, ":") {
				if source := "https://github.com/heardlog/heardlog/blob/main/"; strings.HasPrefix(target, source+"docs/") {
					t.Errorf("%s leaves the documents for %s", file, target)
				}
				continue
			}
			at := path.Join(path.Dir(file), target)
			if strings.HasPrefix(target, root) {
				at = strings.TrimPrefix(target, root+"docs/guide/")
			}
			if target == "" {
				at = file
			}
			followed++
			if path.Ext(at) != ".md" {
				guide(t, at)
			} else if !slices.ContainsFunc(anchors.FindAllStringSubmatch(pages[at], -1), func(id []string) bool { return anchor == "" || id[1] == anchor }) {
				t.Errorf("%s: %s leads nowhere", file, m[1])
			}
		}
	}
	if followed < 300 {
		t.Errorf("only %d links were followed", followed)
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	start := guide(t, "start/curl.md")
	if got := start.Header().Get("Content-Type"); got != "text/html; charset=utf-8" {
		t.Errorf("a page is %s", got)
	}
	if !strings.Contains(start.Header().Get("Content-Security-Policy"), "default-src 'none'") {
		t.Error("a page has no Content-Security-Policy")
	}
	for _, want := range []string{`href="../README.md"`, `href="../../../docs"`, `href="../../../"`, `href="../start/curl.md" aria-current="page"`, `href="#start-a-server"`, "<pre>", "<title>"} {
		if !strings.Contains(start.Body.String(), want) {
			t.Errorf("start/curl.md lacks %s", want)
		}
	}
	if got := guide(t, "pictures/call.png").Header().Get("Content-Type"); got != "image/png" {
		t.Errorf("a picture is %s", got)
	}
	if got := guide(t, "picture.svg").Header().Get("Content-Type"); got != "image/svg+xml" {
		t.Errorf("the picture is %s", got)
	}
	if index := guide(t, page.GuideIndex).Body.String(); !strings.Contains(index, `href="https://github.com/heardlog/heardlog/blob/main/README.md"`) {
		t.Error("the index does not lead to the project's README")
	}
	for _, none := range []string{"", ".", "start", "none.md", "../openapi.yaml", "start/../../openapi.yaml"} {
		w := httptest.NewRecorder()
		if page.Guide(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil), none, true) || w.Body.Len() > 0 {
			t.Errorf("%q is a page", none)
		}
	}
}

// TestSearch: a page has every word of the query, and those with it in their title come first.
func TestSearch(t *testing.T) {
	t.Parallel()
	search := func(query string) string {
		w := httptest.NewRecorder()
		if !page.Guide(w, httptest.NewRequestWithContext(t.Context(), "GET", "/docs/guide/search?q="+url.QueryEscape(query), nil), page.GuideSearch, false) {
			t.Fatal("there is no search")
		}
		if strings.Contains(w.Body.String(), `href="../../callers"`) {
			t.Error("a server without the pages leads to them")
		}
		_, body, _ := strings.Cut(w.Body.String(), "<main>")
		return body
	}
	found := regexp.MustCompile(`<h2><a href="([^"]*)"`)
	for query, want := range map[string]string{
		"livekit python": "guides/livekit-python.md", "HEARDLOG_RATE_LIMIT": "guides/limits.md", "Redaction": "guides/redaction.md", "glossary": "reference/glossary.md",
	} {
		if m := found.FindStringSubmatch(search(query)); m == nil || m[1] != want && query != "HEARDLOG_RATE_LIMIT" {
			t.Errorf("%s finds %q first, want %s", query, m, want)
		}
	}
	if body := search("nosuchwordanywhere"); found.MatchString(body) || !strings.Contains(body, "No document has all") {
		t.Errorf("a word that no page has finds %s", body)
	}
	if body := search(`<script>"x"</script>`); strings.Contains(body, "<script>") {
		t.Errorf("the query is not escaped: %s", body)
	}
	for _, query := range []string{"", strings.Repeat("é", 200), strings.Repeat("a ", 100), "\xff\x00"} {
		search(query)
	}
}

// TestContents: each document is in the contents of each page.
func TestContents(t *testing.T) {
	t.Parallel()
	html := guide(t, "start/curl.md").Body.String()
	err := fs.WalkDir(heardlog.Docs, "docs", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".md" && !strings.Contains(html, `href="../`+strings.TrimPrefix(name, "docs/")+`"`) {
			t.Errorf("the contents lack %s", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
