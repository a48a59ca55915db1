package page

import (
	_ "embed" // the style
	"strings"
)

// frameStyle is the style of the header, and the colours.
//
//go:embed static/frame.css
var frameStyle string

// header returns the header of the documents. root leads from the page to the server's first page;
// here is the name of the entry that the page belongs to. Without ui, the server has no pages that
// show calls.
func header(root, here string, ui bool) string {
	var b strings.Builder
	b.WriteString(`<header class="top"><button class="menu" popovertarget="pages">☰ ` + here + `</button>` +
		`<a class="brand" href="` + root + `">heard<b>log</b></a><nav id="pages" popover aria-label="Pages">`)
	for _, to := range []struct {
		name, path string
		needsUI    bool
	}{
		{"Calls", "", true}, {"Overview", "overview", true}, {"Callers", "callers", true}, {"Webhooks", "webhooks", true}, {"Demo", "demo", true}, {"Docs", "docs", false}, {"Guides", "docs/guide/" + GuideIndex, false},
	} {
		if to.needsUI && !ui {
			continue
		}
		current := ""
		if to.name == here {
			current = ` aria-current="page"`
		}
		b.WriteString(`<a href="` + root + to.path + `"` + current + `>` + to.name + `</a>`)
	}
	b.WriteString(`</nav></header>`)
	return b.String()
}
