package engine

import (
	"sync"

	"github.com/heardlog/heardlog/internal/fault"
)

const (
	// rowCost is what a row costs besides its bytes, in bytes.
	rowCost = 256
	// quantum is how many bytes a project may add to a group in one turn.
	quantum = 8 << 10
	// smallGroups is how many groups of small writes may pass a large write that waits.
	smallGroups = 4
	// queueProjects is how many projects with full queues may wait. Beyond that, only projects with
	// less than their share may add writes.
	queueProjects = 4
	// enough is how many writes pay for a commit of their own.
	enough = 8
)

// queue holds the writes that wait for a commit. Projects take turns by bytes (deficit round
// robin), and the agents of a project take turns too; the writes of an agent keep their order. A
// large write is committed by itself, so a small one waits for one of them at most.
type queue struct {
	o *Options

	mu           sync.Mutex
	waiting      int
	early        int            // how many of them have callers that have gone on
	want         int            // how many a committer expects
	full         chan struct{}  // closed when so many wait; nil if none is expected
	byProject    map[string]int // how many writes of each project wait
	small, large ring           // agents, by the size of their first write
	storing      int            // large writes that are being committed
	passed       int            // groups of small writes since the last large one
}

// ring holds agents with waiting writes, by project, in the order of their turns.
type ring struct {
	byProject map[string]*turns
	projects  []*turns
}

// turns holds the agents of a project in a ring.
type turns struct {
	project string
	agents  []*agent
	credit  int // bytes that the project may still add to groups
}

func newQueue(o *Options) *queue {
	return &queue{
		o: o, byProject: map[string]int{},
		small: ring{byProject: map[string]*turns{}}, large: ring{byProject: map[string]*turns{}},
	}
}

// mayAdd returns an error if no more writes of the project may wait. The caller holds q.mu.
func (q *queue) mayAdd(project string) error {
	mine := q.byProject[project]
	if mine >= q.o.QueueLen || q.waiting >= queueProjects*q.o.QueueLen && mine >= q.waiting/len(q.byProject) {
		return fault.New(fault.Unavailable, "too many writes are waiting; try again")
	}
	return nil
}

// add puts a write behind the others of its agent. The caller holds q.mu.
func (q *queue) add(w *write) {
	a := w.agent
	w.cost = w.bytes() + rowCost*len(w.Bodies)
	w.large = w.cost > q.o.MaxGroupBytes/4
	if a.first == nil {
		a.first = w
	} else {
		a.end.next = w
	}
	a.end = w
	q.waiting++
	if w.whenStored != nil {
		q.early++
	}
	if q.waiting >= q.want || q.early > 0 {
		q.stopExpecting()
	}
	q.byProject[w.Project]++
	q.enter(a)
}

// enter puts an agent with waiting writes into its ring, unless it is there already or a write of
// it is being committed. The caller holds q.mu.
func (q *queue) enter(a *agent) {
	if a.first == nil || a.ringed || a.by != nil {
		return
	}
	r := &q.small
	if a.first.large {
		r = &q.large
	}
	t := r.byProject[a.ref.Project]
	if t == nil {
		t = &turns{project: a.ref.Project}
		r.byProject[t.project] = t
		r.projects = append(r.projects, t)
	}
	t.agents = append(t.agents, a)
	a.ringed = true
}

// drop takes the first agent of a project out of a ring.
func (t *turns) drop() {
	t.agents[0].ringed = false
	t.agents = t.agents[1:]
}

// rotate ends the turn of the first project, and removes it if nothing of it waits.
func (r *ring) rotate() {
	t := r.projects[0]
	r.projects = r.projects[1:]
	if len(t.agents) > 0 {
		r.projects = append(r.projects, t)
	} else {
		delete(r.byProject, t.project)
	}
}

// next takes the first write of an agent. The caller holds q.mu.
func (q *queue) next(c *committer, a *agent) *write {
	w := a.first
	a.first, w.next, a.by = w.next, nil, c
	q.waiting--
	if w.whenStored != nil {
		q.early--
	}
	if q.byProject[w.Project]--; q.byProject[w.Project] == 0 {
		delete(q.byProject, w.Project)
	}
	return w
}

// take takes a group for a committer. If there is nothing for it, the committer is idle from then
// on.
func (q *queue) take(c *committer) (group []*write) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// One committer is always left for small writes, if there are several.
	mayLarge := q.storing < max(len(c.e.committers)-1, 1)
	if !mayLarge || len(q.large.projects) == 0 || q.passed < smallGroups {
		group = q.takeSmall(c) // may add to q.large
		q.passed++
	}
	if len(group) == 0 && mayLarge && len(q.large.projects) > 0 {
		group = q.takeLarge(c)
		q.passed = 0
	}
	c.busy = len(group) > 0
	c.back = 0
	for _, w := range group {
		if w.whenStored == nil {
			c.back++
		}
	}
	q.stopExpecting()
	return group
}

func (q *queue) takeSmall(c *committer) (group []*write) {
	for bytes := 0; len(q.small.projects) > 0 && len(group) < q.o.MaxGroup && bytes < q.o.MaxGroupBytes; q.small.rotate() {
		t := q.small.projects[0]
		t.credit = min(t.credit+quantum, max(q.o.MaxGroupBytes/4, quantum))
		for len(t.agents) > 0 && len(group) < q.o.MaxGroup {
			a := t.agents[0]
			if a.first == nil || a.first.large || a.by != nil && a.by != c {
				t.drop()
				q.enter(a) // its next write may be large
				continue
			}
			if a.first.cost > t.credit {
				break
			}
			w := q.next(c, a)
			t.credit -= w.cost
			bytes += w.cost
			group = append(group, w)
			t.agents = append(t.agents[1:], a)
		}
	}
	return group
}

func (q *queue) takeLarge(c *committer) []*write {
	t := q.large.projects[0]
	a := t.agents[0]
	t.drop()
	q.large.rotate()
	q.storing++
	return []*write{q.next(c, a)}
}

// stored ends the commit of a group: what waits of its agents may be taken.
func (q *queue) stored(c *committer, group []*write) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if group[0].large {
		q.storing--
	}
	for _, w := range group {
		if a := w.agent; a.by == c {
			a.by = nil
			q.enter(a)
		}
	}
}

// expect returns what is closed once back more writes wait than now, or enough, or another
// committer has taken some. It returns nil if enough wait already, if one or two would wait, or if
// a write waits whose caller has gone on: the first words of an answer wait for that.
func (q *queue) expect(back int) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	want := min(q.waiting+back, enough, q.o.MaxGroup)
	if want < 3 || q.waiting >= want || q.early > 0 || q.full != nil {
		return nil
	}
	q.want, q.full = want, make(chan struct{})
	return q.full
}

// stopExpecting ends the wait for more writes. The caller holds q.mu.
func (q *queue) stopExpecting() {
	if q.full != nil {
		close(q.full)
		q.full = nil
	}
}
