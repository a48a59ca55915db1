package resident_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/longterm/resident"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/storetest"
)

// texts is the index of tests: the bodies of records by ID.
type texts struct {
	byID map[string]string
	size int64
}

func (x *texts) Bytes() int64 { return x.size }

func (x *texts) Take(list []record.Record, _ record.State) error {
	for _, r := range list {
		x.size += int64(len(r.Body) - len(x.byID[r.ID]))
		if x.byID[r.ID] = string(r.Body); r.Deleted {
			delete(x.byID, r.ID)
		}
		if string(r.Body) == "bad" {
			return errors.New("bad record")
		}
	}
	return nil
}

// store counts what is read, and lets a test wait in a page after the first one.
type store struct {
	record.Store
	mu            sync.Mutex
	calls, listed int
	hold          func()
}

func (s *store) Records(ctx context.Context, at record.Space, q record.Query) ([]record.Record, record.State, error) {
	list, state, err := s.Store.Records(ctx, at, q)
	s.mu.Lock()
	s.calls++
	s.listed += len(list)
	hold := s.hold
	s.mu.Unlock()
	if hold != nil && q.AfterRev > 0 {
		hold()
	}
	return list, state, err
}

// reads returns how often and how many records were read since it was called last.
func (s *store) reads() (calls, listed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls, listed = s.calls, s.listed
	s.calls, s.listed = 0, 0
	return calls, listed
}

func space(name string) record.Space { return record.Space{Project: "p", Name: name} }

// put changes records of a space: "id=body", or "id" to delete.
func (s *store) put(t *testing.T, name string, records ...string) record.State {
	t.Helper()
	var list []record.Change
	for _, r := range records {
		id, body, stays := strings.Cut(r, "=")
		c := record.Change{ID: id, If: record.Any}
		if stays {
			c.Body = []byte(body)
		}
		list = append(list, c)
	}
	state, err := s.ChangeRecords(t.Context(), space(name), list, record.Limit{}, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// fill stores n records of a kilobyte.
func (s *store) fill(t *testing.T, name string, n int) {
	t.Helper()
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("%d=%s", i, strings.Repeat("x", 1<<10)))
	}
	s.put(t, name, list...)
}

func fresh(record.Space) *texts { return &texts{byID: map[string]string{}} }

func open(s *store, refuse resident.Refuse) *resident.Spaces[*texts] {
	return resident.NewSpaces(s, 64<<10, fresh, refuse)
}

// get returns the records of a space's index.
func get(t *testing.T, c *resident.Spaces[*texts], name string) (out []string) {
	t.Helper()
	e, err := c.Enter(t.Context(), space(name))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer e.Leave()
	for id, body := range e.Value.byID {
		out = append(out, id+"="+body)
	}
	slices.Sort(out)
	return out
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %.100q, want %q", what, got, want)
	}
}

// TestFollow: an index has all that was stored before, reads only what has changed, and reads all
// again if it missed deletions.
func TestFollow(t *testing.T) {
	t.Parallel()
	s := &store{Store: storetest.New(t)}
	for name, refuse := range map[string]resident.Refuse{"none": nil, "some": func(record.Space, record.State, int64) error { return nil }} {
		c := open(s, refuse)
		want(t, "an empty space", get(t, c, name))
		s.put(t, name, "a=1", "b=2")
		want(t, "at first", get(t, c, name), "a=1", "b=2")
		s.reads()
		s.put(t, name, "b", "c=3")
		want(t, "changed", get(t, c, name), "a=1", "c=3")
		if calls, listed := s.reads(); calls != 1 || listed != 2 {
			t.Errorf("%d records were read in %d calls, want the 2 new ones in 1", listed, calls)
		}
		s.put(t, name, "a")
		if err := s.SweepRecords(t.Context(), time.Now().UnixMilli()); err != nil {
			t.Fatal(err)
		}
		want(t, "after a deletion that is forgotten", get(t, c, name), "c=3")
		if _, err := s.EraseRecords(t.Context(), "p", "", name); err != nil {
			t.Fatal(err)
		}
		want(t, "erased", get(t, c, name))
		s.put(t, name, "d=bad")
		if _, err := c.Enter(t.Context(), space(name)); err == nil || err.Error() != "bad record" {
			t.Errorf("a bad record: %v", err)
		}
		s.put(t, name, "d=4")
		want(t, "the bad record was replaced", get(t, c, name), "d=4")
	}
}

// TestBudget: the index that was not used for the longest time goes first, one that is too large
// for all of the memory is not kept, and removed ones are gone.
func TestBudget(t *testing.T) {
	t.Parallel()
	s := &store{Store: storetest.New(t)}
	c := open(s, nil)
	kept := func() (out []string) {
		for _, k := range c.Keys() {
			out = append(out, k.Name)
		}
		return out
	}
	for _, name := range []string{"a", "b", "a", "c"} {
		s.fill(t, name, 25)
		get(t, c, name)
	}
	want(t, "a and c fit", kept(), "a", "c")
	s.fill(t, "a", 50)
	get(t, c, "a")
	want(t, "a has grown", kept(), "a")
	s.fill(t, "b", 70)
	if n := len(get(t, c, "b")); n != 70 {
		t.Errorf("%d records of a large space", n)
	}
	want(t, "b does not fit", kept(), "a")
	c.Remove(space("a"))
	want(t, "removed", kept())
}

// TestRefuse: a space is refused by its state without being read, and by the size of its index
// without being read again before it changes.
func TestRefuse(t *testing.T) {
	t.Parallel()
	s := &store{Store: storetest.New(t)}
	c := open(s, func(at record.Space, now record.State, size int64) error {
		if now.Count > 300 || size > 32<<10 {
			return fmt.Errorf("%s is too large", at.Name)
		}
		return nil
	})
	refused := func(name string, most int) {
		t.Helper()
		s.reads()
		_, err := c.Enter(t.Context(), space(name))
		if _, listed := s.reads(); err == nil || err.Error() != name+" is too large" || listed > most {
			t.Errorf("%v after reading %d records", err, listed)
		}
	}
	s.fill(t, "many", 301)
	refused("many", 1)
	s.put(t, "large", "0=small")
	get(t, c, "large")
	s.fill(t, "large", 40)
	refused("large", 40)
	refused("large", 1)
	var half []string
	for i := range 20 {
		half = append(half, fmt.Sprint(i))
	}
	s.put(t, "large", half...)
	if n := len(get(t, c, "large")); n != 20 {
		t.Errorf("%d records of a space that fits again", n)
	}
}

// TestOnce: callers that ask at the same time wait for one that reads, and can give up. Of spaces
// that take long, two are read at a time; others do not wait for them.
func TestOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &store{Store: storetest.New(t)}
		c := open(s, func(record.Space, record.State, int64) error { return nil })
		for _, name := range []string{"a", "b", "c"} {
			s.fill(t, name, 250)
		}
		s.fill(t, "small", 3)
		on, reading := make(chan struct{}), 0
		s.hold = func() {
			s.mu.Lock()
			reading++
			s.mu.Unlock()
			<-on
		}
		s.reads()
		var all sync.WaitGroup
		for range 5 {
			for _, name := range []string{"a", "b", "c"} {
				all.Go(func() {
					if n := len(get(t, c, name)); n != 250 {
						t.Errorf("%d records of %s", n, name)
					}
				})
			}
		}
		synctest.Wait()
		if reading != 2 {
			t.Errorf("%d spaces are being read, want 2", reading)
		}
		get(t, c, "small")
		for _, name := range []string{"a", "b", "c"} {
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			if _, err := c.Enter(ctx, space(name)); !fault.Is(err, fault.Canceled) {
				t.Errorf("a caller gives up on %s: %v", name, err)
			}
			stop()
		}
		close(on)
		all.Wait()
		if _, listed := s.reads(); listed < 3*250 || listed > 3*251+4 {
			t.Errorf("%d records were read, want each once", listed)
		}
	})
}

// TestWarm: Run loads what Warm asked for, two at a time. Projects take turns, and each has a
// limited number of entries that wait.
func TestWarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := resident.New[string, *texts](64 << 10)
		entry := func(key string) *resident.Entry[string, *texts] {
			return c.Get(key, func() *texts { return &texts{byID: map[string]string{"key": key}} })
		}
		for i := range 40 {
			entry(fmt.Sprint("busy", i)).Warm("busy")
			entry(fmt.Sprint("busy", i)).Warm("busy") // it waits already
		}
		other := entry("other")
		ready := other.Warm("quiet")
		if !other.Cold() {
			t.Error("an entry is not cold before Run")
		}
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		var order []string
		next := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = c.Run(ctx, func(_ context.Context, v *texts) error {
				mu.Lock()
				order = append(order, v.byID["key"])
				mu.Unlock()
				<-next
				if v.byID["key"] == "busy1" {
					return errors.New("it cannot be read")
				}
				return nil
			})
		}()
		synctest.Wait()
		slices.Sort(order)
		want(t, "at first", order, "busy0", "other")
		close(next)
		synctest.Wait()
		select {
		case <-ready:
		default:
			t.Error("nobody is told that the entry is loaded")
		}
		if len(order) != 33 {
			t.Errorf("%d entries were loaded, want 32 of the busy project and the other", len(order))
		}
		if other.Cold() || entry("busy0").Cold() || !entry("busy1").Cold() || entry("busy31").Cold() || !entry("busy39").Cold() {
			t.Error("the wrong entries are cold")
		}
		entry("busy1").Warm("busy")
		synctest.Wait()
		if len(order) != 34 {
			t.Error("an entry that failed is not loaded again")
		}
		stop()
		<-ended
	})
}
