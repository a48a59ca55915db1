package app

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html"
	"html/template"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/heardlog/heardlog"
)

//go:embed docs.html
var docsTemplate string

// docsPage gives the page of /docs. It is made when it is first asked for: most servers never are, and making it takes longer than the rest of a start.
var docsPage = sync.OnceValues(func() ([]byte, error) { return makeDocsPage(heardlog.Spec) })

// makeDocsPage makes the page from openapi.yaml: by tag, each call with its paths, parameters, bodies, examples and errors, then the
// webhooks and the schemas. The page needs neither scripts nor anything from elsewhere, so that it works without internet and under the strictest content policy.
func makeDocsPage(spec []byte) ([]byte, error) {
	doc, err := parseSpec(spec)
	if err != nil {
		return nil, err
	}
	tmpl, err := template.New("docs").Funcs(template.FuncMap{"rich": rich, "inline": inline, "anchor": anchor}).Parse(docsTemplate)
	if err != nil {
		return nil, err
	}
	view, err := newDocsView(doc)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := tmpl.Execute(&b, view); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// docsView is what the page shows.
type docsView struct {
	Title, Summary, Description string
	Tags                        []docsTag
	Webhooks                    []docsCall
	Security                    []docsField
	Schemas                     []docsSchema
}

type docsTag struct {
	Name, Description string
	Calls             []docsCall
}

// docsCall is one operation; the bases that share it are its Paths.
type docsCall struct {
	Method               string
	Paths                []string
	Summary, Description string
	Parameters           []docsField
	Body                 *docsBody
	Responses            []docsResponse
}

type docsField struct {
	Name, In, Type, Description string
	Ref                         string // schema that the type names, for a link
	Required                    bool
}

type docsBody struct {
	Description string
	Contents    []docsContent
}

type docsContent struct {
	Type     string // media type
	Ref      string
	Examples []docsExample
}

type docsExample struct{ Name, Text string }

type docsResponse struct {
	Status, Description string
	Headers             []string
	Contents            []docsContent
}

type docsSchema struct {
	Name, Type, Description string
	Fields                  []docsField
}

// docsMethods are the keys of a path item that are operations, in the order in which they are shown.
var docsMethods = []string{"get", "put", "post", "delete", "patch"}

func newDocsView(doc *specNode) (*docsView, error) {
	info := doc.get("info")
	v := &docsView{Title: info.text("title"), Summary: info.text("summary"), Description: info.text("description")}
	byTag := map[string]int{}
	for _, t := range doc.get("tags").items() {
		byTag[t.text("name")] = len(v.Tags)
		v.Tags = append(v.Tags, docsTag{Name: t.text("name"), Description: t.text("description")})
	}
	if len(v.Tags) == 0 {
		return nil, errors.New("openapi.yaml has no tags")
	}
	shown := map[*specNode]*docsCall{}
	var order []*specNode
	for path, item := range doc.get("paths").members() {
		target := item.deref()
		for _, m := range docsMethods {
			op := item.get(m)
			if op == nil {
				op = target.get(m)
			}
			if op == nil {
				continue
			}
			op = op.deref()
			if call := shown[op]; call != nil { // another base of a call already shown
				call.Paths = append(call.Paths, path)
				continue
			}
			call := newDocsCall(op)
			call.Method, call.Paths = strings.ToUpper(m), []string{path}
			call.Parameters = append(docsParameters(item), call.Parameters...)
			shown[op] = &call
			order = append(order, op)
		}
	}
	for _, op := range order {
		tags := op.get("tags").items()
		if len(tags) == 0 {
			return nil, fmt.Errorf("openapi.yaml: %s has no tag", shown[op].Paths[0])
		}
		i, ok := byTag[tags[0].value()]
		if !ok {
			return nil, fmt.Errorf("openapi.yaml: tag %q is not described", tags[0].value())
		}
		v.Tags[i].Calls = append(v.Tags[i].Calls, *shown[op])
	}
	for name, item := range doc.get("webhooks").members() {
		call := newDocsCall(item.get("post").deref())
		call.Method, call.Paths = "POST", []string{name}
		v.Webhooks = append(v.Webhooks, call)
	}
	components := doc.get("components")
	for name, s := range components.get("securitySchemes").members() {
		v.Security = append(v.Security, docsField{Name: name, Description: s.text("description")})
	}
	for name, s := range components.get("schemas").members() {
		v.Schemas = append(v.Schemas, newDocsSchema(name, s))
	}
	slices.SortFunc(v.Schemas, func(a, b docsSchema) int { return strings.Compare(a.Name, b.Name) })
	return v, nil
}

func newDocsCall(op *specNode) docsCall {
	c := docsCall{Summary: op.text("summary"), Description: op.text("description"), Parameters: docsParameters(op)}
	if body := op.get("requestBody"); body != nil {
		body = body.deref()
		c.Body = &docsBody{Description: body.text("description"), Contents: docsContents(body)}
	}
	for status, r := range op.get("responses").members() {
		r = r.deref()
		out := docsResponse{Status: status, Description: r.text("description"), Contents: docsContents(r)}
		for name := range r.get("headers").members() {
			out.Headers = append(out.Headers, name)
		}
		c.Responses = append(c.Responses, out)
	}
	return c
}

func docsParameters(n *specNode) []docsField {
	var out []docsField
	for _, p := range n.get("parameters").items() {
		p = p.deref()
		typ, ref := typeOf(p.get("schema"))
		out = append(out, docsField{
			Name: p.text("name"), In: p.text("in"), Type: typ, Ref: ref, Description: p.text("description"), Required: p.text("required") == "true",
		})
	}
	return out
}

func docsContents(n *specNode) []docsContent {
	var out []docsContent
	for kind, media := range n.get("content").members() {
		c := docsContent{Type: kind, Ref: media.get("schema").refName()}
		for name, e := range media.get("examples").members() {
			e = e.deref()
			if s := e.text("summary"); s != "" {
				name = s
			}
			c.Examples = append(c.Examples, docsExample{Name: name, Text: e.get("value").show()})
		}
		out = append(out, c)
	}
	return out
}

func newDocsSchema(name string, s *specNode) docsSchema {
	typ, _ := typeOf(s)
	out := docsSchema{Name: name, Type: typ, Description: s.text("description")}
	out.Fields = docsFields(nil, s, "", 0)
	return out
}

// maxNesting is how many levels of unnamed objects a schema's table shows.
const maxNesting = 8

// docsFields lists a schema's properties, those of nested objects under their paths.
func docsFields(out []docsField, s *specNode, prefix string, depth int) []docsField {
	if s == nil || depth > maxNesting || (depth > 0 && s.get("$ref") != nil) {
		return out
	}
	for _, part := range slices.Concat(s.get("allOf").items(), s.get("oneOf").items()) {
		if ref := part.refName(); ref != "" {
			out = append(out, docsField{Name: prefix + "…", Type: ref, Ref: ref})
			continue
		}
		out = docsFields(out, part, prefix, depth+1)
	}
	required := map[string]bool{}
	for _, r := range s.get("required").items() {
		required[r.value()] = true
	}
	for name, p := range s.get("properties").members() {
		typ, ref := typeOf(p)
		out = append(out, docsField{Name: prefix + name, Type: typ, Ref: ref, Description: p.text("description"), Required: required[name]})
		out = docsFields(out, p, prefix+name+".", depth+1)
	}
	if items := s.get("items"); items != nil {
		out = docsFields(out, items, strings.TrimSuffix(prefix, ".")+"[].", depth+1)
	}
	return out
}

var (
	richCode   = regexp.MustCompile("`([^`]+)`")
	richStrong = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	richEm     = regexp.MustCompile(`\*([^*]+)\*`)
)

// rich gives the little markup that the descriptions use: paragraphs, code, strong and emphasis. Everything is escaped first.
func rich(s string) template.HTML {
	var b strings.Builder
	for p := range strings.SplitSeq(strings.TrimSpace(s), "\n\n") {
		if strings.TrimSpace(p) != "" {
			b.WriteString("<p>" + string(inline(p)) + "</p>\n")
		}
	}
	return template.HTML(b.String()) //nolint:gosec // escaped by inline
}

// inline is rich within a paragraph.
func inline(s string) template.HTML {
	var b strings.Builder
	rest := html.EscapeString(s)
	for { // marks inside code are text
		at := richCode.FindStringSubmatchIndex(rest)
		if at == nil {
			break
		}
		b.WriteString(emphasis(rest[:at[0]]) + "<code>" + rest[at[2]:at[3]] + "</code>")
		rest = rest[at[1]:]
	}
	return template.HTML(b.String() + emphasis(rest)) //nolint:gosec // escaped above
}

func emphasis(s string) string {
	return richEm.ReplaceAllString(richStrong.ReplaceAllString(s, "<strong>$1</strong>"), "<em>$1</em>")
}

var notAnchor = regexp.MustCompile(`[^A-Za-z0-9]+`)

// anchor makes an id out of words.
func anchor(parts ...string) string {
	return strings.ToLower(strings.Trim(notAnchor.ReplaceAllString(strings.Join(parts, "-"), "-"), "-"))
}
