package turn

import (
	"bytes"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// filler sends a phrase while the LLM thinks (filler_words): one chunk, once an answer, to a client
// that wants a stream. It is kept apart from the model's words. A nil filler does nothing.
type filler struct {
	x      *exchange
	phrase string
	timer  *time.Timer

	mu   sync.Mutex // guards what follows, and the client as long as the phrase may be sent
	over bool       // it will not be sent any more
	sent bool
}

// startFiller starts the filler, if the agent has one and the client wants a stream.
func (x *exchange) startFiller() {
	s := &x.turn.Agent.Settings.Filler
	if len(s.Phrases) == 0 || !x.client.stream {
		return
	}
	f := &filler{x: x, phrase: choosePhrase(s, x.turn.Agent.ID, x.turn.TurnID)}
	wait := time.Duration(s.WaitMS)*time.Millisecond - x.cfg.Now().Sub(x.arrived)
	f.mu.Lock() // it may be due at once
	defer f.mu.Unlock()
	x.client.filler = f
	f.timer = time.AfterFunc(max(0, wait), f.send)
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

// send sends the phrase, unless the answer has begun or ended. The chunk's ID is empty: clients
// that join chunks take the answer's ID from the first chunk that has one, and refuse a different
// one.
func (f *filler) send() {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := f.x
	if f.over || x.ctx.Err() != nil || x.cfg.Turns.Durable(x.turn) != nil {
		return
	}
	f.over = true
	x.cfg.Turns.Progress(x.turn, memory.Speaking)
	c := x.client
	c.open("", nil)
	text := f.phrase
	if !strings.HasSuffix(text, " ") { // another sentence follows
		text += " "
	}
	if _, err := c.Write(c.chunk("", chunkDelta{"assistant", text}, "")); err != nil {
		return // the relay notices that the client is gone
	}
	f.sent = c.Flush() == nil
}

// end keeps the phrase from being sent, or waits until it is sent. It returns the phrase if it was
// sent.
func (f *filler) end() string {
	if f == nil {
		return ""
	}
	f.timer.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	if f.sent {
		return f.phrase
	}
	return ""
}

// streamWriter returns the writer for the events of a stream.
func (c *client) streamWriter() llmadapter.StreamWriter {
	if c.filler == nil {
		return c
	}
	return &fillerWriter{c.filler, c}
}

// fillerWriter is a client between whose events a filler may be sent.
type fillerWriter struct {
	f *filler
	c *client
}

// Write implements io.Writer. After a part of an event no filler may follow.
func (o *fillerWriter) Write(b []byte) (int, error) {
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	if !bytes.HasSuffix(b, []byte("\n\n")) && !bytes.HasSuffix(b, []byte("\n\r\n")) && !bytes.HasSuffix(b, []byte("\r\r")) {
		o.f.over = true
	}
	return o.c.Write(b)
}

// Flush implements llmadapter.StreamWriter.
func (o *fillerWriter) Flush() error {
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	return o.c.Flush()
}
