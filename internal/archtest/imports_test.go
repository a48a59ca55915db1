// Package archtest_test checks the imports of every package against one table. A package without a
// row fails. It also forbids cgo and files of more than 600 lines.
package archtest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	module   = "github.com/heardlog/heardlog"
	maxLines = 600 // of a file that is no test and not generated

	// anything in a rule's list allows every package but those that no program may hold: see never.
	anything = "*"
)

// The names of third-party modules in the table.
const (
	age        = "filippo.io/age"
	chi        = "github.com/go-chi/chi/v5"
	cmpModule  = "github.com/google/go-cmp"
	compress   = "github.com/klauspost/compress"
	envModule  = "github.com/caarlos0/env/v11"
	cors       = "github.com/rs/cors"
	errgroup   = "golang.org/x/sync"
	jsonExp    = "github.com/go-json-experiment/json"
	kinOpenAPI = "github.com/getkin/kin-openapi"
	websocket  = "github.com/coder/websocket"
	jsonSchema = "github.com/santhosh-tekuri/jsonschema/v6"
	mcpSDK     = "github.com/modelcontextprotocol/go-sdk"
	mcpSchema  = "github.com/google/jsonschema-go"
	minify     = "github.com/tdewolff/minify/v2"
	minio      = "github.com/minio/minio-go/v7"
	goldmark   = "github.com/yuin/goldmark"
	lru        = "github.com/hashicorp/golang-lru/v2/simplelru"
	goOIDC     = "github.com/coreos/go-oidc/v3"
	jose       = "github.com/go-jose/go-jose/v4"
	oauth2     = "golang.org/x/oauth2"
	otel       = "go.opentelemetry.io/otel"
	pgx        = "github.com/jackc/pgx/v5"
	prometheus = "github.com/prometheus/client_golang"
	snowball   = "github.com/blevesearch/snowballstem"
	sqlite     = "modernc.org/sqlite"
	ssrf       = "code.dny.dev/ssrf"
	regexp2    = "github.com/dlclark/regexp2/v2"
	uuid       = "github.com/google/uuid"
	validator  = "github.com/go-playground/validator/v10"
	xsys       = "golang.org/x/sys"
	xtext      = "golang.org/x/text"
	xterm      = "golang.org/x/term"
	xtime      = "golang.org/x/time"
	yaml       = "go.yaml.in/yaml/v3"
	zerolog    = "github.com/rs/zerolog"
)

// rule lists what a package may import beside the standard library: our packages by their path in
// the module ("." is the root), and modules of others.
type rule struct{ ours, others []string }

// rules is the table, by the package's path in the module. The direction is cmd, internal/app,
// handlers and drivers, domain, internal/fault.
func rules() map[string]rule {
	driver := []string{"memory", "memory/hold", "store/codec", "store/export", "memory/memories", "memory/kv", "store/record", "store/encryption", "memory/window", "webhook", "internal/event", "internal/fault"}
	return map[string]rule{
		".":                           {},
		"config":                      {[]string{"memory", "longterm/remember", "memory/redact", "memory/window", "internal/fault", "internal/secret", "internal/text"}, []string{envModule, validator}},
		"internal/agoratoken":         {},
		"internal/event":              {},
		"internal/page":               {[]string{"."}, []string{goldmark, minify}},
		"internal/cli":                {[]string{"internal/text"}, nil},
		"internal/fault":              {},
		"internal/secret":             {nil, []string{jsonExp}},
		"internal/text":               {[]string{"internal/fault"}, []string{jsonExp}},
		"internal/peek":               {nil, []string{jsonExp}},
		"internal/breaker":            {},
		"internal/cache":              {nil, []string{lru}},
		"internal/detect":             {[]string{"memory/agents", "memory/redact", "internal/breaker", "internal/cache", "internal/secret"}, []string{zerolog, prometheus}},
		"internal/guard":              {[]string{"internal/fault"}, []string{ssrf}},
		"memory/input":                {[]string{"memory", "internal/fault", "internal/text"}, []string{jsonExp}},
		"memory/context":              {[]string{"memory", "memory/agents", "memory/view", "memory/window", "internal/cache", "internal/fault", "internal/text"}, nil},
		"memory/evidence":             {[]string{"memory", "memory/agents", "memory/redact", "memory/heard", "internal/fault"}, nil},
		"memory/hosted":               {[]string{"memory", "memory/input", "platform", "internal/peek", "internal/fault", "internal/text"}, nil},
		"memory/ingest":               {[]string{"memory/hosted", "memory", "memory/agents", "memory/input", "memory/turns", "internal/event", "internal/fault", "internal/text"}, nil},
		"memory/echo":                 {[]string{"memory/heard", "internal/text"}, nil},
		"memory/heard":                {},
		"memory":                      {[]string{"memory/redact", "memory/view", "memory/heard", "memory/window", "internal/fault", "internal/secret", "internal/text"}, nil},
		"memory/agents":               {[]string{"internal/budget", "memory", "memory/redact", "memory/view", "memory/heard", "memory/window", "internal/cache", "internal/fault", "internal/secret", "internal/event"}, nil},
		"memory/away":                 {[]string{"memory", "store/codec", "internal/event", "internal/fault"}, []string{xsys}},
		"store/codec":                 {[]string{"memory", "memory/redact", "internal/secret"}, []string{jsonExp, compress}},
		"memory/hold":                 {[]string{"memory", "store/record", "internal/fault", "internal/text"}, nil},
		"memory/memories":             {[]string{"memory", "memory/agents", "memory/redact", "memory/hold", "store/record", "memory/requests", "memory/window", "internal/fault"}, nil},
		"longterm/recall":             {[]string{"job", "memory", "memory/memories", "longterm/resident", "store/record", "internal/breaker", "internal/fault", "internal/text"}, []string{snowball, xtext}},
		"job":                         {[]string{"memory", "store/record", "internal/fault", "internal/text"}, []string{prometheus, zerolog}},
		"longterm/resident":           {[]string{"store/record", "internal/cache", "internal/fault"}, nil},
		"longterm/check":              {[]string{"memory", "memory/heard", "longterm/recall", "internal/text"}, nil},
		"longterm/replay":             {[]string{"job", "memory", "memory/agents", "memory/redact", "memory/requests", "memory/window", "store/record", "internal/fault", "internal/peek", "internal/secret", "internal/text"}, []string{errgroup}},
		"longterm/report":             {[]string{"job", "memory", "longterm/check", "store/record", "internal/fault"}, []string{errgroup}},
		"longterm/remember":           {[]string{"job", "memory", "ossa/pattern", "longterm/recall", "store/record", "internal/fault", "internal/text"}, nil},
		"longterm/facts":              {[]string{"memory", "memory/memories", "longterm/recall", "store/record", "memory/redact", "longterm/resident", "internal/event", "internal/fault", "internal/text"}, []string{xtext}},
		"memory/kv":                   {[]string{"memory", "internal/fault", "internal/text"}, nil},
		"longterm/caller":             {[]string{"memory", "memory/memories", "store/record", "internal/fault", "internal/text"}, []string{errgroup}},
		"store/record":                {[]string{"memory", "internal/fault", "internal/text"}, nil},
		"longterm/knowledge":          {[]string{"job", "longterm/recall", "store/record", "memory/redact", "longterm/resident", "internal/fault", "internal/text"}, []string{jsonSchema, xtext}},
		"ossa/pattern":                {[]string{"memory", "store/record", "memory/redact", "internal/fault", "internal/text"}, nil},
		"longterm/vector":             {[]string{"job", "store/record", "longterm/resident", "internal/fault", "internal/text"}, []string{errgroup, jsonExp, xtext}},
		"store/encryption":            {[]string{"internal/cache", "internal/fault"}, nil},
		"store/archive":               {[]string{"job", "memory", "memory/memories", "store/codec", "store/export", "store/statements", "webhook", "internal/blob", "internal/cache", "internal/fault"}, []string{compress, prometheus}},
		"memory/redact":               {[]string{"internal/fault", "internal/secret"}, []string{jsonExp}},
		"memory/requests":             {[]string{"internal/peek", "memory", "memory/agents", "internal/text"}, nil},
		"memory/turns":                {[]string{"memory", "memory/agents"}, nil},
		"memory/view":                 {[]string{"memory/heard", "memory/window", "internal/fault", "internal/text"}, nil},
		"memory/window":               {[]string{"internal/fault", "internal/text"}, nil},
		"memory/window/tokens":        {[]string{"memory/window", "internal/cache", "internal/fault"}, []string{compress, regexp2}},
		"ossa/checkpoint":             {[]string{"job", "memory", "store/codec", "memory/context", "store/record", "memory/window", "internal/fault"}, []string{compress}},
		"memory/retention":            {[]string{"job", "memory", "store/record", "internal/fault"}, nil},
		"ossa/model":                  {[]string{"memory", "ossa", "store/record", "memory/window", "internal/fault"}, nil},
		"ossa":                        {[]string{"memory/window", "internal/fault", "internal/text"}, []string{jsonSchema, yaml}},
		"webhook":                     {[]string{"internal/breaker", "internal/fault", "internal/secret", "internal/event"}, []string{zerolog, prometheus, xtime}},
		"llmadapter":                  {[]string{"internal/peek", "platform", "internal/fault", "internal/secret", "internal/text"}, []string{jsonExp}},
		"llmadapter/responses":        {[]string{"llmadapter", "memory", "internal/fault", "internal/text"}, []string{jsonExp}},
		"platform":                    {[]string{"internal/peek", "internal/fault"}, []string{xtext}},
		"store/export":                {[]string{"memory", "store/codec", "memory/memories", "store/record", "webhook", "internal/fault", "internal/secret"}, nil},
		"store/engine":                {[]string{"memory", "store/codec", "internal/cache", "internal/fault"}, nil},
		"memory/kv/kvtest":            {[]string{"memory/kv", "internal/fault"}, []string{cmpModule}},
		"memory/kv/rediskv":           {[]string{"memory/kv", "internal/fault"}, []string{"github.com/redis/rueidis"}},
		"memory/kv/memcachedkv":       {[]string{"memory/kv", "internal/fault"}, []string{"github.com/bradfitz/gomemcache"}},
		"memory/kv/provider":          {[]string{"memory/kv", "memory/kv/memcachedkv", "memory/kv/rediskv", "internal/fault", "internal/secret"}, nil},
		"store/sqlite":                {append(driver, "internal/cache", "store/sqlite/dbfile", "store/statements"), nil},
		"store/sqlite/dbfile":         {[]string{"internal/fault"}, []string{sqlite, xsys}},
		"store/postgres":              {append(driver, "store/postgres/peers", "store/postgres/pg", "store/statements"), []string{pgx}},
		"store/postgres/peers":        {[]string{"memory", "store/postgres/pg", "internal/fault"}, []string{pgx}},
		"store/postgres/pg":           {[]string{"memory", "store/codec", "store/encryption", "store/statements", "internal/fault"}, []string{pgx}},
		"store/statements":            {[]string{"memory", "memory/hold", "store/codec", "store/export", "memory/memories", "memory/kv", "store/record", "store/encryption", "webhook", "internal/fault"}, nil},
		"store/postgres/postgrestest": {[]string{"store/postgres/pg"}, []string{pgx}},
		"store/storetest":             {append(driver, "internal/secret", "store", "store/engine", "store/sqlite", "memory/turns"), []string{cmpModule}},
		"webhook/webhooktest":         {driver, []string{cmpModule}},
		"internal/genai":              {[]string{"internal/peek", "llmadapter"}, []string{otel}},
		"internal/prompt":             {[]string{"internal/peek", "memory", "memory/agents", "memory/redact", "longterm/remember", "memory/echo", "memory/heard", "memory/view", "memory/window", "llmadapter", "internal/fault", "internal/text", "internal/toolbox"}, nil},
		"internal/turn":               {[]string{"internal/peek", "internal/genai", "internal/prompt", "memory", "memory/agents", "memory/redact", "longterm/remember", "memory/requests", "memory/heard", "llmadapter", "internal/breaker", "internal/fault", "internal/secret", "internal/text", "internal/toolbox"}, []string{zerolog, prometheus, otel}},
		"internal/toolbox":            {[]string{"internal/peek", "longterm/remember", "llmadapter", "internal/fault", "internal/text"}, nil},
		"internal/sockets":            {[]string{"internal/fault"}, nil},
		"internal/budget":             {[]string{"internal/fault"}, []string{errgroup}},
		"internal/quota":              {[]string{"memory", "memory/memories", "store/record", "internal/fault"}, []string{xtime, errgroup}},
		"internal/tail":               {[]string{"memory", "memory/agents", "internal/fault", "internal/text"}, []string{zerolog, prometheus}},
		"internal/summary":            {[]string{"job", "memory", "memory/agents", "memory/context", "store/record", "memory/window", "internal/fault"}, []string{zerolog, prometheus}},
		"realtime":                    {[]string{"internal/fault", "internal/peek", "internal/sockets", "internal/text", "longterm/remember", "memory", "memory/agents", "memory/context", "memory/evidence", "memory/heard", "memory/window"}, []string{websocket, prometheus, zerolog}},
		"realtime/realtimetest":       {nil, []string{websocket}},
		"handlers":                    {[]string{"internal/erasure", "memory/hold", "realtime", "internal/budget", "internal/sockets", "internal/peek", "job", "memory/requests", "longterm/caller", "ossa/checkpoint", "store/record", "memory/redact", "internal/access", "internal/oidc", "internal/cache", "internal/agoratoken", "longterm/mcp", "internal/page", "internal/text", "memory", "memory/agents", "longterm/facts", "memory/memories", "longterm/knowledge", "ossa/pattern", "longterm/recall", "longterm/vector", "longterm/remember", "longterm/check", "longterm/replay", "longterm/report", "memory/kv", "memory/turns", "memory/view", "memory/heard", "memory/window", "ossa/model", "ossa", "webhook", "llmadapter", "llmadapter/responses", "platform", "internal/prompt", "internal/turn", "internal/tail", "internal/quota", "internal/fault", "internal/secret", "internal/event", "memory/hosted", "memory/ingest", "memory/input", "memory/evidence", "memory/context"}, []string{chi, cors, validator, zerolog, prometheus, xtime, uuid, jsonExp, websocket}},
		"internal/app":                {[]string{anything}, []string{zerolog, prometheus, otel, errgroup, uuid, xterm}},
		"tests":                       {}, // nothing but tests
		"internal/simulate":           {},
		"internal/importer":           {[]string{"internal/peek", "internal/text", "memory/hosted", "platform"}, nil},
		"longterm/mcp":                {[]string{"internal/peek"}, []string{mcpSDK, mcpSchema}},
		"internal/oidc":               {[]string{"internal/access", "internal/fault"}, []string{goOIDC, jose, oauth2, errgroup}},
		"internal/access":             {[]string{"memory/kv", "internal/cache", "internal/fault", "internal/text"}, []string{errgroup, xtime}},
		"internal/erased":             {[]string{"internal/peek", "internal/text", "memory", "webhook", "internal/event"}, nil},
		"store":                       {[]string{"store/archive", "store/engine", "store/postgres", "store/sqlite"}, nil},
		"internal/backup":             {[]string{"internal/blob", "store/export"}, []string{age, compress}},
		"internal/erasure":            {[]string{"longterm/caller", "longterm/facts", "memory", "memory/agents", "memory/kv", "memory/memories", "store/export", "store/record", "webhook", "internal/backup", "internal/blob", "internal/fault"}, []string{errgroup}},
		"internal/blob":               {nil, []string{minio}},
		"internal/data":               {[]string{"internal/erasure", "longterm/facts", "memory/hold", "job", "platform", "longterm/caller", "longterm/knowledge", "config", "internal/access", "internal/backup", "memory", "memory/agents", "memory/memories", "memory/kv", "store/record", "store/engine", "store/export", "store/sqlite", "store/postgres", "webhook", "internal/app", "internal/blob", "store", "store/archive", "internal/guard", "internal/erased", "internal/fault"}, []string{age, compress, xsys}},
		"cmd/api":                     {[]string{"config", "internal/app", "internal/cli", "internal/data", "internal/guard", "internal/importer", "longterm/mcp", "internal/simulate"}, []string{zerolog}},
		"webhook/receive":             {},
		"sdk/go":                      {},
		"deploy":                      {[]string{"config"}, []string{yaml}},
		"examples/receiver":           {[]string{"examples/receiver/receive"}, nil},
		"examples/receiver/receive":   {[]string{"webhook/receive"}, nil},
		"examples/fakellm":            {[]string{"examples/fakellm/fake"}, nil},
		"examples/fakellm/fake":       {},
		"internal/archtest":           {},
		"internal/ruletest":           {},
		"internal/spectest":           {[]string{"internal/event"}, []string{kinOpenAPI, jsonSchema, chi}},
	}
}

// never reports whether no package may import the one at path, not even one that may import
// anything. These are programs and test suites.
func never(path string) bool {
	return strings.HasPrefix(path, "cmd/") || strings.HasPrefix(path, "examples/") || strings.HasSuffix(path, "test")
}

// pkg is the part of go list's answer that the test reads.
type pkg struct {
	ImportPath, Dir string
	Imports         []string // of the package itself, not of its tests
	CgoFiles        []string
	GoFiles         []string
	IgnoredGoFiles  []string // those of other systems
	Error           *struct{ Err string }
}

// TestImports checks every package of this module.
func TestImports(t *testing.T) {
	t.Parallel()
	pkgs := list(t)
	if len(pkgs) < 5 {
		t.Fatalf("go list found %d packages: the test looks in the wrong place", len(pkgs))
	}
	for _, p := range pkgs {
		for _, problem := range check(p, rules()) {
			t.Error(problem)
		}
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles, p.IgnoredGoFiles) {
			if err := checkLength(filepath.Join(p.Dir, name)); err != nil {
				t.Error(err)
			}
		}
	}
}

// list asks the go command for the packages of the module around the test's directory.
func list(t *testing.T) []pkg {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Dir,Imports,CgoFiles,GoFiles,IgnoredGoFiles,Error", module+"/...")
	c.Env = append(os.Environ(), "CGO_ENABLED=1") // else files with cgo are not listed as such
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return pkgs
		case err != nil:
			t.Fatalf("go list's answer: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}

// check gives what is wrong with a package's imports, sorted as they are listed.
func check(p pkg, rules map[string]rule) []string {
	path := within(p.ImportPath)
	var problems []string
	problem := func(format string, args ...any) {
		problems = append(problems, path+": "+fmt.Sprintf(format, args...))
	}
	if p.Error != nil {
		problem("cannot be listed: %s", p.Error.Err)
	}
	if len(p.CgoFiles) > 0 || slices.Contains(p.Imports, "C") {
		problem("uses cgo, and the binary is built without it")
	}
	r, ok := rules[path]
	if !ok {
		problem("has no rule: decide what it may import and add a row to the table in internal/archtest")
		return problems
	}
	for _, imp := range p.Imports {
		first, _, _ := strings.Cut(imp, "/")
		switch {
		case imp == module || strings.HasPrefix(imp, module+"/"):
			our := within(imp)
			if !slices.Contains(r.ours, our) && (!slices.Contains(r.ours, anything) || never(our)) {
				problem("must not import %s; of ours it may import %s", our, orNothing(r.ours))
			}
		case strings.Contains(first, "."):
			if !slices.ContainsFunc(r.others, func(m string) bool {
				return imp == m || strings.HasPrefix(imp, m+"/")
			}) {
				problem("must not import %s; of others it may import %s", imp, orNothing(r.others))
			}
		}
	}
	return problems
}

// within gives a package's path in the module.
func within(importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

func orNothing(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}

// checkLength refuses a file over maxLines unless it is generated.
func checkLength(name string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`).Match(b) {
		return nil
	}
	if n := bytes.Count(b, []byte("\n")); n > maxLines {
		return fmt.Errorf("%s has %d lines, allowed are %d: split it by noun", name, n, maxLines)
	}
	return nil
}

// TestCheck shows that each way to break the rules is found.
func TestCheck(t *testing.T) {
	t.Parallel()
	table := map[string]rule{
		".": {}, "domain": {[]string{"fault"}, []string{"example.com/lib"}}, "app": {[]string{anything}, nil},
	}
	for _, tt := range []struct {
		name string
		p    pkg
		want []string // substrings, one for each problem
	}{
		{"what is allowed", pkg{ImportPath: module + "/domain", Imports: []string{"context", "net/http", module + "/fault", "example.com/lib", "example.com/lib/sub"}}, nil},
		{"another of ours", pkg{ImportPath: module + "/domain", Imports: []string{module + "/app"}}, []string{"domain: must not import app; of ours it may import fault"}},
		{"the root", pkg{ImportPath: module + "/domain", Imports: []string{module}}, []string{"must not import ."}},
		{"below one of ours", pkg{ImportPath: module + "/domain", Imports: []string{module + "/fault/sub"}}, []string{"must not import fault/sub"}},
		{"another of others", pkg{ImportPath: module + "/domain", Imports: []string{"example.com/library"}}, []string{"domain: must not import example.com/library"}},
		{"one that may import nothing", pkg{ImportPath: module, Imports: []string{"embed", "example.com/lib"}}, []string{".: must not import example.com/lib; of others it may import nothing"}},
		{"no rule", pkg{ImportPath: module + "/util"}, []string{"util: has no rule"}},
		{"no rule below a package that has one", pkg{ImportPath: module + "/domain/sub"}, []string{"domain/sub: has no rule"}},
		{"anything", pkg{ImportPath: module + "/app", Imports: []string{module + "/domain", module}}, nil},
		{"anything but programs and suites", pkg{ImportPath: module + "/app", Imports: []string{module + "/cmd/api", module + "/examples/x", module + "/domain/domaintest"}}, []string{"cmd/api", "examples/x", "domaintest"}},
		{"cgo", pkg{ImportPath: module + "/domain", CgoFiles: []string{"c.go"}}, []string{"domain: uses cgo"}},
		{"a package that is broken", pkg{ImportPath: module + "/domain", Error: &struct{ Err string }{"no such file"}}, []string{"domain: cannot be listed: no such file"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := check(tt.p, table)
			if len(got) != len(tt.want) {
				t.Fatalf("problems (-want +got):\n%s", cmp.Diff(tt.want, got))
			}
			for i, want := range tt.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("problem %q, want %q", got[i], want)
				}
			}
		})
	}
}

// TestCheckLength shows that a long file is found and a generated one is let pass.
func TestCheckLength(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		ok         bool
	}{
		{"at the limit", strings.Repeat("\n", maxLines), true},
		{"over it", strings.Repeat("\n", maxLines+1), false},
		{"generated", "// Code generated by x. DO NOT EDIT.\n" + strings.Repeat("\n", maxLines), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			name := filepath.Join(t.TempDir(), "f.go")
			if err := os.WriteFile(name, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := checkLength(name); (err == nil) != tt.ok {
				t.Errorf("checkLength: %v, want ok=%v", err, tt.ok)
			}
		})
	}
}
