package tests

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/sqlite"
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

// TestRecallByMeaning: turns and queries are compared by a model's embeddings, which are made once,
// and are erased with their call and their caller.
func TestRecallByMeaning(t *testing.T) {
	t.Parallel()
	model := &fakeModel{}
	srv := httptest.NewServer(model)
	t.Cleanup(srv.Close)
	path := filepath.Join(t.TempDir(), "calls.db")
	s := start(t, "HEARDLOG_STORE=sqlite:"+path, "HEARDLOG_EMBEDDINGS_URL="+srv.URL, "HEARDLOG_EMBEDDINGS_KEY=key-of-the-model", "HEARDLOG_EMBEDDINGS_MODEL=m1", "HEARDLOG_EMBEDDINGS_DIMENSIONS=3")
	const dog, oak = "My dog is called Rex.", "The oak wants water."
	first := s.join("first", caller("anna"))
	s.say(first, user(dog), assistant("bad cat"), user(oak)) // the model refuses the second
	s.meant(t, dog)
	if got := s.recall("anna", "water", `,"explain":true`); got.Hits[0].Content != oak {
		t.Errorf("by its word: %+v", got)
	}

	s = s.again()
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

	model.mu.Lock()
	model.fails = true
	model.mu.Unlock()
	if got := s.recall("anna", "oak", `,"explain":true`); got.Hits[0].Content != oak || got.Hits[0].Explain["meaning"] != 0 {
		t.Errorf("without the endpoint: %+v", got)
	}
	model.mu.Lock()
	model.fails, model.shift = false, 0.5 // another model behind the same name
	model.mu.Unlock()
	s = s.again()
	s.meant(t, dog)
	if n := made(dog); n != 2 {
		t.Errorf("a turn was embedded %d times by two models", n)
	}

	left := func(s *server) (names []string) {
		s.stop()
		store, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		spaces, err := store.RecordSpaces(t.Context(), "default", "recall.embeddings/", record.Space{}, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range spaces {
			names = append(names, strings.TrimPrefix(at.Name, "recall.embeddings/"))
		}
		return names
	}
	waitFor(t, "both calls' embeddings", func() bool { return made("Roses are red.") == 2 })
	if got := s.do(http.MethodDelete, agent(first, ""), nil); got.status != http.StatusNoContent {
		t.Errorf("%+v", got)
	}
	if got := left(s); !slices.Equal(got, []string{second}) {
		t.Errorf("embeddings of calls %q after the first was erased", got)
	}
	s = s.again()
	s.do(http.MethodDelete, v1+"/users/anna", nil).ok(nil)
	if got := left(s); len(got) > 0 {
		t.Errorf("embeddings of calls %q after their caller was erased", got)
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
	s := start(t, "HEARDLOG_EMBEDDINGS_URL="+srv.URL, "HEARDLOG_EMBEDDINGS_KEY=key-of-the-model", "HEARDLOG_EMBEDDINGS_MODEL=m1", "HEARDLOG_EMBEDDINGS_DIMENSIONS=3")
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
