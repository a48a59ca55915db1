package receive_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/webhook"
	"github.com/heardlog/heardlog/webhook/receive"
)

// send makes one attempt through the real sender.
func send(t *testing.T, url, id string, body []byte, secrets ...string) webhook.Outcome {
	t.Helper()
	s, err := webhook.NewSender(webhook.SenderConfig{Dial: new(net.Dialer).DialContext})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e := webhook.Endpoint{URL: url, Agora: true}
	for _, s := range secrets {
		e.Secrets = append(e.Secrets, webhook.SigningSecret{Value: secret.String(s)})
	}
	return s.Send(t.Context(), webhook.Delivery{EventID: id, Body: body, Attempt: 1, Endpoint: e})
}

// TestHandler takes real attempts: a failure comes again, a repeat is answered and not handled.
func TestHandler(t *testing.T) {
	t.Parallel()
	v, err := receive.NewVerifier(whsec)
	if err != nil {
		t.Fatal(err)
	}
	var handled []string
	fail := errors.New("the database is down")
	var told []error
	h := &receive.Handler{
		Verifier: v, Once: receive.NewMemory(10).Once, OnError: func(_ *http.Request, err error) { told = append(told, err) },
		Handle: func(_ context.Context, e receive.Event) error {
			handled = append(handled, fmt.Sprint(e.ID, " ", e.Type))
			return fail
		},
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	body := encode(t, "n:1", webhook.Joined{About: webhook.About{AgentID: "a1"}})
	if o := send(t, srv.URL, "n:1", body, whsec); o.Status != 500 || strings.Contains(string(o.Response), "database") {
		t.Errorf("while it fails: %d %s", o.Status, o.Response)
	}
	if len(told) != 1 || !errors.Is(told[0], fail) {
		t.Errorf("told of %v", told)
	}
	fail = nil
	for i, want := range []string{`{"code":0,"msg":"success"}`, `{"code":0,"msg":"success, known already"}`} {
		if o := send(t, srv.URL, "n:1", body, plain, whsec); o.Status != 200 || string(o.Response) != want {
			t.Errorf("attempt %d: %d %s", i, o.Status, o.Response)
		}
	}
	if o := send(t, srv.URL, "n:1", body, plain); o.Status != 401 {
		t.Errorf("another secret: %d", o.Status)
	}
	if fmt.Sprint(handled) != "[n:1 101 n:1 101]" {
		t.Errorf("handled %v", handled)
	}
}

func TestHandlerRefuses(t *testing.T) {
	t.Parallel()
	h := &receive.Handler{Unverified: true, MaxBody: 1000, Handle: func(context.Context, receive.Event) error { return nil }}
	for _, tt := range []struct {
		method string
		body   io.Reader
		status int
	}{
		{"POST", strings.NewReader(`{"noticeId":"n","eventType":777}`), 200},
		{"POST", strings.NewReader(`{}`), 400},
		{"POST", strings.NewReader(strings.Repeat(" ", 1001)), 413},
		{"POST", io.MultiReader(strings.NewReader("{"), broken{}), 400},
		{"GET", nil, 405},
	} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(tt.method, "/", tt.body))
		if rec.Code != tt.status || !json.Valid(rec.Body.Bytes()) {
			t.Errorf("%s: %d %s, want %d", tt.method, rec.Code, rec.Body, tt.status)
		}
	}
}

// TestHandlerEd25519 takes real attempts that an endpoint signs with a key pair, alone and beside a
// secret.
func TestHandlerEd25519(t *testing.T) {
	t.Parallel()
	private, err := webhook.NewKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, ok := webhook.PublicKey(private)
	if !ok {
		t.Fatal("no public key")
	}
	v, err := receive.NewVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(&receive.Handler{Verifier: v, Handle: func(context.Context, receive.Event) error { return nil }})
	t.Cleanup(srv.Close)
	body := encode(t, "n:1", webhook.Joined{About: webhook.About{AgentID: "a1"}})
	for _, tt := range []struct {
		secrets []string
		status  int
	}{{[]string{private.Reveal()}, 200}, {[]string{whsec, private.Reveal()}, 200}, {[]string{whsec}, 401}} {
		if o := send(t, srv.URL, "n:1", body, tt.secrets...); o.Status != tt.status {
			t.Errorf("%d secrets: %d %s", len(tt.secrets), o.Status, o.Response)
		}
	}
}

// TestHandlerNotSetUp: one that was forgotten to be given a verifier takes nothing.
func TestHandlerNotSetUp(t *testing.T) {
	t.Parallel()
	handle := func(context.Context, receive.Event) error { t.Error("handled"); return nil }
	for _, h := range []*receive.Handler{{}, {Handle: handle}, {Unverified: true}} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"noticeId":"n","eventType":777}`)))
		if rec.Code != http.StatusInternalServerError {
			t.Errorf("%+v answers %d", h, rec.Code)
		}
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestMemory: of many at once one handles; what failed is handled again; of too many the oldest is
// forgotten.
func TestMemory(t *testing.T) {
	t.Parallel()
	m := receive.NewMemory(2)
	var handled, repeats atomic.Int64
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			repeat, err := m.Once(t.Context(), "a", func() error {
				if handled.Add(1) == 1 {
					return errors.New("first")
				}
				return nil
			})
			if repeat && err == nil {
				repeats.Add(1)
			}
		})
	}
	all.Wait()
	if handled.Load() != 2 || repeats.Load() != 48 {
		t.Errorf("handled %d times, %d repeats", handled.Load(), repeats.Load())
	}
	for id, want := range map[string]bool{"b": false, "c": false} {
		if repeat, _ := m.Once(t.Context(), id, func() error { return nil }); repeat != want {
			t.Errorf("%s: repeat %v", id, repeat)
		}
	}
	if repeat, _ := m.Once(t.Context(), "a", func() error { return nil }); repeat {
		t.Error("the oldest of three is still known to a memory of two")
	}
}

func TestThin(t *testing.T) {
	t.Parallel()
	body := encode(t, "n:1", webhook.Joined{About: webhook.About{AgentID: "a1", Sequence: 9}})
	served := atomic.Pointer[[]byte]{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if b := served.Load(); b != nil {
			_, _ = w.Write(*b)
			return
		}
		w.WriteHeader(http.StatusGone)
	}))
	t.Cleanup(srv.Close)
	sender, err := webhook.NewThin(bytes.Repeat([]byte("k"), 32), srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	thin, err := sender.Body(webhook.Delivery{EventID: "n:1", Body: body, CreatedMS: 1780000000123}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	e, err := receive.Decode(thin)
	if err != nil || e.Thin == nil || e.Data != nil || e.Thin.AgentID != "a1" || e.Thin.Sequence != 9 || e.Thin.ExpiresMS <= 1780000000123 {
		t.Fatalf("%+v, %v", e, err)
	}
	var got []receive.Event
	h := &receive.Handler{Unverified: true, Client: srv.Client(), Handle: func(_ context.Context, e receive.Event) error {
		got = append(got, e)
		return nil
	}}
	other := bytes.Replace(body, []byte("n:1"), []byte("n:2"), 1)
	long := append(bytes.Clone(body), ' ')
	for i, tt := range []struct {
		body []byte // nil: the URL has ended
		ok   bool
	}{{body, true}, {long, false}, {other, false}, {bytes.ToUpper(body), false}, {nil, false}} {
		served.Store(nil)
		if tt.body != nil {
			served.Store(&tt.body)
		}
		whole, err := e.Thin.Fetch(t.Context(), srv.Client(), 1<<20)
		if (err == nil) != tt.ok || tt.ok && !bytes.Equal(whole, body) {
			t.Errorf("%d: %s, %v", i, whole, err)
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(thin)))
		if (rec.Code == http.StatusOK) != tt.ok {
			t.Errorf("%d: the handler answers %d", i, rec.Code)
		}
	}
	if _, err := e.Thin.Fetch(t.Context(), srv.Client(), int64(len(body)-1)); err == nil {
		t.Error("more than the limit was fetched")
	}
	if len(got) != 1 || got[0].Data == nil || got[0].Thin != nil || got[0].ID != "n:1" {
		t.Errorf("handled %+v", got)
	}
	h.Client = nil
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(thin)))
	if len(got) != 2 || got[1].Thin == nil {
		t.Errorf("without a client: %+v", got)
	}
}
