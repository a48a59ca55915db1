package turn

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"net/http"
	"sync"

	"github.com/heardlog/heardlog/internal/prompt"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// Values of memory.LLMSettings.Duplicates: what happens to a request that is identical to one whose
// answer is still being made.
const (
	// It replaces the first, like any other call for the same turn.
	DuplicatesSupersede = "supersede"
	DuplicatesJoin      = "join" // it gets the answer of the first
)

// maxShared is how many bytes of a stream are kept for requests that join it. A stream that is
// longer cannot be joined any more, and a request that has joined it must not be further behind.
const maxShared = 256 << 10

// joins holds the answers that can be joined.
type joins struct {
	mu      sync.Mutex
	running map[joinKey]*share
}

type joinKey struct {
	project, agent string
	request        [sha256.Size]byte
}

// share is an answer that identical requests join. The exchange of the first request makes it, and
// the others read it here.
type share struct {
	x   *exchange
	key joinKey

	mu        sync.Mutex
	base      int64       // how many bytes of the stream are no longer in log
	log       []byte      //
	status    int         // 0 until the answer begins
	header    http.Header // of the answer
	whole     []byte      // an answer in one piece
	followers int
	flushed   int64 // how many bytes the foremost follower has sent
	gone      bool  // the first client is gone
	dead      bool  // it cannot be joined any more
	over      bool  // nothing more comes
	err       error // what the first request ended with
	changed   chan struct{}
	leaving   sync.WaitGroup // calls of followers into the exchange
}

// errJoined ends a decision: the request joins another's answer.
var errJoined = errors.New("the answer is being made for an identical request")

// beginOrJoin begins a turn for the call, or, if an identical request is being answered and the
// agent wants that, serves the call with that answer to its end.
func (x *exchange) beginOrJoin(w http.ResponseWriter, req *http.Request, c *Call, p *prompt.Plan) (joined bool, err error) {
	r := p.Begin()
	r.Plan = x.decide(p, c.Request)
	err = x.begin(c.Project, c.AgentID, r)
	switch {
	case err == nil:
		return false, nil
	case x.joined == nil:
		x.share.finish(err)
		return false, err
	}
	defer x.joined.leave()
	if !errors.Is(err, errJoined) {
		return false, err
	}
	x.metrics.joined.Inc()
	f := follower{share: x.joined, client: x.newWriter(w, &x.timing), ctx: req.Context()}
	return true, f.run()
}

// decide returns the plan's decision. It fails for an agent that has no LLM for the request, and
// with errJoined if the request joins another. Both happen within one decision about the turn, so
// that of two requests that arrive together one finds the other.
func (x *exchange) decide(p *prompt.Plan, req *llmadapter.Request) func(memory.Head, []memory.Message) (agents.Plan, error) {
	key := joinKey{}
	return func(head memory.Head, recent []memory.Message) (agents.Plan, error) {
		llm := &head.Agent.Settings.LLM
		if err := x.checkLLM(*llm); err != nil {
			return agents.Plan{}, err
		}
		if x.settings(*llm).Vendor != memory.VendorCustom {
			if err := req.CheckParts(); err != nil {
				return agents.Plan{}, err
			}
		}
		joins := cmp.Or(llm.Duplicates, x.cfg.Defaults.Duplicates) == DuplicatesJoin
		if joins && key == (joinKey{}) { // once, before fillers are taken out of the list
			key = joinKey{head.Agent.Project, head.Agent.ID, p.Digest()}
		}
		out, err := p.Decide(head, recent)
		if err != nil || !joins {
			return out, err
		}
		if x.joined == nil {
			x.joined = x.joins.join(key, x)
		}
		if x.joined != nil {
			return agents.Plan{}, errJoined
		}
		return out, nil
	}
}

// join returns the answer that x joins. It returns nil if x has to make its own, which others may
// join then.
func (j *joins) join(key joinKey, x *exchange) *share {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.running[key]
	if s != nil && s.x != x && s.attach() {
		return s
	}
	if x.share == nil {
		x.share = &share{x: x, key: key}
	}
	j.running[key] = x.share
	return nil
}

// attach adds a follower. It reports false if the answer is stored already: the same words again
// are then a turn of their own, even if the upstream still holds the connection.
func (s *share) attach() bool {
	if s.x.answer.isSettling() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead || s.over || s.base > 0 || s.x.ctx.Err() != nil {
		return false
	}
	s.followers++
	return true
}

// wake reports a change to all who wait for one. The caller holds mu.
func (s *share) wake() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// nextChange returns a channel that is closed at the next change. The caller holds mu.
func (s *share) nextChange() <-chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// setHead notes the status and headers of the answer. The caller holds mu.
func (s *share) setHead(status int, h http.Header) {
	if s.status == 0 {
		s.status, s.header = status, h.Clone()
		s.header.Del("X-Request-Id") // each request has its own
		s.header.Del(timingHeader)
	}
}

// write sends a piece of a stream to the first client and to the followers.
func (s *share) write(c *client, b []byte) (int, error) {
	s.mu.Lock()
	s.setHead(http.StatusOK, c.w.Header())
	s.log = append(s.log, b...)
	if over := len(s.log) - maxShared; over > maxShared/4 || over > 0 && s.base == 0 {
		s.base += int64(over)
		s.log = s.log[:copy(s.log, s.log[over:])]
	}
	s.wake()
	gone := s.gone
	s.mu.Unlock()
	if !gone {
		if n, err := c.write(b); err == nil {
			return n, nil
		}
		s.firstLeft()
	}
	c.begun = true
	return len(b), nil // flush finds out whether it reached a follower
}

// flush returns when what was written has left a socket: the first client's, or, once that is gone,
// the foremost follower's.
func (s *share) flush(c *client) error {
	s.mu.Lock()
	gone := s.gone
	s.mu.Unlock()
	if !gone {
		if c.flush() == nil {
			return nil
		}
		s.firstLeft()
	}
	for {
		s.mu.Lock()
		sent, followers, changed := s.flushed >= s.base+int64(len(s.log)), s.followers, s.nextChange()
		s.mu.Unlock()
		switch {
		case sent:
			return nil
		case followers == 0:
			return agents.ErrClientGone
		}
		select {
		case <-changed:
		case <-s.x.ctx.Done():
			return nil // the answer was cut: the end of the stream is still to be written
		}
	}
}

// answer notes an answer in one piece. s may be nil.
func (s *share) answer(status int, h http.Header, body []byte) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setHead(status, h)
	s.whole = body
	s.wake()
}

// firstLeft notes that the first client is gone, and reports whether followers keep the answer
// going. s may be nil.
func (s *share) firstLeft() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	s.dead = s.dead || s.followers == 0
	s.wake()
	return s.followers > 0
}

// leave removes a follower. If the first client is gone too, the last follower ends the answer.
func (s *share) leave() {
	s.mu.Lock()
	s.followers--
	last := s.followers == 0 && s.gone && !s.over
	if last {
		s.dead = true
		s.leaving.Add(1)
	}
	s.wake()
	s.mu.Unlock()
	if last {
		s.x.clientLeft()
		s.leaving.Done()
	}
}

// finish ends the answer for the followers. None of them uses the exchange afterwards. s may be
// nil.
func (s *share) finish(err error) {
	if s == nil {
		return
	}
	j := &s.x.joins
	j.mu.Lock()
	if j.running[s.key] == s {
		delete(j.running, s.key)
	}
	j.mu.Unlock()
	s.mu.Lock()
	s.over, s.err = true, err
	s.wake()
	s.mu.Unlock()
	s.leaving.Wait()
}

// sentTo notes how many bytes a follower has sent.
func (s *share) sentTo(pos int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pos > s.flushed {
		s.flushed = pos
		if s.gone {
			s.wake()
		}
	}
}
