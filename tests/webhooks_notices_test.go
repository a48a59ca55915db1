package tests

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/examples/fakellm/fake"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/webhook"
	receiving "github.com/heardlog/heardlog/webhook/receive"
)

// receiver takes webhooks and holds each against the description and its signatures.
type receiver struct {
	url    string
	broken atomic.Bool // answer 500
	got    chan notice
}

// verifyStandard checks a request's Standard Webhooks signature as a receiver does, at a time.
func verifyStandard(secret secret.String, h http.Header, body []byte, now time.Time) error {
	v, err := receiving.NewVerifier(secret.Reveal())
	if err != nil {
		return err
	}
	v.Now = func() time.Time { return now }
	return v.Verify(h, body)
}

type notice struct {
	webhook.Envelope
	id, attempt string
	body        string
}

func receive(t *testing.T, secret secret.String) *receiver {
	t.Helper()
	return receiveAt(t, secret, time.Now)
}

// receiveAt is receive by another clock.
func receiveAt(t *testing.T, secret secret.String, now func() time.Time) *receiver {
	t.Helper()
	sp, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{got: make(chan notice, 1000)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
			return
		}
		if err := sp.Event(req, body); err != nil {
			t.Errorf("a webhook is not as openapi.yaml has it: %v\n%s", err, body)
		}
		if err := verifyStandard(secret, req.Header, body, now()); err != nil {
			t.Errorf("Standard Webhooks signature: %v", err)
		}
		if err := webhook.VerifyAgora(secret, req.Header, body); err != nil {
			t.Errorf("Agora signature: %v", err)
		}
		e, err := webhook.Decode(body)
		if err != nil {
			t.Error(err)
		}
		if e.NoticeID != req.Header.Get(webhook.HeaderID) {
			t.Errorf("noticeId %s, %s %s", e.NoticeID, webhook.HeaderID, req.Header.Get(webhook.HeaderID))
		}
		r.got <- notice{e, e.NoticeID, req.Header.Get(webhook.HeaderAttempt), string(body)}
		if r.broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(srv.Close)
	r.url = srv.URL + "/hook"
	return r
}

// next waits for n events and returns them by type, the last one of each.
func (r *receiver) next(t *testing.T, n int) map[int]notice {
	t.Helper()
	out := map[int]notice{}
	timeout := time.After(patience)
	for range n {
		select {
		case e := <-r.got:
			out[e.EventType] = e
		case <-timeout:
			t.Fatalf("%d events came, want %d: %v", len(out), n, out)
		}
	}
	return out
}

const hookSecret = "whsec_aGVhcmRsb2ctdGVzdC1zZWNyZXQtMDEyMzQ1Njc4OQ=="

// TestWebhooks is a call from join to leave as a business server sees it.
//
// Rules: 002-9
func TestWebhooks(t *testing.T) {
	t.Parallel()
	r := receive(t, hookSecret)
	_, base := upstream(t, fake.Script{Status: 503, Body: `{"error":{"message":"overloaded"}}`})
	s := start(t, "HEARDLOG_WEBHOOK_URL="+r.url, "HEARDLOG_WEBHOOK_SECRET="+hookSecret, "HEARDLOG_LLM_URL="+base)
	id := s.join("n", map[string]any{"channel": "room-1", "labels": map[string]string{"tenant": "t1"}, "llm": map[string]any{"max_history": 2, "greeting_message": "Hello"}})
	joined := r.next(t, 1)[101]
	var head struct {
		AgentID string            `json:"agent_id"`
		Name    string            `json:"name"`
		Channel string            `json:"channel"`
		Labels  map[string]string `json:"labels"`
	}
	if err := json.Unmarshal(joined.Payload, &head); err != nil {
		t.Fatal(err)
	}
	if joined.SID != id || head.AgentID != id || head.Name != "n" || head.Channel != "room-1" || head.Labels["tenant"] != "t1" || joined.attempt != "1" {
		t.Errorf("%s", joined.body)
	}
	s.post(agent(id, "/think"), `{"text":"fail"}`).ok(nil)
	failed := r.next(t, 1)[110]
	var f struct {
		TurnID int64 `json:"turn_id"`
		Errors []struct {
			Module  string
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal(failed.Payload, &f); err != nil {
		t.Fatal(err)
	}
	if f.TurnID != 1 || len(f.Errors) != 1 || f.Errors[0].Module != "llm" || f.Errors[0].Code != 503 {
		t.Errorf("%s", failed.body)
	}
	// The turn that failed has no answer, so the first message belongs to it.
	if said := s.say(id, user("a"), assistant("b c"), user("d"), assistant("e")); said[0].TurnID != 1 || said[3].TurnID != 2 {
		t.Errorf("messages after a failed answer: %+v", said)
	}
	s.interrupt(id, `{"turn_id":1,"heard":"b"}`).ok(nil)
	var whole history
	s.get(agent(id, "/history?limit=all")).ok(&whole)
	s.post(agent(id, "/leave"), nil).ok(nil)
	end := r.next(t, 3)
	var left struct{ Status, Message string }
	if err := json.Unmarshal(end[102].Payload, &left); err != nil || left.Status != "STOPPED" || left.Message != "OK" {
		t.Errorf("%v: %s", err, end[102].body)
	}
	var memory struct{ Contents []message }
	if err := json.Unmarshal(end[103].Payload, &memory); err != nil {
		t.Fatal(err)
	}
	if len(whole.Contents) < 5 || s.history(id).Contents == nil {
		t.Fatalf("%+v", whole)
	}
	if diff := cmp.Diff(whole.Contents, memory.Contents); diff != "" {
		t.Errorf("the memory of event 103 is not the whole history:\n%s", diff)
	}
	var turns struct {
		Total int `json:"total_turn_count"`
	}
	if err := json.Unmarshal(end[112].Payload, &turns); err != nil || turns.Total != 3 {
		t.Errorf("%v: %s", err, end[112].body)
	}
	select {
	case e := <-r.got:
		t.Errorf("one event too many: %s", e.body)
	default:
	}
}

// TestWebhookAfterRestart: what could not be delivered is delivered after a restart with the same
// bytes and ID.
func TestWebhookAfterRestart(t *testing.T) {
	t.Parallel()
	r := receive(t, "plain text secret")
	r.broken.Store(true)
	s := start(t, "HEARDLOG_WEBHOOK_URL="+r.url, "HEARDLOG_WEBHOOK_SECRET=plain text secret")
	s.join("n", nil)
	first := r.next(t, 1)[101]
	s.again()
	r.broken.Store(false)
	var second notice
	for second.attempt != "2" { // five seconds after the first
		second = r.next(t, 1)[101]
	}
	if second.id != first.id || second.body != first.body {
		t.Errorf("the second attempt differs:\n%s\n%s", first.body, second.body)
	}
}

// TestWebhooksOfOneProject: the settings' endpoint belongs to the default project and gets no
// events of others.
func TestWebhooksOfOneProject(t *testing.T) {
	t.Parallel()
	r := receive(t, hookSecret)
	s := start(t, "HEARDLOG_WEBHOOK_URL="+r.url, "HEARDLOG_WEBHOOK_SECRET="+hookSecret, twoTenants, "HEARDLOG_DEFAULT_PROJECT=p2")
	s.join("theirs", nil, "Authorization", "Bearer wonder")
	mine := s.join("mine", nil, "Authorization", "Bearer builder")
	if e := r.next(t, 1)[101]; e.SID != mine {
		t.Errorf("%s", e.body)
	}
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} { // at once, and each comes
		wg.Go(func() { s.join(name, nil, "Authorization", "Bearer builder") })
	}
	wg.Wait()
	seen := map[string]bool{}
	for range 4 {
		seen[r.next(t, 1)[101].SID] = true
	}
	if len(seen) != 4 {
		t.Errorf("%v", seen)
	}
}
