package webhook_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/webhook"
)

// dead is a URL at which nothing listens.
const dead = "http://127.0.0.1:1"

// newSender returns a sender that may call this machine.
func newSender(t *testing.T, change func(*webhook.SenderConfig)) *webhook.Sender {
	t.Helper()
	c := webhook.SenderConfig{Dial: new(net.Dialer).DialContext}
	if change != nil {
		change(&c)
	}
	s, err := webhook.NewSender(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func delivery(url string) webhook.Delivery {
	return webhook.Delivery{
		ID: 1, EventID: "n:1", Type: event.Left, Attempt: 1, Body: []byte(`{"noticeId":"n:1","é":"😀"}`),
		Endpoint: webhook.Endpoint{ID: "e1", URL: url, Agora: true, Secrets: []webhook.SigningSecret{{Value: whsec}}},
	}
}

// receiver calls answer for every connection, after the request's head has been read.
func receiver(t *testing.T, answer func(c net.Conn, head *http.Request)) string {
	t.Helper()
	return "http://" + accept(t, func(c net.Conn) {
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err == nil {
			answer(c, req)
		}
	})
}

// accept serves connections until the test ends, and returns its address.
func accept(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				stop := context.AfterFunc(ctx, func() { c.Close() })
				defer stop()
				serve(c)
			})
		}
	})
	t.Cleanup(func() { ln.Close(); cancel(); wg.Wait() })
	return ln.Addr().String()
}

func wantClass(t *testing.T, o webhook.Outcome, class, text string) {
	t.Helper()
	if o.ErrorClass != class || !strings.Contains(o.Error, text) {
		t.Errorf("class %q, error %q; want %q, %q", o.ErrorClass, o.Error, class, text)
	}
}

func TestSendRequest(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.Background())
		body, _ = io.ReadAll(r.Body)
		fmt.Fprint(w, `{"code":0}`)
	}))
	t.Cleanup(srv.Close)

	d := delivery(srv.URL + "/hook?token=1")
	d.Attempt = 9
	o := newSender(t, nil).Send(t.Context(), d)
	if !o.OK() || o.Status != 200 || string(o.Response) != `{"code":0}` || o.Truncated || o.N != 9 || o.StartedMS == 0 {
		t.Fatalf("%+v", o)
	}
	if !bytes.Equal(body, d.Body) || got.ContentLength != int64(len(d.Body)) || got.Method != http.MethodPost || got.RequestURI != "/hook?token=1" {
		t.Errorf("%s %s %q", got.Method, got.RequestURI, body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "Heardlog-Webhook/1", "Webhook-Id": "n:1", "Webhook-Attempt": "9",
		"Accept-Encoding": "", "X-Idempotency-Key": "", "Cookie": "",
	} {
		if v := got.Header.Get(name); v != want {
			t.Errorf("%s: %q, want %q", name, v, want)
		}
	}
	lib, err := standardwebhooks.NewWebhook(whsec)
	if err != nil {
		t.Fatal(err)
	}
	if err := lib.Verify(body, got.Header); err != nil {
		t.Error(err)
	}
	if err := webhook.VerifyAgora(whsec, got.Header, body); err != nil {
		t.Error(err)
	}
	v1, _ := webhook.SignAgora(whsec, body)
	if got.Header.Get("Agora-Signature") != v1 {
		t.Errorf("Agora-Signature: %q", got.Header.Get("Agora-Signature"))
	}
}

// TestSendSignsAnew checks that each attempt is signed again: with a new time, all secrets that are
// live then, and none that has been revoked.
func TestSendSignsAnew(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Header)
	}))
	t.Cleanup(srv.Close)
	start := time.Unix(1700000000, 0)
	now := start
	s := newSender(t, func(c *webhook.SenderConfig) { c.Now = func() time.Time { return now } })
	d := delivery(srv.URL)
	d.Endpoint.Secrets = []webhook.SigningSecret{{Value: "old", NotAfter: start.Add(time.Hour)}, {Value: "new"}}

	send := func() (http.Header, webhook.Outcome) {
		n := len(seen)
		o := s.Send(t.Context(), d)
		if len(seen) == n {
			return nil, o
		}
		return seen[n], o
	}
	verify := func(h http.Header, secret secret.String, std, agora bool) {
		t.Helper()
		if err := verifyStandard(secret, h, d.Body, now); (err == nil) != std {
			t.Errorf("standard, %q: %v, want ok=%t", secret.Reveal(), err, std)
		}
		if err := webhook.VerifyAgora(secret, h, d.Body); (err == nil) != agora {
			t.Errorf("agora, %q: %v, want ok=%t", secret.Reveal(), err, agora)
		}
	}
	h, _ := send()
	verify(h, "old", true, true)
	verify(h, "new", true, false)
	if n := len(strings.Fields(h.Get("Webhook-Signature"))); n != 2 {
		t.Errorf("%d signatures", n)
	}
	now, d.Attempt = start.Add(59*time.Minute), 2
	h, _ = send()
	verify(h, "old", true, true)
	now, d.Attempt = start.Add(time.Hour), 3
	h, _ = send()
	verify(h, "old", false, false)
	verify(h, "new", true, true)

	d.Endpoint.Agora = false
	h, _ = send()
	if h.Get("Agora-Signature") != "" || h.Get("Agora-Signature-V2") != "" {
		t.Error("Agora signatures that nobody asked for")
	}
	// If all have ended, nothing is sent unsigned.
	d.Endpoint.Secrets = []webhook.SigningSecret{{Value: "old", NotAfter: start}}
	h, o := send()
	if h != nil {
		t.Error("sent without a live secret")
	}
	wantClass(t, o, webhook.ClassEndpoint, "every secret")
	// An endpoint may have no secrets at all.
	d.Endpoint.Secrets, d.Endpoint.Agora = nil, true
	if h, o = send(); !o.OK() || h.Get("Webhook-Signature") != "" || h.Get("Agora-Signature") != "" || h.Get("Webhook-Id") == "" {
		t.Errorf("unsigned: %v, %+v", h, o)
	}
}

func TestSendStatus(t *testing.T) {
	t.Parallel()
	for status, class := range map[int]string{
		200: "", 201: "", 202: "", 204: "", 299: "",
		300: webhook.Class3xx, 301: webhook.Class3xx, 302: webhook.Class3xx, 303: webhook.Class3xx, 304: webhook.Class3xx,
		307: webhook.Class3xx, 308: webhook.Class3xx,
		400: webhook.Class4xx, 401: webhook.Class4xx, 403: webhook.Class4xx, 404: webhook.Class4xx, 408: webhook.Class4xx,
		409: webhook.Class4xx, 410: webhook.Class4xx, 413: webhook.Class4xx, 422: webhook.Class4xx, 425: webhook.Class4xx, 429: webhook.Class4xx,
		500: webhook.Class5xx, 502: webhook.Class5xx, 503: webhook.Class5xx, 504: webhook.Class5xx, 599: webhook.Class5xx,
		600: webhook.ClassStatus, 999: webhook.ClassStatus,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				w.Header().Set("Location", "http://u:hunter2@"+r.Host+"/elsewhere?key=hunter2")
				w.WriteHeader(status)
			}))
			t.Cleanup(srv.Close)
			o := newSender(t, nil).Send(t.Context(), delivery(srv.URL))
			if o.Status != status || o.ErrorClass != class || calls.Load() != 1 {
				t.Errorf("%d calls, %+v", calls.Load(), o)
			}
			if class != "" && !strings.Contains(o.Error, fmt.Sprint(status)) {
				t.Errorf("%q does not name the status", o.Error)
			}
			if strings.Contains(o.Error, "hunter2") {
				t.Errorf("%q holds a secret", o.Error)
			}
			if moved := status == 301 || status == 308; moved != strings.Contains(o.Error, "update the endpoint's URL to http://"+strings.TrimPrefix(srv.URL, "http://")+"/elsewhere") {
				t.Errorf("%q, want a hint=%t", o.Error, moved)
			}
		})
	}
}

func TestSendRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		status int
		value  string
		want   time.Duration
	}{
		{503, "5", 5 * time.Second},
		{429, " 120 ", 2 * time.Minute},
		{301, "7", 7 * time.Second},
		{404, "7", 7 * time.Second},
		{200, "7", 0},
		{999, "7", 0},
		{503, "", 0},
		{503, "0", 0},
		{503, "-1", 0},
		{503, "1.5", 0},
		{503, "1e9", 0},
		{503, "soon", 0},
		{503, "5 s", 0},
		{503, "315360000", 24 * time.Hour},
		{503, strings.Repeat("9", 400), 24 * time.Hour},
		{503, now.Add(time.Minute).Format(http.TimeFormat), time.Minute},
		{503, now.Add(-time.Minute).Format(http.TimeFormat), 0},
		{503, now.AddDate(10, 0, 0).Format(http.TimeFormat), 24 * time.Hour},
		{503, "Sat, 99 Foo 2026 03:04:05 GMT", 0},
	} {
		t.Run(fmt.Sprintf("%d %.30s", tt.status, tt.value), func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", tt.value)
				w.WriteHeader(tt.status)
			}))
			t.Cleanup(srv.Close)
			s := newSender(t, func(c *webhook.SenderConfig) { c.Now = func() time.Time { return now } })
			if o := s.Send(t.Context(), delivery(srv.URL)); o.RetryAfter != tt.want {
				t.Errorf("%s, want %s", o.RetryAfter, tt.want)
			}
		})
	}
}

func TestSendStop(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{"disable": webhook.StopEndpoint, " Abort-Message ": webhook.StopMessage, "please": "", "": ""} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Webhook-Delivery", value)
			w.WriteHeader(500)
		}))
		t.Cleanup(srv.Close)
		if o := newSender(t, nil).Send(t.Context(), delivery(srv.URL)); o.Stop != want {
			t.Errorf("%q: %q, want %q", value, o.Stop, want)
		}
	}
}

func TestSendBadReceivers(t *testing.T) {
	t.Parallel()
	write := func(s string) func(net.Conn, *http.Request) {
		return func(c net.Conn, _ *http.Request) { _, _ = io.WriteString(c, s) }
	}
	for _, tt := range []struct {
		name   string
		answer func(net.Conn, *http.Request)
		status int
		class  string
		kept   int // bytes of the response; -1 = not looked at
	}{
		{"not HTTP", write("SSH-2.0-OpenSSH_9.2\r\n"), 0, webhook.ClassProtocol, 0},
		{"HTTP 0.9", write("<html>hello</html>\n"), 0, webhook.ClassProtocol, 0},
		{"no status", write("HTTP/1.1 \r\n\r\n"), 0, webhook.ClassProtocol, 0},
		{"negative length", write("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"), 0, webhook.ClassProtocol, 0},
		{"closes without a word", write(""), 0, webhook.ClassReset, 0},
		{"closes within the status", write("HTTP/1.1 20"), 0, webhook.ClassProtocol, 0},
		{"closes within the headers", write("HTTP/1.1 200 OK\r\nA: b"), 0, webhook.ClassReset, 0},
		{"1 MB of headers", write("HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 1<<20) + "\r\n\r\n"), 0, webhook.ClassProtocol, 0},
		{"thousands of headers", write("HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 50_000) + "\r\n"), 0, webhook.ClassProtocol, 0},
		{"thousands of 1xx", write(strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 10_000) + "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), 0, webhook.ClassProtocol, 0},
		{"some 1xx", write("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), 200, "", 2},
		{"switching protocols", write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nhello"), 101, webhook.Class1xx, 0},
		{"shorter than it says", write("HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\nshort"), 500, webhook.Class5xx, 5},
		{"shorter than it says, but taken", write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"), 200, "", 5},
		{"longer than it says", write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 500 No\r\n\r\n"), 200, "", 2},
		{"broken chunks", write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n"), 200, "", 5},
		{"length and chunks", write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n2\r\nok\r\n0\r\n\r\n"), 200, "", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := newSender(t, nil).Send(t.Context(), delivery(receiver(t, func(c net.Conn, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				tt.answer(c, r)
			})))
			if o.Status != tt.status || o.ErrorClass != tt.class {
				t.Errorf("status %d class %q, want %d %q", o.Status, o.ErrorClass, tt.status, tt.class)
			}
			if len(o.Response) != tt.kept {
				t.Errorf("kept %q", o.Response)
			}
		})
	}
}

// TestSendLongAnswers checks that 16 KiB of a long answer are kept and not much more is read.
// Compressed bodies stay compressed.
func TestSendLongAnswers(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write(make([]byte, 10<<20))
	z.Close()
	for _, tt := range []struct {
		name      string
		size      int64
		chunked   bool
		truncated bool
	}{
		{"exactly the limit", webhook.MaxResponse, false, false},
		{"one more", webhook.MaxResponse + 1, false, true},
		{"1 GB", 1 << 30, false, true},
		{"1 GB in chunks", 1 << 30, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if !tt.chunked {
					w.Header().Set("Content-Length", fmt.Sprint(tt.size))
				}
				buf := make([]byte, 32<<10)
				for left := tt.size; left > 0; {
					n, err := w.Write(buf[:min(left, int64(len(buf)))])
					sent.Add(int64(n))
					if left -= int64(n); err != nil {
						return
					}
				}
			}))
			o := newSender(t, nil).Send(t.Context(), delivery(srv.URL))
			srv.Close() // waits for the handler, which ends early because we hung up
			if !o.OK() || o.Truncated != tt.truncated || len(o.Response) != int(min(tt.size, webhook.MaxResponse)) {
				t.Errorf("%d bytes, truncated %t, %q", len(o.Response), o.Truncated, o.Error)
			}
			if sent.Load() > 64<<20 {
				t.Errorf("%d bytes went over the line", sent.Load())
			}
		})
	}
	t.Run("gzip bomb", func(t *testing.T) {
		t.Parallel()
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		}))
		t.Cleanup(srv.Close)
		o := newSender(t, nil).Send(t.Context(), delivery(srv.URL))
		if !o.OK() || !bytes.Equal(o.Response, bomb.Bytes()[:min(bomb.Len(), webhook.MaxResponse)]) {
			t.Errorf("%d bytes kept of %d packed ones", len(o.Response), bomb.Len())
		}
	})
}

func TestSendConnect(t *testing.T) {
	t.Parallel()
	reset := func(c net.Conn) {
		_ = c.(*net.TCPConn).SetLinger(0) // close sends RST
	}
	fail := func(err error) func(*webhook.SenderConfig) {
		return func(c *webhook.SenderConfig) {
			c.Dial = func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Err: err}
			}
		}
	}
	for _, tt := range []struct {
		name, url   string
		change      func(*webhook.SenderConfig)
		class, text string
	}{
		{"refused", dead, nil, webhook.ClassRefused, "nothing listens"},
		{"reset on accept", "http://" + accept(t, reset), nil, webhook.ClassReset, ""},
		{"reset on accept, TLS", "https://" + accept(t, reset), nil, webhook.ClassReset, ""},
		{"no such name", "http://h.test", fail(&net.DNSError{IsNotFound: true, Err: "no such host"}), webhook.ClassDNS, "does not exist"},
		{"name server fails", "http://h.test", fail(&net.DNSError{Err: "server misbehaving"}), webhook.ClassDNS, "misbehaving"},
		{"name server is silent", "http://h.test", fail(&net.DNSError{IsTimeout: true, Err: "i/o timeout"}), webhook.ClassDNS, "in time"},
		{"no route", "http://h.test", fail(syscall.EHOSTUNREACH), webhook.ClassConnect, "no route"},
		{"blocked", "http://h.test", fail(fault.New(fault.Forbidden, "10.0.0.1 refused; see HEARDLOG_OUTBOUND_ALLOW")), webhook.ClassBlocked, "HEARDLOG_OUTBOUND_ALLOW"},
		{"something else", "http://h.test", fail(errors.New("hunter2")), webhook.ClassConnect, "no connection"},
		{"not a URL", "http://[::1", nil, webhook.ClassEndpoint, "URL"},
		{"other scheme", "ftp://h.test", nil, webhook.ClassEndpoint, "http or https"},
		{"user name", "http://u:hunter2@h.test", nil, webhook.ClassEndpoint, "user name"},
		{"refused by the rules", "http://h.test:22", func(c *webhook.SenderConfig) {
			c.CheckURL = func(string) error { return fault.New(fault.Invalid, "port 22") }
		}, webhook.ClassEndpoint, "port 22"},
		{"address refused by the rules", "http://10.0.0.1", func(c *webhook.SenderConfig) {
			c.CheckURL = func(string) error { return fault.New(fault.Forbidden, "10.0.0.1") }
		}, webhook.ClassBlocked, "10.0.0.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := newSender(t, tt.change).Send(t.Context(), delivery(tt.url))
			wantClass(t, o, tt.class, tt.text)
			if o.Status != 0 || strings.Contains(o.Error, "hunter2") {
				t.Errorf("%+v", o)
			}
		})
	}
}

func TestSendBrokenDelivery(t *testing.T) {
	t.Parallel()
	s := newSender(t, func(c *webhook.SenderConfig) {
		c.Dial = func(context.Context, string, string) (net.Conn, error) { t.Error("dialled"); return nil, io.EOF }
	})
	for name, change := range map[string]func(*webhook.Delivery){
		"id with a line break": func(d *webhook.Delivery) { d.EventID = "a\r\nX-Evil: 1" },
		"no id":                func(d *webhook.Delivery) { d.EventID = "" },
		"no body":              func(d *webhook.Delivery) { d.Body = nil },
	} {
		d := delivery("http://h.test")
		change(&d)
		if o := s.Send(t.Context(), d); o.ErrorClass != webhook.ClassBroken {
			t.Errorf("%s: %+v", name, o)
		}
	}
	d := delivery("http://h.test")
	d.Endpoint.Secrets = []webhook.SigningSecret{{Value: "whsec_!"}}
	wantClass(t, s.Send(t.Context(), d), webhook.ClassEndpoint, "base64")
	if _, err := webhook.NewSender(webhook.SenderConfig{}); fault.CodeOf(err) != fault.Missing {
		t.Errorf("a sender without a dial function: %v", err)
	}
}

// TestSendErrorsHoldNoSecrets checks that a receiver that repeats the request cannot bring the
// URL's secrets into the error.
func TestSendErrorsHoldNoSecrets(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(net.Conn, *http.Request){
		"echo":           func(c net.Conn, r *http.Request) { _, _ = io.WriteString(c, "POST "+r.RequestURI+" HTTP/1.1\r\n") },
		"echo in status": func(c net.Conn, r *http.Request) { _, _ = io.WriteString(c, "HTTP/1.1 xxx "+r.RequestURI+"\r\n\r\n") },
		"echo in a header": func(c net.Conn, r *http.Request) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+r.RequestURI+"\r\n\r\n")
		},
		"echo in a status text": func(c net.Conn, r *http.Request) {
			_, _ = io.WriteString(c, "HTTP/1.1 500 "+r.RequestURI+"\r\nContent-Length: 0\r\n\r\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newSender(t, nil).Send(t.Context(), delivery(receiver(t, answer)+"/?token=hunter2"))
			if o.ErrorClass == "" || strings.Contains(o.Error, "hunter2") || strings.Contains(o.Error, "token") {
				t.Errorf("%q: %q", o.ErrorClass, o.Error)
			}
		})
	}
}

// TestSendCutUpload checks a receiver that hangs up during the upload: its status may arrive;
// without one there is a retry.
func TestSendCutUpload(t *testing.T) {
	t.Parallel()
	for name, word := range map[string]string{"with a status": "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", "without": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := delivery(receiver(t, func(c net.Conn, _ *http.Request) {
				_, _ = io.WriteString(c, word)
				_ = c.(*net.TCPConn).CloseWrite()
				if word == "" {
					_ = c.(*net.TCPConn).SetLinger(0)
				}
			}))
			d.Body = bytes.Repeat([]byte("x"), 20<<20)
			o := newSender(t, nil).Send(t.Context(), d)
			if o.ErrorClass != webhook.ClassReset && (word == "" || o.Status != 413) {
				t.Errorf("status %d class %q %q", o.Status, o.ErrorClass, o.Error)
			}
		})
	}
}

// TestSendKeepAliveRace checks that a kept connection that the receiver closes at the moment of use
// costs no attempt: the transport sends again on a new one.
func TestSendKeepAliveRace(t *testing.T) {
	t.Parallel()
	var conns, requests atomic.Int32
	addr := accept(t, func(c net.Conn) {
		first := conns.Add(1) == 1
		br := bufio.NewReader(c)
		for n := 1; ; n++ {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			if requests.Add(1); first && n == 2 {
				return // instead of an answer
			}
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	s := newSender(t, nil)
	for i := range 3 {
		if o := s.Send(t.Context(), delivery("http://"+addr)); !o.OK() {
			t.Fatalf("attempt %d: %+v", i, o)
		}
	}
	if conns.Load() != 2 || requests.Load() != 4 {
		t.Errorf("%d connections, %d requests; want 2 and 4", conns.Load(), requests.Load())
	}
}

// TestSendDials checks that the host is dialled as in DNS, once, with the scheme's port.
func TestSendDials(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://bücher.example/":     "xn--bcher-kva.example:443",
		"http://h.test.:8080/a":       "h.test.:8080",
		"http://[2606:4700::1111]/":   "[2606:4700::1111]:80",
		"http://169.254.169.254/meta": "169.254.169.254:80",
		"HTTP://H.test":               "H.test:80",
	} {
		var dialled []string
		s := newSender(t, func(c *webhook.SenderConfig) {
			c.Dial = func(_ context.Context, network, addr string) (net.Conn, error) {
				dialled = append(dialled, network+" "+addr)
				return nil, fault.New(fault.Forbidden, "blocked")
			}
		})
		wantClass(t, s.Send(t.Context(), delivery(raw)), webhook.ClassBlocked, "")
		if len(dialled) != 1 || dialled[0] != "tcp "+want {
			t.Errorf("%s: dialled %v, want %s", raw, dialled, want)
		}
	}
}

func TestSendCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	d := delivery(receiver(t, func(c net.Conn, _ *http.Request) {
		cancel()
		_, _ = io.Copy(io.Discard, c)
	}))
	wantClass(t, newSender(t, nil).Send(ctx, d), webhook.ClassCanceled, "went down")
}

func TestShowURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://u:p@h.test:8443/a%2Fb?token=1#frag": "https://h.test:8443/a%2Fb",
		"http://h.test": "http://h.test", "": "", "nonsense": "", "http://[::1": "", "/path?x=1": "",
		"http://h.test/" + strings.Repeat("x", 400): "http://h.test/" + strings.Repeat("x", 286) + "…",
	} {
		if got := webhook.ShowURL(raw); got != want {
			t.Errorf("%q: %q, want %q", raw, got, want)
		}
	}
}
