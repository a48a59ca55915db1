// Package receive shows how a server receives Heardlog's webhooks with package webhook/receive. It
// reads and verifies the raw body, drops repeats, and answers at once.
package receive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	hook "github.com/heardlog/heardlog/webhook/receive"
)

// maxSeen is how many notice ids are remembered.
const maxSeen = 10_000

// Config sets what a Receiver does.
type Config struct {
	Secret string           // empty: nothing is verified
	Out    io.Writer        // what came is printed here
	Now    func() time.Time // nil is time.Now
	// Accept a request that has only Agora-Signature-V2: for a URL that Agora itself calls.
	Agora bool
	Once  int // Done is closed after so many different events; 0 = never
	Fail  int // so many requests are answered 500 first
}

// Receiver is the handler of a webhook URL. It is safe for concurrent use.
type Receiver struct {
	c       Config
	handler *hook.Handler
	done    chan struct{}

	mu     sync.Mutex // guards what follows, and Out
	failed int
	taken  int
}

// New makes a receiver. It fails for a secret that cannot be used.
func New(c Config) (*Receiver, error) {
	r := &Receiver{c: c, done: make(chan struct{})}
	seen := hook.NewMemory(maxSeen)
	r.handler = &hook.Handler{
		Handle: r.print,
		Once: func(ctx context.Context, id string, handle func() error) (bool, error) {
			repeat, err := seen.Once(ctx, id, handle)
			if repeat {
				r.say("%s: here before, dropped\n", clean(id))
			}
			return repeat, err
		},
		OnError: func(_ *http.Request, err error) {
			if errors.Is(err, hook.ErrSignature) {
				r.say("refused: %s\n", clean(err.Error()))
			}
		},
	}
	if c.Secret == "" {
		r.handler.Unverified = true
		return r, nil
	}
	v, err := hook.NewVerifier(c.Secret)
	if err != nil {
		return nil, err
	}
	// Agora's own signature holds no time. If it were always accepted, a recorded request could be
	// sent again without the other signature.
	v.Agora, v.Now = c.Agora, c.Now
	r.handler.Verifier = v
	return r, nil
}

// Done is closed when Config.Once events have come.
func (r *Receiver) Done() <-chan struct{} { return r.done }

// ServeHTTP takes one attempt; see Handler of package webhook/receive for the answers.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	how := "not verified"
	switch {
	case r.c.Secret == "":
	case req.Header.Get(hook.HeaderSignature) != "":
		how = "verified: Standard Webhooks"
	default:
		how = "verified: Agora V2"
	}
	about := attempt{how: how, n: orElse(req.Header.Get(hook.HeaderAttempt), "?")}
	r.handler.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), attemptKey{}, about)))
}

// attempt is what is printed of a request beside its event.
type attempt struct{ how, n string }

type attemptKey struct{}

// errAsked is the error of an attempt that fails because of Config.Fail.
var errAsked = errors.New("failing as asked")

// print takes an event that is new.
func (r *Receiver) print(ctx context.Context, e hook.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed < r.c.Fail {
		r.failed++
		fmt.Fprintf(r.c.Out, "%s: answering 500, as told (%d of %d)\n", clean(e.ID), r.failed, r.c.Fail)
		return errAsked
	}
	var pretty bytes.Buffer
	// Cannot fail: Decode has read it.
	if err := json.Indent(&pretty, e.Payload, "", "  "); err != nil {
		return err
	}
	about, _ := ctx.Value(attemptKey{}).(attempt)
	fmt.Fprintf(r.c.Out, "%s (%s, attempt %s)\n%s%s\n", describe(e), about.how, clean(about.n), conversation(e), pretty.Bytes())
	if r.taken++; r.taken == r.c.Once {
		close(r.done)
	}
	return nil
}

func (r *Receiver) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.c.Out, format, args...)
}
