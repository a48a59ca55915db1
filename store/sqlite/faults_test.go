package sqlite_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/sqlite"
	"github.com/heardlog/heardlog/webhook"
)

var (
	faultSeed  = flag.Uint64("faults.seed", 0, "run TestFaults with this seed alone")
	faultSeeds = flag.Uint64("faults.seeds", 0, "run TestFaults with so many seeds")
)

// raceEnabled is set by a build with the race detector.
var raceEnabled bool

// TestFaults writes on disks that fail in every way at every call, and stops machines and processes
// at every call. After each stop the store has all that was acknowledged, in its place, nothing
// twice, and of what was refused either nothing or all. It goes on when the disk does.
func TestFaults(t *testing.T) {
	t.Parallel()
	n := uint64(1000)
	if testing.Short() || raceEnabled {
		n = 100
	}
	if *faultSeeds > 0 {
		n = *faultSeeds
	}
	files := template(t)
	if *faultSeed != 0 {
		newTrial(t, *faultSeed, files).run()
		return
	}
	const groups = 32 // most of them wait, for example for a purge that fails
	var wg sync.WaitGroup
	for g := range uint64(groups) {
		wg.Go(func() {
			for seed := g + 1; seed <= n && !t.Failed(); seed += groups {
				newTrial(t, seed, files).run()
			}
		})
	}
	wg.Wait()
}

// template returns the files of a store with an endpoint.
func template(t *testing.T) map[string][]byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "d.db")
	s, err := store.OpenSQLite(t.Context(), sqlite.Options{Path: path}, engine.Options{})
	if err == nil {
		err = webhook.PutEndpoint(t.Context(), s, webhook.Endpoint{ID: "e", Project: "p", URL: "https://e.example"})
	}
	for n := range 2 {
		if err == nil {
			_, _, err = s.Create(t.Context(), agent("p", n), 0, memory.Change{})
		}
	}
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"d.db": b}
}

// words is a message as it was written, or tried to be.
type words struct {
	id    string
	seq   int64  // of an acknowledged one
	acked string // its content that was last acknowledged; "" if none was
	tried []string
}

// told is what was written about one agent. One writer at a time uses it.
type told struct {
	id     string
	there  bool // acknowledged
	erased bool // acknowledged
	erases bool // tried
	words  []*words
}

// trial is a test with one seed.
type trial struct {
	t      *testing.T
	seed   uint64
	random *rand.Rand
	files  map[string][]byte
	agents []*told
}

func newTrial(t *testing.T, seed uint64, files map[string][]byte) *trial {
	tr := &trial{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 1)), files: files}
	for n := range 4 {
		tr.agents = append(tr.agents, &told{id: agent("p", n).ID, there: n < 2})
	}
	return tr
}

func (tr *trial) errorf(format string, args ...any) {
	tr.t.Helper()
	tr.t.Errorf("seed %d: %s", tr.seed, fmt.Sprintf(format, args...))
}

func (tr *trial) run() {
	for range 1 + tr.random.IntN(2) {
		tr.life()
		if tr.t.Failed() {
			return
		}
	}
	// What was not acknowledged is sent again, as clients do, and is there once.
	d := newDisk(tr.t, tr.files, tr.random)
	defer d.discard()
	s := tr.open(d)
	if s == nil {
		return
	}
	for _, a := range tr.agents {
		if a.erases {
			continue
		}
		if err := a.create(tr.t.Context(), s); err != nil {
			tr.errorf("create again: %v", err)
		}
		for _, w := range a.words {
			if err := a.append(tr.t.Context(), s, w); err != nil {
				tr.errorf("append again: %v", err)
			}
		}
	}
	tr.check(s)
	tr.checkFile(d)
	if err := s.Close(); err != nil {
		tr.errorf("close: %v", err)
	}
}

// life opens the store on a disk that fails, writes, and ends in one of several ways.
func (tr *trial) life() {
	r := tr.random
	d := newDisk(tr.t, tr.files, rand.New(rand.NewPCG(tr.seed, r.Uint64())))
	defer d.discard()
	d.power = r.IntN(2) == 0
	if r.IntN(2) == 0 {
		d.stopAt = 1 + r.IntN(250)
	}
	from, length := r.IntN(200), 1
	switch r.IntN(3) {
	case 0:
		length = 1 + r.IntN(20)
	case 1:
		length = 1 << 30
	}
	d.kind = diskFault(r.IntN(int(faults)))
	d.fails = func(call int, _ diskFault) bool { return call >= from && call < from+length }
	ctx := tr.t.Context()
	s, err := store.OpenSQLite(ctx, sqlite.Options{Path: d.path()}, engine.Options{})
	if err != nil {
		tr.unavailable("open", err)
		if d.stopped() == nil {
			d.mend()
			s = tr.open(d)
		}
	}
	if s == nil {
		tr.files = d.stopped()
		return
	}
	var wg sync.WaitGroup
	for _, a := range tr.agents {
		w := rand.New(rand.NewPCG(tr.seed, r.Uint64()))
		wg.Go(func() {
			for range 1 + w.IntN(15) {
				tr.step(ctx, s, a, w)
			}
		})
	}
	wg.Wait()
	if d.stopped() == nil {
		// The fault is over.
		d.mend()
		for _, a := range tr.agents {
			if a.erases {
				continue
			}
			if err := a.create(ctx, s); err != nil {
				tr.errorf("the disk is mended; create: %v", err)
			}
			if err := a.append(ctx, s, a.say(fmt.Sprintf("m%d", len(a.words)))); err != nil {
				tr.errorf("the disk is mended; append: %v", err)
			}
		}
		if err := s.Ping(ctx); err != nil {
			tr.errorf("the disk is mended; ping: %v", err)
		}
		tr.check(s)
		if r.IntN(2) == 0 {
			d.mu.Lock()
			d.stop()
			d.mu.Unlock()
		}
	}
	err = s.Close()
	if tr.files = d.stopped(); tr.files == nil {
		if err != nil {
			tr.errorf("close: %v", err)
		}
		tr.files = d.now()
	}
}

func (tr *trial) unavailable(what string, err error) {
	tr.t.Helper()
	if fault.CodeOf(err) != fault.Unavailable {
		tr.errorf("%s: not fault.Unavailable: %v", what, err)
	}
	if strings.Contains(err.Error(), "damaged") {
		tr.errorf("%s: %v", what, err)
	}
}

// open opens a store on a disk without faults and checks it.
func (tr *trial) open(d *disk) *store.SQLite {
	tr.t.Helper()
	s, err := store.OpenSQLite(tr.t.Context(), sqlite.Options{Path: d.path()}, engine.Options{})
	if err != nil {
		tr.errorf("open: %v", err)
		return nil
	}
	tr.check(s)
	return s
}

// step does something to an agent.
func (tr *trial) step(ctx context.Context, s *store.SQLite, a *told, r *rand.Rand) {
	var err error
	what := ""
	switch n := r.IntN(20); {
	case a.erases:
		what, err = "erase", a.erase(ctx, s)
	case !a.there:
		what, err = "create", a.create(ctx, s)
	case n == 0:
		what, err = "purge", s.Purge(ctx)
	case n == 1:
		what = "compact"
		_, err = s.Compact(ctx, 1)
	case n == 2 && a != tr.agents[0] && len(a.words) > 8:
		what, err = "erase", a.erase(ctx, s)
	case n < 6 && len(a.words) > 0:
		what, err = "replace", a.replace(ctx, s, a.words[r.IntN(len(a.words))], fmt.Sprint(r.Uint64()))
	case n < 9 && len(a.words) > 0: // sent again
		what, err = "append again", a.append(ctx, s, a.words[r.IntN(len(a.words))])
	default:
		w := a.say(strings.Repeat(fmt.Sprint(r.Uint32(), " "), 1<<r.IntN(11)))
		what, err = "append", a.append(ctx, s, w)
	}
	if err != nil {
		tr.unavailable(what, err)
	}
}

func (a *told) say(content string) *words {
	w := &words{id: fmt.Sprintf("%s-%d", a.id, len(a.words)), tried: []string{content}}
	a.words = append(a.words, w)
	return w
}

func (a *told) create(ctx context.Context, s *store.SQLite) error {
	var n int
	_, _ = fmt.Sscanf(a.id, "0190-%d", &n)
	_, _, err := s.Create(ctx, agent("p", n), 0, memory.Change{})
	if fault.CodeOf(err) == fault.Conflict {
		err = nil // it was stored although that was not acknowledged
	}
	a.there = a.there || err == nil
	return err
}

func (a *told) erase(ctx context.Context, s *store.SQLite) error {
	a.erases = true
	err := s.Erase(ctx, "p", a.id)
	if fault.CodeOf(err) == fault.NotFound {
		err = nil
	}
	a.erased = a.erased || err == nil
	return err
}

// append stores a message with an event unless a message of its ID is there.
func (a *told) append(ctx context.Context, s *store.SQLite, w *words) error {
	var seq int64
	var content string
	decide := func(view memory.AgentView) (memory.Change, error) {
		have, err := view.ByIDs([]string{w.id})
		if m, ok := have[w.id]; ok || err != nil {
			seq, content = m.Seq, m.Content
			return memory.Change{}, err
		}
		c, err := appendOne(w.tried[0])(view)
		c.Append[0].ID = w.id
		seq, content = c.Append[0].Seq, w.tried[0]
		c.Events = []memory.Event{{ID: w.id, Type: event.Left, CreatedMS: 1, Body: []byte(w.id)}}
		return c, err
	}
	kept := make(chan error, 1)
	early, err := s.UpdateEarly(ctx, "p", a.id, decide, func(err error) { kept <- err })
	if err == nil && early {
		err = <-kept
	}
	if err == nil {
		if w.acked != "" && w.seq != seq {
			return fmt.Errorf("message %s was at %d and is at %d", w.id, w.seq, seq)
		}
		w.seq, w.acked = seq, content
	}
	return err
}

func (a *told) replace(ctx context.Context, s *store.SQLite, w *words, content string) error {
	there := false
	err := s.Update(ctx, "p", a.id, func(view memory.AgentView) (memory.Change, error) {
		have, err := view.ByIDs([]string{w.id})
		m, ok := have[w.id]
		if there = ok; !ok || err != nil {
			return memory.Change{}, err
		}
		m.Content, m.Rev = content, view.Head().Rev+1
		return memory.Change{Replace: []memory.Message{m}}, nil
	})
	switch {
	case err != nil:
		w.tried = append(w.tried, content)
	case there:
		w.acked, w.tried = content, []string{content}
		if w.seq == 0 {
			m, err := s.Messages(ctx, "p", a.id, memory.MessageQuery{IDs: []string{w.id}, Limit: 2})
			if err != nil {
				return err
			}
			w.seq = m[0].Seq
		}
	case w.acked != "":
		return fmt.Errorf("message %s was acknowledged and is not there", w.id)
	}
	return err
}

// check compares a store without faults with what was written.
func (tr *trial) check(s *store.SQLite) {
	tr.t.Helper()
	ctx := tr.t.Context()
	sent := map[string]int{} // by event
	page, err := s.Deliveries(ctx, webhook.DeliveryQuery{Project: "p", Limit: 1000})
	if err != nil {
		tr.errorf("list deliveries: %v", err)
	}
	for _, d := range page.Deliveries {
		sent[d.EventID]++
	}
	for _, a := range tr.agents {
		head, list, err := s.Recent(ctx, "p", a.id, 1000, false)
		switch {
		case fault.CodeOf(err) == fault.NotFound && err != nil:
			if a.there && !a.erases {
				tr.errorf("agent %s was acknowledged and is not there", a.id)
			}
			a.there, a.erased = a.there && a.erases, a.erases
			continue
		case err != nil:
			tr.errorf("read %s: %v", a.id, err)
			continue
		case a.erased:
			tr.errorf("agent %s was erased and is there", a.id)
		}
		a.there = true
		have := map[string]memory.Message{}
		for i, m := range list {
			if _, ok := have[m.ID]; ok {
				tr.errorf("message %s is there twice", m.ID)
			}
			have[m.ID] = m
			if i > 0 && m.Seq <= list[i-1].Seq || m.Rev > head.Rev || m.Seq >= head.NextSeq {
				tr.errorf("message %s has number %d and revision %d", m.ID, m.Seq, m.Rev)
			}
		}
		for _, w := range a.words {
			m, ok := have[w.id]
			delete(have, w.id)
			if ok != (w.acked != "") && !ok {
				tr.errorf("message %s was acknowledged and is not there", w.id)
			}
			if ok && w.acked != "" && m.Seq != w.seq {
				tr.errorf("message %s was at %d and is at %d", w.id, w.seq, m.Seq)
			}
			fits := m.Content == w.acked
			for _, c := range w.tried {
				fits = fits || m.Content == c
			}
			if ok && !fits {
				tr.errorf("message %s has another content", w.id)
			}
			if sent[w.id] > 1 || (sent[w.id] == 1) != ok {
				tr.errorf("message %s, stored %v, has %d deliveries", w.id, ok, sent[w.id])
			}
			if ok { // from now on it is as if it had been acknowledged
				w.seq, w.acked, w.tried = m.Seq, m.Content, []string{m.Content}
			}
		}
		for id := range have {
			tr.errorf("message %s was never written", id)
		}
	}
}

// checkFile looks for damage.
func (tr *trial) checkFile(d *disk) {
	tr.t.Helper()
	r, err := sqlite.OpenReader(sqlite.Options{Path: d.path()})
	if err == nil {
		err = errors.Join(r.Damage(tr.t.Context(), func(what string) { tr.errorf("damage: %s", what) }), r.Close())
	}
	if err != nil {
		tr.errorf("check for damage: %v", err)
	}
}

func (d *disk) path() string { return filepath.Join(d.dir, "d.db") }

func (d *disk) stopped() map[string][]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.after
}

func (d *disk) mend() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails = nil
	d.stopAt = 0
}

// now returns the files as processes see them.
func (d *disk) now() map[string][]byte {
	out := map[string][]byte{}
	for name := range d.files {
		if b, err := os.ReadFile(filepath.Join(d.dir, name)); err == nil {
			out[name] = b
		}
	}
	return out
}
