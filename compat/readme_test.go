package compat_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// command is one command of the README's session with the output shown below it.
type command struct {
	text string
	want []string // lines
}

// blocks returns the fenced blocks of a kind, as lines.
func blocks(readme, kind string) [][]string {
	var out [][]string
	open, wanted := false, false
	for line := range strings.Lines(readme) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case !open && strings.HasPrefix(line, "```"):
			if open, wanted = true, line == "```"+kind; wanted {
				out = append(out, nil)
			}
		case open && line == "```":
			open = false
		case open && wanted:
			out[len(out)-1] = append(out[len(out)-1], line)
		}
	}
	return out
}

// session returns the commands of a page. One goes on to the next line after a backslash, or while
// a single quote is open.
func session(readme string) []command {
	var out []command
	for _, block := range blocks(readme, "console") {
		open := false
		for _, line := range block {
			text, begins := strings.CutPrefix(line, "$ ")
			switch {
			case open:
				out[len(out)-1].text += "\n" + line
			case begins:
				out = append(out, command{text: text})
			case len(out) > 0:
				out[len(out)-1].want = append(out[len(out)-1].want, line)
				continue
			}
			if len(out) > 0 {
				last := out[len(out)-1].text
				open = strings.HasSuffix(last, "\\") || strings.Count(last, "'")%2 == 1
			}
		}
	}
	return out
}

// TestReadmeSession runs the README's session in a shell. The answers have the shape that is
// printed below the commands, and the receiver prints the lines shown. The test is not parallel,
// because the interruption after 0.6 s depends on the machine.
func TestReadmeSession(t *testing.T) {
	raw, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	readme := string(raw)
	demo, addr := runDemo(t)
	steps := session(readme)
	if len(steps) < 10 {
		t.Fatalf("README.md has %d commands", len(steps))
	}
	for i, got := range runShell(t, steps, addr) {
		if err := sameShape(steps[i].want, got); err != nil {
			t.Errorf("$ %s\n%v\nthe README has\n%s\ncame\n%s", steps[i].text, err, strings.Join(steps[i].want, "\n"), strings.Join(got, "\n"))
		}
	}
	shown := slices.Concat(blocks(readme, "receiver")...)
	if len(shown) < 4 {
		t.Fatalf("README.md shows %d lines of the receiver", len(shown))
	}
	for _, line := range shown {
		pattern := linePattern(line)
		if _, ok := demo.stdout.find(pattern.MatchString); !ok {
			t.Errorf("the receiver never printed what the README shows: %s\nit printed\n%s", line, demo.stdout)
		}
	}
	// Ctrl-C ends all three. The output is closed only when all have ended.
	demo.signal(t, syscall.SIGTERM)
	demo.wait(t)
}

// TestDemoBinary checks that the demo can serve with a server that was built before, and that it
// prints the address of the page.
func TestDemoBinary(t *testing.T) {
	t.Parallel()
	server := program(t, "api")
	demo, addr := runDemo(t, "HEARDLOG_BIN="+server)
	if _, ok := demo.stderr.find(func(line string) bool { return strings.Contains(line, "http://"+addr+"/demo") }); !ok {
		t.Error("the demo does not print the address of the page")
	}
	if said := demo.stderr.String(); !strings.Contains(said, "Starting "+server) || strings.Contains(said, "Building the server") || strings.Contains(said, "unknown setting") {
		t.Errorf("the demo says\n%s", said)
	}
	demo.signal(t, syscall.SIGTERM)
	demo.wait(t)
}

// runDemo starts what `make demo` starts, on free ports, and returns the server's address. The demo
// compiles, which may take minutes, so only the time limit of go test ends the wait.
func runDemo(t *testing.T, env ...string) (*process, string) {
	t.Helper()
	script, err := filepath.Abs("../examples/demo/run.sh")
	if err != nil {
		t.Fatal(err)
	}
	addr := freeAddr(t)
	env = append(env, "HEARDLOG_ADDR="+addr, "DEMO_LLM="+freeAddr(t), "DEMO_RECEIVER="+freeAddr(t),
		"HEARDLOG_STORE=sqlite:"+filepath.Join(t.TempDir(), "demo.db"))
	for _, e := range os.Environ() { // where Go keeps modules and its cache, and how it compiles
		if name, _, _ := strings.Cut(e, "="); name == "HOME" || name == "TMPDIR" || strings.HasPrefix(name, "GO") || strings.HasPrefix(name, "XDG_") {
			env = append(env, e)
		}
	}
	p := runGroup(t, script, nil, env...)
	client := checkedClient(t)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		if !p.running() {
			t.Fatalf("the demo ended:\n%s", p.stderr)
		}
		res, err := client.Get("http://" + addr + "/readyz")
		if err != nil {
			continue
		}
		res.Body.Close()
		if res.StatusCode == 200 {
			return p, addr
		}
	}
}

var ports atomic.Int64 // how many freeAddr has tried

// freeAddr returns an address that nothing uses. Its port is below those that the system hands out
// by itself, and another one than those of test processes beside this one, so that it stays free.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprint("127.0.0.1:", 10_000+(16*int64(os.Getpid())+ports.Add(1))%20_000)
		if ln, err := net.Listen("tcp", addr); err == nil {
			ln.Close()
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}

// runShell runs the commands in one bash and returns the output lines of each.
func runShell(t *testing.T, steps []command, addr string) [][]string {
	t.Helper()
	const mark = "--- end of command"
	var script bytes.Buffer
	for _, c := range steps {
		text := strings.ReplaceAll(c.text, "127.0.0.1:8080", addr)
		fmt.Fprintf(&script, "%s\necho; echo '%s'\n", text, mark)
		if strings.Contains(text, " -m ") { // a script is quicker than a person: the server may not have noticed yet
			fmt.Fprintf(&script, "until curl -s http://%s/metrics | grep -q '^heardlog_active_calls 0'; do :; done\n", addr)
		}
	}
	bash := exec.CommandContext(within(t, patience), "bash")
	bash.Dir, bash.Stdin = t.TempDir(), &script
	bash.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := bash.Output()
	if err != nil {
		t.Fatalf("bash: %v\n%s", err, out)
	}
	var all [][]string
	for text := range strings.SplitSeq(string(out), mark+"\n") {
		all = append(all, strings.Split(strings.TrimSuffix(text, "\n"), "\n"))
	}
	if len(all) != len(steps)+1 {
		t.Fatalf("%d commands gave %d outputs:\n%s", len(steps), len(all), out)
	}
	return all[:len(steps)]
}

// sameShape compares a command's output with the README's. JSON must have the same keys and values,
// except those that differ between two runs.
// A stream must have the same kinds of lines, where "…" stands for any number of those shown.
// Anything else must be the same text.
func sameShape(want, got []string) error {
	want, got = trimBlank(want), trimBlank(got)
	if len(want) > 0 && strings.HasPrefix(want[0], "data:") {
		return sameStream(want, got)
	}
	a, b := strings.Join(want, "\n"), strings.Join(got, "\n")
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || len(want) > 0 && want[0][0] != '{' {
		if a != b {
			return fmt.Errorf("want the text %q, got %q", a, b)
		}
		return nil
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	return sameJSON("", x, y)
}

func trimBlank(lines []string) []string {
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

func sameJSON(at string, want, got any) error {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is %T, not an object", at, got)
		}
		for k := range g {
			if _, ok := w[k]; !ok {
				return fmt.Errorf("%s.%s is not in the README", at, k)
			}
		}
		for k, v := range w {
			if _, ok := g[k]; !ok {
				return fmt.Errorf("%s.%s is missing", at, k)
			}
			if err := sameJSON(at+"."+k, v, g[k]); err != nil {
				return err
			}
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Errorf("%s: want %d elements, got %v", at, len(w), got)
		}
		for i := range w {
			if err := sameJSON(fmt.Sprintf("%s[%d]", at, i), w[i], g[i]); err != nil {
				return err
			}
		}
	default:
		if fmt.Sprintf("%T", want) != fmt.Sprintf("%T", got) {
			return fmt.Errorf("%s: want %T, got %T", at, want, got)
		}
		if want != got && !changing(at, want, got) {
			return fmt.Errorf("%s: want %v, got %v", at, want, got)
		}
	}
	return nil
}

var (
	// changingNumbers are members whose numbers differ between two runs: times, durations, and what
	// follows from them.
	changingNumbers = regexp.MustCompile(`(_ts|_at|_ms|_seconds|timestamp|until|usd|bytes|bytes\.used|rev|_ms\.(p50|p95|p99|max))(\[\d+\])?$`)
	// changingTexts are texts that differ: IDs, times, secrets, hashes and addresses. Those that a
	// page shortens are not compared.
	changingTexts = regexp.MustCompile(uuids.String() + `|^\d{4}-\d{2}-\d{2}(T|$)|[0-9a-f]{12,}|\d{10,}|…|^(ep|hl|whsec|sk)_|(127\.0\.0\.1|localhost):\d+`)
)

// changing reports whether a value differs between two runs by itself.
func changing(at string, want, got any) bool {
	switch want := want.(type) {
	case float64:
		return changingNumbers.MatchString(at)
	case string:
		return changingTexts.MatchString(want) && changingTexts.MatchString(got.(string)) || strings.Contains(want, "…")
	}
	return false
}

// kind returns the shape of a stream's line: its field and the keys of its JSON.
func kind(line string) string {
	field, rest, ok := strings.Cut(line, ":")
	if !ok {
		return line
	}
	var v any
	if json.Unmarshal([]byte(rest), &v) != nil {
		return line
	}
	var b strings.Builder
	keys("", v, &b)
	return field + b.String()
}

func keys(at string, v any, b *strings.Builder) {
	switch v := v.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for k := range v {
			names = append(names, k)
		}
		slices.Sort(names)
		for _, k := range names {
			keys(at+"."+k, v[k], b)
		}
		fmt.Fprintf(b, " %s{}", at)
	case []any:
		for _, e := range v {
			keys(at+"[]", e, b)
		}
	default:
		fmt.Fprintf(b, " %s:%T", at, v)
	}
}

func sameStream(want, got []string) error {
	known := map[string]bool{}
	for _, l := range want {
		known[kind(l)] = true
	}
	for _, l := range got {
		if !known[kind(l)] {
			return fmt.Errorf("no line of the README is like %q", l)
		}
	}
	head, tail, abridged := want, []string(nil), false
	if i := slices.Index(want, "…"); i >= 0 {
		head, tail, abridged = want[:i], want[i+1:], true
	}
	head = trimBlank(head)
	if len(got) < len(head)+len(tail) || !abridged && len(got) != len(head) {
		return fmt.Errorf("want %d lines, got %d", len(head)+len(tail), len(got))
	}
	for i, l := range head {
		if kind(l) != kind(got[i]) {
			return fmt.Errorf("line %d is %q, want one like %q", i, got[i], l)
		}
	}
	for i, l := range tail {
		if g := got[len(got)-len(tail)+i]; kind(l) != kind(g) {
			return fmt.Errorf("the end is %q, want %q", g, l)
		}
	}
	return nil
}

var (
	uuids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	// How much was sent before the client disconnected differs between runs; what was heard does
	// not.
	originals = regexp.MustCompile(`(to its end: The train leaves ).*(\\\])$`)
)

// linePattern returns a pattern for a line of the receiver, because IDs differ between runs.
func linePattern(line string) *regexp.Regexp {
	p := regexp.QuoteMeta(line)
	p = uuids.ReplaceAllString(p, uuids.String())
	p = originals.ReplaceAllString(p, `$1.*$2`)
	return regexp.MustCompile("^" + p + "$")
}

// TestReadmeLinks checks that the files that the README links to exist.
func TestReadmeLinks(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	links := regexp.MustCompile(`\]\(([^)#]+)`).FindAllStringSubmatch(string(raw), -1)
	for _, l := range links {
		if strings.Contains(l[1], "://") {
			continue
		}
		if _, err := os.Stat(filepath.Join("..", l[1])); err != nil {
			t.Error(err)
		}
	}
	if len(links) < 4 {
		t.Errorf("README.md has %d links", len(links))
	}
}

// TestSameShape checks the comparison itself.
func TestSameShape(t *testing.T) {
	t.Parallel()
	stream := []string{`data: {"a":"x"}`, "", "…", `data: {"b":null}`, "", "data: [DONE]"}
	for _, tt := range []struct {
		name      string
		want, got []string
		ok        bool
	}{
		{"same keys and values", []string{`{"a":1,`, `"b":["x"]}`}, []string{`{"b":["x"],"a":1}`}, true},
		{"other number", []string{`{"a":1}`}, []string{`{"a":2}`}, false},
		{"other text", []string{`{"strength":"strong"}`}, []string{`{"strength":"none"}`}, false},
		{"other time", []string{`{"start_ts":1795249964,"took_ms":0.1}`}, []string{`{"start_ts":1795249965,"took_ms":7}`}, true},
		{"other ID", []string{`{"id":"01a1fd3c-8525-77ee-99c5-2fb912ce9902"}`}, []string{`{"id":"01a1fd3c-8525-77ee-99c5-2fb912ce9903"}`}, true},
		{"not an ID", []string{`{"id":"01a1fd3c-8525-77ee-99c5-2fb912ce9902"}`}, []string{`{"id":"none"}`}, false},
		{"other type", []string{`{"a":1}`}, []string{`{"a":"1"}`}, false},
		{"key missing", []string{`{"a":1,"b":2}`}, []string{`{"a":1}`}, false},
		{"key more", []string{`{"a":1}`}, []string{`{"a":1,"b":2}`}, false},
		{"element less", []string{`{"a":[1,2]}`}, []string{`{"a":[1]}`}, false},
		{"text", []string{"200"}, []string{"200", ""}, true},
		{"other text", []string{"200"}, []string{"404"}, false},
		{"nothing", nil, []string{""}, true},
		{"something for nothing", nil, []string{"oops"}, false},
		{"stream", stream, []string{`data: {"a":"y"}`, "", `data: {"a":"z"}`, "", `data: {"b":null}`, "", "data: [DONE]", ""}, true},
		{"stream without end", stream, []string{`data: {"a":"y"}`, "", `data: {"a":"z"}`, ""}, false},
		{"stream with another line", stream, []string{`data: {"a":"y"}`, "", `data: {"c":"z"}`, "", `data: {"b":null}`, "", "data: [DONE]", ""}, false},
	} {
		if err := sameShape(tt.want, tt.got); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
