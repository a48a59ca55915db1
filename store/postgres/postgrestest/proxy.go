package postgrestest

import (
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy forwards connections to a PostgreSQL server and can fail like a network.
type Proxy struct {
	t      testing.TB
	listen net.Listener
	to     *url.URL
	hole   atomic.Bool // nothing gets through, in either direction
	deaf   atomic.Bool // nothing comes back
	trips  atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]bool
	lost  chan struct{} // receives when data from the server was dropped
}

// NewProxy starts a proxy in front of the server of a URL.
func NewProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{t: t, listen: l, to: u, conns: map[net.Conn]bool{}, lost: make(chan struct{}, 1)}
	t.Cleanup(func() {
		_ = l.Close()
		p.Cut()
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

// URL returns the URL of the database through the proxy.
func (p *Proxy) URL() string {
	u := *p.to
	u.Host = p.listen.Addr().String()
	return u.String()
}

// Hole makes the proxy drop all data in both directions, or stops that. It still accepts
// connections. Dropped data is lost for good: afterwards new connections work and old ones stay
// silent.
func (p *Proxy) Hole(on bool) { p.hole.Store(on) }

// Deaf makes the proxy drop all data from the server, or stops that.
func (p *Proxy) Deaf(on bool) { p.deaf.Store(on) }

// Lost returns a channel that receives when data from the server was dropped.
func (p *Proxy) Lost() <-chan struct{} { return p.lost }

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

// Trips returns the number of round trips to the server.
func (p *Proxy) Trips() int64 { return p.trips.Load() }

func (p *Proxy) keep(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
}

func (p *Proxy) serve(client net.Conn) {
	p.keep(client)
	defer client.Close()
	server, err := net.Dial("tcp", p.to.Host)
	if err != nil {
		return
	}
	p.keep(server)
	defer server.Close()
	var mu sync.Mutex
	asked, dead := false, false
	pass := func(to, from net.Conn, question bool) {
		defer to.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if err != nil || n == 0 {
				return
			}
			mu.Lock()
			dead = dead || p.hole.Load() || !question && p.deaf.Load()
			drop := dead
			if question && !asked {
				p.trips.Add(1)
			}
			asked = question
			mu.Unlock()
			if drop {
				if !question {
					select {
					case p.lost <- struct{}{}:
					default:
					}
				}
				continue
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	done := make(chan struct{})
	go func() { pass(client, server, false); close(done) }()
	pass(server, client, true)
	<-done
}
