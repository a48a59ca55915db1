package compat_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// fakeRealtime starts a server that speaks the Realtime protocol as far as these tests need it. The
// tests of the server itself have a more faithful one. It returns its URL.
func fakeRealtime(t *testing.T) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer ws.CloseNow()
		ws.SetReadLimit(1 << 20)
		send := func(e object) {
			e["event_id"] = "event_1"
			raw, err := json.Marshal(e)
			if err != nil {
				t.Error(err)
			}
			_ = ws.Write(context.Background(), websocket.MessageText, raw) // the client may be gone
		}
		send(object{"type": "session.created", "session": object{"type": "realtime", "model": "gpt-realtime"}})
		for {
			_, frame, err := ws.Read(context.Background())
			if err != nil {
				return
			}
			var e object
			if err := json.Unmarshal(frame, &e); err != nil {
				t.Error(err)
			}
			fakeReply(e, send)
		}
	}))
	t.Cleanup(srv.Close)
	return "ws" + strings.TrimPrefix(srv.URL, "http")
}

// fakeReply answers an event of the client.
func fakeReply(e object, send func(object)) {
	switch e["type"] {
	case "session.update":
		send(object{"type": "session.updated", "session": e["session"]})
	case "input_audio_buffer.clear":
		send(object{"type": "input_audio_buffer.cleared"})
	case "input_audio_buffer.commit":
		send(object{"type": "input_audio_buffer.committed", "item_id": "item_u", "previous_item_id": nil})
		send(object{"type": "conversation.item.input_audio_transcription.completed", "item_id": "item_u", "content_index": 0, "transcript": "When is my train?"})
	case "conversation.item.truncate":
		send(object{"type": "conversation.item.truncated", "item_id": e["item_id"], "content_index": 0, "audio_end_ms": e["audio_end_ms"]})
	case "response.create":
		item := object{"id": "item_a", "type": "message", "role": "assistant", "status": "in_progress", "content": []object{}}
		send(object{"type": "response.created", "response": object{"id": "resp_1", "conversation_id": "conv_1", "status": "in_progress"}})
		send(object{"type": "response.output_item.added", "response_id": "resp_1", "output_index": 0, "item": item})
		send(object{"type": "conversation.item.added", "previous_item_id": "item_u", "item": item})
		words := strings.SplitAfter("The train leaves at nine from platform two.", " ")
		for _, w := range words { // half a second each
			send(object{"type": "response.output_audio_transcript.delta", "response_id": "resp_1", "item_id": "item_a", "output_index": 0, "content_index": 0, "delta": w})
			send(object{"type": "response.output_audio.delta", "response_id": "resp_1", "item_id": "item_a", "output_index": 0, "content_index": 0, "delta": base64.StdEncoding.EncodeToString(make([]byte, 24000))})
		}
		item = object{"id": "item_a", "type": "message", "role": "assistant", "status": "completed", "content": []object{{"type": "output_audio", "transcript": strings.Join(words, "")}}}
		send(object{"type": "response.done", "response": object{"id": "resp_1", "conversation_id": "conv_1", "status": "completed", "output": []object{item}, "usage": object{"total_tokens": 3, "input_tokens": 1, "output_tokens": 2}}})
	}
}

// TestNodeRealtime runs OpenAI's own client against the relay, with a client secret for one agent.
func TestNodeRealtime(t *testing.T) {
	t.Parallel()
	needNode(t, "clients-node")
	s := start(t, "HEARDLOG_REALTIME_URL="+fakeRealtime(t))
	id := s.join(t, "realtime", nil)
	var made struct{ Value string }
	s.call(t, http.StatusOK, http.MethodPost, "/v1/realtime/client_secrets", object{"agent_id": id}, &made)
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	secure := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(to)) // the client takes wss only
	t.Cleanup(secure.Close)
	out := nodeClient(t, []string{"NODE_TLS_REJECT_UNAUTHORIZED=0"}, "realtime.mjs", secure.URL+"/v1", made.Value)
	if out != "done The train leaves at nine from platform two." {
		t.Errorf("the client says %q", out)
	}
	want := []string{"user: When is my train?", "assistant: The train [interrupted]"} // the agent has a name: it stays
	eventually(t, "has "+strings.Join(want, "; "), func() bool { return slices.Equal(said(s.ledger(t, id)), want) })
}
