package page_test

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/heardlog/heardlog"
	"github.com/heardlog/heardlog/internal/page"
)

func get(t *testing.T, h http.HandlerFunc, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/docs", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h(w, r)
	return w.Result()
}

func read(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestPolicy: the browser may load from this server and from nowhere else, and runs no inline
// script.
func TestPolicy(t *testing.T) {
	t.Parallel()
	policy := get(t, page.APIDocs(true)).Header.Get("Content-Security-Policy")
	sources := map[string][]string{}
	for directive := range strings.SplitSeq(policy, "; ") {
		words := strings.Fields(directive)
		sources[words[0]] = words[1:]
		for _, s := range words[1:] {
			inline := s == "'unsafe-inline'" && words[0] == "style-src"
			if !inline && !slices.Contains([]string{"'none'", "'self'", "data:"}, s) {
				t.Errorf("%s allows %s", words[0], s)
			}
		}
	}
	if got := sources["default-src"]; !slices.Equal(got, []string{"'none'"}) {
		t.Errorf("default-src is %v, so what no other directive names may come from there", got)
	}
	if got := sources["script-src"]; !slices.Equal(got, []string{"'self'"}) {
		t.Errorf("script-src is %v", got)
	}
}

// TestPage: every address on the page is relative, and what the viewer would fetch from its maker's
// hosts is switched off.
func TestPage(t *testing.T) {
	t.Parallel()
	html := read(t, get(t, page.APIDocs(true)).Body)
	addresses := regexp.MustCompile(`(?:src|href|data-url)="([^"]*)"`).FindAllStringSubmatch(html, -1)
	want := []string{
		"data:,", "./", "./", "./overview", "./callers", "./webhooks", "./demo", "./docs", "./docs/guide/README.md", "openapi.yaml", "docs/openapi.yaml", "docs/viewer.js",
	}
	var got []string
	for _, a := range addresses {
		got = append(got, a[1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page names %q, want %q", got, want)
	}
	if strings.Contains(html, "//") {
		t.Error("the page names another host")
	}
	for _, off := range []string{`"withDefaultFonts": false`, `"telemetry": false`, `"agent": {"disabled": true}`, `"mcp": {"disabled": true}`} {
		if !strings.Contains(html, off) {
			t.Errorf("the page lacks %s", off)
		}
	}
}

// TestViewer reads the script with and without compression and compares the file with its checksum.
func TestViewer(t *testing.T) {
	t.Parallel()
	plain := get(t, page.APIViewer)
	if got := plain.Header.Get("Content-Encoding"); got != "" {
		t.Errorf("a client that takes no compression is sent %q", got)
	}
	zipped := get(t, page.APIViewer, "Accept-Encoding", "br, gzip")
	if got := zipped.Header.Get("Content-Encoding"); got != "gzip" {
		t.Fatalf("Content-Encoding %q", got)
	}
	file := read(t, zipped.Body)
	z, err := gzip.NewReader(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if read(t, z) != read(t, plain.Body) {
		t.Error("the script differs with compression")
	}
	sums, err := os.ReadFile("scalar/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(file))
	if want := hex.EncodeToString(sum[:]) + "  viewer.js.gz\n"; string(sums) != want {
		t.Errorf("scalar/SHA256SUMS holds %q, the file is %q", sums, want)
	}
	version, err := os.ReadFile("scalar/VERSION")
	if err != nil {
		t.Fatal(err)
	}
	plainText := read(t, get(t, page.APIViewer).Body)
	if !strings.Contains(plainText, strings.TrimSpace(string(version))) {
		t.Errorf("the script does not name version %s", version)
	}
}

// TestDescription: the reference shows ten calls first, each under its own tag as well, and no
// events. All else is as in openapi.yaml.
func TestDescription(t *testing.T) {
	t.Parallel()
	parse := func(text string) (doc struct {
		Paths      map[string]map[string]any
		Webhooks   map[string]any
		Components any
		Tags       []struct{ Name, Description string }
	}) {
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		return doc
	}
	all, shown := parse(string(heardlog.Spec)), parse(read(t, get(t, page.APIDescription).Body))
	if shown.Tags[0].Name != page.First || len(shown.Tags) != len(all.Tags)+1 {
		t.Errorf("the tags are %v", shown.Tags)
	}
	if len(all.Webhooks) == 0 || shown.Webhooks != nil {
		t.Errorf("%d events of %d are shown", len(shown.Webhooks), len(all.Webhooks))
	}
	first := 0
	for path, item := range shown.Paths {
		for method, op := range item {
			tagged, ok := op.(map[string]any)
			if !ok {
				continue
			}
			if tags, _ := tagged["tags"].([]any); len(tags) == 2 && tags[0] == page.First {
				first++
				tagged["tags"] = tags[1:]
				if call := strings.ToUpper(method) + " " + path; !strings.Contains(shown.Tags[0].Description, "`"+call+"`") {
					t.Errorf("the list of the first calls does not have %s", call)
				}
			}
		}
	}
	if first != 10 {
		t.Errorf("%d calls are the first", first)
	}
	if diff := cmp.Diff(all.Paths, shown.Paths); diff != "" {
		t.Errorf("the paths differ (-all +shown):\n%s", diff)
	}
	if diff := cmp.Diff(all.Components, shown.Components); diff != "" {
		t.Errorf("the components differ (-all +shown):\n%s", diff)
	}
}

// TestPagesAreInternal: what answers with a page for people is not among the calls that are shown.
func TestPagesAreInternal(t *testing.T) {
	t.Parallel()
	var doc struct {
		Paths map[string]map[string]struct {
			Internal  bool `yaml:"x-internal"`
			Responses map[string]struct{ Content map[string]any }
		}
	}
	if err := yaml.Unmarshal(heardlog.Spec, &doc); err != nil {
		if _, ok := errors.AsType[*yaml.TypeError](err); !ok { // parameters of a path are a list
			t.Fatal(err)
		}
	}
	for path, item := range doc.Paths {
		_, html := item["get"].Responses["200"].Content["text/html"]
		if html && !item["get"].Internal {
			t.Errorf("%s is a page, and not x-internal", path)
		}
	}
}
