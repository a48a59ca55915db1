package redis_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/export"
	"github.com/heardlog/heardlog/memory/redis"
	"github.com/heardlog/heardlog/memory/redis/redistest"
)

// beat has servers tell of themselves until done says so.
func beat(t *testing.T, what string, done func() bool, stores ...*redis.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !done() {
		for _, s := range stores {
			again(t, func() error { _, err := s.Beat(ctx, nil); return err })
		}
		if ctx.Err() != nil {
			t.Fatalf("they do not: %s", what)
		}
		time.Sleep(time.Millisecond) // between two looks
	}
}

// TestQuestions: a question is heard by the other server as it is asked, and its answer by the one who asked; on a cluster too. What listens comes again by itself.
func TestQuestions(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func() string{
		"one server": func() string { return redistest.Start(t).URL() },
		"a cluster":  func() string { return redistest.Cluster(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := start()
			a, b := open(t, redis.Options{URL: url}), open(t, redis.Options{URL: url})
			beat(t, "hear", func() bool { return a.Hears() && b.Hears() }, a, b)
			for _, heard := range []string{"One two", "a\x00b \"quoted\" é\n", strings.Repeat("long ", 40_000)} {
				exchange(t, a, b, heard)
			}
			select {
			case q := <-b.Calls():
				t.Errorf("whoever asked heard his own question: %+v", q)
			default:
			}
			if name != "one server" {
				return
			}
			redistest.Do(t, url, "CLIENT", "KILL", "TYPE", "pubsub")
			beat(t, "know that they are deaf", func() bool { return !a.Hears() && !b.Hears() })
			beat(t, "hear again", func() bool { return a.Hears() && b.Hears() }, a, b)
			exchange(t, a, b, "again")
		})
	}
}

// exchange has one ask and the other answer.
func exchange(t *testing.T, a, b *redis.Store, heard string) {
	t.Helper()
	turn := int64(7)
	q := memory.Question{Project: "acme", ID: "agent", Cause: memory.ErrInterrupted.Error(), TurnID: &turn, Heard: &heard}
	want := memory.Reply{Turns: []int64{7, 8}, Phase: memory.Speaking, Foreign: true}
	replied := make(chan struct{})
	go func() {
		defer close(replied)
		got := <-a.Calls()
		if got.AtMS == 0 || got.From == "" {
			t.Errorf("%+v", got)
		}
		as := got
		as.No, as.AtMS, as.From = 0, 0, ""
		if diff := cmp.Diff(q, as); diff != "" {
			t.Errorf("heard:\n%s", diff)
		}
		if err := a.Take(t.Context(), got); err != nil {
			t.Error(err)
		}
		if err := a.Reply(t.Context(), got, want); err != nil {
			t.Error(err)
		}
	}()
	got, err := b.Ask(t.Context(), q)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	<-replied
}

// TestQuestionsSoon: what is told does not wait to be looked for. Of many questions the quickest answers come sooner than anybody looks.
func TestQuestionsSoon(t *testing.T) {
	t.Parallel()
	url := redistest.URL(t)
	a, b := open(t, redis.Options{URL: url}), open(t, redis.Options{URL: url})
	beat(t, "hear", func() bool { return a.Hears() && b.Hears() }, a, b)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case q := <-a.Calls():
				if err := a.Reply(t.Context(), q, memory.Reply{Turns: []int64{1}}); err != nil {
					t.Error(err)
				}
			case <-stop:
				return
			}
		}
	}()
	var took []time.Duration
	for range 60 {
		began := time.Now()
		if r, err := b.Ask(t.Context(), memory.Question{Project: "acme", ID: "x", Cause: memory.ErrInterrupted.Error()}); err != nil || len(r.Turns) != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		took = append(took, time.Since(began))
	}
	close(stop)
	<-ended
	slices.Sort(took)
	t.Logf("from question to answer: quickest %s, half %s, longest %s", took[0], took[len(took)/2], took[len(took)-1])
	if took[0] > 8*time.Millisecond {
		t.Errorf("the quickest answer came after %s", took[0])
	}
}

// TestQuestionsUnheard: a user who has no right to channels asks and answers all the same: both are looked for.
func TestQuestionsUnheard(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	redistest.Do(t, server.URL(), "ACL", "SETUSER", "mute", "on", ">pass", "~*", "+@all", "resetchannels")
	url := strings.Replace(server.URL(), "redis://", "redis://mute:pass@", 1)
	a, b := open(t, redis.Options{URL: url}), open(t, redis.Options{URL: url})
	beat(t, "know of each other", func() bool {
		others, err := b.Beat(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return others
	}, a, b)
	replied := make(chan struct{})
	go func() {
		defer close(replied)
		var list []memory.Question
		for len(list) == 0 && t.Context().Err() == nil {
			var err error
			if list, err = a.Asked(t.Context()); err != nil {
				t.Error(err)
				return
			}
		}
		if err := a.Reply(t.Context(), list[0], memory.Reply{Turns: []int64{3}}); err != nil {
			t.Error(err)
		}
	}()
	got, err := b.Ask(t.Context(), memory.Question{Project: "acme", ID: "x", Cause: memory.ErrInterrupted.Error()})
	if diff := cmp.Diff(memory.Reply{Turns: []int64{3}}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	<-replied
	if a.Hears() || b.Hears() {
		t.Error("a server hears where nothing is told")
	}
}

// TestRights: the rights that docs/redis.md asks for are enough.
func TestRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	redistest.Do(t, server.URL(), append([]string{"ACL", "SETUSER", "least", "on", ">pass", "~heardlog:*", "resetchannels", "&heardlog:*"},
		strings.Fields("+@read +@write +@scripting +@connection +@pubsub +time +info +cluster")...)...)
	url := strings.Replace(server.URL(), "redis://", "redis://least:pass@", 1)
	s := open(t, redis.Options{URL: url})
	create(t, s, agent(1))
	if err := s.Update(t.Context(), "acme", agent(1).ID, says("x")); err != nil {
		t.Error(err)
	}
	beat(t, "hear", s.Hears, s)
	if err := s.SaveConversation(t.Context(), "acme", "c", []byte("{}"), 1); err != nil {
		t.Error(err)
	}
	r, err := redis.OpenReader(t.Context(), redis.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := 0
	if err := r.Export(t.Context(), export.Scope{}, func(export.Record) error { n++; return nil }); err != nil || n != 4 {
		t.Errorf("%d records, %v", n, err)
	}
	if err := s.Erase(t.Context(), "acme", agent(1).ID); err != nil {
		t.Error(err)
	}
}
