package guard_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/guard"
)

// A name that leads to an address that is not allowed, as A, as AAAA, and behind a mapped one.
func TestDialBlockedAnswer(t *testing.T) {
	t.Parallel()
	ln := listen(t)
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	for _, addr := range []string{"127.0.0.1", "169.254.169.254", "10.0.0.1", "168.63.129.16", "::1", "fd00:ec2::254", "::ffff:127.0.0.1"} {
		t.Run(addr, func(t *testing.T) {
			t.Parallel()
			g := guard.New(guard.Options{Resolver: resolver(t, func(int) []string { return []string{addr} })})
			_, err := g.DialContext(t.Context(), "tcp", net.JoinHostPort("evil.test.", port))
			b, ok := errors.AsType[*guard.Blocked](err)
			if !ok {
				t.Fatalf("%v, want it blocked", err)
			}
			if want := netip.MustParseAddr(addr).Unmap(); b.Addr.Unmap() != want {
				t.Errorf("blocked %s, want %s", b.Addr, want)
			}
		})
	}
}

// TestDialRebinding: a name resolves to a public address first and to a local one later. The guard
// checks the address that is dialled. The first answer is on the allow list, so that the test needs
// no other machine.
func TestDialRebinding(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
	}))
	srv.Listener.Close()
	srv.Listener = ln
	srv.Start()
	t.Cleanup(srv.Close)
	_, port, _ := net.SplitHostPort(ln.Addr().String())

	lookups := 0 // touched by the DNS server's goroutine only
	g := guard.New(guard.Options{
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		// One lookup asks for both families; only A counts.
		Resolver: resolver(t, func(qtype int) []string {
			if qtype == 1 {
				lookups++
			}
			if lookups <= 1 {
				return []string{"127.0.0.1"}
			}
			return []string{"127.0.0.2"}
		}),
	})
	client := &http.Client{Transport: &http.Transport{DialContext: g.DialContext}}
	resp, err := client.Get("http://flip.test.:" + port)
	if err != nil {
		t.Fatalf("first lookup: %v", err)
	}
	resp.Body.Close()
	resp, err = client.Get("http://flip.test.:" + port)
	if err == nil {
		resp.Body.Close()
		t.Fatal("second lookup: the call went through")
	}
	b, ok := errors.AsType[*guard.Blocked](err)
	if !ok || b.Addr != netip.MustParseAddr("127.0.0.2") {
		t.Errorf("second lookup: %v, want 127.0.0.2 blocked", err)
	}
	if !fault.Is(err, fault.Forbidden) {
		t.Error("the code does not come through the transport")
	}
}

// Of a name with allowed and blocked addresses only the allowed ones are called.
func TestDialMixedAnswer(t *testing.T) {
	t.Parallel()
	ln := listen(t)
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	g := guard.New(guard.Options{
		Allow:    []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		Resolver: resolver(t, func(int) []string { return []string{"127.0.0.2", "10.0.0.1", "127.0.0.1"} }),
	})
	conn, err := g.DialContext(t.Context(), "tcp", "mixed.test.:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if host, _, _ := net.SplitHostPort(conn.RemoteAddr().String()); host != "127.0.0.1" {
		t.Errorf("connected to %s", host)
	}
}

// TestDialRefusalsAreAlike: what a caller is shown, and how long it takes, is the same for a
// private address, a name that leads to one and a name that does not exist. Only the cause differs.
func TestDialRefusalsAreAlike(t *testing.T) {
	t.Parallel()
	private := resolver(t, func(int) []string { return []string{"10.1.2.3"} })
	for name, tt := range map[string]struct {
		r       *net.Resolver
		address string
		cause   string
	}{
		"an address":                 {nil, "10.1.2.3:80", "10.0.0.0/8"},
		"a name that leads to one":   {private, "db.internal.:80", "10.0.0.0/8"},
		"a name that does not exist": {noSuchHost(t), "nowhere.internal.:80", "no such host"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			_, err := guard.New(guard.Options{Resolver: tt.r}).DialContext(t.Context(), "tcp", tt.address)
			took := time.Since(began)
			e, ok := errors.AsType[*fault.Error](err)
			want := "outbound call refused: the host does not exist, or its address is not public and HEARDLOG_OUTBOUND_ALLOW does not list it"
			if !ok || e.Code != fault.Forbidden || e.Msg != want {
				t.Errorf("%+v", err)
			}
			if !strings.Contains(err.Error(), tt.cause) {
				t.Errorf("the log would not say why: %v", err)
			}
			if took < 500*time.Millisecond {
				t.Errorf("refused after %s", took)
			}
		})
	}
}

func noSuchHost(t *testing.T) *net.Resolver {
	return resolver(t, func(int) []string { return nil })
}

// resolver returns a resolver that asks a DNS server in this process. The server answers each
// question with the addresses of its type (1 = A, 28 = AAAA) that answer returns; none means
// NXDOMAIN.
func resolver(t *testing.T, answer func(qtype int) []string) *net.Resolver {
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
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			if out := reply(buf[:n], answer); out != nil {
				_, _ = pc.WriteTo(out, from) // a lost answer is asked for again
			}
		}
	}()
	t.Cleanup(func() { pc.Close(); <-done })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

func reply(query []byte, answer func(qtype int) []string) []byte {
	end := 12
	for end < len(query) && query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5 // the root label, type and class
	if end > len(query) {
		return nil
	}
	qtype := binary.BigEndian.Uint16(query[end-4:])
	var records [][]byte
	known := false
	for _, s := range answer(int(qtype)) {
		known = true
		if ip := netip.MustParseAddr(s); ip.Is4() == (qtype == 1) {
			records = append(records, ip.AsSlice())
		}
	}
	out := append([]byte(nil), query[:2]...)
	rcode := byte(0)
	if !known {
		rcode = 3
	}
	out = append(out, 0x81, 0x80|rcode, 0, 1, 0, byte(len(records)), 0, 0, 0, 0)
	out = append(out, query[12:end]...)
	for _, r := range records {
		out = append(out, 0xc0, 12, 0, byte(qtype), 0, 1, 0, 0, 0, 0, 0, byte(len(r)))
		out = append(out, r...)
	}
	return out
}
