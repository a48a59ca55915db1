package page

import (
	"cmp"
	"fmt"
	"html"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/heardlog/heardlog"
)

// Bounds of a search: characters of the query, and documents that are shown.
const (
	maxQuery = 100
	maxFound = 20
)

// group is a part of the contents, as docs/README.md has it.
type group struct {
	name    string
	entries []entry
}

// entry is a document.
type entry struct{ title, file string }

var indexRow = regexp.MustCompile(`^\| \[([^]]+)\]\(([^)#]+\.md)\) \|`)

// contents returns the documents in the order of the index, under its headings.
var contents = sync.OnceValue(func() []group {
	index, err := fs.ReadFile(heardlog.Docs, "docs/"+GuideIndex)
	if err != nil {
		panic(err) // it is embedded
	}
	var out []group
	for line := range strings.Lines(string(index)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "## "); ok {
			out = append(out, group{name: name})
		} else if name, ok := strings.CutPrefix(line, "**"); ok && len(out) > 0 && strings.HasSuffix(line, "**") {
			out = append(out, group{name: strings.TrimSuffix(name, "**")})
		} else if m := indexRow.FindStringSubmatch(line); m != nil && len(out) > 0 {
			last := &out[len(out)-1]
			last.entries = append(last.entries, entry{m[1], m[2]})
		}
	}
	return slices.DeleteFunc(out, func(g group) bool { return len(g.entries) == 0 })
})

// indexed is a document as it is searched.
type indexed struct {
	entry
	lines []string // of prose, tables and code, without marks
	lower []string
}

var marks = regexp.MustCompile("[`*|#]+|\\]\\([^)]*\\)|\\[|<[^>]*>")

// documents returns all documents in the order of the contents.
var documents = sync.OnceValue(func() (out []indexed) {
	for _, g := range contents() {
		for _, e := range g.entries {
			b, err := fs.ReadFile(heardlog.Docs, path.Join("docs", e.file))
			if err != nil {
				continue // a link to a folder or a file outside
			}
			d := indexed{entry: e}
			for line := range strings.Lines(string(b)) {
				if line = strings.TrimSpace(line); line != "" {
					d.lines = append(d.lines, line)
					d.lower = append(d.lower, strings.ToLower(line))
				}
			}
			out = append(out, d)
		}
	}
	return out
})

// found returns the documents that have every word of a query, the best first, as a page: those
// with words in the title, then in headings, then in the text.
func found(query string) string {
	if len(query) > maxQuery {
		query = query[:maxQuery]
	}
	words := strings.Fields(strings.ToLower(strings.ToValidUTF8(query, "")))
	words = words[:min(len(words), 8)]
	type hit struct {
		indexed
		score int
		line  string // the first one that has the most words
	}
	var hits []hit
	for _, d := range documents() {
		h, all := hit{indexed: d}, len(words) > 0
		for _, word := range words {
			score := 0
			if strings.Contains(strings.ToLower(d.title), word) {
				score += 100
			}
			for _, line := range d.lower {
				switch {
				case !strings.Contains(line, word):
				case strings.HasPrefix(line, "#"):
					score += 10
				default:
					score++
				}
			}
			all = all && score > 0
			h.score += score
		}
		if !all {
			continue
		}
		most := 0
		for i, line := range d.lower {
			n := 0
			for _, word := range words {
				if strings.Contains(line, word) {
					n++
				}
			}
			if n > most && !strings.HasPrefix(line, "# ") {
				most, h.line = n, d.lines[i]
			}
		}
		hits = append(hits, h)
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(b.score, a.score) })
	var b strings.Builder
	b.WriteString("<h1>Search</h1>")
	if len(words) > 0 && len(hits) == 0 {
		fmt.Fprintf(&b, "<p>No document has all of these words: <q>%s</q>. Try fewer, or <a href=\"%s\">see all documents</a>.</p>", html.EscapeString(query), GuideIndex)
	}
	for _, h := range hits[:min(len(hits), maxFound)] {
		fmt.Fprintf(&b, "<h2><a href=\"%s\">%s</a></h2><p>%s</p>", h.file, html.EscapeString(h.title), marked(marks.ReplaceAllString(h.line, ""), words))
	}
	return b.String()
}

// marked returns a text of at most 300 bytes as HTML in which words are marked.
func marked(s string, words []string) string {
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "…"
	}
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = regexp.QuoteMeta(word)
	}
	any := regexp.MustCompile("(?i)" + strings.Join(quoted, "|"))
	var b strings.Builder
	at := 0
	for _, m := range any.FindAllStringIndex(s, -1) {
		b.WriteString(html.EscapeString(s[at:m[0]]) + "<mark>" + html.EscapeString(s[m[0]:m[1]]) + "</mark>")
		at = m[1]
	}
	return b.String() + html.EscapeString(s[at:])
}
