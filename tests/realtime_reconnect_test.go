package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/heardlog/heardlog/realtime/realtimetest"
)

func itemTexts(items []realtimetest.Item) (out []string) {
	for _, it := range items {
		out = append(out, it.Role+": "+it.Text)
	}
	return out
}

// The memory of a call goes into the conversation of the next socket, unseen by the client.
func TestRealtimeSeed(t *testing.T) {
	t.Parallel()
	for _, beta := range []bool{false, true} {
		t.Run(fmt.Sprint(beta), func(t *testing.T) {
			t.Parallel()
			fake := realtimetest.New(t, realtimetest.Config{})
			s := start(t, "HEARDLOG_REALTIME_URL="+fake.URL)
			id := s.join("realtime", nil)
			s.say(id, user("My name is Ada."), map[string]any{
				"role": "assistant", "content": "Nice to", "metadata": map[string]any{"interrupted": true, "original": "Nice to meet you, Ada."},
			})
			headers := []string{"X-Agent-Id", id}
			if beta {
				headers = append(headers, "OpenAI-Beta", "realtime=v1")
			}
			c := s.connect("/realtime", headers...)
			c.send(map[string]any{"type": "session.update", "session": map[string]any{"type": "realtime", "instructions": "Be kind."}})
			c.await("session.updated", 1)
			if n := len(fake.Last().Items()); n != 0 {
				t.Errorf("%d items before the client began", n)
			}
			c.write("What is my name?")
			c.send(map[string]any{"type": "response.create"})
			c.await("response.done", 1)
			if got, want := itemTexts(fake.Last().Items()), []string{"user: My name is Ada.", "assistant: Nice to", "user: What is my name?", "assistant: Yes."}; !slices.Equal(got, want) {
				t.Errorf("the model knows %q", got)
			}
			kind := "conversation.item.added"
			if beta {
				kind = "conversation.item.created"
			}
			first := c.await(kind, 1)
			if first["previous_item_id"] != nil || first["item"].(map[string]any)["role"] != "user" || c.count(kind) != 2 {
				t.Errorf("the client saw %v, and %d items", first, c.count(kind))
			}
			if n := c.count("error"); n != 0 {
				t.Errorf("%d errors", n)
			}
			s.stored(id, func(l []entry) bool { return len(l) == 4 })
		})
	}
}

// The model's server closes the socket again and again. The client notices nothing, and each new
// conversation begins with what was heard.
func TestRealtimeReconnects(t *testing.T) {
	t.Parallel()
	fake := realtimetest.New(t, realtimetest.Config{
		Hear: func(n int) string { return fmt.Sprintf("question %d", n) },
		Answer: func(items []realtimetest.Item, _ map[string]any) realtimetest.Reply {
			return realtimetest.Reply{Words: realtimetest.Paced("This is the answer to " + items[len(items)-1].Text)}
		},
	})
	s := start(t, "HEARDLOG_REALTIME_URL="+fake.URL)
	id := s.join("realtime", map[string]any{"llm": map[string]any{"max_history": 1000}})
	c := s.connect("/realtime", "X-Agent-Id", id)
	c.send(map[string]any{"type": "session.update", "session": map[string]any{"type": "realtime", "instructions": "Be kind.", "audio": map[string]any{"output": map[string]any{"voice": "cedar"}}}})
	c.await("session.updated", 1)
	c.send(map[string]any{"type": "session.update", "session": map[string]any{"type": "realtime", "audio": map[string]any{"input": map[string]any{"turn_detection": map[string]any{"type": "semantic_vad"}}}}})
	c.await("session.updated", 2)
	const rounds = 50
	var want []string
	for i := range rounds {
		c.speak()
		c.await("conversation.item.input_audio_transcription.completed", i+1)
		c.send(map[string]any{"type": "response.create"})
		item := outputID(c.await("response.done", i+1))
		heard := fmt.Sprintf("This is the answer to question %d", i)
		if i%3 == 0 { // cut
			c.send(map[string]any{"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": 650})
			c.await("conversation.item.truncated", i/3+1)
			heard = "This is"
		}
		want = append(want, fmt.Sprintf("user: question %d", i), "assistant: "+heard)
		last := fake.Last()
		switch i % 3 {
		case 0:
			last.Break()
		case 1:
			last.Expire()
		default:
			last.Close(1001, "bye")
		}
		if !realtimetest.Wait(patience, func() bool { return len(fake.Conns()) == i+2 && len(fake.Last().Items()) == len(want) }) {
			t.Fatalf("after %d: %d sockets, the newest knows %d of %d items", i, len(fake.Conns()), len(fake.Last().Items()), len(want))
		}
	}
	if got := itemTexts(fake.Last().Items()); !slices.Equal(got, want) {
		t.Errorf("the last conversation is %q", got)
	}
	session := fmt.Sprint(fake.Last().Session())
	if !strings.Contains(session, "Be kind.") || !strings.Contains(session, "cedar") || !strings.Contains(session, "semantic_vad") {
		t.Errorf("the session is %s", session)
	}
	list := s.stored(id, func(l []entry) bool { return len(l) == 2*rounds })
	for i, e := range list {
		if got := e.Role + ": " + e.Content; got != want[i] {
			t.Errorf("%d: %q, want %q", i, got, want[i])
		}
	}
	if c.count("session.created") != 1 || c.count("session.updated") != 2 || c.count("error") != 0 || c.count("conversation.item.added") != 2*rounds {
		t.Errorf("the client saw %d sessions, %d updates, %d errors, %d items", c.count("session.created"), c.count("session.updated"), c.count("error"), c.count("conversation.item.added"))
	}
}

// The connection breaks in the middle of an answer: the client is told that it is over, and the
// model is asked again.
func TestRealtimeBreaksInAnswer(t *testing.T) {
	t.Parallel()
	s, fake, id, c := relayed(t, realtimetest.Config{Answer: replies(
		realtimetest.Reply{Words: realtimetest.Paced("It leaves at nine from platform two."), CloseAfter: 3},
		realtimetest.Reply{Words: realtimetest.Paced("It leaves at nine.")},
	)})
	c.write("When is my train?")
	c.send(map[string]any{"type": "response.create"})
	first := c.await("response.done", 1)["response"].(map[string]any)
	second := c.await("response.done", 2)["response"].(map[string]any)
	if first["status"] != "cancelled" || second["status"] != "completed" || first["id"] == second["id"] {
		t.Errorf("%v, then %v", first, second)
	}
	list := s.stored(id, func(l []entry) bool { return len(l) == 3 })
	if got, want := said(list), "user: When is my train?\nassistant: It leaves at\nassistant: It leaves at nine.\n"; got != want {
		t.Errorf("got %s", got)
	}
	if list[1].interrupted() {
		t.Error("nobody interrupted the first answer")
	}
	// What was said before the break can still be truncated: the new server has no audio of it.
	item := list[1].ID
	c.send(map[string]any{"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": 300})
	c.await("conversation.item.truncated", 1)
	if c.count("error") != 0 {
		t.Error("the truncation failed")
	}
	s.stored(id, func(l []entry) bool { return l[1].Content == "It" })
	_ = fake
}

// What the client sends while there is no connection arrives at the next one.
func TestRealtimeWaitsForConnection(t *testing.T) {
	t.Parallel()
	s, fake, id, c := relayed(t, realtimetest.Config{})
	c.write("one")
	c.await("conversation.item.added", 1)
	fake.SetRefuse(503)
	fake.Last().Break()
	c.write("two")
	c.send(map[string]any{"type": "response.create"})
	fake.SetRefuse(0)
	c.await("response.done", 1)
	list := s.stored(id, func(l []entry) bool { return len(l) == 3 })
	if got, want := said(list), "user: one\nuser: two\nassistant: Yes.\n"; got != want {
		t.Errorf("got %s", got)
	}
}

// A server that refuses for a reason closes the client's socket for the same.
func TestRealtimeClosesForGood(t *testing.T) {
	t.Parallel()
	_, fake, _, c := relayed(t, realtimetest.Config{})
	fake.Last().Close(3000, "invalid_request_error.model_not_found")
	if code := c.closed(); code != websocket.StatusCode(3000) {
		t.Errorf("closed with %d", code)
	}
}
