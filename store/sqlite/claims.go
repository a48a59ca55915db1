package sqlite

import (
	"maps"
	"math"
	"sync"
	"time"

	"github.com/heardlog/heardlog/webhook"
)

// claims are the deliveries that workers are sending. They are kept in memory only. One process
// owns the file, so a claim ends with its process in any case, and writing each one down would be
// half of what a delivery costs. After a crash, what was claimed is due again as soon as the file
// is opened, with the same attempt number.
type claims struct {
	claiming sync.Mutex // held by the call that looks for due deliveries

	mu    sync.Mutex      // guards the rest, and some fields of each endpoint
	by    map[int64]claim // by delivery
	fence int64           // the last one; it starts from the time, so that no earlier process had it
}

// claim is one delivery that a worker is sending.
type claim struct {
	fence, until int64
	attempt      int
	endpoint     int64 // its row
	due          int64 // of the delivery, if the claim is released
	urgent       bool
	ending       bool // its result is being stored
}

func newClaims() claims {
	return claims{by: map[int64]claim{}, fence: time.Now().UnixMicro()}
}

// candidate is an endpoint that may have due deliveries, as it was when the call of Claim began.
type candidate struct {
	*endpoint
	to      *webhook.Endpoint
	changes int   // of endpoint.due until then
	held    int   // claims, including those whose lease is over
	flying  int   // claims whose lease runs
	expires int64 // when the first lease ends
	again   []due // deliveries whose lease is over
}

// claimState is what a call of Claim starts from. It need not see what is committed later.
type claimState struct {
	list    []*candidate
	byNo    map[int64]*candidate // the same by row
	claimed map[int64]claim
}

// claimState returns the state before Claim reads the database. A delivery whose result is
// committed in between still counts as claimed.
func (s *Store) claimState(c webhook.Claim) claimState {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	l := claimState{byNo: map[int64]*candidate{}, claimed: maps.Clone(s.claims.by)}
	for _, e := range s.endpoints {
		if !e.Disabled && e.due <= c.NowMS {
			one := &candidate{endpoint: e, to: e.Endpoint, changes: e.changes, expires: nothingDue}
			l.list = append(l.list, one)
			l.byNo[e.no] = one
		}
	}
	for id, h := range l.claimed {
		// The endpoint was deleted, and the worker has not come back.
		if s.index.byNo[h.endpoint] == nil && !h.ending && h.until <= c.NowMS {
			delete(s.claims.by, id)
			continue
		}
		one := l.byNo[h.endpoint]
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

// setDue sets when the next delivery is due for an endpoint that has none now.
func (s *Store) setDue(e *candidate, ms int64) {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	if e.changes == e.endpoint.changes {
		e.due = ms
	}
}

// claim claims a delivery, unless its claim is another than was or its result is being
// stored. fence is the one in the row.
func (s *Store) claim(d due, was claim, fence, until int64, attempt int) (claim, bool) {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	if now, ok := s.claims.by[d.id]; ok != (was.fence != 0) || now.fence != was.fence || now.ending {
		return claim{}, false
	}
	s.claims.fence = max(s.claims.fence, fence) + 1
	h := claim{fence: s.claims.fence, until: until, attempt: max(attempt, was.attempt) + 1, endpoint: d.e.no, due: d.at, urgent: d.urgent}
	s.claims.by[d.id] = h
	return h, true
}

// beginFinish marks a claim as one whose result is being stored, so that the delivery is not
// claimed again however long that takes.
func (s *Store) beginFinish(d webhook.Delivery) (claim, error) {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	h, ok := s.claims.by[d.ID]
	if !ok || h.fence != d.Fence || h.ending {
		return claim{}, staleClaim(d)
	}
	h.ending = true
	s.claims.by[d.ID] = h
	return h, nil
}

// endClaim ends a claim. With keep, because its result could not be stored, the claim stays until
// its lease ends.
func (s *Store) endClaim(d webhook.Delivery, keep bool) {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	h, ok := s.claims.by[d.ID]
	switch {
	case !ok || h.fence != d.Fence:
	case keep:
		h.ending = false
		s.claims.by[d.ID] = h
	default:
		delete(s.claims.by, d.ID)
	}
}

// dropClaim ends the claim of a delivery that is no longer pending, unless its result is being
// stored.
func (s *Store) dropClaim(id int64) {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	if h, ok := s.claims.by[id]; ok && !h.ending {
		delete(s.claims.by, id)
	}
}

// claimedTests counts the claimed tests of an endpoint. They do not wait any more.
func (s *Store) claimedTests(endpointNo int64) (n int64) {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	for _, h := range s.claims.by {
		if h.urgent && h.endpoint == endpointNo {
			n++
		}
	}
	return n
}

// addClaim adds the claim of a delivery to its record.
func (s *Store) addClaim(r *webhook.Record) {
	if r.State != webhook.Pending {
		return
	}
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	if h, ok := s.claims.by[r.ID]; ok {
		r.Claimed, r.Attempt, r.DueMS = true, h.attempt, h.until
	}
}

// claimed returns the claims by delivery.
func (s *Store) claimed() map[int64]claim {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	return maps.Clone(s.claims.by)
}

// noteDue notes when a committed delivery is due, by the row of its endpoint.
func (s *Store) noteDue(no, ms int64) {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	if e := s.index.byNo[no]; e != nil {
		e.due = min(e.due, ms)
		e.changes++
	}
}

const nothingDue = math.MaxInt64
