package page

import (
	"bytes"
	_ "embed" // the style
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/heardlog/heardlog"
)

// GuideIndex is the name of the page that lists all others, GuideSearch of the one that finds them.
const (
	GuideIndex  = "README.md"
	GuideSearch = "search"
)

// source is where links to files outside of the documents lead.
const source = "https://github.com/heardlog/heardlog/blob/main/"

// guidePolicy lets a page load nothing but pictures of this server, and its style. Its search asks
// this server.
const guidePolicy = "default-src 'none'; img-src 'self'; style-src 'unsafe-inline'; base-uri 'none'; " +
	"form-action 'self'; frame-ancestors 'none'"

//go:embed guide.css
var style string

var markdown = goldmark.New(
	goldmark.WithExtensions(extension.Table, extension.Linkify),
	goldmark.WithParserOptions(parser.WithAutoHeadingID(), parser.WithASTTransformers(util.Prioritized(outside{}, 100))),
)

// outside makes links to files outside of the documents lead to the repository.
type outside struct{}

var pageFile = parser.NewContextKey() // its value is the path below docs

func (outside) Transform(doc *ast.Document, _ text.Reader, pc parser.Context) {
	file, _ := pc.Get(pageFile).(string)
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if link, ok := n.(*ast.Link); ok && entering && !bytes.Contains(link.Destination, []byte(":")) {
			if at := path.Join("docs", path.Dir(file), string(link.Destination)); !strings.HasPrefix(at, "docs/") {
				link.Destination = []byte(source + at)
			}
		}
		return ast.WalkContinue, nil
	})
}

// Guide serves a document of this version as a page, or a picture. file is its path below the
// folder docs, or GuideSearch. It reports false if there is none. ui tells whether the server has
// the pages that show calls.
func Guide(w http.ResponseWriter, r *http.Request, file string, ui bool) bool {
	if file == GuideSearch {
		query := r.URL.Query().Get("q")
		writeGuide(w, file, "Search", query, found(query), "", ui)
		return true
	}
	b, err := fs.ReadFile(heardlog.Docs, path.Join("docs", file))
	if err != nil {
		return false
	}
	if path.Ext(file) != ".md" {
		Guard(w, guidePolicy)
		http.ServeFileFS(w, r, heardlog.Docs, path.Join("docs", file))
		return true
	}
	pc := parser.NewContext()
	pc.Set(pageFile, file)
	doc := markdown.Parser().Parse(text.NewReader(b), parser.WithContext(pc))
	var body bytes.Buffer
	_ = markdown.Renderer().Render(&body, b, doc) // a buffer takes everything
	writeGuide(w, file, titleOf(b), "", body.String(), sections(doc, b), ui)
	return true
}

// writeGuide writes a page of the documents: the contents at the left, with the sections of the
// page, and its body.
func writeGuide(w http.ResponseWriter, file, title, query, body, sections string, ui bool) {
	Guard(w, guidePolicy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	up := strings.Repeat("../", strings.Count(file, "/"))
	var list strings.Builder
	for _, g := range contents() {
		fmt.Fprintf(&list, "<p>%s</p><ul>", html.EscapeString(g.name))
		for _, e := range g.entries {
			here, below := "", ""
			if e.file == file {
				here, below = ` aria-current="page"`, sections
			}
			fmt.Fprintf(&list, `<li><a href="%s"%s>%s</a>%s</li>`, up+e.file, here, html.EscapeString(e.title), below)
		}
		list.WriteString("</ul>")
	}
	_, _ = fmt.Fprintf(w, `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s · Heardlog</title><link rel="icon" href="data:,"><style>%s%s</style></head>
<body>%s<div class="guide"><nav class="contents" id="contents" aria-label="Documents">
<form action="%s" role="search"><input type="search" name="q" value="%s" maxlength="%d" aria-label="Search the documents" placeholder="Search the documents"><button>Search</button></form>
<ul><li><a href="%s">All documents</a></li></ul>
%s</nav><main>
<a class="to-contents" href="#contents">Contents and search</a>
%s</main></div></body></html>
`, html.EscapeString(title), frameStyle, style, header(up+"../../", "Guides", ui), up+GuideSearch, html.EscapeString(query), maxQuery, up+GuideIndex, list.String(), body)
}

// sections returns links to the second headings of a document, as a list.
func sections(doc ast.Node, source []byte) string {
	var b strings.Builder
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		h, ok := n.(*ast.Heading)
		if !ok || h.Level != 2 {
			continue
		}
		if id, ok := h.AttributeString("id"); ok {
			fmt.Fprintf(&b, `<li><a href="#%s">%s</a></li>`, id, html.EscapeString(plain(h, source)))
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "<ul>" + b.String() + "</ul>"
}

// plain returns the text of a node without its marks.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// titleOf returns the first heading of a document.
func titleOf(document []byte) string {
	title, _, _ := strings.Cut(strings.TrimPrefix(string(document), "# "), "\n")
	return title
}
