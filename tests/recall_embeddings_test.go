package tests

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// meant waits until a recall finds, by meaning, the turn of anna that has none of the words, and
// returns the answer.
func (s *server) meant(t *testing.T, want string) (out recalled) {
	t.Helper()
	waitFor(t, "a recall by meaning", func() bool {
		out = s.recall("anna", "Which cats live there?", `,"explain":true`)
		return len(out.Hits) > 0 && out.Hits[0].Explain["meaning"] > 0
	})
	if out.Hits[0].Content != want {
		t.Errorf("found %+v first, want %q", out.Hits, want)
	}
	return out
}

// TestRecallByMeaning: turns and queries are compared by a model's embeddings, which each server
// makes of what it has in memory.
func TestRecallByMeaning(t *testing.T) {
	t.Parallel()
	model := &fakeModel{}
	srv := httptest.NewServer(model)
	t.Cleanup(srv.Close)
	s := start(t, "HEARDLOG_EMBEDDINGS_URL="+srv.URL, "HEARDLOG_EMBEDDINGS_KEY=key-of-the-model", "HEARDLOG_EMBEDDINGS_MODEL=m1", "HEARDLOG_EMBEDDINGS_DIMENSIONS=3", "HEARDLOG_RECALL_EMBEDDINGS=true")
	const dog, oak = "My dog is called Rex.", "The oak wants water."
	first := s.join("first", caller("anna"))
	s.say(first, user(dog), assistant("bad cat"), user(oak)) // the model refuses the second
	s.meant(t, dog)
	if got := s.recall("anna", "water", `,"explain":true`); got.Hits[0].Content != oak {
		t.Errorf("by its word: %+v", got)
	}
	second := s.join("second", caller("anna"))
	s.say(second, user("Roses are red."))
	s.meant(t, dog)
	made := func(text string) int {
		model.mu.Lock()
		defer model.mu.Unlock()
		return len(slices.DeleteFunc(slices.Clone(model.texts), func(s string) bool { return s != text }))
	}
	waitFor(t, "the embedding of a new turn", func() bool { return made("Roses are red.") == 1 })
	if n := made(dog); n != 1 {
		t.Errorf("a turn was embedded %d times", n)
	}

	set := func(fails bool, shift float32) {
		model.mu.Lock()
		defer model.mu.Unlock()
		model.fails, model.shift = fails, shift
	}
	set(true, 0)
	if got := s.recall("anna", "oak", `,"explain":true`); got.Hits[0].Content != oak || got.Hits[0].Explain["meaning"] != 0 {
		t.Errorf("without the endpoint: %+v", got)
	}
	s.say(second, user("Tulips are late."))
	s.recall("anna", "oak")
	waitFor(t, "a failed try to embed the new turn", func() bool {
		model.mu.Lock()
		defer model.mu.Unlock()
		return slices.Contains(model.lost, "Tulips are late.")
	})
	set(false, 0)
	waitFor(t, "the next try, without another recall", func() bool { return made("Tulips are late.") == 1 })
	set(false, 0.5) // another model behind the same name
	s = s.again()
	s.meant(t, dog)
	s.post(agent(first, "/clear"), nil)
	if got := s.recall("anna", "Which cats live there?"); slices.Contains(got.texts(), dog) {
		t.Errorf("a cleared turn was found by its meaning: %q", got.texts())
	}
}

// TestRecallSlowModel: an endpoint that hangs costs a recall no more than its share of the
// deadline, and none at all once it has failed a few times.
func TestRecallSlowModel(t *testing.T) {
	t.Parallel()
	model := &fakeModel{}
	hang := make(chan struct{})
	var hangs atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hangs.Load() {
			select {
			case <-r.Context().Done():
			case <-hang:
			}
			return
		}
		model.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(func() { close(hang) })
	s := start(t, "HEARDLOG_EMBEDDINGS_URL="+srv.URL, "HEARDLOG_EMBEDDINGS_KEY=key-of-the-model", "HEARDLOG_EMBEDDINGS_MODEL=m1", "HEARDLOG_EMBEDDINGS_DIMENSIONS=3", "HEARDLOG_RECALL_EMBEDDINGS=true")
	s.say(s.join("first", caller("anna")), user("My dog is called Rex."), user("The oak wants water."))
	s.meant(t, "My dog is called Rex.")
	hangs.Store(true)
	began := time.Now()
	for range 20 {
		if got := s.recall("anna", "oak"); len(got.Hits) == 0 || got.Hits[0].Content != "The oak wants water." {
			t.Fatalf("%+v", got)
		}
	}
	if took := time.Since(began); took > patience {
		t.Errorf("20 recalls took %s", took)
	}
}
