package compat_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestPagesRun runs the commands of pages under docs that show calls with curl. Every call must
// succeed. Lines that start a server are left out.
func TestPagesRun(t *testing.T) {
	t.Parallel()
	const ask = ` -d '{"messages":[{"role":"user","content":"When?"}]` // open, for further members
	for _, tt := range []struct {
		page   string
		before []string // commands that make the calls that the page is about
		want   string   // in the output
	}{
		{page: "start/curl.md", want: `"content":"At nine from platform two."`},
		{page: "start/agora.md", want: `"status":"STOPPED"`},
		{page: "guides/twilio.md", want: `"event":"call.hangup","recorded":[],"unmatched":0,"ended":true`},
		{page: "guides/openai-realtime.md", want: `"method":"audio_ms"`},
		{page: "guides/platforms.md", want: `"heard":"The train leaves"`, before: []string{`curl` + ask + `,"call":{"id":"5f0c"}}' $CHAT`}},
	} {
		t.Run(tt.page, func(t *testing.T) {
			t.Parallel()
			page, err := os.ReadFile("../docs/" + tt.page)
			if err != nil {
				t.Fatal(err)
			}
			s := start(t, "HEARDLOG_AUTO_JOIN=true", "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1", "HEARDLOG_LLM_MODEL=fake-1")
			addr := strings.TrimPrefix(s.url, "http://")
			var script bytes.Buffer
			script.WriteString("set -eo pipefail\ncurl() { command curl -sS --fail-with-body \"$@\"; echo; }\nCHAT=" + s.url + "/v1/chat/completions\n")
			script.WriteString(strings.Join(tt.before, "\n") + "\n")
			commands := 0
			for _, block := range blocks(string(page), "sh") {
				for _, line := range block {
					if strings.HasPrefix(line, "go run ") || strings.HasPrefix(line, "HEARDLOG_") {
						continue
					}
					commands += strings.Count(line, "curl ")
					script.WriteString(strings.NewReplacer("127.0.0.1:8080", addr, "localhost:8080", addr).Replace(line) + "\n")
				}
			}
			if commands < 3 {
				t.Fatalf("the page has %d calls", commands)
			}
			bash := exec.CommandContext(within(t, patience), "bash")
			bash.Dir, bash.Stdin = t.TempDir(), &script
			bash.Env = []string{"PATH=" + os.Getenv("PATH")}
			out, err := bash.CombinedOutput()
			if err != nil || !strings.Contains(string(out), tt.want) {
				t.Errorf("%v, want %s in\n%s", err, tt.want, out)
			}
		})
	}
}

// TestPagesSessions runs the sessions of pages under docs that show commands with their answers.
// The answers have the shape that the page shows.
func TestPagesSessions(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"guides/callers.md", "guides/conversations.md"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page, err := os.ReadFile("../docs/" + name)
			if err != nil {
				t.Fatal(err)
			}
			steps := session(string(page))
			if len(steps) < 4 {
				t.Fatalf("the page has %d commands", len(steps))
			}
			s := start(t)
			for i, got := range runShell(t, steps, strings.TrimPrefix(s.url, "http://")) {
				if len(steps[i].want) == 0 {
					continue // the page leaves the answer out
				}
				if err := sameShape(steps[i].want, got); err != nil {
					t.Errorf("$ %s\n%v\nthe page has\n%s\ncame\n%s", steps[i].text, err, strings.Join(steps[i].want, "\n"), strings.Join(got, "\n"))
				}
			}
		})
	}
}
