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

// GuideIndex is the name of the page that lists all others.
const GuideIndex = "README.md"

// source is where links to files outside of the documents lead.
const source = "https://github.com/heardlog/heardlog/blob/main/"

// guidePolicy lets a page load nothing but pictures of this server, and its style.
const guidePolicy = "default-src 'none'; img-src 'self'; style-src 'unsafe-inline'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'"

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
// folder docs. It reports false if there is none.
func Guide(w http.ResponseWriter, r *http.Request, file string) bool {
	b, err := fs.ReadFile(heardlog.Docs, path.Join("docs", file))
	if err != nil {
		return false
	}
	Guard(w, guidePolicy)
	if path.Ext(file) != ".md" {
		http.ServeFileFS(w, r, heardlog.Docs, path.Join("docs", file))
		return true
	}
	pc := parser.NewContext()
	pc.Set(pageFile, file)
	var body bytes.Buffer
	_ = markdown.Convert(b, &body, parser.WithContext(pc)) // a buffer takes everything
	title, _, _ := strings.Cut(strings.TrimPrefix(string(b), "# "), "\n")
	up := strings.Repeat("../", strings.Count(file, "/"))
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = fmt.Fprintf(w, `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s · Heardlog</title><link rel="icon" href="data:,"><style>%s</style></head>
<body><nav><a href="%s">All documents</a> · <a href="%s../../docs">API</a></nav><main>
%s</main></body></html>
`, html.EscapeString(title), style, up+GuideIndex, up, body.Bytes())
	return true
}
