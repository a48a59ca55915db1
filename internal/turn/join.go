package turn

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// What becomes of a request that is identical to one whose answer is still being made (memory.LLMSettings.Duplicates).
const (
	DuplicatesSupersede = "supersede" // it replaces the first, as any other call for the same turn
	DuplicatesJoin      = "join"      // it is given the answer of the first
)

// JoinedHeader tells a client that its answer is that of an earlier, identical request.
const JoinedHeader = "X-Heardlog-Joined"

// maxShared is how much of a stream is kept for requests that join it. One that has become longer cannot be joined any more, and who follows it
// must not lie further behind.
const maxShared = 256 << 10

// joins knows the answers that can be joined.
type joins struct {
	seen atomic.Bool // some agent joins, so that digests are worth making early

	mu      sync.Mutex
	running map[joinKey]*share
}

type joinKey struct {
	project, agent string
	request        [sha256.Size]byte
}

// share is an answer that identical requests follow: the first one's exchange makes it, the others read it from here.
type share struct {
	x   *exchange
	key joinKey

	mu        sync.Mutex
	base      int64       // bytes of the stream that are no longer in log
	log       []byte      //
	status    int         // 0 until the answer begins
	header    http.Header // of the answer
	whole     []byte      // an answer in one piece
	followers int
	flushed   int64 // how far the foremost follower has come
	gone      bool  // the first client is
	dead      bool  // nobody is left, or all of it is over: it cannot be joined any more
	over      bool  // nothing more comes
	err       error // what the first request ended with
	changed   chan struct{}
	leaving   sync.WaitGroup // calls into the exchange by followers
}

// joined is no failure: the request is to follow another's answer.
type joined struct{ *share }

// Error implements error.
func (joined) Error() string { return "the answer is made for an identical request already" }

// planned gives the plan of a call whose agent may want duplicates joined. It decides within the decision about the turn, so that of two requests that come
// together one finds the other.
func (x *exchange) planned(p *plan) func(memory.Head, []memory.Message) (memory.Plan, error) {
	if x.cfg.Defaults.Duplicates == DuplicatesJoin || x.joins.seen.Load() {
		p.identify()
	}
	return func(head memory.Head, recent []memory.Message) (memory.Plan, error) {
		wish := head.Agent.Settings.LLM.Duplicates
		if wish == "" {
			wish = x.cfg.Defaults.Duplicates
		}
		if wish == DuplicatesJoin {
			p.identify() // before fillers are taken out of the list
		}
		out, err := p.make(head, recent)
		if err != nil || wish != DuplicatesJoin {
			return out, err
		}
		x.joins.seen.Store(true)
		if x.follows == nil {
			x.follows = x.joins.take(joinKey{head.Agent.Project, head.Agent.ID, p.identify()}, x)
		}
		if x.follows != nil {
			return memory.Plan{}, joined{x.follows}
		}
		return out, nil
	}
}

// identify gives what an identical request has in common with this one.
func (p *plan) identify() [sha256.Size]byte {
	if !p.identified {
		d := p.req.Digest()
		b := d[:]
		for _, s := range []string{p.header, p.key, string(p.projection)} {
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
		p.identity, p.identified = sha256.Sum256(b), true
	}
	return p.identity
}

// take gives the answer that x is to follow; nil if it has to make its own, which others may follow then.
func (j *joins) take(key joinKey, x *exchange) *share {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.running[key]
	if s != nil && s.x != x && s.attach() {
		return s
	}
	if x.share == nil {
		x.share = &share{x: x, key: key}
	}
	if j.running == nil {
		j.running = map[joinKey]*share{}
	}
	j.running[key] = x.share
	return nil
}

// attach takes a follower, unless the answer is stored already: the same words again are a turn of their own then, even if the upstream still
// holds the connection.
func (s *share) attach() bool {
	if s.x.isSettling() {
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

// wake tells all who wait that something has changed. The caller holds mu.
func (s *share) wake() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// wait gives what is closed at the next change. The caller holds mu.
func (s *share) wait() <-chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// begin notes the head of the answer. The caller holds mu.
func (s *share) begin(status int, h http.Header) {
	if s.status == 0 {
		s.status, s.header = status, h.Clone()
		s.header.Del("X-Request-Id") // each request has its own
		s.header.Del(timingHeader)
	}
}

// write passes a piece of a stream on, to the first client and to those who follow.
func (s *share) write(c *client, b []byte) (int, error) {
	s.mu.Lock()
	s.begin(http.StatusOK, c.w.Header())
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
	return len(b), nil // flush tells whether it reached anybody
}

// flush returns when what was written has left a socket: the first client's, or, once it is gone, that of the foremost follower.
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
		there, followers, changed := s.flushed >= s.base+int64(len(s.log)), s.followers, s.wait()
		s.mu.Unlock()
		switch {
		case there:
			return nil
		case followers == 0:
			return memory.ErrClientGone
		}
		select {
		case <-changed:
		case <-s.x.ctx.Done():
			return nil // cut: what ends the stream is still to be written
		}
	}
}

// answer notes an answer in one piece; s may be nil.
func (s *share) answer(status int, h http.Header, body []byte) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin(status, h)
	s.whole = body
	s.wake()
}

// firstLeft notes that the first client is gone, and tells whether others keep the answer alive; s may be nil.
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

// leave ends a follower. The last one takes the answer with it if the first client is gone too.
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

// finish tells the followers that nothing more comes; s may be nil. Nobody touches the exchange afterwards.
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

// begins takes up a call: as one of its own, or (followed) as one that follows an identical one to its end.
func (x *exchange) begins(c *Call, p *plan) (followed bool, err error) {
	err = x.begin(c.Project, c.AgentID, x.planned(p))
	switch {
	case err == nil:
		return false, nil
	case x.follows == nil:
		x.share.finish(err)
		return false, err
	}
	defer x.follows.leave()
	if _, ok := errors.AsType[joined](err); !ok {
		return false, err
	}
	x.metrics.joined.Inc()
	return true, x.follow(x.follows)
}

// follow gives the client the answer of an identical request, from its beginning. Errors are as those of Serve.
func (x *exchange) follow(s *share) error {
	out := newClient(x)
	defer out.done()
	var pos int64
	buf := make([]byte, 0, 4<<10)
	for {
		s.mu.Lock()
		behind := s.base + int64(len(s.log)) - pos
		switch {
		case s.whole != nil:
			status, h, body := s.status, s.header, s.whole
			s.mu.Unlock()
			x.headers(h)
			x.w.WriteHeader(status)
			writeAll(x.w, body, x.cfg.WriteTimeout)
			return nil
		case pos < s.base: // reads too slowly
			s.mu.Unlock()
			return x.broken(out, fault.New(fault.Upstream, "the answer went on faster than it was read"))
		case behind > 0:
			buf = append(buf[:0], s.log[pos-s.base:][:min(behind, maxPiece)]...)
			h := s.header
			s.mu.Unlock()
			if err := x.passOn(out, h, buf); err != nil {
				return fault.Wrap(fault.Canceled, err, "the client went away")
			}
			pos += int64(len(buf))
			s.reached(pos)
			continue
		case s.over:
			err := s.err
			s.mu.Unlock()
			return x.broken(out, err)
		}
		changed := s.wait()
		s.mu.Unlock()
		select {
		case <-changed:
		case <-x.req.Context().Done():
			return fault.New(fault.Canceled, "the client went away")
		}
	}
}

// maxPiece is how much a follower writes at once.
const maxPiece = 32 << 10

// headers puts the head of another's answer on this one.
func (x *exchange) headers(h http.Header) {
	own := x.w.Header()
	for k, v := range h {
		own[k] = v
	}
	own.Set(JoinedHeader, "true")
	own.Set(timingHeader, string(appendDur([]byte("joined;dur="), x.cfg.Now().Sub(x.arrived))))
}

// passOn writes a piece of another's stream.
func (x *exchange) passOn(out *client, h http.Header, b []byte) error {
	if !out.begun {
		x.headers(h)
	}
	if _, err := out.write(b); err != nil {
		return err
	}
	return out.Flush()
}

// reached notes how far a follower has come.
func (s *share) reached(pos int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pos > s.flushed {
		s.flushed = pos
		if s.gone {
			s.wake()
		}
	}
}

// broken ends a follower as the answer ended, in good order for a nil err: what was said of an error within the stream was passed on with it.
func (x *exchange) broken(out *client, err error) error {
	if err != nil && out.begun && !errors.Is(err, ErrAborted) {
		return errors.Join(ErrAborted, err)
	}
	return err
}
