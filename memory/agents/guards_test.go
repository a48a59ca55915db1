package agents_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/store/storetest"
)

// A short text that names a long value many times is refused, not made.
func TestTemplatesAreBounded(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	long := map[string]string{"a": strings.Repeat("x", 100_000)}
	for name, edit := range map[string]func(*memory.Settings){
		"greeting": func(x *memory.Settings) { x.LLM.Greeting = strings.Repeat("{{a}}", 2000) },
		"failure":  func(x *memory.Settings) { x.LLM.FailureMessage = strings.Repeat("{{a}}", 2000) },
		"silence":  func(x *memory.Settings) { x.Silence.Content = strings.Repeat("{{a}}", 2000) },
		"system": func(x *memory.Settings) {
			x.LLM.SystemMessages = append(x.LLM.SystemMessages, []byte(`{"role":"system","content":"`+strings.Repeat("{{a}}", 2000)+`"}`))
		},
	} {
		r := agents.JoinRequest{Project: "p", Name: name}
		r.Settings.LLM.Variables = long
		edit(&r.Settings)
		if _, err := s.Agents.Join(t.Context(), r); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "filled in") {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}

// Evidence of one method is in a total order: every order of arrival gives the same record.
func TestEvidenceTotalOrder(t *testing.T) {
	t.Parallel()
	const base = 1_780_000_000_000
	text := func(s string) *string { return &s }
	all := []agents.InterruptRequest{
		{Heard: text("one two"), AtMS: base + 5}, {Heard: text("one two three")}, {Heard: text("one two three four"), AtMS: base + 6},
	}
	var want string
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		s := newService(t, nil)
		a := join(t, s, nil)
		if _, err := s.Messages.Append(t.Context(), "p", a.ID, []memory.Message{user("count"), llm("one two three four five")}); err != nil {
			t.Fatal(err)
		}
		for _, i := range order {
			if _, err := s.Turns.Interrupt(t.Context(), "p", a.ID, all[i]); err != nil {
				t.Fatal(err)
			}
		}
		_, msgs, _ := s.Messages.Recent(t.Context(), "p", a.ID, 1)
		got := fmt.Sprint(msgs[0].Content, msgs[0].EvidenceMS, msgs[0].InterruptMS)
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("order %v gives %s, want %s", order, got, want)
		}
	}
}

// An answer that was cut while it was made stays cut, even if all that was made of it was heard.
func TestCutAnswerStaysCut(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	a := join(t, s, nil)
	settle(t, s, begin(t, s, a.ID, nil, user("go")), agents.Answer{Generated: "one two", Sent: "one two", Err: agents.ErrInterrupted})
	heard := "one two"
	if _, err := s.Turns.Interrupt(t.Context(), "p", a.ID, agents.InterruptRequest{Heard: &heard}); err != nil {
		t.Fatal(err)
	}
	_, msgs, _ := s.Messages.Recent(t.Context(), "p", a.ID, 1)
	if m := msgs[0]; !m.Interrupted || m.Method != memory.VendorText {
		t.Errorf("interrupted %v by %s, want a cut that the vendor's text speaks of", m.Interrupted, m.Method)
	}
}

// What was said when the end overtook it still comes into the ledger.
func TestAnswerAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := newService(t, func(c *agents.Config) { c.SettleWait = time.Millisecond })
	a := join(t, s, nil)
	turn := begin(t, s, a.ID, nil, user("go"))
	if err := s.Agents.End(t.Context(), "p", a.ID, memory.EndOK); err != nil {
		t.Fatal(err)
	}
	settle(t, s, turn, agents.Answer{Generated: "one two", Sent: "one", Err: agents.ErrLeave})
	_, msgs, _ := s.Messages.History(t.Context(), "p", a.ID, 5)
	if len(msgs) != 2 || msgs[1].Content != "one" {
		t.Errorf("history %+v, want the cut answer in it", msgs)
	}
	if err := s.Turns.WaitIdle(t.Context(), "p", a.ID); err != nil {
		t.Errorf("the answer never ended: %v", err)
	}
}

// A repeated speak says nothing again, and cuts nobody.
func TestSpeakAgainCutsNobody(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	a := join(t, s, nil)
	speak := func() {
		if _, err := s.Turns.Speak(t.Context(), "p", a.ID, "hello", agents.SpeakInterrupt, "k1"); err != nil {
			t.Fatal(err)
		}
	}
	speak()
	turn := begin(t, s, a.ID, func(err error) { t.Errorf("cut: %v", err) }, user("go"))
	speak()
	settle(t, s, turn, agents.Answer{Generated: "x", Sent: "x", Complete: true})
	if _, msgs, _ := s.Messages.Recent(t.Context(), "p", a.ID, 9); len(msgs) != 3 {
		t.Errorf("%d messages, want 3", len(msgs))
	}
}

func TestTimersUnderLoad(t *testing.T) {
	t.Parallel()
	t.Run("farewells hold up nobody", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, nil)
			run(t, s)
			var turns []*agents.Turn
			for i := range 50 {
				r := agents.JoinRequest{Project: "p", Name: fmt.Sprint("bye", i)}
				r.Settings.Farewell = memory.Farewell{Graceful: true, TimeoutS: 60}
				a, err := s.Agents.Join(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				turns = append(turns, begin(t, s, a.ID, nil, user("bye")))
				if err := s.Agents.Leave(t.Context(), "p", a.ID, ""); err != nil {
					t.Fatal(err)
				}
			}
			other := join(t, s, func(x *memory.Settings) { x.IdleTimeoutS = 1 })
			time.Sleep(1100 * time.Millisecond) // fake time
			synctest.Wait()
			if a, _ := s.Agents.Agent(t.Context(), "p", other.ID); a.Status != memory.Stopped {
				t.Errorf("another agent's timer waits for farewells: %s", a.Status)
			}
			time.Sleep(65 * time.Second) // their time is over, and the answers are cut
			synctest.Wait()
			for _, turn := range turns {
				if a, _ := s.Agents.Agent(t.Context(), "p", turn.Agent.ID); a.Status != memory.Stopped {
					t.Errorf("%s after the farewell's time", a.Status)
				}
				settle(t, s, turn, agents.Answer{Generated: "x", Err: agents.ErrLeave})
			}
		})
	})
	t.Run("requests do not break a silence, nor is a watched agent idle", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, nil)
			run(t, s)
			a := join(t, s, func(x *memory.Settings) {
				x.Silence = memory.Silence{TimeoutMS: 1000, Action: "speak", Content: "hm?"}
				x.IdleTimeoutS = 5
			})
			stop := s.Messages.Follow("p", a.ID).Close
			for range 40 {
				time.Sleep(300 * time.Millisecond) // fake time
				s.Messages.Touch("p", a.ID)
			}
			time.Sleep(time.Minute) // fake time
			synctest.Wait()
			_, msgs, _ := s.Messages.Recent(t.Context(), "p", a.ID, 9)
			if len(msgs) != 1 || msgs[0].Source != memory.SourceSilence {
				t.Errorf("messages %+v, want the silence broken once", msgs)
			}
			if a, _ := s.Agents.Agent(t.Context(), "p", a.ID); a.Status != memory.Running {
				t.Errorf("%s while it is watched", a.Status)
			}
			stop()
			time.Sleep(11 * time.Second) // fake time
			synctest.Wait()
			if a, _ := s.Agents.Agent(t.Context(), "p", a.ID); a.Status != memory.Stopped {
				t.Errorf("%s when nobody watches", a.Status)
			}
		})
	})
	t.Run("an erased agent's timer is forgotten", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var errs []error
			store := storetest.New(t)
			s := newService(t, func(c *agents.Config) {
				c.Ledger, c.Retention = store, time.Second
				c.OnError = func(what string, err error) { errs = append(errs, errors.New(what+": "+err.Error())) }
			})
			run(t, s)
			a := join(t, s, func(x *memory.Settings) { x.IdleTimeoutS = 3600 })
			if err := s.Agents.Leave(t.Context(), "p", a.ID, ""); err != nil {
				t.Fatal(err)
			}
			time.Sleep(80 * time.Hour) // fake time
			synctest.Wait()
			if _, err := s.Agents.Agent(t.Context(), "p", a.ID); !fault.Is(err, fault.NotFound) {
				t.Errorf("the agent is still there: %v", err)
			}
			if diff := cmp.Diff(0, len(errs)); diff != "" {
				t.Errorf("errors %v", errs)
			}
		})
	})
}
