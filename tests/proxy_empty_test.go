package tests

import (
	"net/http"
	"testing"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// TestEmptyAnswers: an answer without words was not heard, so that it stands neither in history nor
// in memory, whether the model gave it or a client appends it. The ledger keeps it.
func TestEmptyAnswers(t *testing.T) {
	t.Parallel()
	_, base := upstream(t, fake.Script{Body: `{"choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":"stop"}]}`})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", nil)
	s.post(agent(id, "/chat/completions"), `{"messages":[{"role":"user","content":"one"}]}`).ok(nil)
	s.say(id, user("two"), assistant(""))
	var history struct{ Contents []struct{ Content string } }
	s.get(agent(id, "/history")).ok(&history)
	var shown struct{ Messages []struct{ Content string } }
	s.do(http.MethodPost, agent(id, "/context"), `{}`).ok(&shown)
	if len(history.Contents) != 2 || len(shown.Messages) != 2 || len(s.ledger(id)) != 4 {
		t.Errorf("history %+v, memory %+v, ledger %+v", history, shown, s.ledger(id))
	}
}
