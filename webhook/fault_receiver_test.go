package webhook_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/guard"
	"github.com/heardlog/heardlog/webhook"
)

// names is a DNS server in this process. Its fields may be changed between lookups.
type names struct {
	mu     sync.Mutex
	addrs  []string // of every name; those of the family that was not asked for are left out
	rcode  byte
	silent bool
}

func (n *names) set(change func(*names)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

// resolver starts the server and asks it.
func (n *names) resolver(t *testing.T) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			size, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			if out := n.reply(buf[:size]); out != nil {
				_, _ = pc.WriteTo(out, from) // a lost answer is asked for again
			}
		}
	}()
	t.Cleanup(func() { pc.Close(); <-done })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

func (n *names) reply(query []byte) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	end := 12
	for end < len(query) && query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5 // the root label, type and class
	if n.silent || end > len(query) {
		return nil
	}
	const typeA = 1
	qtype := binary.BigEndian.Uint16(query[end-4:])
	var records [][]byte
	for _, s := range n.addrs {
		if ip := netip.MustParseAddr(s); ip.Is4() == (qtype == typeA) {
			records = append(records, ip.AsSlice())
		}
	}
	out := append(query[:2:2], 0x81, 0x80|n.rcode, 0, 1, 0, byte(len(records)), 0, 0, 0, 0)
	out = append(out, query[12:end]...)
	for _, r := range records {
		out = append(out, 0xc0, 12, 0, byte(qtype), 0, 1, 0, 0, 0, 0, 0, byte(len(r)))
		out = append(out, r...)
	}
	return out
}

// Names that lead nowhere, through the guard as the server uses it: each is told apart, and none is
// more than a failed try.
func TestFault11DNS(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		dns         func(*names)
		class, text string
	}{
		// Like a name that may not be called, so that internal names cannot be guessed.
		"NXDOMAIN": {func(n *names) { n.rcode = 3 }, webhook.ClassBlocked, "does not exist"},
		"SERVFAIL": {func(n *names) { n.rcode = 2 }, webhook.ClassDNS, "could not be looked up"},
		"silent":   {func(n *names) { n.silent = true }, webhook.ClassDNS, "did not answer in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var dns names
			tt.dns(&dns)
			g := guard.New(guard.Options{AllowLoopback: true, Resolver: dns.resolver(t)})
			s := newSender(t, func(c *webhook.SenderConfig) {
				c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if dns.silent { // DialTimeout, shortened
						var cancel func()
						ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
						defer cancel()
					}
					return g.DialContext(ctx, network, addr)
				}
			})
			o := s.Send(t.Context(), delivery("http://hook.test.:8080/"))
			wantClass(t, o, tt.class, tt.text)
			if r := (webhook.Policy{Schedule: webhook.DefaultSchedule()}).Settle(delivery(""), o, time.Now(), 0); r.State != webhook.Pending {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A receiver that moves between two tries is found at its new address; one whose IPv6 address is
// dead is reached by IPv4.
func TestFault11AddressChanges(t *testing.T) {
	t.Parallel()
	url, seen := hits(t, nil)
	port := url[strings.LastIndex(url, ":"):]
	dns := &names{addrs: []string{"127.0.0.2"}} // nobody listens there
	g := guard.New(guard.Options{AllowLoopback: true, Resolver: dns.resolver(t)})
	s := newSite(t)
	s.endpoint("e", "http://hook.test."+port, nil)
	s.emit(s.event("n"))
	s.work(func(c *webhook.SenderConfig) { c.Dial = g.DialContext }, nil)
	if r := s.next(); r.State != webhook.Pending || r.Try.ErrorClass != webhook.ClassRefused {
		t.Fatalf("%+v", r.Result)
	}
	dns.set(func(n *names) { n.addrs = []string{"::1", "127.0.0.1"} })
	s.pass(2 * time.Hour)
	if r := s.next(); r.State != webhook.Delivered || r.Attempt != 2 {
		t.Errorf("%+v", r.Result)
	}
	if h := receiveFrom(t, seen, "the event"); h.id() != "n" || !strings.HasPrefix(h.header.Get("Webhook-Attempt"), "2") {
		t.Errorf("%v", h)
	}
}

// Every status, by the whole way: what is taken, what is tried again, what is given up, what
// switches the endpoint off. Nobody is sent elsewhere.
func TestFault17Status(t *testing.T) {
	t.Parallel()
	var trapped atomic.Int32
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { trapped.Add(1) }))
	t.Cleanup(trap.Close)
	url, _ := hits(t, func(w http.ResponseWriter, r *http.Request) {
		status, err := strconv.Atoi(r.URL.Path[1:])
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Location", trap.URL)
		if status != http.StatusSwitchingProtocols {
			w.WriteHeader(status)
			return
		}
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	})
	want := map[string]webhook.DeliveryState{}
	for status, state := range map[webhook.DeliveryState][]int{
		webhook.Delivered: {200, 201, 202, 204, 299},
		webhook.Dead:      {410, 413},
		webhook.Pending: {
			101, 300, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 408, 409, 422, 425, 429, 500, 502, 503, 504, 599, 600, 999,
		},
	} {
		for _, n := range state {
			want[strconv.Itoa(n)] = status
		}
	}
	s := newSite(t)
	for id := range want {
		s.endpoint(id, url+"/"+id, nil)
	}
	s.emit(s.event("n"))
	s.work(nil, nil)
	for range want {
		r := s.next()
		status := r.Endpoint.ID
		if r.State != want[status] || strconv.Itoa(r.Try.Status) != status {
			t.Errorf("%s: %s (%s), %+v", status, r.State, r.Reason, r.Try)
		}
		if off := r.DisableEndpoint != ""; off != (status == "410") {
			t.Errorf("%s: endpoint off: %q", status, r.DisableEndpoint)
		}
		if wait := time.UnixMilli(r.DueMS).Sub(s.now()); r.State == webhook.Pending && (wait < 50*time.Minute || wait > 72*time.Minute) {
			t.Errorf("%s: next try in %s", status, wait)
		}
	}
	if n := trapped.Load(); n > 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

// A receiver that does the work and answers too late gets the event again, recognisably the same,
// so that it can do the work once.
func TestFault19LateAnswer(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	work := map[string]int{}
	url, seen := hits(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		work[r.Header.Get("Webhook-Id")]++
		first := work[r.Header.Get("Webhook-Id")] == 1
		mu.Unlock()
		if first {
			<-r.Context().Done() // the sender has hung up; the 200 goes nowhere
		}
	})
	s := newSite(t)
	s.endpoint("e", url, nil)
	s.emit(s.event("n"))
	s.work(func(c *webhook.SenderConfig) { c.Total = 200 * time.Millisecond }, nil)
	if r := s.next(); r.State != webhook.Pending || r.Try.ErrorClass != webhook.ClassTimeout {
		t.Fatalf("%+v", r.Result)
	}
	s.pass(2 * time.Hour)
	if r := s.next(); r.State != webhook.Delivered {
		t.Errorf("%+v", r.Result)
	}
	first, second := <-seen, <-seen
	if first.id() != second.id() || first.body != second.body || work["n"] != 2 {
		t.Errorf("%v, then %v", first, second)
	}
}

// A receiver that points at an address within is asked nothing more, and nothing else is dialled.
func TestFault21RedirectWithin(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"http://169.254.169.254/latest/meta-data/", "http://127.0.0.1:1/", "file:///etc/passwd", "//10.0.0.1/", "gopher://[::1]/"} {
		for _, status := range []int{301, 302, 303, 307, 308} {
			url, seen := hits(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", to)
				w.Header().Set("Refresh", "0; url="+to)
				w.WriteHeader(status)
			})
			var dialled []string
			s := newSender(t, func(c *webhook.SenderConfig) {
				c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					dialled = append(dialled, addr)
					return new(net.Dialer).DialContext(ctx, network, addr)
				}
			})
			o := s.Send(t.Context(), delivery(url))
			if o.Status != status || len(seen) != 1 || len(dialled) != 1 || "http://"+dialled[0] != url {
				t.Errorf("%d to %s: %+v, dialled %v", status, to, o, dialled)
			}
		}
	}
}

// What a receiver answers is kept as it came, up to the limit, and as data: bytes that a page would
// run stay bytes.
func TestFault23AnswerIsData(t *testing.T) {
	t.Parallel()
	const nasty = "<script>alert(1)</script>\x00\xff\x1b[31m"
	url, _ := hits(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		fmt.Fprint(w, nasty)
	})
	s := newSite(t)
	s.endpoint("e", url, nil)
	s.emit(s.event("n"))
	s.work(nil, nil)
	r := s.next()
	_, list, err := s.Delivery(t.Context(), siteProject, r.ID)
	if err != nil || len(list) != 1 || string(list[0].Response) != nasty {
		t.Fatalf("%+v, %v", list, err)
	}
	if shown := r.Try.Error + r.Reason; strings.ContainsAny(shown, "<>\x00\x1b") || !utf8.ValidString(shown) {
		t.Errorf("the text for the operator quotes the receiver: %q", r.Try.Error)
	}
}
