package turn

import (
	"bytes"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/heardlog/heardlog/memory"
)

// filler says something while the LLM thinks (filler_words, reference/agora-api.md 2.3): one chunk, once an answer, to a client that wants a stream. It
// is kept apart from the model's words. A nil filler, that of a call without one, does nothing.
type filler struct {
	x      *exchange
	phrase string
	timer  *time.Timer

	mu   sync.Mutex // guards what follows, and the exchange's out while the call may still say it
	over bool       // it is not said any more
	said bool
}

// startFiller sets the filler up, if the agent has one and the client wants a stream.
func (x *exchange) startFiller() {
	s := &x.turn.Agent.Settings.Filler
	if len(s.Phrases) == 0 || !x.stream || x.w == nil {
		return
	}
	f := &filler{x: x, phrase: phraseOf(s, x.turn.Agent.ID, x.turn.TurnID)}
	wait := time.Duration(s.WaitMS)*time.Millisecond - x.cfg.Now().Sub(x.arrived)
	f.mu.Lock() // it may be due at once
	defer f.mu.Unlock()
	x.filler = f
	f.timer = time.AfterFunc(max(0, wait), f.say)
}

// phraseOf chooses by the number of the turn: in the phrases' own order, or in one that is shuffled anew whenever all were said. Nothing has to be
// remembered for it, and a turn that is asked for again gets the same.
func phraseOf(s *memory.Filler, agent string, turn int64) string {
	n := int64(len(s.Phrases))
	if !s.Shuffle {
		return s.Phrases[turn%n]
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(agent)) // never fails
	order := rand.New(rand.NewPCG(h.Sum64(), uint64(turn/n))).Perm(int(n))
	return s.Phrases[order[turn%n]]
}

// say sends the phrase, unless the answer has begun or ended meanwhile.
func (f *filler) say() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over || f.x.ctx.Err() != nil || f.x.cfg.Turns.Durable(f.x.turn) != nil {
		return
	}
	f.over = true
	x := f.x
	x.cfg.Turns.Progress(x.turn, memory.Speaking)
	x.openOut("", nil)
	if _, err := x.out.Write(x.fillerEvent(f.phrase)); err != nil {
		return // one who is gone is noticed elsewhere
	}
	f.said = x.out.Flush() == nil
}

// end keeps the phrase from being said, waits until it is if it is being said, and gives it if it was.
func (f *filler) end() string {
	if f == nil {
		return ""
	}
	f.timer.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	if f.said {
		return f.phrase
	}
	return ""
}

// guarded runs do while no filler is being said.
func (f *filler) guarded(do func()) {
	if f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
	}
	do()
}

// fillerOut is the client's side of a stream between whose events a filler may come.
type fillerOut struct {
	f *filler
	c *client
}

// Write implements io.Writer. Behind a part of an event there is no place for a filler.
func (o *fillerOut) Write(b []byte) (int, error) {
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	if !bytes.HasSuffix(b, []byte("\n\n")) && !bytes.HasSuffix(b, []byte("\n\r\n")) && !bytes.HasSuffix(b, []byte("\r\r")) {
		o.f.over = true
	}
	return o.c.Write(b)
}

// Flush implements llmadapter.StreamWriter.
func (o *fillerOut) Flush() error {
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	return o.c.Flush()
}

// fillerEvent gives the chunk. Its id is empty: clients that put chunks together take the answer's id from the first that has one, and refuse chunks
// of another.
func (x *exchange) fillerEvent(phrase string) []byte {
	b := strconv.AppendInt([]byte(`data: {"id":"","object":"chat.completion.chunk","created":`), x.arrived.Unix(), 10)
	b = appendJSON(append(b, `,"model":`...), x.modelName())
	if !strings.HasSuffix(phrase, " ") { // what follows is another sentence
		phrase += " "
	}
	b = appendJSON(append(b, `,"choices":[{"index":0,"delta":{"role":"assistant","content":`...), phrase)
	return append(b, "},\"finish_reason\":null}]}\n\n"...)
}
