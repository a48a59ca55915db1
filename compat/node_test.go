package compat_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// nodeModules returns the folder with the npm packages of these tests. It skips the test without
// node and, unless CI is set, without the packages.
func nodeModules(t *testing.T) string {
	t.Helper()
	needNode(t, "node", "standardwebhooks", "newman") // an old and a new one
	modules, err := filepath.Abs("node/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	return modules
}

// nodeReceiver runs the receiver of docs/guides/receiving.md that uses the package
// standardwebhooks, and returns its URL.
func nodeReceiver(t *testing.T) (string, *process) {
	t.Helper()
	modules := nodeModules(t)
	page, err := os.ReadFile("../docs/guides/receiving.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, program := t.TempDir(), ""
	for _, block := range blocks(string(page), "js") {
		if strings.Contains(block[0], "receiver-package.mjs") {
			program = strings.Join(block, "\n")
		}
	}
	if program == "" {
		t.Fatal("docs/guides/receiving.md has no such program")
	}
	file := filepath.Join(dir, "receiver-package.mjs")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	addr := freeAddr(t)
	_, port, _ := strings.Cut(addr, ":")
	p := run(t, "node", []string{file}, "WEBHOOK_SECRET="+hookSecret, "PORT="+port)
	client := httpClient(t)
	eventually(t, "the receiver answers", func() bool {
		if !p.running() {
			t.Fatalf("it ended:\n%s", p.stderr)
		}
		res, err := client.Post("http://"+addr, "application/json", strings.NewReader("{}"))
		if err != nil {
			return false
		}
		res.Body.Close()
		if res.StatusCode != http.StatusUnauthorized {
			t.Fatalf("an unsigned request: %d", res.StatusCode)
		}
		return true
	})
	return "http://" + addr + "/hook", p
}

// TestNodeVerifies sends the events of a real call to node, whose independent package verifies
// them. An independent Go library does the same in every other webhook test here.
func TestNodeVerifies(t *testing.T) {
	t.Parallel()
	url, p := nodeReceiver(t)
	llm := fakeLLM(t)
	s := start(t, "HEARDLOG_LLM_URL="+llm+"/v1", "HEARDLOG_WEBHOOK_URL="+url, "HEARDLOG_WEBHOOK_SECRET="+hookSecret)
	id := s.join(t, "Jürgen \u2028 😀", nil)
	s.call(t, http.StatusOK, http.MethodPost, "/v1/agents/"+id+"/messages", object{"role": "user", "content": "<b>Wo fährt der Zug?</b> \u2029 \U0001F689"}, nil)
	s.call(t, http.StatusOK, http.MethodPost, "/v1/agents/"+id+"/leave", nil, nil)
	for _, eventType := range []string{"101", "102", "103", "112"} {
		if _, ok := p.stdout.find(func(l string) bool { return strings.HasSuffix(l, " "+eventType+" "+id) }); !ok {
			t.Errorf("event %s never passed; node wrote\n%s%s", eventType, p.stdout, p.stderr)
		}
	}
	stranger := start(t, "HEARDLOG_WEBHOOK_URL="+url, "HEARDLOG_WEBHOOK_SECRET=whsec_"+strings.Repeat("A", 40))
	other := stranger.join(t, "n", nil)
	if _, ok := stranger.stderr.find(func(l string) bool { return strings.Contains(l, `"status":401`) }); !ok {
		t.Errorf("an event with another secret was not refused; the server wrote\n%s", stranger.stderr)
	}
	if strings.Contains(p.stdout.String(), other) {
		t.Error("an event that another secret signed passed")
	}
}
