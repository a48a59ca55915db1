package compat_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// platformPages are the guides that play a platform's calls with curl.
var platformPages = []string{"agora", "elevenlabs", "livekit-python", "openai-realtime", "pipecat", "retell", "twilio", "vapi"}

// varying matches what differs between two runs of a session.
var varying = regexp.MustCompile(uuids.String() + `|"create_ts":\d+`)

// TestPlatformPages plays the sessions of the platforms' guides. Each call is answered as the page
// shows, and the webhook receiver prints the finished call as the page shows.
func TestPlatformPages(t *testing.T) {
	t.Parallel()
	for _, name := range platformPages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile("../docs/guides/" + name + ".md")
			if err != nil {
				t.Fatal(err)
			}
			page := string(raw)
			steps, shown := session(page), slices.Concat(blocks(page, "receiver")...)
			if len(steps) < 4 || len(shown) < 3 {
				t.Fatalf("the page has %d commands and %d lines of the receiver", len(steps), len(shown))
			}
			url, receiver := printer(t)
			s := start(t, "HEARDLOG_LLM_URL="+fakeLLM(t)+"/v1", "HEARDLOG_WEBHOOK_URL="+url, "HEARDLOG_WEBHOOK_SECRET="+hookSecret)
			for i, lines := range runShell(t, steps, strings.TrimPrefix(s.url, "http://")) {
				want := strings.Join(trimBlank(steps[i].want), "\n")
				got := strings.Join(trimBlank(lines), "\n")
				if varying.ReplaceAllString(want, "") != varying.ReplaceAllString(got, "") {
					t.Errorf("$ %s\nthe page has\n%s\ncame\n%s", steps[i].text, want, got)
				}
			}
			for _, line := range shown {
				if _, ok := receiver.stdout.find(linePattern(line).MatchString); !ok {
					t.Errorf("the receiver never printed what the page shows: %s\nit printed\n%s", line, receiver.stdout)
				}
			}
		})
	}
}

// printer runs the webhook receiver of the examples and returns its URL.
func printer(t *testing.T) (string, *process) {
	t.Helper()
	p := run(t, program(t, "receiver"), []string{"-addr", "127.0.0.1:0", "-secret", hookSecret})
	url, ok := p.stdout.find(func(l string) bool { return strings.HasPrefix(l, "http://") })
	if !ok {
		t.Fatalf("the receiver does not say where it listens:\n%s%s", p.stdout, p.stderr)
	}
	return url + "/", p
}

// TestPlatformVersions checks that the guides name the versions that the examples install.
func TestPlatformVersions(t *testing.T) {
	t.Parallel()
	for page, file := range map[string]string{
		"livekit-js.md": "livekit-js/package.json", "livekit-python.md": "livekit-python/requirements.txt", "pipecat.md": "pipecat/requirements.txt",
	} {
		text, err := os.ReadFile("../docs/guides/" + page)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile("../examples/" + file)
		if err != nil {
			t.Fatal(err)
		}
		first := regexp.MustCompile(`(?m)(?:^([a-z-]+)(?:\[.*\])?==|"(@livekit/agents)": ")([0-9.]+)`).FindStringSubmatch(string(raw))
		if first == nil {
			t.Errorf("%s names no version", file)
			continue
		}
		if want := "`" + first[1] + first[2] + "` " + first[3]; !strings.Contains(string(text), want) {
			t.Errorf("%s does not say %s", page, want)
		}
	}
}

// TestPythonExamples compiles the examples in Python. Their packages are not installed.
func TestPythonExamples(t *testing.T) {
	t.Parallel()
	python := need(t, "python3", "install it")
	files, err := filepath.Glob("../examples/*/*.py")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	cmd := exec.CommandContext(within(t, patience), python, append([]string{"-m", "py_compile"}, files...)...)
	cmd.Env = append(os.Environ(), "PYTHONPYCACHEPREFIX="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// example returns node and the path of a program in a folder of examples. It skips the test without
// node and, unless CI is set, without the folder's packages.
func example(t *testing.T, folder, file string) (string, string) {
	t.Helper()
	folder = "../examples/" + folder
	node := needNode(t, folder)
	path, err := filepath.Abs(filepath.Join(folder, file))
	if err != nil {
		t.Fatal(err)
	}
	return node, path
}

// agentOf returns the agent that a platform's call belongs to, live or ended. event is any event of
// the platform that says nothing.
func (s *server) agentOf(t *testing.T, platform string, event object) string {
	t.Helper()
	var out struct {
		ID string `json:"agent_id"`
	}
	s.call(t, 200, "POST", "/v1/evidence/"+platform, event, &out)
	return out.ID
}

// TestLiveKit runs a session of LiveKit's own package against the server. What LiveKit says of the
// interrupted answer is what the ledger has.
func TestLiveKit(t *testing.T) {
	t.Parallel()
	node, talk := example(t, "livekit-js", "talk.mjs")
	const answer = "At nine from platform two, every day."
	llm := fakeLLM(t, "-delay-chunk", "1s", "-answer", answer)
	s := start(t, "HEARDLOG_LLM_URL="+llm+"/v1")
	p := run(t, node, []string{talk, "job-1"}, "HEARDLOG_URL="+s.url+"/v1")
	if code := p.wait(t); code != 0 {
		t.Fatalf("it ended with %d:\n%s%s", code, p.stdout, p.stderr)
	}
	id := s.agentOf(t, "livekit", object{"type": "nothing", "job_id": "job-1"})
	msgs := s.ledger(t, id)
	for _, m := range msgs {
		if m.Role == "assistant" && m.Evidence.Method != "vendor_text" {
			t.Errorf("%q is known by %s", m.Content, m.Evidence.Method)
		}
	}
	got := said(msgs)
	if want := p.stdout.String(); strings.Join(got, "\n")+"\n" != want {
		t.Errorf("the ledger has\n%q\nLiveKit says\n%s", got, want)
	}
	if len(got) != 4 || got[1] != "assistant: "+answer || !strings.HasSuffix(got[3], " [interrupted]") {
		t.Errorf("the ledger has %q", got)
	}
	if status := s.statusOf(t, id); status != "STOPPED" {
		t.Errorf("after its end the agent is %s", status)
	}
	// The worker for rooms needs LiveKit's server. It loads, and its command line works.
	_, agent := example(t, "livekit-js", "agent.mjs")
	if p := run(t, node, []string{agent, "--help"}); p.wait(t) != 0 || !strings.Contains(p.stdout.String(), "LIVEKIT_URL") {
		t.Errorf("agent.mjs does not load:\n%s%s", p.stdout, p.stderr)
	}
}
