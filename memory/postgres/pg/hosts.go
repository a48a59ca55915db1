package pg

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// host is a server of the connection string.
type host struct {
	name string
	port uint16
}

func (h host) String() string { return net.JoinHostPort(h.name, strconv.Itoa(int(h.port))) }

// hosts knows the servers of a connection string, and which of them is the primary.
type hosts struct {
	list    []host               // each once, in the order of the string
	primary atomic.Pointer[host] // the one that takes writes; nil: not known yet
	// elsewhere is called when a connection was made to another host than the primary.
	elsewhere func()

	mu    sync.Mutex
	links map[*link]bool // open connections
}

// link is an open connection to a host.
type link struct {
	net.Conn
	to host
	of *hosts
}

// Close implements net.Conn.
func (l *link) Close() error {
	l.of.mu.Lock()
	delete(l.of.links, l)
	l.of.mu.Unlock()
	return l.Conn.Close()
}

func newHosts(c *pgx.ConnConfig) *hosts {
	h := &hosts{links: map[*link]bool{}, elsewhere: func() {}}
	for _, e := range entries(c) {
		if at := (host{e.Host, e.Port}); !slices.Contains(h.list, at) {
			h.list = append(h.list, at)
		}
	}
	return h
}

// entries returns where a connection is tried, in order: each host, and each way to it.
func entries(c *pgx.ConnConfig) []*pgconn.FallbackConfig {
	return append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
}

// try makes a configuration try these entries.
func try(c *pgx.ConnConfig, list []*pgconn.FallbackConfig) {
	c.Host, c.Port, c.TLSConfig, c.Fallbacks = list[0].Host, list[0].Port, list[0].TLSConfig, list[1:]
}

// only makes a configuration try one host.
func (h host) only(c *pgx.ConnConfig) {
	try(c, slices.DeleteFunc(entries(c), func(e *pgconn.FallbackConfig) bool { return e.Host != h.name || e.Port != h.port }))
}

// errNoCancel is the end of an attempt to cancel a statement.
var errNoCancel = errors.New("statements are not canceled")

// attend makes the configuration of one connection try the primary first and note which host
// answered. Once it is connected, it dials no more: the driver would ask the server to cancel the
// statement of a call that ends early, and a commit that waits for a synchronous standby would then
// end as committed on this server alone, and be seen.
func (h *hosts) attend(c *pgx.ConnConfig) {
	if p := h.primary.Load(); p != nil {
		list := entries(c)
		slices.SortStableFunc(list, func(a, b *pgconn.FallbackConfig) int { return other(a, p) - other(b, p) })
		try(c, list)
	}
	var mu sync.Mutex
	var last host
	connected := false
	names := map[string][]string{} // by address
	dial, lookup, after := c.DialFunc, c.LookupFunc, c.AfterConnect
	c.LookupFunc = func(ctx context.Context, name string) ([]string, error) {
		list, err := lookup(ctx, name)
		mu.Lock()
		defer mu.Unlock()
		for _, address := range list {
			names[address] = append(names[address], name)
		}
		return list, err
	}
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		mu.Lock()
		late := connected
		last = h.at(address, names)
		to := last
		mu.Unlock()
		if late {
			return nil, errNoCancel
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		l := &link{conn, to, h}
		h.mu.Lock()
		h.links[l] = true
		h.mu.Unlock()
		return l, nil
	}
	c.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		mu.Lock()
		connected = true
		to := last
		mu.Unlock()
		if !h.primary.CompareAndSwap(nil, &to) && *h.primary.Load() != to {
			h.elsewhere()
		}
		if after != nil {
			return after(ctx, conn)
		}
		return nil
	}
}

// at returns the host of an address to dial. names are the names of each IP address.
func (h *hosts) at(address string, names map[string][]string) host {
	ip, port, err := net.SplitHostPort(address)
	if err != nil { // a socket in the file system
		return h.list[0]
	}
	n, _ := strconv.ParseUint(port, 10, 16)
	for _, to := range h.list {
		if to.port == uint16(n) && (to.name == ip || slices.Contains(names[ip], to.name)) {
			return to
		}
	}
	return h.list[0]
}

func other(e *pgconn.FallbackConfig, p *host) int {
	if e.Host == p.name && e.Port == p.port {
		return 0
	}
	return 1
}

// moveTo makes a host the primary and ends the calls that wait for others.
func (h *hosts) moveTo(p host) {
	h.primary.Store(&p)
	h.drop(func(l *link) bool { return l.to != p })
}

// drop closes connections, which ends the calls that wait for them.
func (h *hosts) drop(which func(*link) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.links {
		if which(l) {
			_ = l.Conn.Close()
			delete(h.links, l)
		}
	}
}
