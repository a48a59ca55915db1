package tests

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// learnedModel is a document with a knowledge base and learned patterns.
const learnedModel = `apiVersion: ossa/v0.3.2
kind: MemoryModel
short_term: {enabled: true}
long_term:
  enabled: true
  knowledge_base: {schema: custom, versioning: false, max_entries: 100}
  learned_patterns: {pattern_types: [tool_usage, delegation_patterns], decay_half_life_days: 7, feedback_integration: false}
`

// TestLearnedModel: a document creates its knowledge base at the first join, and its patterns are
// behind the system messages of each prompt, the weightiest first, the same for the whole call.
func TestLearnedModel(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "Yes."})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	got := s.do(http.MethodPut, modelsPath+"/shop", learnedModel).ok(nil)
	for _, want := range []string{`"knowledge_base":{"schema":"custom","versioning":false,"max_entries":100}`, `"learned_patterns":{"pattern_types":["tool_usage","delegation_patterns"],"half_life_days":7}`, "feedback moves a weight whenever it is posted"} {
		if !strings.Contains(string(got.body), want) {
			t.Errorf("%s lacks %s", got.body, want)
		}
	}
	s.joinWith("first", "shop", "").joined()
	var b struct {
		Schema     string
		Versioning bool
		MaxEntries int `json:"max_entries"`
	}
	if s.get(knowledgePath + "/shop").ok(&b); b.Schema != "custom" || b.Versioning || b.MaxEntries != 100 {
		t.Errorf("%+v", b)
	}
	put := func(id, kind, content, more string) {
		s.do(http.MethodPut, v1+"/patterns/"+id, `{"type":"`+kind+`","content":"`+content+`"`+more+`}`).ok(nil)
	}
	put("hand-over", "delegation_patterns", "Hand invoices\\nto the billing agent.", "")
	put("order-first", "tool_usage", "Look up the order first.", `,"weight":0.9`)
	put("unasked", "task_completion", "Unasked.", "")
	put("bad", "tool_usage", "Bad.", `,"weight":0.05`)
	var p struct {
		HalfLife int `json:"half_life_days"`
	}
	if s.get(v1 + "/patterns/hand-over").ok(&p); p.HalfLife != 7 {
		t.Errorf("%+v", p)
	}

	id := s.joinWith("second", "shop", `"scope":{"user_id":"anna"}`).joined()
	words := func(id, words string) string {
		s.chat(agent(id, "/chat/completions"), words, true).ok(nil)
		all := prompts(llm)
		return blockOf(t, all[len(all)-1])
	}
	block := words(id, "Hello")
	lines := strings.Split(block, "\n")
	if want := []string{`"- learned from earlier calls (tool_usage): Look up the order first."`, `"- learned from earlier calls (delegation_patterns): Hand invoices to the billing agent."`, "</memory>"}; len(lines) != 5 || !slices.Equal(lines[2:], want) {
		t.Errorf("%s", block)
	}
	put("order-first", "tool_usage", "Changed.", "")
	s = s.again()
	if again := words(id, "Thanks"); again != block {
		t.Errorf("%s, before: %s", again, block)
	}
	var page struct {
		Messages []struct{ Recalled []string }
	}
	if s.get(agent(id, "/messages")).ok(&page); !slices.Equal(page.Messages[1].Recalled, []string{"pattern:order-first", "pattern:hand-over"}) {
		t.Errorf("%+v", page)
	}
	if told := string(s.get(agent(id, "/turns/0/requests")).ok(nil).body); !strings.Contains(told, "Look up the order first.") {
		t.Error(told)
	}
	if shown := s.context(id, `{"utterance":"Bye"}`); !slices.Contains(shown.lines(), "user: "+block) {
		t.Errorf("%q", shown.lines())
	}

	// The join has the last word, and other agents have nothing of it.
	for i, more := range []string{`"remember":"off"`, `"remember":{"patterns":[]}`, `"remember":{"patterns":["error_recovery"]}`} {
		if block := words(s.joinWith(fmt.Sprint("not", i), "shop", more).joined(), "Hello"); block != "" {
			t.Errorf("%s: %s", more, block)
		}
	}
	if block := words(s.joinWith("other", "", "").joined(), "Hello"); block != "" {
		t.Error(block)
	}
	if block := words(s.joinWith("own", "", `"remember":{"inject":false,"budget_tokens":50,"patterns":["task_completion","tool_usage"]}`).joined(), "Hello"); !strings.Contains(block, "Changed.") || !strings.Contains(block, "Unasked.") {
		t.Error(block)
	}
	s.joinWith("bad", "", `"remember":{"patterns":["all"]}`).refused(http.StatusBadRequest, "InvalidFieldValue", "properties.heardlog.remember.patterns[0]: must be one of task_completion")

	// New settings hold from the next join on, and a schema of the project's own stays.
	s.do(http.MethodPut, modelsPath+"/shop", strings.Replace(learnedModel, "custom", "json_schema", 1)).ok(nil)
	s.do(http.MethodPut, knowledgePath+"/shop", `{"json_schema":{"required":["price"]}}`).ok(nil)
	s.joinWith("third", "shop", "").joined()
	s.do(http.MethodPut, knowledgePath+"/shop/entries/e", `{"content":"x"}`).refused(http.StatusBadRequest, "InvalidFieldValue", "price")
	if s.get(knowledgePath + "/shop").ok(&b); b.Schema != "json_schema" || b.MaxEntries != 100 {
		t.Errorf("%+v", b)
	}
}

// TestLearnedDefault: the server's own document holds for agents that a chat completion starts.
func TestLearnedDefault(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "Yes."})
	path := filepath.Join(t.TempDir(), "model.yaml")
	if err := os.WriteFile(path, []byte(learnedModel), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "HEARDLOG_LLM_URL="+base, "HEARDLOG_AUTO_JOIN=true", "HEARDLOG_MEMORY_MODEL="+path)
	s.do(http.MethodPut, v1+"/patterns/p", `{"type":"tool_usage","content":"Look up the order first."}`).ok(nil)
	s.chat(v1+"/chat/completions", "Hello", true, "X-Agent-Id", "room").ok(nil)
	if !strings.Contains(prompts(llm)[0], "Look up the order first.") {
		t.Error(prompts(llm)[0])
	}
	s.get(knowledgePath + "/default").ok(nil)
}
