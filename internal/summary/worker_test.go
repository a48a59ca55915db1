package summary_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/heardlog/heardlog/internal/summary"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/evidence"
)

// TestWorker: when the estimate reaches its share of the window, and not before, what is older than
// keep_recent becomes a summary; the next holds the one before; what is not summarised stays.
//
// Rules: 001-21, 001-29
func TestWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, nil, 0, answers)
		id, other := w.join("p", window), w.join("p", "")
		w.say("p", other, 0, 40)
		w.say("p", id, 0, 7) // 280 of 320
		synctest.Wait()
		if n := len(w.questions()); n != 0 {
			t.Fatalf("%d calls before the share of the window is reached", n)
		}
		w.say("p", id, 7, 8)
		synctest.Wait()
		text, rest := w.holds("p", id)
		if diff := cmp.Diff([]string{"fact6", "fact7"}, rest); diff != "" || text != "summary 1" {
			t.Fatalf("summary %q, in memory: %s", text, diff)
		}
		w.say("p", id, 8, 14)
		synctest.Wait()
		text, rest = w.holds("p", id)
		if diff := cmp.Diff([]string{"fact12", "fact13"}, rest); diff != "" || text != "summary 2" {
			t.Fatalf("summary %q, in memory: %s", text, diff)
		}
		q := w.questions()
		if len(q) != 2 || q[1].model != "small" || q[1].agent != id {
			t.Fatalf("asked: %+v", q)
		}
		for i := range 12 {
			in := q[i/6].User
			if role := []string{"USER", "ASSISTANT"}[i%2]; !strings.Contains(in, fmt.Sprintf("%s: fact%d.", role, i)) {
				t.Errorf("fact%d is not in its call: %s", i, in)
			}
		}
		if !strings.HasPrefix(q[1].User, "Summary of what came before:\nsummary 1\n") || strings.Contains(q[1].User, "fact12") {
			t.Errorf("the second call: %s", q[1].User)
		}
		if got, _ := w.holds("p", other); got != "" {
			t.Errorf("an agent without the strategy has the summary %q", got)
		}
		if n := testutil.CollectAndCount(w.reg, "heardlog_summaries_total"); n != 1 {
			t.Errorf("%d outcomes", n)
		}
	})
}

// TestWorkerByMessages: a window that is full of messages before it is full of tokens is due as
// well; one without limits at the bounds that stand for them.
func TestWorkerByMessages(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		policy string
		due    int
	}{
		"no tokens":   {`{"preset":"full","strategy":"summarize","max_messages":10,"summarize_at":0.5,"keep_recent":1}`, 5},
		"many tokens": {`{"strategy":"summarize","max_tokens":100000,"max_messages":10,"summarize_at":0.5,"keep_recent":1}`, 5},
		"no limits":   {`{"preset":"full","strategy":"summarize","keep_recent":1}`, 21},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := begin(t, nil, 0, answers)
				id := w.join("p", tt.policy)
				w.say("p", id, 0, tt.due-1)
				synctest.Wait()
				if n := len(w.questions()); n != 0 {
					t.Fatalf("%d calls for %d of %d messages", n, tt.due-1, tt.due)
				}
				w.say("p", id, tt.due-1, tt.due)
				synctest.Wait()
				if text, rest := w.holds("p", id); text != "summary 1" || len(rest) != 1 {
					t.Errorf("summary %q and %d messages", text, len(rest))
				}
			})
		})
	}
}

// TestWorkerMeanwhile: what is said while the model thinks stays in memory, is no part of the
// summary, and the caller of append does not wait.
//
// Rules: 001-29
func TestWorkerMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, nil, 0, func(ctx context.Context, n int, q question) (summary.Answer, error) {
			time.Sleep(time.Minute)
			return answers(ctx, n, q)
		})
		id := w.join("p", window)
		began := time.Now()
		w.say("p", id, 0, 12)
		if took := time.Since(began); took != 0 {
			t.Errorf("appending took %s", took)
		}
		synctest.Wait()
		if text, rest := w.holds("p", id); text != "" || len(rest) != 12 {
			t.Errorf("before the model answered: %q, %v", text, rest)
		}
		time.Sleep(90 * time.Second)
		synctest.Wait()
		text, rest := w.holds("p", id)
		q := w.questions()
		if text == "" || len(rest) == 0 || len(q) == 0 {
			t.Fatalf("%q, %v", text, rest)
		}
		for i := range 12 { // each fact is in memory, or in what a summary was made of
			name := fmt.Sprintf("fact%d", i)
			in := slices.ContainsFunc(q, func(q question) bool { return strings.Contains(q.User, name+".") })
			if stays := slices.Contains(rest, name); stays == in && len(q) == 1 || !stays && !in {
				t.Errorf("%s: in memory %v, summarised %v", name, stays, in)
			}
		}
	})
}

// TestWorkerFailing: a model that fails, says nothing or does not finish changes nothing, and is
// asked again after gaps that grow up to a bound; once it works, the summary is made.
//
// Rules: 001-29
func TestWorkerFailing(t *testing.T) {
	t.Parallel()
	bad := map[string]func() (summary.Answer, error){
		"panicking": func() (summary.Answer, error) { panic("odd words") },
		"failing":   func() (summary.Answer, error) { return summary.Answer{}, errors.New("broken") },
		"blank":     func() (summary.Answer, error) { return summary.Answer{Text: " ", Finish: "stop"}, nil },
		"cut":       func() (summary.Answer, error) { return summary.Answer{Text: "He", Finish: "length"}, nil },
	}
	for name, fails := range bad {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const failures = 12
				w := begin(t, nil, 0, func(ctx context.Context, n int, q question) (summary.Answer, error) {
					if n <= failures {
						return fails()
					}
					return answers(ctx, n, q)
				})
				id := w.join("p", window)
				w.say("p", id, 0, 8)
				time.Sleep(30 * time.Second)
				synctest.Wait()
				if text, rest := w.holds("p", id); text != "" || len(rest) != 8 {
					t.Errorf("a model that fails changed the memory: %q, %v", text, rest)
				}
				w.say("p", id, 8, 9) // does not hurry it
				time.Sleep(3 * time.Hour)
				synctest.Wait()
				q := w.questions()
				if text, rest := w.holds("p", id); text != fmt.Sprint("summary ", failures+1) || len(rest) != 2 || len(q) != failures+1 {
					t.Fatalf("%d calls, summary %q, %v", len(q), text, rest)
				}
				for i := 1; i < len(q); i++ {
					most := min(5*time.Second<<(i-1), 10*time.Minute)
					if got := q[i].at.Sub(q[i-1].at); got < most/2 || got > most {
						t.Errorf("gap %d is %s, want %s to %s", i, got, most/2, most)
					}
				}
			})
		})
	}
}

// TestWorkerHeard: nothing that was not heard is ever given to the model: unheard ends, ghosts,
// answers left out, drafts, discarded messages, fillers.
func TestWorkerHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, nil, 0, answers)
		id := w.join("p", window)
		canary := func(m memory.Message) memory.Message {
			m.Generated, m.Sent, m.Details = "heard CANARY", "heard CANARY", &memory.Details{Made: memory.Made{Filler: "CANARY"}}
			return m
		}
		cut, ghost, unplayed, replaced, draft, discarded, dropped := canary(line(1)), line(1), line(1), line(1), line(0), line(1), line(1)
		cut.Content, cut.Interrupted = "heard", true
		ghost.Content, ghost.State = "CANARY ghost", memory.Superseded
		unplayed.Content, unplayed.Generated, unplayed.State = "", "CANARY", memory.Unplayed
		replaced.Content, replaced.State = "CANARY", memory.Replaced
		draft.Content, draft.Status = "CANARY draft", memory.Draft
		discarded.Content, discarded.Status = "CANARY", memory.Discarded
		dropped.Content, dropped.State = "CANARY", memory.Dropped
		w.append("p", id, line(0), cut, ghost, unplayed, replaced, draft, discarded, dropped)
		w.say("p", id, 2, 12)
		synctest.Wait()
		q := w.questions()
		if len(q) == 0 {
			t.Fatal("no summary was asked for")
		}
		for _, q := range q {
			if strings.Contains(q.System+q.User, "CANARY") {
				t.Errorf("what was not heard goes to the model: %s", q.User)
			}
		}
		if !strings.Contains(q[0].User, "ASSISTANT: heard\n") {
			t.Errorf("what was heard does not: %s", q[0].User)
		}
	})
}

// TestWorkerEvidence: where it turns out, while the summary is made, that less was heard than it
// was made of, it is discarded and made again.
func TestWorkerEvidence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, nil, 0, func(ctx context.Context, n int, q question) (summary.Answer, error) {
			time.Sleep(time.Second)
			if strings.Contains(q.User, "CANARY") {
				return summary.Answer{Text: "CANARY"}, nil
			}
			return answers(ctx, n, q)
		})
		id := w.join("p", window)
		m := line(1)
		m.ID, m.Content = "a1", "heard CANARY"
		w.append("p", id, line(0), m)
		w.say("p", id, 2, 9)
		synctest.Wait() // the model thinks
		heard := "heard"
		got, err := evidence.Service{Memory: w.mem}.Record(t.Context(), "p", id, []evidence.Report{{ItemID: "a1", Heard: &heard, Cut: true}})
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		text, _ := w.holds("p", id)
		q := w.questions()
		if text == "" || strings.Contains(text, "CANARY") || len(q) < 2 || strings.Contains(q[1].User, "CANARY") {
			t.Errorf("summary %q of %d calls: %+v", text, len(q), q)
		}
	})
}

// TestWorkerOthersSummary: a summary that a client sets meanwhile is not overwritten by one that
// does not know it; a memory that is cleared is not summarised.
func TestWorkerOthersSummary(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, nil, 0, func(ctx context.Context, n int, q question) (summary.Answer, error) {
			time.Sleep(time.Second)
			return answers(ctx, n, q)
		})
		id, cleared := w.join("p", window), w.join("p", window)
		w.say("p", id, 0, 8)
		w.say("p", cleared, 0, 8)
		synctest.Wait()
		if _, err := w.SetSummary(t.Context(), "p", id, "the client's", 0); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Clear(t.Context(), "p", cleared); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		text, rest := w.holds("p", id)
		q := w.questions()
		if len(q) != 3 || text != "summary 3" || len(rest) != 2 || !strings.Contains(q[2].User, "the client's") {
			t.Errorf("%d calls, summary %q, %v", len(q), text, rest)
		}
		if text, rest := w.holds("p", cleared); text != "" || len(rest) != 0 {
			t.Errorf("a cleared memory: %q, %v", text, rest)
		}
	})
}

// TestWorkerRestart: what was due when the process ended is found again by the next.
func TestWorkerRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := begin(t, nil, 0, func(ctx context.Context, _ int, _ question) (summary.Answer, error) {
			<-ctx.Done()
			return summary.Answer{}, context.Cause(ctx)
		})
		id := first.join("p", window)
		first.say("p", id, 0, 9)
		synctest.Wait()
		first.stop()
		second := begin(t, first.store, 0, answers)
		synctest.Wait()
		if text, rest := second.holds("p", id); text != "summary 1" || len(rest) != 2 {
			t.Errorf("%q, %v", text, rest)
		}
	})
}

// TestWorkerEnd: the end of an agent ends the making of its summary, and so does its being erased.
func TestWorkerEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int64
		w := begin(t, nil, 0, func(ctx context.Context, _ int, _ question) (summary.Answer, error) {
			<-ctx.Done()
			ended.Add(1)
			return summary.Answer{}, context.Cause(ctx)
		})
		for _, end := range []func(id string) error{
			func(id string) error { return w.mem.Agents.Leave(t.Context(), "p", id, "") },
			func(id string) error { return w.mem.Agents.Erase(t.Context(), "p", id) },
		} {
			id := w.join("p", window)
			w.say("p", id, 0, 9)
			synctest.Wait()
			was := ended.Load()
			if err := end(id); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if ended.Load() != was+1 {
				t.Error("the model is still asked for an agent that has ended")
			}
		}
		time.Sleep(time.Hour)
		if n := len(w.questions()); n != 2 {
			t.Errorf("%d calls", n)
		}
	})
}

// TestWorkerPlaces: an agent has one summary made at a time, a project half of the places, and the
// server no more than there are; all are made in the end.
func TestWorkerPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const places = 6
		var mu sync.Mutex
		now, most := map[string]int{}, map[string]int{}
		count := func(by int, keys ...string) {
			mu.Lock()
			defer mu.Unlock()
			for _, k := range keys {
				now[k] += by
				most[k] = max(most[k], now[k])
			}
		}
		projects := map[string]string{}
		w := begin(t, nil, places, func(ctx context.Context, n int, q question) (summary.Answer, error) {
			mu.Lock()
			p := projects[q.agent]
			mu.Unlock()
			count(1, "all", "project "+p, q.agent)
			defer count(-1, "all", "project "+p, q.agent)
			time.Sleep(time.Second)
			return answers(ctx, n, q)
		})
		for i := range 30 {
			p := []string{"a", "a", "b"}[i%3]
			id := w.join(p, window)
			mu.Lock()
			projects[id] = p
			mu.Unlock()
			w.say(p, id, 0, 8)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for k, n := range most {
			bound := 1
			switch k {
			case "all":
				bound = places
			case "project a", "project b":
				bound = places / 2
			}
			if n > bound {
				t.Errorf("%s: %d at a time, allowed are %d", k, n, bound)
			}
		}
		if most["all"] < places {
			t.Errorf("only %d of %d places were used", most["all"], places)
		}
		for id, p := range projects {
			if text, rest := w.holds(p, id); text == "" || len(rest) != 2 {
				t.Errorf("agent %s: %q, %v", id, text, rest)
			}
		}
	})
}

// TestWorkerInFlight: an answer that is still being made keeps its place: what stands behind it
// does not leave before it is stored.
func TestWorkerInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, nil, 0, answers)
		id := w.join("p", strings.Replace(window, `"keep_recent":2`, `"keep_recent":0`, 1))
		w.say("p", id, 0, 2)
		turn, err := w.mem.Turns.Begin(t.Context(), "p", id, agents.TurnRequest{
			Plan: func(memory.Head, []memory.Message) (agents.Plan, error) {
				return agents.Plan{Append: []memory.Message{line(2)}}, nil
			}, Cut: func(error) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.say("p", id, 4, 12)
		synctest.Wait()
		_, rest := w.holds("p", id)
		if diff := cmp.Diff([]string{"fact2", "fact4"}, rest[:min(2, len(rest))]); diff != "" {
			t.Fatalf("in memory while the answer is made: %s", diff)
		}
		if _, err := w.mem.Turns.Settle(t.Context(), turn, agents.Answer{Generated: line(3).Content, Sent: line(3).Content, Complete: true}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		all := ""
		for _, q := range w.questions() {
			all += q.User
		}
		if _, rest := w.holds("p", id); len(rest) != 0 || !strings.Contains(all, "ASSISTANT: fact3.") {
			t.Errorf("after it was stored: %v in memory; asked: %s", rest, all)
		}
	})
}

// TestWorkerInherits: an agent that inherits a summary begins with the one there is; what the
// agents before it remembered beside it is put into it in the background, in parts, also over a
// restart and a chain of agents that ended before theirs was made. What was erased meanwhile is not
// summarised.
//
// Rules: 004-7
func TestWorkerInherits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		works := &atomic.Bool{}
		ask := func(ctx context.Context, n int, q question) (summary.Answer, error) {
			if !works.Load() {
				return summary.Answer{}, errors.New("broken")
			}
			return answers(ctx, n, q)
		}
		w := begin(t, nil, 0, ask)
		next := func(name string) string {
			t.Helper()
			a, err := w.mem.Agents.Join(t.Context(), agents.JoinRequest{Project: "p", Name: name, Properties: []byte("{}"), Inherit: memory.InheritSummary})
			if err != nil {
				t.Fatal(err)
			}
			return a.ID
		}
		leave := func(id string) {
			t.Helper()
			if err := w.mem.Agents.Leave(t.Context(), "p", id, ""); err != nil {
				t.Fatal(err)
			}
		}
		first := next("n")
		w.say("p", first, 0, 3)
		if _, err := w.SetSummary(t.Context(), "p", first, "His name is Ada.", 0); err != nil {
			t.Fatal(err)
		}
		leave(first)
		second := next("n")
		if text, rest := w.holds("p", second); text != "His name is Ada." || len(rest) != 0 {
			t.Errorf("at the beginning: %q, %v", text, rest)
		}
		w.say("p", second, 3, 5)
		time.Sleep(time.Minute)
		synctest.Wait()
		leave(second) // before its summary could be made
		third := next("n")
		time.Sleep(time.Minute)
		synctest.Wait()
		if text, _ := w.holds("p", third); text != "His name is Ada." {
			t.Errorf("a model that fails made %q", text)
		}
		works.Store(true)
		w.stop()
		w = begin(t, w.store, 0, ask)
		w.say("p", third, 5, 6)
		synctest.Wait()
		text, rest := w.holds("p", third)
		q := w.questions()
		if len(q) != 2 || text != "summary 2" || len(rest) != 1 {
			t.Fatalf("%d calls, summary %q, %v", len(q), text, rest)
		}
		if in := q[0].User; !strings.Contains(in, "His name is Ada.") || !strings.Contains(in, "USER: fact0.") || !strings.Contains(in, "USER: fact2.") || strings.Contains(in, "fact3") {
			t.Errorf("of the first agent: %s", in)
		}
		if in := q[1].User; !strings.Contains(in, "summary 1") || !strings.Contains(in, "fact3.") || !strings.Contains(in, "fact4.") || strings.Contains(in, "fact5") {
			t.Errorf("of the second agent: %s", in)
		}
		leave(third)
		works.Store(false)
		fourth := next("n")
		synctest.Wait()
		if err := w.mem.Agents.Erase(t.Context(), "p", third); err != nil {
			t.Fatal(err)
		}
		works.Store(true)
		before := len(w.questions())
		time.Sleep(time.Hour)
		synctest.Wait()
		if text, _ := w.holds("p", fourth); text != "summary 2" || len(w.questions()) != before {
			t.Errorf("after the agent before was erased: %q, %d calls more", text, len(w.questions())-before)
		}
		h, err := w.mem.Messages.Head(t.Context(), "p", fourth)
		if in := h.Agent.Settings.Memory.Inherited; err != nil || in == nil || len(in.Ancestors) != 0 {
			t.Errorf("what is still to be made: %+v, %v", in, err)
		}
	})
}
