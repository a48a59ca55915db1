package compat_test

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const askCall = ` -d '{"messages":[{"role":"user","content":"When?"}]` // open, for further members

// runPages are pages under docs that show calls with curl and no answers.
var runPages = []struct {
	page   string
	before []string // commands that make the calls that the page is about
	want   string   // in the output
}{
	{page: "start/curl.md", want: `"content":"At nine from platform two."`},
	{page: "start/agora.md", want: `"status":"STOPPED"`},
	{page: "guides/twilio.md", want: `"event":"call.hangup","recorded":[],"unmatched":0,"ended":true`},
	{page: "guides/openai-realtime.md", want: `"method":"audio_ms"`},
	{page: "guides/platforms.md", want: `"heard":"The train leaves"`, before: []string{`curl` + askCall + `,"call":{"id":"5f0c"}}' $CHAT`}},
	{page: "guides/policy.md", want: `{"role":"user","content":"And back?"}`, before: []string{`curl -H 'X-Agent-Id: bot'` + askCall + `}' $CHAT`, "ID=bot"}},
	{page: "guides/requests.md", want: `"id":"chatcmpl-fake-4"`, before: []string{
		`for turn in 0 1 2; do curl -H 'X-Agent-Id: bot'` + askCall + `}' $CHAT; done`, "AGENT=bot LLM_API_KEY=x",
	}},
	{page: "guides/replay.md", want: `"state":"done"`, before: []string{`curl -H 'X-Agent-Id: bot'` + askCall + `}' $CHAT`, "AGENT=bot"}},
	{page: "guides/sessions.md", want: `"status":"RUNNING"`},
	{page: "reference/agora.md", want: `"status":"RUNNING"`},
}

// TestPagesRun runs the commands of pages under docs that show calls with curl. Every call must
// succeed. Lines that start a server are left out.
func TestPagesRun(t *testing.T) {
	t.Parallel()
	for _, tt := range runPages {
		t.Run(tt.page, func(t *testing.T) {
			t.Parallel()
			page, err := os.ReadFile("../docs/" + tt.page)
			if err != nil {
				t.Fatal(err)
			}
			llm := fakeLLM(t)
			s := start(t, "HEARDLOG_AUTO_JOIN=true", "HEARDLOG_LLM_URL="+llm+"/v1", "HEARDLOG_LLM_MODEL=fake-1")
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
					script.WriteString(strings.NewReplacer("127.0.0.1:8080", addr, "localhost:8080", addr, "https://api.openai.com", llm).Replace(line) + "\n")
				}
			}
			if commands == 0 {
				t.Fatal("the page has no calls")
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

// sessionPages are pages under docs with a session: commands, with their answers below them. A line
// that starts a server is left out.
var sessionPages = []struct {
	page   string
	env    []string
	before []string // commands that the page takes for granted
	needs  string   // a program
	answer string   // of the LLM; "" = one that fits the question
}{
	{page: "guides/callers.md"},
	{page: "guides/conversations.md"},
	{page: "guides/facts.md"},
	{page: "guides/checks.md", before: []string{
		`AGENT=$(curl -s localhost:8080/v1/agents -d '{"name":"desk"}' | sed 's/.*"agent_id":"\([^"]*\)".*/\1/')`,
		`curl -s localhost:8080/v1/agents/$AGENT/messages -d '{"messages":[{"role":"assistant","content":"We are open from nine to five on weekdays."},{"role":"user","content":"Okay."},{"role":"assistant","content":"We are open from nine to five on weekdays."}]}'`,
		`curl -s -X POST localhost:8080/v1/agents/$AGENT/leave`,
	}},
	{page: "guides/find-a-call.md", before: []string{
		`curl -s localhost:8080/v1/agents -d '{"name":"desk","properties":{"labels":{"line":"sales"},"heardlog":{"scope":{"user_id":"+4930123456"}}}}'`,
		`A=$(curl -s 'localhost:8080/v1/agents?name=desk' | sed 's/.*"agent_id":"\([^"]*\)".*/\1/')`,
		`curl -s localhost:8080/v1/agents/$A/chat/completions -d '{"messages":[{"role":"user","content":"I want a refund."}]}'`,
		`curl -s localhost:8080/v1/agents/$A/interrupt -d '{"heard_ms":0}'`,
		`curl -s localhost:8080/v1/agents/$A/leave -X POST`,
	}},
	{page: "guides/ingest.md", env: []string{"HEARDLOG_CREDENTIALS=shop=id:secret", "HEARDLOG_INGEST_SECRETS=shop=the-secret-of-the-console"}, needs: "openssl"},
	{page: "guides/harden.md", env: []string{"HEARDLOG_CREDENTIALS=shop=id:secret"}},
	{page: "guides/hold.md"},
	{page: "guides/erasure.md"},
	{page: "guides/import-calls.md"},
	{page: "guides/key-values.md"},
	{page: "guides/knowledge.md"},
	{page: "guides/limits.md", env: []string{"HEARDLOG_CREDENTIALS=shop=id:secret", "HEARDLOG_RATE_LIMIT=requests=100,messages=2000"}, before: []string{
		`curl -s -u id:secret localhost:8080/v1/agents -d '{"name":"desk","properties":{"llm":{"greeting_message":"Hello."}}}'`,
		`curl -s -u id:secret localhost:8080/v1/agents/$(curl -s -u id:secret 'localhost:8080/v1/agents' | sed 's/.*"agent_id":"\([^"]*\)".*/\1/')/messages -d '[{"role":"user","content":"Hi."}]'`,
		`until curl -s -u id:secret localhost:8080/v1/usage | grep -q '"agents":{"used":1'; do :; done`,
	}},
	{page: "guides/mcp.md"},
	{page: "guides/memories.md"},
	{page: "guides/observability.md"},
	{page: "guides/ossa.md", needs: "jq", before: []string{"cat > model.yaml <<'END'\n" + `apiVersion: ossa/v0.3.2
kind: MemoryModel
short_term:
  enabled: true
  conversation_context: {max_messages: 40, truncation_strategy: summarize}
  session_state: {persist_across_invocations: true, max_sessions: 20}
long_term: {enabled: false}
END`}},
	{page: "guides/patterns.md"},
	{page: "guides/recall.md"},
	{page: "guides/redaction.md", env: []string{"HEARDLOG_REDACT=card,iban,phone,email"}, before: []string{
		"H=http://127.0.0.1:8080; A=bot; curl -s $H/v1/chat/completions -H 'X-Agent-Id: bot' -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'",
	}},
	{page: "guides/remember.md", needs: "jq"},
	{page: "guides/reports.md", before: []string{
		`AGENT=$(curl -s localhost:8080/v1/agents -d '{"name":"desk","properties":{"labels":{"version":"v2"}}}' | sed 's/.*"agent_id":"\([^"]*\)".*/\1/')`,
		`curl -s localhost:8080/v1/agents/$AGENT/chat/completions -d '{"messages":[{"role":"user","content":"I want a seat."}]}'`,
		`curl -s -X POST localhost:8080/v1/agents/$AGENT/leave`,
	}},
	{page: "guides/summaries.md", answer: "Ann wants a seat at the window.", before: []string{
		`curl -s -X PUT localhost:8080/v1/memory-models/m -d '{"apiVersion":"ossa/v0.3.2","kind":"MemoryModel","short_term":{"enabled":true},"long_term":{"enabled":true,"conversation_history":{"summarization":true}}}'`,
		`AGENT_ID=$(curl -s localhost:8080/v1/agents -d '{"name":"ann","properties":{"heardlog":{"memory_model":"m"}}}' | sed 's/.*"agent_id":"\([^"]*\)".*/\1/')`,
		`curl -s localhost:8080/v1/agents/$AGENT_ID/chat/completions -d '{"messages":[{"role":"user","content":"I want a seat."}]}'`,
		`curl -s -X POST localhost:8080/v1/agents/$AGENT_ID/leave`,
		`until curl -s localhost:8080/v1/agents/$AGENT_ID/summary | grep -q created_at; do :; done`,
	}},
	{page: "guides/vectors.md"},
	{page: "guides/webhooks.md"},
	{page: "reference/secrets.md"},
}

// TestPagesAll checks that each page with calls is run by a test.
func TestPagesAll(t *testing.T) {
	t.Parallel()
	run := map[string]bool{"start/faq.md": true} // which only names calls
	for _, p := range runPages {
		run[p.page] = true
	}
	for _, p := range sessionPages {
		run[p.page] = true
	}
	for _, name := range platformPages {
		run["guides/"+name+".md"] = true
	}
	files, err := filepath.Glob("../docs/*/*.md")
	if err != nil || len(files) < 60 {
		t.Fatalf("%d pages, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		page := strings.TrimPrefix(filepath.ToSlash(file), "../docs/")
		calls := slices.Concat(blocks(string(text), "sh"), blocks(string(text), "console"))
		if strings.Contains(fmt.Sprint(calls), "curl ") && !run[page] {
			t.Errorf("no test runs the calls of %s", page)
		}
	}
}

// TestPagesSessions runs the sessions. Each answer is an error only where the page shows one, and
// it has the values that the page shows, unless that is shortened with "…". IDs that a page shows
// in an answer and uses below stand for those that the server gave.
func TestPagesSessions(t *testing.T) {
	t.Parallel()
	for _, tt := range sessionPages {
		t.Run(tt.page, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(cmp.Or(tt.needs, "bash")); err != nil {
				t.Skipf("%s is not installed", tt.needs)
			}
			page, err := os.ReadFile("../docs/" + tt.page)
			if err != nil {
				t.Fatal(err)
			}
			env := append([]string{"HEARDLOG_AUTO_JOIN=true", "HEARDLOG_LLM_URL=" + fakeLLM(t, "-answer", tt.answer) + "/v1", "HEARDLOG_LLM_MODEL=fake-1"}, tt.env...)
			run := shell(t, strings.TrimPrefix(start(t, env...).url, "http://"), "127.0.0.1:9090", testsOnly(t))
			for _, c := range tt.before {
				run(c)
			}
			ids, calls := map[string]string{}, 0
			for _, c := range session(string(page)) {
				if strings.HasPrefix(c.text, "HEARDLOG_") {
					continue
				}
				calls += strings.Count(c.text, "curl ")
				command := shownIDs.ReplaceAllStringFunc(c.text, func(id string) string { return cmp.Or(ids[id], id) })
				got, want := run(command), strings.Join(c.want, "\n")
				all := strings.Join(got, "\n")
				for end := time.Now().Add(patience); strings.Contains(all, `"TaskConflict"`) && !isError.MatchString(want) && time.Now().Before(end); {
					got = run(command) // what is done in the background is not done yet
					all = strings.Join(got, "\n")
				}
				if isError.MatchString(all) != isError.MatchString(want) {
					t.Errorf("$ %s\nthe page has\n%s\ncame\n%s", c.text, want, all)
				}
				if strings.HasPrefix(want, "{") && !strings.Contains(want, "…") {
					if err := sameShape(c.want, got); err != nil {
						t.Errorf("$ %s\n%v\nthe page has\n%s\ncame\n%s", c.text, err, want, all)
					}
				}
				given := shownIDs.FindAllString(all, -1)
				for i, id := range shownIDs.FindAllString(want, len(given)) {
					if _, known := ids[id]; !known {
						ids[id] = given[i]
					}
				}
			}
			if calls == 0 {
				t.Fatal("the page has no calls")
			}
		})
	}
}

var (
	shownIDs = regexp.MustCompile(uuids.String() + `|\b[0-9a-f]{32}\b|[0-9a-f]{8}-[0-9a-f]{4}-…`)
	isError  = regexp.MustCompile(`(?m)^\{"(detail|error)":`)
)

// testsOnly starts a webhook receiver that accepts tests and nothing else, and returns its address.
func testsOnly(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !bytes.Contains(body, []byte(`"eventType":10021`)) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// shell starts a bash and returns a function that runs a command in it and returns the lines of its
// output. The address is that of the server, instead of the one on the pages; more holds texts and
// what stands for them.
func shell(t *testing.T, addr string, more ...string) func(string) []string {
	t.Helper()
	const mark = "--- end of command"
	bash := exec.CommandContext(within(t, patience), "bash")
	bash.Dir, bash.Env = t.TempDir(), []string{"PATH=" + os.Getenv("PATH")}
	in, err := bash.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := bash.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := bash.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = bash.Wait()
	})
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	run := func(text string) (got []string) {
		t.Helper()
		text = strings.NewReplacer(append(more, "127.0.0.1:8080", addr, "localhost:8080", addr)...).Replace(text)
		if _, err := fmt.Fprintf(in, "%s\necho; echo '%s'\n", text, mark); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			if lines.Text() == mark {
				return got
			}
			got = append(got, lines.Text())
		}
		t.Fatalf("$ %s\nbash ended: %v", text, lines.Err())
		return nil
	}
	run(`curl() { command curl -sS "$@" || echo '{"detail":"curl failed"}'; }`)
	return run
}
