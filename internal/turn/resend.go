package turn

import (
	"context"
	"encoding/json"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// Limits of a Resend: how often it is asked, how long one try may take, and how long an upstream
// may ask to be left alone between two of them.
const (
	resendTries   = 3
	resendTotal   = time.Minute
	resendLongest = 10 * time.Second
)

// Resend is the body of a request that is asked again outside the agent's turns.
type Resend struct {
	LLM  memory.LLMSettings // where to; an absent address is that of the server's own LLM
	Body []byte             // does not ask for a stream
}

// Resent is the answer to a Resend.
type Resent struct {
	Text, Finish string
	Model        string // as the upstream names it; "" if it does not
	ToolCalls    json.RawMessage
	Usage        json.RawMessage
	Took         time.Duration   // of the last try
	Failure      *memory.Failure // why there is no answer; it holds no secrets
}

// Resend asks one upstream, without fallbacks and breakers, so that it does not affect calls. A
// failure that may pass is tried again. It returns an error, and no Failure, if ctx ends first.
// Close does not wait for it.
func (r *Runner) Resend(ctx context.Context, in Resend) (out Resent, err error) {
	if err := r.checkLLM(in.LLM); err != nil {
		return Resent{Failure: failureOf(err)}, nil
	}
	for n := 0; ; n++ {
		began := r.cfg.Now()
		err := r.resend(ctx, &in, &out)
		out.Took = r.cfg.Now().Sub(began)
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		if err == nil {
			return out, nil
		}
		wait := max(llmadapter.Backoff(n), RetryAfter(err, r.cfg.Now()))
		if n+1 == resendTries || !llmadapter.TroubleOf(err).Repeats() || wait > resendLongest {
			out.Failure = failureOf(err)
			return out, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// resend is one try.
func (r *Runner) resend(ctx context.Context, in *Resend, out *Resent) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := r.settings(in.LLM)
	t := newTarget(&memory.Upstream{Name: PrimaryUpstream, URL: l.URL, APIKey: l.APIKey, Vendor: l.Vendor, Headers: l.Headers}, agentLabel, in.LLM.URL != "")
	limits := limitsOf(&l)
	if limits.Total <= 0 || limits.Total > resendTotal {
		limits.Total = resendTotal
	}
	call := &llmadapter.Call{URL: t.url, APIKey: t.key, Azure: t.azure, Headers: secret.RevealMap(t.headers), Body: in.Body, Connect: limits.Connect}
	a := &attempt{Runner: r, target: &t, turn: ctx, ctx: ctx, call: call, watch: llmadapter.NewWatch(limits, false, r.cfg.Now, cancel)}
	defer a.watch.Stop()
	res, err := r.cfg.Client.Do(ctx, call)
	if err != nil {
		return llmadapter.CauseFault(context.Cause(ctx), err)
	}
	defer res.Body.Close()
	if a.res = res; a.isStream() {
		return fault.New(fault.Upstream, "the LLM answered with a stream that was not asked for")
	}
	if err := readable(res); err != nil {
		return err
	}
	var rec llmadapter.Record
	if _, err := a.readUnary(&rec); err != nil {
		return err
	}
	switch {
	case rec.Error != nil:
		return a.streamFault(rec.Error)
	case rec.Cut():
		return errLongReply
	case rec.Empty():
		return errNoWords
	}
	// An upstream could repeat what it was sent.
	secrets := call.Secrets()
	out.Text, out.ToolCalls = string(secrets.Remove([]byte(rec.Generated()))), secrets.Remove(rec.ToolCalls())
	out.Finish, out.Usage, out.Model = text.Clip(rec.Finish, maxFinish), rec.Usage, text.Clip(rec.Model, memory.MaxModel)
	return nil
}
