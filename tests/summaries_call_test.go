package tests

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/sqlite"
)

const summarizingModel = `apiVersion: ossa/v0.3.2
kind: MemoryModel
short_term: {enabled: true}
long_term: {enabled: true, conversation_history: {summarization: true}}
`

// TestCallSummary: calls of a model that asks for it are summarized after their end, of what was
// heard, also if the server was away then, and are erased with the call.
func TestCallSummary(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "calls.db")
	llm, base := upstream(t, fake.Script{Answer: "Ann wants a seat at the window."})
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_STORE=sqlite:"+path)
	s.do(http.MethodPut, modelsPath+"/short", summarizingModel).ok(nil)
	s.do(http.MethodPut, modelsPath+"/plain", strings.Replace(summarizingModel, "summarization: true", "retention_days: 7", 1)).ok(nil)
	s.do(http.MethodPut, modelsPath+"/bare", strings.Replace(summarizingModel, ", conversation_history: {summarization: true}", "", 1)).ok(nil)
	call := func(name, model string) string {
		id := s.joinWith(name, model, "").joined()
		s.say(id, user("I want a seat at the window."), assistant("Noted. And do you also need breakfast?"))
		s.post(agent(id, "/interrupt"), `{"heard":"Noted."}`).ok(nil)
		return id
	}
	type summary struct {
		Call *struct {
			Summary   string
			CreatedAt string `json:"created_at"`
		}
	}
	of := func(id string) (out summary) {
		s.get(agent(id, "/summary")).ok(&out)
		return out
	}
	first, second, plain, bare, empty := call("one", "short"), call("two", "short"), call("three", "plain"), call("five", "bare"), s.joinWith("four", "short", "").joined()
	if of(first).Call != nil || len(llm.Requests()) != 0 {
		t.Error("summarized during the call")
	}
	s.post(agent(plain, "/leave"), nil).ok(nil)
	s.post(agent(bare, "/leave"), nil).ok(nil)
	s.post(agent(empty, "/leave"), nil).ok(nil)
	s.post(agent(first, "/leave"), nil).ok(nil)
	waitFor(t, "the summary of a call", func() bool { return of(first).Call != nil })
	if c := of(first).Call; c.Summary != "Ann wants a seat at the window." || c.CreatedAt == "" {
		t.Errorf("%+v", c)
	}
	if asked := prompts(llm)[0]; !strings.Contains(asked, "I want a seat at the window.") || !strings.Contains(asked, "Noted.") || strings.Contains(asked, "breakfast") {
		t.Errorf("%s", asked)
	}
	s = s.again()
	s.post(agent(second, "/leave"), nil).ok(nil)
	waitFor(t, "the summary after a restart", func() bool { return of(second).Call != nil })
	if n := len(llm.Requests()); n != 2 || of(plain).Call != nil || of(bare).Call != nil || of(empty).Call != nil {
		t.Errorf("%d requests for two calls", n)
	}
	if got := s.do(http.MethodDelete, agent(first, ""), nil); got.status != http.StatusNoContent {
		t.Errorf("%+v", got)
	}
	s.stop()
	store, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	spaces, err := store.RecordSpaces(t.Context(), "default", "call-summary/", record.Space{}, 10)
	if err != nil || len(spaces) != 1 || spaces[0].Name != "call-summary/"+second {
		t.Errorf("%+v, %v; the summary of the erased call should be gone", spaces, err)
	}
}
