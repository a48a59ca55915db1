package tests

import (
	"strings"
	"testing"
)

// TestResponsesWire: what upstreams write beside texts, in the form of the Responses API.
func TestResponsesWire(t *testing.T) {
	t.Parallel()
	w := newWire(t, nil)
	// Thoughts before a call go back with it, where the client sends its items again.
	const items = `[{"role":"user","content":"When?"},{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"Let me see."}]},` +
		`{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"9"}]`
	w.respond(items, events("stop", plain))
	if got := w.sent(); !strings.Contains(got, `"reasoning_content":"Let me see."`) || strings.Count(got, `"c1"`) != 2 {
		t.Errorf("the LLM is sent %s", got)
	}

	// The thoughts of an answer are an item of their own, in a stream, whole, and when read later.
	const thinks = `"reasoning_content":"Let me see."`
	for kind, raw := range map[string]string{"streamed": events("stop", `{`+thinks+`}`, plain), "whole": completion("stop", `{"role":"assistant","content":"At nine.",`+thinks+`}`)} {
		w := newWire(t, nil)
		made := w.respond(`"When?"`, raw)
		kept := w.get(agent(w.id, "/responses/"+made.Path("id").Text())).ok(nil)
		for _, res := range []string{string(made), string(kept.body)} {
			if !strings.Contains(res, `{"type":"reasoning_text","text":"Let me see."}`) || !strings.Contains(res, `"text":"At nine."`) {
				t.Errorf("%s: %s", kind, res)
			}
		}
	}

	// Citations.
	const cited = `"annotations":[{"type":"url_citation","url_citation":{"url":"https://a.example","title":"A","start_index":0,"end_index":2}}]`
	for kind, raw := range map[string]string{"streamed": events("stop", plain, `{`+cited+`}`), "whole": completion("stop", `{"role":"assistant","content":"At nine.",`+cited+`}`)} {
		w := newWire(t, nil)
		got := w.respond(`"When?"`, raw).Path("output.0.content.0.annotations.0")
		if got.Path("type").Text() != "url_citation" || got.Path("url").Text() != "https://a.example" || got.Path("end_index").Int() != 2 {
			t.Errorf("%s: %s", kind, got)
		}
	}

	// Errors of every shape have their words.
	for _, failed := range []string{
		`{"error":"model runner has stopped"}`, `{"error":{"message":"model runner has stopped"}}`, `{"object":"error","message":"model runner has stopped","code":400}`,
		`{"errors":[{"message":"model runner has stopped"}]}`, `{"detail":"model runner has stopped"}`, `{"type":"error","error":{"type":"x","message":"model runner has stopped"}}`,
	} {
		w := newWire(t, nil)
		res := w.respond(`"When?"`, `data: {"choices":[{"index":0,"delta":{"content":"At "}}]}`+"\n\ndata: "+failed+"\n\ndata: [DONE]\n\n")
		if got := res.Path("error.message").Text(); got != "model runner has stopped" || res.Path("status").Text() != "failed" {
			t.Errorf("%s: %s", failed, res)
		}
		if e := w.lastAnswer(w.id); e.Failure == nil {
			t.Errorf("%s: the ledger has %+v", failed, e)
		}
	}
}
