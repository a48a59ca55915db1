package compat_test

import (
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// repository is the root of the checkout.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// pageCommand returns the arguments of a command in docs/reference/api.md, with the paths of files
// that are in the repository made absolute. It requires the version on the page to be the one that
// is installed here, which versions names.
func pageCommand(t *testing.T, tool, versions string) []string {
	t.Helper()
	page, err := os.ReadFile("../docs/reference/api.md")
	if err != nil {
		t.Fatal(err)
	}
	installed, err := os.ReadFile(versions)
	if err != nil {
		t.Fatal(err)
	}
	start := regexp.MustCompile(`^(?:npx|npx -p|go run) (\S+)@v?(\d+\.\d+\.\d+)(?: ` + tool + `)? `)
	for _, block := range blocks(string(page), "sh") {
		line := strings.Join(block, "\n")
		m := start.FindStringSubmatch(line)
		if m == nil || !strings.Contains(m[0], tool) {
			continue
		}
		pinned := regexp.MustCompile(regexp.QuoteMeta(strings.TrimSuffix(m[1], "/cmd/"+tool)) + `(?:": "| v)` + regexp.QuoteMeta(m[2]) + `\b`)
		if !pinned.Match(installed) {
			t.Errorf("the page has %s in version %s, and %s another", tool, m[2], versions)
		}
		args := strings.Fields(strings.TrimPrefix(line, m[0]))
		for i, arg := range args {
			if _, err := os.Stat(filepath.Join("..", arg)); err == nil {
				args[i] = filepath.Join(repository(t), arg)
			}
		}
		return args
	}
	t.Fatalf("docs/reference/api.md has no command of %s", tool)
	return nil
}

// npmTool returns a command that runs a program of an npm package in a folder.
func npmTool(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(within(t, patience), filepath.Join(nodeModules(t), ".bin", name), args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true", "NO_COLOR=1")
	return c
}

// succeed runs a command and returns what it wrote.
func succeed(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(c.Args, " "), err, out)
	}
	return string(out)
}

// TestLint checks openapi.yaml with two linters. A warning fails, too.
func TestLint(t *testing.T) {
	t.Parallel()
	root := repository(t)
	spec, rules := filepath.Join(root, "openapi.yaml"), filepath.Join(root, "compat", "node")
	for name, args := range map[string][]string{
		"redocly":  {"lint", "--max-problems=50", "--config=" + filepath.Join(rules, "redocly.yaml"), spec},
		"spectral": {"lint", "--fail-severity=warn", "--ruleset=" + filepath.Join(rules, "spectral.yaml"), spec},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := succeed(t, npmTool(t, rules, name, args...))
			if strings.Contains(out, "warning ") {
				t.Errorf("%s warns:\n%s", name, out)
			}
		})
	}
}

// TestGoClient generates a Go client with the command on the page, and compiles it.
func TestGoClient(t *testing.T) {
	t.Parallel()
	tools, dir := filepath.Join(repository(t), "tools"), t.TempDir()
	generator := filepath.Join(dir, "oapi-codegen")
	succeed(t, exec.CommandContext(t.Context(), "go", "-C", tools, "build", "-o", generator, "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen"))
	c := exec.CommandContext(t.Context(), generator, pageCommand(t, "oapi-codegen", filepath.Join(tools, "go.mod"))...)
	c.Dir = dir
	succeed(t, c)
	// The module of the tools has what the client imports. The overlay puts the client into it.
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(tools, "heardlog", "heardlog.go"): filepath.Join(dir, "heardlog.go")}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	succeed(t, exec.CommandContext(t.Context(), "go", "-C", tools, "build", "-overlay", file, "./heardlog"))
}

// TestTypeScript generates types with the command on the page. The compiler must accept them, and a
// call that leaves out what has a default.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	modules, dir := nodeModules(t), t.TempDir()
	args := pageCommand(t, "openapi-typescript", filepath.Join(modules, "..", "package.json"))
	succeed(t, npmTool(t, dir, "openapi-typescript", args...))
	const use = `import type { operations, components } from "./heardlog";
export const speak: components["schemas"]["SpeakRequest"] = { text: "Your taxi is here." };
export type Limit = NonNullable<operations["listMessages"]["parameters"]["query"]>["limit"];
export const limit: Limit = 10;
`
	if err := os.WriteFile(filepath.Join(dir, "use.ts"), []byte(use), 0o600); err != nil {
		t.Fatal(err)
	}
	succeed(t, npmTool(t, dir, "tsc", "--strict", "--noEmit", "use.ts", "heardlog.d.ts"))
}

// postmanItem is a request or a folder of a Postman collection.
type postmanItem struct {
	Name    string
	Item    []postmanItem
	Request *struct {
		Method string
		Header []struct {
			Key      string
			Disabled bool
		}
		URL struct {
			Path []string
		}
	}
}

// TestPostmanImport converts the description as Postman's import does. Every operation must arrive
// under its path.
func TestPostmanImport(t *testing.T) {
	t.Parallel()
	modules, dir := nodeModules(t), t.TempDir()
	args := pageCommand(t, "openapi2postmanv2", filepath.Join(modules, "..", "package.json"))
	succeed(t, npmTool(t, dir, "openapi2postmanv2", args...))
	var collection postmanItem
	readJSON(t, filepath.Join(dir, "heardlog-all.json"), &collection)
	var got []string
	var walk func(items []postmanItem)
	walk = func(items []postmanItem) {
		for _, item := range items {
			walk(item.Item)
			if item.Request == nil {
				continue
			}
			got = append(got, item.Request.Method+" /"+strings.Join(item.Request.URL.Path, "/"))
			for _, h := range item.Request.Header {
				if h.Key == "Idempotency-Key" && !h.Disabled {
					t.Errorf("%s: all requests share one Idempotency-Key", item.Name)
				}
			}
		}
	}
	walk(collection.Item)
	var want []string
	doc, err := openapi3.NewLoader().LoadFromFile("../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			want = append(want, method+" "+strings.NewReplacer("{", ":", "}", "").Replace(path))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("imported are %d operations of %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	if folders := len(collection.Item); folders != len(doc.Tags) {
		t.Errorf("%d folders for %d tags", folders, len(doc.Tags))
	}
}

func readJSON(t *testing.T, file string, to any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, to); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// TestPostmanCollection runs the collection as the page says, on a fresh server with a fake LLM and
// on one without any. Both runs must pass, and leave no endpoint behind.
func TestPostmanCollection(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		llm   bool
		asked int // status of the call through the proxy
	}{{"with an LLM", true, 200}, {"without one", false, 400}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			modules, dir := nodeModules(t), t.TempDir()
			var env []string
			if tt.llm {
				env = []string{"HEARDLOG_LLM_URL=" + fakeLLM(t) + "/v1", "HEARDLOG_LLM_MODEL=fake-1"}
			}
			s := start(t, env...)
			args := pageCommand(t, "newman", filepath.Join(modules, "..", "package.json"))
			args = append(args, "--env-var", "base_url="+s.url, "--reporters", "cli,json", "--reporter-json-export", "run.json")
			out := succeed(t, npmTool(t, dir, "newman", args...))
			var run struct {
				Run struct {
					Stats      map[string]struct{ Total, Failed int }
					Executions []struct {
						Item     struct{ Name string }
						Response struct{ Code int }
					}
				}
			}
			readJSON(t, filepath.Join(dir, "run.json"), &run)
			requests, tests := run.Run.Stats["requests"], run.Run.Stats["assertions"]
			if requests.Total < 10 || tests.Total < requests.Total || requests.Failed+tests.Failed > 0 {
				t.Errorf("%+v\n%s", run.Run.Stats, out)
			}
			asked := 0
			for _, e := range run.Run.Executions {
				if strings.Contains(e.Item.Name, "LLM through the proxy") {
					asked = e.Response.Code
				}
			}
			if asked != tt.asked {
				t.Errorf("the call through the proxy: %d, want %d", asked, tt.asked)
			}
			var left struct{ Endpoints []any }
			s.call(t, 200, "GET", "/v1/webhooks/endpoints", nil, &left)
			if len(left.Endpoints) > 0 {
				t.Errorf("the run left %v", left.Endpoints)
			}
		})
	}
	// Nothing of a run leaves this machine: no host exists under .invalid.
	var env struct{ Values []struct{ Key, Value string } }
	readJSON(t, "../postman/heardlog.postman_environment.json", &env)
	for _, v := range env.Values {
		if u, err := url.Parse(v.Value); err == nil && u.Host != "" && u.Hostname() != "127.0.0.1" && !strings.HasSuffix(u.Hostname(), ".invalid") {
			t.Errorf("%s is %s", v.Key, v.Value)
		}
	}
}
