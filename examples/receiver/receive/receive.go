// Package receive shows how a server takes Heardlog's webhooks: read the raw body, verify it, drop repeats, answer at once.
package receive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/heardlog/heardlog/webhook"
)

// MaxBody is the longest body that is read, in bytes: the memory of a long conversation is large, and receivers that stop at
// 100 KB, as many do unless told otherwise, never see it.
const MaxBody = 16 << 20

// maxSeen is how many notice ids are remembered.
const maxSeen = 10_000

// Config says what a Receiver does.
type Config struct {
	Secret webhook.Secret   // empty: nothing is verified
	Out    io.Writer        // what came is printed here
	Now    func() time.Time // nil is time.Now
	Once   int              // Done is closed after so many different events; 0 = never
	Fail   int              // so many requests are answered 500 first
}

// Receiver is the handler of a webhook URL. It is safe for concurrent use.
type Receiver struct {
	c    Config
	done chan struct{}

	mu     sync.Mutex // guards what follows, and Out
	seen   map[string]bool
	order  []string // of seen, oldest first
	failed int
	taken  int
}

// New makes a receiver.
func New(c Config) *Receiver {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Receiver{c: c, done: make(chan struct{}), seen: map[string]bool{}}
}

// Done is closed when Config.Once events have come.
func (r *Receiver) Done() <-chan struct{} { return r.done }

// ServeHTTP takes one attempt. It answers 200 and a JSON body, as Agora's senders want it, 401 for a signature that is wrong or
// missing, 413 for a body over MaxBody, 400 for one that is no event, 405 for anything but POST.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		answer(w, http.StatusMethodNotAllowed, "send a POST")
		return
	}
	// The raw bytes: a signature does not fit a body that was decoded and encoded again.
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, MaxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		answer(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("at most %d bytes", MaxBody))
		return
	}
	if err != nil {
		answer(w, http.StatusBadRequest, "the body broke off")
		return
	}
	how, err := r.verify(req.Header, body)
	if err != nil {
		r.print("refused: %s\n", err)
		answer(w, http.StatusUnauthorized, err.Error())
		return
	}
	event, err := webhook.Decode(body)
	if err != nil {
		answer(w, http.StatusBadRequest, err.Error())
		return
	}
	status, text := r.take(event, body, how, req.Header.Get(webhook.HeaderAttempt))
	answer(w, status, text)
	r.count(status, text)
}

// verify checks every kind of signature that the request carries; there must be one at least.
func (r *Receiver) verify(h http.Header, body []byte) (how string, err error) {
	if r.c.Secret == "" {
		return "not verified", nil
	}
	var kinds []string
	// Standard Webhooks first: its timestamp makes a recorded request worthless after five minutes. Agora's has none; there,
	// dropping repeats by noticeId is what helps.
	if h.Get(webhook.HeaderSignature) != "" {
		if err := webhook.VerifyStandard(r.c.Secret, h, body, r.c.Now()); err != nil {
			return "", err
		}
		kinds = append(kinds, "Standard Webhooks")
	}
	if h.Get(webhook.HeaderAgoraV2) != "" {
		if err := webhook.VerifyAgora(r.c.Secret, h, body); err != nil {
			return "", err
		}
		kinds = append(kinds, "Agora V2")
	}
	if len(kinds) == 0 {
		return "", fmt.Errorf("%s or %s is missing", webhook.HeaderSignature, webhook.HeaderAgoraV2)
	}
	return "verified: " + strings.Join(kinds, ", "), nil
}

// The texts of an answer.
const (
	success = "success"
	repeat  = "success, known already"
)

// take keeps and prints an event that is new, and says what to answer.
func (r *Receiver) take(e webhook.Envelope, body []byte, how, attempt string) (status int, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed < r.c.Fail {
		r.failed++
		fmt.Fprintf(r.c.Out, "%s: answering 500, as told (%d of %d)\n", clean(e.NoticeID), r.failed, r.c.Fail)
		return http.StatusInternalServerError, "failing as told"
	}
	if r.seen[e.NoticeID] {
		// A repeat is normal: at-least-once delivery. It is answered like the first, or it would come again.
		fmt.Fprintf(r.c.Out, "%s: here before, dropped\n", clean(e.NoticeID))
		return http.StatusOK, repeat
	}
	if len(r.order) == maxSeen {
		delete(r.seen, r.order[0])
		r.order = r.order[1:]
	}
	r.seen[e.NoticeID] = true
	r.order = append(r.order, e.NoticeID)

	var pretty bytes.Buffer
	if err := json.Indent(&pretty, body, "", "  "); err != nil { // Decode has read it; this cannot be
		return http.StatusBadRequest, "not JSON"
	}
	fmt.Fprintf(r.c.Out, "%s (%s, attempt %s)\n%s%s\n", describe(e), how, clean(orElse(attempt, "?")), conversation(e), pretty.Bytes())
	return http.StatusOK, success
}

// count closes done when enough different events were answered.
func (r *Receiver) count(status int, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if status != http.StatusOK || text != success {
		return
	}
	if r.taken++; r.taken == r.c.Once {
		close(r.done)
	}
}

func (r *Receiver) print(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.c.Out, format, args...)
}

// answer writes the JSON that Agora's senders expect: code 0 is success.
func answer(w http.ResponseWriter, status int, text string) {
	code := status
	if status == http.StatusOK {
		code = 0
	}
	b, err := json.Marshal(map[string]any{"code": code, "msg": text})
	if err != nil {
		status, b = http.StatusInternalServerError, nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the sender is gone; it tries again
}
