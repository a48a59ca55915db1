package turn

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
	"github.com/heardlog/heardlog/memory/heard"
)

// answer is what has been read and sent of a turn's answer, and whether it is stored. A client that
// leaves makes another goroutine read and store it.
type answer struct {
	toVoice  string   // the words that the LLM was asked to voice, normalised; "" for none
	recalled []string // IDs of what was recalled for the prompt

	relay    llmadapter.Relay // its Mu guards what follows, too
	upstream string           // name of the upstream that answers, or was asked last
	origin   string           // what identifies it: see originOf
	settling bool             // settle was called
	body     []byte           // of the last request to it
	tries    []memory.Try
	request  <-chan *memory.Request // what the model was given by the last attempt; nil for nothing
	drained  bool                   // the client is gone and the upstream is still read
	// Set with drained; closed when relay.Record has all that the client was sent.
	sentAll <-chan struct{}

	settled chan struct{} // closed when the answer is stored, or could not be
	// What follows may be read after settled.
	unstored error
	outcome  string
	failure  *memory.Failure
}

// generated returns what has been read of the answer so far.
func (a *answer) generated() string {
	a.relay.Mu.Lock()
	defer a.relay.Mu.Unlock()
	return a.relay.Record.Generated()
}

// spoke reports whether the client was sent any words.
func (a *answer) spoke() bool {
	a.relay.Mu.Lock()
	defer a.relay.Mu.Unlock()
	return !a.relay.Record.FirstTokenAt.IsZero()
}

func (a *answer) isSettling() bool {
	a.relay.Mu.Lock()
	defer a.relay.Mu.Unlock()
	return a.settling
}

func (a *answer) isDrained() bool {
	a.relay.Mu.Lock()
	defer a.relay.Mu.Unlock()
	return a.drained
}

// settle stores the answer as it stands. Only the first call does; later ones wait for it. err is
// why the answer ended, nil for a complete one. settle fails with errNotStored: the client must not
// be told then that the answer is complete.
func (x *exchange) settle(err error, f *memory.Failure, failureText string) error {
	filler := x.client.endFiller()
	x.answer.relay.Mu.Lock()
	if x.answer.settling {
		x.answer.relay.Mu.Unlock()
		<-x.answer.settled
		return x.answer.unstored
	}
	x.answer.settling = true
	rec := &x.answer.relay.Record
	generated := rec.Generated()
	out := agents.Answer{
		Generated: generated, WithThoughts: rec.WithThoughts(), Sent: rec.Sent(), ToolCalls: rec.ToolCalls(), Origin: x.answer.origin, FinishRsn: text.Clip(rec.Finish, maxFinish), Usage: rec.Usage,
		UpstreamID: rec.ID, Upstream: x.answer.upstream, Filler: filler, Recalled: x.answer.recalled,
		Repeats:  failureText == "" && !rec.Calls() && x.answer.voices(generated),
		Complete: (err == nil || rec.Complete()) && !rec.Cut() && !memory.Aborted(rec.Finish),
		Err:      err, Failure: f, FailureText: failureText,
		Timings: memory.Timings{
			StartMS: x.arrived.UnixMilli(), FirstTokenMS: x.since(rec.FirstTokenAt), FirstSentenceMS: x.since(rec.FirstSentenceAt),
			TotalMS: x.since(x.cfg.Now()), UpstreamFirstByteMS: x.firstMS(), UpstreamBytes: x.bytes.Load(),
		},
	}
	if out.Complete || out.ToolCalls != nil { // a half thought has no signature
		out.Members = rec.Members()
	}
	if out.Model = rec.Model; out.Model == "" {
		out.Model = peek.At(x.answer.body, "model").Text()
	}
	out.Model = text.Clip(out.Model, memory.MaxModel)
	out.Cost = x.cfg.Prices.CostOf(out.Model, rec.Usage, len(x.answer.body), cmp.Or(out.WithThoughts, generated))
	token, sentence := rec.FirstTokenAt, rec.FirstSentenceAt
	x.answer.relay.Mu.Unlock()
	defer close(x.answer.settled)
	out.Request = x.answer.record()

	x.metrics.times(&x.timing, token, sentence)
	label := Outcome(err)
	switch {
	case failureText != "":
		label = "failure_message"
	case err == nil && memory.Aborted(out.FinishRsn):
		label = "aborted"
	case err == nil && memory.Limited(out.FinishRsn):
		label = "length"
		if out.FinishRsn == "content_filter" {
			label = out.FinishRsn
		}
	}
	x.metrics.answers.WithLabelValues(label).Inc()
	from := x.cfg.Now()
	if _, err := x.cfg.Turns.Settle(x.ctx, x.turn, out); err != nil {
		x.cfg.Log.Error().Err(err).Str("agent", x.turn.Agent.ID).Int64("turn_id", x.turn.TurnID).Msg("an answer could not be stored")
		x.answer.unstored = fmt.Errorf("%w: %w", errNotStored, err)
	}
	x.answer.outcome, x.answer.failure = label, f
	x.trace.memory(from, x.cfg.Now())
	return x.answer.unstored
}

// maxFinish limits how many bytes of a finish_reason are stored.
const maxFinish = 64

// errNotStored is an answer that the store did not accept.
var errNotStored = errors.New("the answer could not be stored")

// failStored ends a call whose answer is complete but could not be stored. A client must not take
// it for one that is remembered.
func (x *exchange) failStored(err error) error {
	x.client.endFiller()
	if x.client != nil && x.client.begun {
		x.client.breakStream(fault.Wrap(fault.Unavailable, err, "the answer could not be stored"))
		return errors.Join(ErrAborted, err)
	}
	return fault.Wrap(fault.Unavailable, err, "the answer could not be stored; try again")
}

// since returns the ms from the call's arrival to t, at least 1, or 0 for the zero time.
func (x *exchange) since(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(1, t.Sub(x.arrived).Milliseconds())
}

// wasCut reports whether an answer ended because that was asked for.
func wasCut(err error) bool {
	return slices.ContainsFunc([]error{
		agents.ErrInterrupted, agents.ErrBargeIn, agents.ErrSpeak, agents.ErrThink, agents.ErrLeave, agents.ErrSuperseded, agents.ErrOvertaken,
	}, func(cut error) bool { return errors.Is(err, cut) })
}

// wordsToVoice returns the words that a call asks to be voiced, normalised: those of an assistant
// message at its end, or "". The message may also be an answer to be continued; the answer shows
// which.
func wordsToVoice(r *llmadapter.Request) string {
	if len(r.Messages) == 0 { // it was only a filler
		return ""
	}
	last := &r.Messages[len(r.Messages)-1]
	if last.Role != "assistant" || last.ToolCalls != nil {
		return ""
	}
	return heard.Normalize(last.Text())
}

// voices reports whether generated is the words to be voiced, or their beginning.
func (a *answer) voices(generated string) bool {
	if a.toVoice == "" {
		return false
	}
	said := heard.Normalize(generated)
	return said != "" && strings.HasPrefix(a.toVoice, said)
}
