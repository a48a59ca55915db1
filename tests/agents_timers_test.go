package tests

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
)

// gone waits until the named agent has ended, according to the list. A request for the agent
// itself, or a tail, would keep it alive.
func (s *server) gone(name string) {
	s.t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for late := time.After(patience); ; {
		if slices.Contains(s.list("?state=4").names(), name) {
			return
		}
		select {
		case <-look.C:
		case <-late:
			s.t.Errorf("%s has not ended", name) // not Fatal: also called beside the test
			return
		}
	}
}

// TestIdleTimeout: an agent without requests ends, with its reason.
func TestIdleTimeout(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", map[string]any{"idle_timeout": 1})
	began := time.Now()
	s.gone("n")
	if d := time.Since(began); d < 500*time.Millisecond {
		t.Errorf("it ended after %s", d)
	}
	if a := s.agent(id); a.Status != "STOPPED" || a.Message != "agent exits with reason: Idle for too long" || a.StopTS == 0 {
		t.Errorf("%+v", a)
	}
	s.post(agent(id, "/messages"), user("x")).refused(410, "TaskNotFound", "Idle for too long")
	s.join("n", nil) // its name is free
}

// TestIdleTimeoutOfTheServer holds for agents that bring none; 0 means never.
func TestIdleTimeoutOfTheServer(t *testing.T) {
	t.Parallel()
	s := start(t, "HEARDLOG_IDLE_TIMEOUT=1s")
	idle, never := s.join("idle", nil), s.join("never", map[string]any{"idle_timeout": 0})
	s.gone("idle")
	if a := s.agent(idle); a.Status != "STOPPED" {
		t.Errorf("the server's idle timeout: %+v", a)
	}
	if a := s.agent(never); a.Status != "RUNNING" {
		t.Errorf("idle_timeout 0: %+v", a)
	}
}

// TestActivityKeepsAlive: each append restarts the idle time.
func TestActivityKeepsAlive(t *testing.T) {
	t.Parallel()
	s := start(t)
	kept := s.join("kept", map[string]any{"idle_timeout": 5})
	s.join("left", map[string]any{"idle_timeout": 5})
	watched := s.join("watched", map[string]any{"idle_timeout": 5})
	s.tail(watched)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.gone("left")
	}()
	for {
		select {
		case <-ended:
			if a := s.agent(watched); a.Status != "RUNNING" {
				t.Errorf("the agent that was watched all the time: %+v", a)
			}
			if a := s.agent(kept); a.Status != "RUNNING" {
				t.Errorf("the agent that took messages all the time: %+v", a)
			}
			return
		default:
			s.say(kept, user("still talking"))
		}
	}
}

// TestSilence: the agent speaks once each silence.
func TestSilence(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.join("n", map[string]any{
		"parameters": map[string]any{"silence_config": map[string]any{"timeout_ms": 50, "content": "Still there, {{who}}?"}},
		"llm":        map[string]any{"template_variables": map[string]string{"who": "Ann"}},
	})
	tail := s.tail(id, "Last-Event-ID", "0")
	silence := func(m message) bool { return m.Metadata["source"] == "silence" }
	if m := tail.message("the silence", silence); m.Content != "Still there, Ann?" || m.Role != "assistant" {
		t.Errorf("%+v", m)
	}
	s.say(id, user("Yes."))
	tail.message("the second silence", func(m message) bool { return silence(m) && m.TurnID > 0 })
	want := []string{"0 assistant: Still there, Ann?", "1 user: Yes.", "2 assistant: Still there, Ann?"}
	if diff := cmp.Diff(want, texts(s.history(id).Contents)); diff != "" {
		t.Error(diff)
	}
}

// TestGreeting is said at once, or after its delay unless the conversation has begun without it.
func TestGreeting(t *testing.T) {
	t.Parallel()
	s := start(t)
	greet := func(delay int) map[string]any {
		return map[string]any{"llm": map[string]any{"greeting_message": "Hello", "greeting_configs": map[string]any{"delay_ms": delay}}}
	}
	now := s.join("now", greet(0))
	if diff := cmp.Diff([]string{"0 assistant: Hello"}, texts(s.history(now).Contents)); diff != "" {
		t.Error(diff)
	}
	if md := s.history(now).Contents[0].Metadata; md["source"] != "greeting" {
		t.Errorf("%v", md)
	}
	joins := time.Now()
	late := s.join("late", greet(1000))
	if got := s.history(late).Contents; len(got) != 0 && time.Since(joins) < time.Second {
		t.Errorf("before its delay: %q", texts(got))
	}
	tail := s.tail(late, "Last-Event-ID", "0")
	if m := tail.message("the greeting", func(message) bool { return true }); m.Content != "Hello" || m.Metadata["source"] != "greeting" || m.TurnID != 0 {
		t.Errorf("%+v", m)
	}
	spoken, after := s.join("spoken", greet(5000)), s.join("after", greet(5000))
	s.say(spoken, user("I was faster"))
	s.tail(after, "Last-Event-ID", "0").message("the greeting of an agent that joined later", func(message) bool { return true })
	if diff := cmp.Diff([]string{"0 user: I was faster"}, texts(s.history(spoken).Contents)); diff != "" {
		t.Errorf("a conversation that had begun:\n%s", diff)
	}
}

// TestSilenceThinks: with the action think the silence asks the model, once each silence.
func TestSilenceThinks(t *testing.T) {
	t.Parallel()
	llm, base := upstream(t, fake.Script{Answer: "Shall I go on?"})
	s := start(t, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", map[string]any{"parameters": map[string]any{"silence_config": map[string]any{"timeout_ms": 50, "action": "think", "content": "The caller is silent."}}})
	tail := s.tail(id, "Last-Event-ID", "0")
	tail.message("the answer", func(m message) bool { return m.Role == "assistant" && m.TurnID == 0 })
	s.say(id, user("Yes."), assistant("Good."))
	tail.message("the second silence's answer", func(m message) bool { return m.Role == "assistant" && m.TurnID == 2 })
	want := []string{"0 user: The caller is silent.", "0 assistant: Shall I go on?", "1 user: Yes.", "1 assistant: Good.", "2 user: The caller is silent.", "2 assistant: Shall I go on?"}
	if diff := cmp.Diff(want, texts(s.history(id).Contents)); diff != "" {
		t.Error(diff)
	}
	if n := len(llm.Requests()); n != 2 {
		t.Errorf("the model was asked %d times", n)
	}
	var table struct {
		Turns []struct{ Start struct{ Type string } }
	}
	s.get(agent(id, "/turns")).ok(&table)
	if got := table.Turns[0].Start.Type; got != "silence_timeout" {
		t.Errorf("the turn began as %s", got)
	}
}
