package turn

import (
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/heardlog/heardlog/memory"
)

// filler is a phrase that is sent while the LLM thinks (filler_words): one chunk, once an answer,
// to a client that wants a stream. It is kept apart from the model's words. The client's mu guards
// it.
type filler struct {
	phrase string
	timer  *time.Timer
	over   bool // it will not be sent any more
	sent   bool
}

// startFiller starts the filler, if the agent has one and the client wants a stream.
func (x *exchange) startFiller() {
	s, c := &x.turn.Agent.Settings.Filler, x.client
	if len(s.Phrases) == 0 || !c.stream {
		return
	}
	wait := time.Duration(s.WaitMS)*time.Millisecond - x.cfg.Now().Sub(x.arrived)
	c.mu.Lock() // it may be due at once
	defer c.mu.Unlock()
	c.filler = &filler{phrase: choosePhrase(s, x.turn.Agent.ID, x.turn.TurnID), timer: time.AfterFunc(max(0, wait), x.sendFiller)}
}

// choosePhrase chooses by the turn's number: in the phrases' order, or in one that is shuffled
// again each time all have been used. A turn that is repeated gets the same phrase.
func choosePhrase(s *memory.Filler, agent string, turn int64) string {
	n := int64(len(s.Phrases))
	if !s.Shuffle {
		return s.Phrases[turn%n]
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(agent)) // never fails
	order := rand.New(rand.NewPCG(h.Sum64(), uint64(turn/n))).Perm(int(n))
	return s.Phrases[order[turn%n]]
}

// sendFiller sends the phrase, unless the answer has begun or ended. The chunk's ID is empty:
// clients that join chunks take the answer's ID from the first chunk that has one, and refuse a
// different one.
func (x *exchange) sendFiller() {
	c := x.client
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.filler
	if f.over || x.ctx.Err() != nil || x.cfg.Turns.Durable(x.turn) != nil {
		return
	}
	f.over = true
	x.markPassed()
	x.cfg.Turns.Progress(x.turn, memory.Speaking)
	c.open("", nil)
	text := f.phrase
	if !strings.HasSuffix(text, " ") { // another sentence follows
		text += " "
	}
	if _, err := c.put(c.chunk("", chunkDelta{"assistant", text}, "")); err != nil {
		return // the relay notices that the client is gone
	}
	f.sent = c.push() == nil
}

// endFiller keeps the phrase from being sent, or waits until it is sent. It returns the phrase if
// it was sent.
func (c *client) endFiller() string {
	if c == nil || c.filler == nil {
		return ""
	}
	c.filler.timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.filler.over = true
	if c.filler.sent {
		return c.filler.phrase
	}
	return ""
}
