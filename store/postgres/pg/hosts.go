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

// hosts knows the servers of a connection string, and which of them is the primary. Connections are
// made to the primary alone: another server that answers may be an old primary.
type hosts struct {
	list    []host               // each once, in the order of the string
	primary atomic.Pointer[host] // nil: any that the connection string allows

	mu    sync.Mutex
	links map[*link]bool // open connections
}

// link is an open connection.
type link struct {
	net.Conn
	to *host // nil: it is not known
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
	h := &hosts{links: map[*link]bool{}}
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

// only makes a configuration try one host.
func (h host) only(c *pgx.ConnConfig) {
	list := slices.DeleteFunc(entries(c), func(e *pgconn.FallbackConfig) bool { return e.Host != h.name || e.Port != h.port })
	c.Host, c.Port, c.TLSConfig, c.Fallbacks = list[0].Host, list[0].Port, list[0].TLSConfig, list[1:]
}

// errNoCancel is the end of an attempt to cancel a statement.
var errNoCancel = errors.New("statements are not canceled")

// prepare makes the configuration of one connection lead to the primary. Once it is connected, it
// dials no more: the driver would ask the server to cancel the statement of a call that ends early,
// and a commit that waits for a synchronous standby would then end as committed on this server
// alone, and be seen.
func (h *hosts) prepare(c *pgx.ConnConfig) {
	to := h.primary.Load()
	if to != nil {
		to.only(c)
	}
	var connected atomic.Bool
	dial, after := c.DialFunc, c.AfterConnect
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if connected.Load() {
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
		connected.Store(true)
		if after != nil {
			return after(ctx, conn)
		}
		return nil
	}
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
