package compat_test

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// hookSecret is a signing secret for tests, in the form of Standard Webhooks.
var hookSecret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("compat-compat-compat-compat-1234"))

// notice is one received event.
type notice struct {
	NoticeID  string `json:"noticeId"`
	ProductID int    `json:"productId"`
	EventType int    `json:"eventType"`
	NotifyMS  int64  `json:"notifyMs"`
	Payload   struct {
		AgentID  string    `json:"agent_id"`
		Status   string    `json:"status"`
		Message  string    `json:"message"`
		Contents []message `json:"contents"`
		Turns    []any     `json:"turns"`
		// In event 103, why an answer is missing.
		EndReason string `json:"end_reason"`
		EndTurn   int64  `json:"end_turn_id"`
	} `json:"payload"`
}

// hooks is a strict webhook receiver: an independent library verifies signatures, and a repeated
// body must have the same bytes.
type hooks struct {
	url      string
	verifier *standardwebhooks.Webhook
	// fail reports whether to refuse an attempt, or to drop the connection without an answer.
	fail func(id string, attempt string) (refuse, drop bool)

	mu     sync.Mutex
	bodies map[string]string // by webhook-id
	got    map[string]map[int]notice
	repeat int
	faults []string
}

func newHooks(t testing.TB, fail func(id, attempt string) (refuse, drop bool)) *hooks {
	t.Helper()
	v, err := standardwebhooks.NewWebhook(hookSecret)
	if err != nil {
		t.Fatal(err)
	}
	h := &hooks{verifier: v, fail: fail, bodies: map[string]string{}, got: map[string]map[int]notice{}}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	h.url = srv.URL + "/hook"
	return h
}

// count returns how many different events have arrived.
func (h *hooks) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.bodies)
}

// ServeHTTP receives one attempt.
func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender was killed within its request
	}
	id := r.Header.Get("webhook-id")
	n, err := h.verify(r.Header, body)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.faults = append(h.faults, fmt.Sprintf("%s: %v: %.300s", id, err, body))
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if old, ok := h.bodies[id]; ok && old != string(body) {
		h.faults = append(h.faults, fmt.Sprintf("%s came with another body: %s, then %s", id, old, body))
	} else if ok {
		h.repeat++
	}
	h.bodies[id] = string(body)
	if h.fail != nil {
		refuse, drop := h.fail(id, r.Header.Get("webhook-attempt"))
		if drop {
			panic(http.ErrAbortHandler)
		}
		if refuse {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
	}
	if h.got[n.Payload.AgentID] == nil {
		h.got[n.Payload.AgentID] = map[int]notice{}
	}
	h.got[n.Payload.AgentID][n.EventType] = n
	w.Header().Set("Content-Type", "application/json")
	// If the sender does not get this answer, it retries.
	_, _ = io.WriteString(w, `{"code":0,"msg":"success"}`)
}

func (h *hooks) verify(header http.Header, body []byte) (notice, error) {
	var n notice
	if err := h.verifier.Verify(body, header); err != nil {
		return n, err
	}
	for name, algorithm := range map[string]func() hash.Hash{"Agora-Signature": sha1.New, "Agora-Signature-V2": sha256.New} {
		mac := hmac.New(algorithm, []byte(hookSecret))
		mac.Write(body)
		if got := header.Get(name); got != hex.EncodeToString(mac.Sum(nil)) {
			return n, fmt.Errorf("%s is %q", name, got)
		}
	}
	if err := json.Unmarshal(body, &n); err != nil {
		return n, err
	}
	if n.NoticeID != header.Get("webhook-id") || n.ProductID != 17 || n.NotifyMS == 0 || n.Payload.AgentID == "" {
		return n, fmt.Errorf("the envelope is not whole, or not of webhook-id %q", header.Get("webhook-id"))
	}
	return n, nil
}

// of returns the accepted events of an agent, by type.
func (h *hooks) of(agent string) map[int]notice {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[int]notice{}
	for k, v := range h.got[agent] {
		out[k] = v
	}
	return out
}

// wrong returns everything that was not as it should be.
func (h *hooks) wrong() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string{}, h.faults...)
}
