package webhook_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/webhook"
)

// TestSendHeadersAndAuth checks that the endpoint's own headers are sent, and that none can replace
// one of Heardlog's.
func TestSendHeadersAndAuth(t *testing.T) {
	t.Parallel()
	url, seen := hits(t, nil)
	s := newSender(t, nil)
	d := delivery(url)
	d.Endpoint.Headers = []webhook.Header{{Name: "X-Tenant", Value: "blue"}, {Name: "x-other", Value: "1"}}
	d.Endpoint.Auth = webhook.Auth{Bearer: "token-1"}
	wantClass(t, s.Send(t.Context(), d), "", "")
	h := (<-seen).header
	if h.Get("X-Tenant") != "blue" || h.Get("X-Other") != "1" || h.Get("Authorization") != "Bearer token-1" {
		t.Errorf("%v", h)
	}
	d.Endpoint.Auth = webhook.Auth{User: "u", Password: "p"}
	wantClass(t, s.Send(t.Context(), d), "", "")
	if got := (<-seen).header.Get("Authorization"); got != "Basic dTpw" {
		t.Errorf("Authorization: %s", got)
	}
	for _, name := range []string{"Webhook-Id", "webhook-signature", "Agora-Signature", "Host", "Content-Length", "content-type", "Transfer-Encoding", "User-Agent", "a b", "", "X:Y", "X\r\nZ"} {
		d.Endpoint.Headers = []webhook.Header{{Name: name, Value: "x"}}
		wantClass(t, s.Send(t.Context(), d), webhook.ClassEndpoint, "headers")
	}
	d.Endpoint.Headers = []webhook.Header{{Name: "X-A", Value: "very-secret\r\nWebhook-Id: forged"}}
	o := s.Send(t.Context(), d)
	wantClass(t, o, webhook.ClassEndpoint, "headers.X-A")
	if strings.Contains(o.Error, "very-secret") {
		t.Errorf("the error shows the value: %s", o.Error)
	}
	if len(seen) > 0 {
		t.Error("a request went out with a forged header")
	}
}

// TestSendTimeoutOfEndpoint checks that an endpoint's own timeout counts only if it is shorter than
// the server's.
func TestSendTimeoutOfEndpoint(t *testing.T) {
	t.Parallel()
	url, _ := hits(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for _, tt := range []struct{ server, own time.Duration }{{time.Minute, 50 * time.Millisecond}, {50 * time.Millisecond, time.Minute}} {
		s := newSender(t, func(c *webhook.SenderConfig) { c.Total = tt.server })
		d := delivery(url)
		d.Endpoint.Timeout = tt.own
		o := s.Send(t.Context(), d)
		wantClass(t, o, webhook.ClassTimeout, "did not answer in time")
		if o.DurationMS > 5000 {
			t.Errorf("it took %d ms", o.DurationMS)
		}
	}
}

// TestSendAsymmetric checks that both kinds of signature are sent, and that the public key is
// enough to verify the second.
func TestSendAsymmetric(t *testing.T) {
	t.Parallel()
	key, err := webhook.NewKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := webhook.ParseKey(key.Reveal()); err != nil {
		t.Fatal(err)
	}
	public, ok := webhook.PublicKey(key)
	if !ok || !strings.HasPrefix(public, "whpk_") {
		t.Fatalf("public key %q", public)
	}
	url, seen := hits(t, nil)
	d := delivery(url)
	d.Endpoint.Secrets = append([]webhook.SigningSecret{{Value: key}}, d.Endpoint.Secrets...)
	wantClass(t, newSender(t, nil).Send(t.Context(), d), "", "")
	got := <-seen
	if err := verifyStandard(whsec, got.header, []byte(got.body), time.Now()); err != nil {
		t.Errorf("v1: %v", err)
	}
	if err := webhook.VerifyAgora(whsec, got.header, []byte(got.body)); err != nil {
		t.Errorf("Agora: %v", err)
	}
	i := slices.IndexFunc(strings.Fields(got.header.Get("Webhook-Signature")), func(s string) bool { return strings.HasPrefix(s, "v1a,") })
	if i < 0 {
		t.Fatalf("signatures: %s", got.header.Get("Webhook-Signature"))
	}
	sig, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.Fields(got.header.Get("Webhook-Signature"))[i], "v1a,"))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(public, "whpk_"))
	if err != nil {
		t.Fatal(err)
	}
	text := got.header.Get("Webhook-Id") + "." + got.header.Get("Webhook-Timestamp") + "." + got.body
	if !ed25519.Verify(raw, []byte(text), sig) {
		t.Error("the v1a signature does not verify")
	}
	d.Endpoint.Secrets = d.Endpoint.Secrets[:1] // no shared secret: nothing for Agora's kind
	wantClass(t, newSender(t, nil).Send(t.Context(), d), "", "")
	if h := (<-seen).header; h.Get("Agora-Signature") != "" || !strings.HasPrefix(h.Get("Webhook-Signature"), "v1a,") {
		t.Errorf("%v", h)
	}
}

// TestSendClientCertificate checks that a receiver that asks for a certificate gets the endpoint's
// own, and never another endpoint's.
func TestSendClientCertificate(t *testing.T) {
	t.Parallel()
	own := certificate(t, time.Now().Add(time.Hour))
	var names []string
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		name := ""
		if certs := r.TLS.PeerCertificates; len(certs) > 0 {
			name = certs[0].SerialNumber.String()
		}
		names = append(names, name)
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequestClientCert}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	pool := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(own.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(leaf)
	s := newSender(t, func(c *webhook.SenderConfig) {
		c.TLS = &tls.Config{RootCAs: pool}
		c.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, srv.Listener.Addr().String())
		}
	})
	var want []string
	for i := range 3 {
		d := delivery("https://hook.test")
		if want = append(want, ""); i > 0 {
			c := certificate(t, time.Now().Add(time.Hour))
			leaf, err := x509.ParseCertificate(c.Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			want[i] = leaf.SerialNumber.String()
			d.Endpoint.ClientCert = pemPair(t, c)
			d.Endpoint.ID = fmt.Sprint("e", i)
			if err := d.Endpoint.Validate(); err != nil {
				t.Error(err)
			}
		}
		wantClass(t, s.Send(t.Context(), d), "", "")
	}
	if !slices.Equal(names, want) {
		t.Errorf("the receiver saw %q, want %q", names, want)
	}
	d := delivery("https://hook.test")
	d.Endpoint.ClientCert = webhook.ClientCert{Cert: "nonsense", Key: "very-secret"}
	o := s.Send(t.Context(), d)
	wantClass(t, o, webhook.ClassEndpoint, "certificate")
	if strings.Contains(o.Error, "very-secret") {
		t.Error("the error shows the key")
	}
}

func pemPair(t *testing.T, c tls.Certificate) webhook.ClientCert {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return webhook.ClientCert{
		Cert: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})),
		Key:  secret.String(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})),
	}
}

// TestSendDetail checks that an answer's headers are kept for the log within bounds and without
// possible secrets.
func TestSendDetail(t *testing.T) {
	t.Parallel()
	url, _ := hits(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", "r1")
		w.Header().Set("Set-Cookie", "session=very-secret")
		w.Header().Set("X-Api-Key", "very-secret")
		w.Header().Set("X-Long", strings.Repeat("x", webhook.MaxHeaders))
		w.WriteHeader(500)
	})
	o := newSender(t, nil).Send(t.Context(), delivery(url))
	text, size := fmt.Sprint(o.Detail.Headers), 0
	for _, h := range o.Detail.Headers {
		size += len(h.Name) + len(h.Value)
	}
	if !strings.Contains(text, "{X-Request-Id r1}") || !strings.Contains(text, "{Set-Cookie [hidden]}") || strings.Contains(text, "very-secret") || size > webhook.MaxHeaders {
		t.Errorf("%d bytes: %.300s", size, text)
	}
}

// TestSendOwnTimeoutIsBounded checks that with an endpoint's own timeout an attempt still ends
// before its claim's lease, which follows the server's timeout.
func TestSendOwnTimeoutIsBounded(t *testing.T) {
	t.Parallel()
	url, _ := hits(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush() // a status, and a body without an end
		<-r.Context().Done()
	})
	d := delivery(url)
	d.Endpoint.Timeout = webhook.MaxTimeout
	o := newSender(t, func(c *webhook.SenderConfig) { c.Total = 500 * time.Millisecond }).Send(t.Context(), d)
	wantClass(t, o, "", "")
	if o.DurationMS > 10_000 {
		t.Errorf("took %d ms", o.DurationMS)
	}
}

// TestSendProxy checks that with a forward proxy the receiver's address is never dialled directly,
// and that the signature arrives intact.
func TestSendProxy(t *testing.T) {
	t.Parallel()
	var asked string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String() + " " + r.Header.Get("Proxy-Authorization")
		w.WriteHeader(204)
	}))
	t.Cleanup(proxy.Close)
	u, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("me", "pw")
	var dialled []string
	s := newSender(t, func(c *webhook.SenderConfig) {
		c.Proxy = u
		c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialled = append(dialled, addr)
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	})
	o := s.Send(t.Context(), delivery("http://receiver.example/hook"))
	wantClass(t, o, "", "")
	if asked != "http://receiver.example/hook Basic bWU6cHc=" || !slices.Equal(dialled, []string{u.Host}) || o.Status != 204 {
		t.Errorf("asked for %q, dialled %v, status %d", asked, dialled, o.Status)
	}
}

// TestSendProxyFails checks that a failure of the proxy is not reported as one of the receiver.
func TestSendProxyFails(t *testing.T) {
	t.Parallel()
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusProxyAuthRequired) }))
	t.Cleanup(refusing.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, tt := range map[string]struct{ proxy, to, class, text string }{
		"refuses": {refusing.URL, "https://receiver.example/hook", webhook.ClassConnect, "at the forward proxy: it made no connection, but answered 407 Proxy Authentication Required"},
		"is gone": {gone.URL, "http://receiver.example/hook", webhook.ClassRefused, "at the forward proxy: the connection was refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(tt.proxy)
			if err != nil {
				t.Fatal(err)
			}
			wantClass(t, newSender(t, func(c *webhook.SenderConfig) { c.Proxy = u }).Send(t.Context(), delivery(tt.to)), tt.class, tt.text)
		})
	}
}

// TestReservedHeaders checks that headers that Heardlog, the connection or a receiver's trust
// depends on are refused, however they are written, and that similar ones are accepted.
func TestReservedHeaders(t *testing.T) {
	t.Parallel()
	headers := func(name string) error {
		e := webhook.Endpoint{URL: "https://x.example", Headers: []webhook.Header{{Name: name, Value: "v"}}, Secrets: []webhook.SigningSecret{{Value: whsec}}}
		return e.Validate()
	}
	for _, name := range []string{
		"Webhook-Id", "webhook-new", "WEBHOOK-SIGNATURE", "Agora-Signature-V2", "agora-x", "Content-Type", "Content-Length", "content-encoding", "Proxy-Authorization", "Proxy-Connection",
		"Sec-Fetch-Site", "Host", "Transfer-Encoding", "Connection", "Keep-Alive", "Upgrade", "TE", "Trailer", "Expect", "User-Agent", "Accept-Encoding", "Idempotency-Key",
		"x-idempotency-key", "Cookie", "Date",
	} {
		if err := headers(name); err == nil || !strings.Contains(err.Error(), "headers."+name+": is set by Heardlog and cannot be changed") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"X-Webhook-Id", "Webhooks", "Second", "X-Date", "Hostname", "Accept", "Authorization", "X-Api-Key", "My_Key"} {
		if err := headers(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAnswerHidesSecrets checks that secrets of the endpoint that a receiver repeats are removed
// from the attempt: as sent, in JSON, encoded in a login, and cut off at the end of the answer.
func TestAnswerHidesSecrets(t *testing.T) {
	t.Parallel()
	const key, password, hook = "header-very-secret", "pass-very-secret", `hook "very" secret`
	login := base64.StdEncoding.EncodeToString([]byte("u:" + password))
	send := func(body string) webhook.Outcome {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Debug", "got "+r.Header.Get("Authorization")+" and "+r.Header.Get("X-Key"))
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, body)
		}))
		defer srv.Close()
		d := delivery(srv.URL)
		d.Endpoint.Secrets = []webhook.SigningSecret{{Value: hook}}
		d.Endpoint.Headers = []webhook.Header{{Name: "X-Key", Value: key}}
		d.Endpoint.Auth = webhook.Auth{User: "u", Password: password}
		return newSender(t, nil).Send(t.Context(), d)
	}
	o := send("a " + key + " b " + password + " c Basic " + login + " d " + hook + ` e {"s":"hook \"very\" secret"}`)
	if got, want := string(o.Response), `a [secret] b [secret] c Basic [secret] d [secret] e {"s":"[secret]"}`; got != want {
		t.Errorf("kept %q, want %q", got, want)
	}
	if text := fmt.Sprint(o.Detail.Headers); !strings.Contains(text, "got Basic [secret] and [secret]") {
		t.Errorf("headers: %s", text)
	}
	for n := 1; n < len(key); n++ {
		o := send(strings.Repeat(" ", webhook.MaxResponse-n) + key)
		if rest := strings.TrimSpace(string(o.Response)); rest != "" || !o.Truncated {
			t.Errorf("cut after %d bytes of a secret: %q is kept", n, rest)
		}
	}
}

func TestEndpointValidate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		edit func(*webhook.Endpoint)
		want string // substring, "" = valid
	}{
		{"least", func(*webhook.Endpoint) {}, ""},
		{"no URL", func(e *webhook.Endpoint) { e.URL = "" }, "url: "},
		{"FTP", func(e *webhook.Endpoint) { e.URL = "ftp://x.example" }, "url: must be an http or https"},
		{"user in the URL", func(e *webhook.Endpoint) { e.URL = "https://u:very-secret@x.example" }, "url: must not contain a user name"},
		{"fragment", func(e *webhook.Endpoint) { e.URL = "https://x.example/#a" }, "url: must not contain a fragment"},
		{"long URL", func(e *webhook.Endpoint) { e.URL = "https://x.example/" + strings.Repeat("x", webhook.MaxURL) }, "at most 2048"},
		{"filter", func(e *webhook.Endpoint) { e.Events = []string{"agent.*", "103", "*", "delivery.dead"} }, ""},
		{"unknown type", func(e *webhook.Endpoint) { e.Events = []string{"agent.*", "agent.lefd"} }, "events[1]: must match an event type"},
		{"unknown number", func(e *webhook.Endpoint) { e.Events = []string{"999"} }, "events[0]"},
		{"empty pattern", func(e *webhook.Endpoint) { e.Events = []string{""} }, "events[0]"},
		{"star within", func(e *webhook.Endpoint) { e.Events = []string{"*.left"} }, "events[0]"},
		{"many patterns", func(e *webhook.Endpoint) { e.Events = slices.Repeat([]string{"*"}, webhook.MaxFilter+1) }, "at most 32"},
		{"bad secret", func(e *webhook.Endpoint) { e.Secrets = []webhook.SigningSecret{{Value: "whsec_very-secret"}} }, "secrets[0]: "},
		{"bad key", func(e *webhook.Endpoint) { e.Secrets = []webhook.SigningSecret{{Value: "whsk_very-secret"}} }, "secrets[0]: "},
		{"header and auth", func(e *webhook.Endpoint) {
			e.Headers, e.Auth.Bearer = []webhook.Header{{Name: "authorization", Value: "very-secret"}}, "very-secret"
		}, "headers.authorization: is set by auth"},
		{"header twice", func(e *webhook.Endpoint) { e.Headers = []webhook.Header{{Name: "X-A"}, {Name: "x-a"}} }, "given twice"},
		{"two kinds of auth", func(e *webhook.Endpoint) { e.Auth = webhook.Auth{Bearer: "very-secret", User: "u"} }, "auth: must be either"},
		{"line break in bearer", func(e *webhook.Endpoint) { e.Auth.Bearer = "very-secret\n" }, "auth.bearer: "},
		{"password alone", func(e *webhook.Endpoint) { e.Auth.Password = "very-secret" }, "auth.username: "},
		{"certificate alone", func(e *webhook.Endpoint) { e.ClientCert.Cert = "x" }, "client_cert: must have both"},
		{"no certificate", func(e *webhook.Endpoint) { e.ClientCert = webhook.ClientCert{Cert: "x", Key: "very-secret"} }, "client_cert: must be a certificate"},
		{"key beside the certificate", func(e *webhook.Endpoint) {
			e.ClientCert = pemPair(t, certificate(t, time.Now().Add(time.Hour)))
			e.ClientCert.Cert = e.ClientCert.Key.Reveal() + e.ClientCert.Cert
		}, "client_cert.cert: must not contain the private key"},
		{"certificate and key", func(e *webhook.Endpoint) { e.ClientCert = pemPair(t, certificate(t, time.Now().Add(time.Hour))) }, ""},
		{"payload", func(e *webhook.Endpoint) { e.Payload = "fat" }, "payload: must be full or thin"},
		{"small body", func(e *webhook.Endpoint) { e.MaxBodyBytes = 10 }, "max_body_bytes: must be from 1024"},
		{"short wait", func(e *webhook.Endpoint) { e.Retry = []time.Duration{time.Minute, time.Millisecond} }, "retry_schedule[1]: must be from 1s"},
		{"many waits", func(e *webhook.Endpoint) { e.Retry = make([]time.Duration, webhook.MaxRetries+1) }, "retry_schedule: has 31 waits"},
		{"age", func(e *webhook.Endpoint) { e.MaxAge = time.Second }, "max_age: must be from 1m0s"},
		{"timeout", func(e *webhook.Endpoint) { e.Timeout = time.Minute }, "timeout: must be from 1s to 20s, not 1m0s"},
		{"in flight", func(e *webhook.Endpoint) { e.MaxInFlight = -1 }, "max_in_flight: must be from 1 to 100, not -1"},
		{"rate", func(e *webhook.Endpoint) { e.RateLimit = 5000 }, "rate_limit: must be from 0.01"},
		{"description", func(e *webhook.Endpoint) { e.Description = "a\x00b" }, "description: "},
	} {
		e := webhook.Endpoint{URL: "https://x.example/hook"}
		tt.edit(&e)
		err := e.Validate()
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		case err != nil && (strings.Contains(err.Error(), "very-secret") || fault.CodeOf(err) != fault.Invalid && fault.CodeOf(err) != fault.Missing):
			t.Errorf("%s: %v (%s)", tt.name, err, fault.CodeOf(err))
		}
	}
}

// TestSendRedirectRepeatsSecret checks that a redirect that repeats a secret in its path is quoted
// without it.
func TestSendRedirectRepeatsSecret(t *testing.T) {
	t.Parallel()
	url, _ := hits(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "https://x.example/login/"+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		w.WriteHeader(http.StatusPermanentRedirect)
	})
	o := newSender(t, nil).Send(t.Context(), webhook.Delivery{
		EventID: "n", Body: []byte("{}"), Attempt: 1, Endpoint: webhook.Endpoint{ID: "e", URL: url, Auth: webhook.Auth{Bearer: "t0psecret-token"}},
	})
	if o.Status != 308 || !strings.Contains(o.Error, "https://x.example/login/") || strings.Contains(o.Error, "t0psecret") {
		t.Errorf("%d %s", o.Status, o.Error)
	}
}
