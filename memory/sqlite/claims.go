package sqlite

import (
	"maps"
	"math"
	"sync"
	"time"

	"github.com/heardlog/heardlog/webhook"
)

// claims are what workers have of deliveries. They are in memory alone, and no row tells of them: one process owns the file, so that a claim ends with its process in any
// case, and a durable write for each would be half of what a delivery costs. What was under way when a process was killed is due again as soon as
// the next one has opened the file, as the attempt that it was: nothing has been noted of it.
type claims struct {
	one sync.Mutex // held by the one who looks for what is due

	mu    sync.Mutex     // guards the rest, and of each endpoint what it says there
	of    map[int64]held // by delivery
	fence int64          // the last one given. It begins with the time, so that no claim of an earlier process has the same
	tests int            // how often tests were committed
}

// held is one claim.
type held struct {
	fence, until int64
	attempt      int
	endpoint     int64 // its row
	due          int64 // of the delivery, for one who gives it back
	urgent       bool
	ending       bool // its result is being stored
}

func newClaims() claims {
	return claims{of: map[int64]held{}, fence: time.Now().UnixMicro()}
}

// candidate is an endpoint that something may be due for, as it was when a claim began.
type candidate struct {
	*endpoint
	to      *webhook.Endpoint
	changes int   // of endpoint.due until then
	held    int   // claims, ended ones included
	flying  int   // of them, whose lease runs
	expires int64 // the first end of a lease
	again   []due // those whose lease is over
}

// look is what a claim begins with; what is committed later it need not see.
type look struct {
	list    []*candidate
	claimed map[int64]held
	index   index
	tests   int
}

// look is called before the database is asked: a delivery whose result is committed in between counts as claimed still.
func (s *Store) look(c webhook.Claim) look {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	l := look{claimed: maps.Clone(s.claims.of), index: s.index, tests: s.claims.tests}
	if c.Limit <= 0 {
		return l
	}
	byNo := map[int64]*candidate{}
	for _, e := range s.endpoints {
		if !e.Disabled && e.due <= c.NowMS {
			one := &candidate{endpoint: e, to: e.Endpoint, changes: e.changes, expires: nothingDue}
			l.list = append(l.list, one)
			byNo[e.no] = one
		}
	}
	for id, h := range l.claimed {
		if s.index.byNo[h.endpoint] == nil && !h.ending && h.until <= c.NowMS { // its endpoint was deleted, and its worker has not come back
			delete(s.claims.of, id)
			continue
		}
		one := byNo[h.endpoint]
		if one == nil {
			continue
		}
		one.held++
		if h.until > c.NowMS || h.ending {
			one.flying++
			one.expires = min(one.expires, h.until)
		} else {
			one.again = append(one.again, due{id: id, at: h.until, retry: true, e: one})
		}
	}
	return l
}

// later notes when something will be due for an endpoint for which nothing is now.
func (s *Store) later(e *candidate, ms int64) {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	if e.changes == e.endpoint.changes {
		e.due = ms
	}
}

// hold makes a claim of a delivery, unless its last one is being ended or was while this one looked for it; fence is the stored one.
func (s *Store) hold(d due, was held, fence, until int64, attempt int) (held, bool) {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	if now, ok := s.claims.of[d.id]; ok != (was.fence != 0) || now.fence != was.fence || now.ending {
		return held{}, false
	}
	s.claims.fence = max(s.claims.fence, fence) + 1
	h := held{fence: s.claims.fence, until: until, attempt: max(attempt, was.attempt) + 1, endpoint: d.e.no, due: d.at, urgent: d.urgent}
	s.claims.of[d.id] = h
	return h, true
}

// ending marks a claim as one whose result is on its way, so that no other is made however long that takes.
func (s *Store) ending(d webhook.Delivery) (held, error) {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	h, ok := s.claims.of[d.ID]
	if !ok || h.fence != d.Fence || h.ending {
		return held{}, staleClaim(d)
	}
	h.ending = true
	s.claims.of[d.ID] = h
	return h, nil
}

// drop ends a claim; where its result could not be stored it is kept, until its lease ends.
func (s *Store) drop(d webhook.Delivery, keep bool) {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	h, ok := s.claims.of[d.ID]
	switch {
	case !ok || h.fence != d.Fence:
	case keep:
		h.ending = false
		s.claims.of[d.ID] = h
	default:
		delete(s.claims.of, d.ID)
	}
}

// forget ends the claim of a delivery that is pending no more, if there is one and its result is not being stored.
func (s *Store) forget(id int64) {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	if h, ok := s.claims.of[id]; ok && !h.ending {
		delete(s.claims.of, id)
	}
}

// tested counts an endpoint's tests that are claimed: those wait no more.
func (s *Store) tested(endpointNo int64) (n int64) {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	for _, h := range s.claims.of {
		if h.urgent && h.endpoint == endpointNo {
			n++
		}
	}
	return n
}

// show adds to a record what its claim says.
func (s *Store) show(r *webhook.Record) {
	if r.State != webhook.Pending {
		return
	}
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	if h, ok := s.claims.of[r.ID]; ok {
		r.Claimed, r.Attempt, r.DueMS = true, h.attempt, h.until
	}
}

// claimed gives the claims by delivery.
func (s *Store) claimed() map[int64]held {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	return maps.Clone(s.claims.of)
}

// note tells endpoints, by their rows, that something is due then; it is committed.
func (s *Store) note(dues map[int64]int64, tests bool) {
	if len(dues) == 0 && !tests {
		return
	}
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	for no, ms := range dues {
		if e := s.index.byNo[no]; e != nil {
			e.due = min(e.due, ms)
			e.changes++
		}
	}
	if tests {
		s.claims.tests++
		s.urgent.Store(true)
	}
}

// noTests is called by a claim that has found none.
func (s *Store) noTests(seen int) {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	if s.claims.tests == seen {
		s.urgent.Store(false)
	}
}

const nothingDue = math.MaxInt64
