// Package guard decides which addresses Heardlog may call, for LLM upstreams and webhook endpoints
// alike. A Guard checks each address when it is dialled.
//
// Checking a URL when it is saved is not enough: redirects and names whose address changes between
// two lookups get around that check. Every special address is refused unless the operator allows
// its network.
package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"github.com/heardlog/heardlog/internal/fault"
)

// DialTimeout bounds one dial, name lookup included.
const DialTimeout = 5 * time.Second

// Setting is the name of the operator's allow-list; refusals name it.
const Setting = "HEARDLOG_OUTBOUND_ALLOW"

// Options allows addresses beside the public internet.
type Options struct {
	// Allow lists networks that may always be called. It overrides every rule of this package.
	Allow []netip.Prefix
	// AllowLoopback allows 127.0.0.0/8 and ::1; for a server that itself serves this machine only.
	AllowLoopback bool
	// Resolver looks names up; nil is the system's.
	Resolver *net.Resolver
}

// Guard refuses connections to addresses that are not allowed. It is safe for concurrent use.
type Guard struct {
	allow  []netip.Prefix
	rules  *ssrf.Guardian
	dialer net.Dialer
}

// azureWire returns Azure's metadata and DNS address. No registry of special addresses lists it, so
// the library's table lets it through.
func azureWire() netip.Prefix { return netip.MustParsePrefix("168.63.129.16/32") }

// New makes a guard.
func New(o Options) *Guard {
	g := &Guard{}
	for _, p := range o.Allow {
		g.allow = append(g.allow, plain(p))
	}
	if o.AllowLoopback {
		g.allow = append(g.allow, netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
	}
	g.rules = ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(azureWire()))
	g.dialer = net.Dialer{
		Timeout: DialTimeout, KeepAlive: 30 * time.Second, Resolver: o.Resolver, ControlContext: g.ControlContext,
	}
	return g
}

// plain returns the IPv4 form of an IPv4-mapped prefix (::ffff:10.0.0.0/104), in which addresses
// are compared.
func plain(p netip.Prefix) netip.Prefix {
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p.Masked()
}

// Check returns a *Blocked if the address may not be called.
func (g *Guard) Check(addr netip.Addr) error {
	zone := addr.Zone() != ""
	// A mapped address reaches the IPv4 host, whatever it is written like.
	ip := addr.WithZone("").Unmap()
	if g.allowed(ip) {
		// Allowing the NAT64 prefix means the IPv4 internet behind it, not 64:ff9b::7f00:1.
		if v4, ok := nat64(ip); ok {
			if err := g.Check(v4); err != nil {
				return &Blocked{Addr: addr, Why: fmt.Sprintf("it leads to %s, which is not", v4)}
			}
		}
		return nil
	}
	if zone {
		return &Blocked{Addr: addr, Why: "it names a network interface"}
	}
	if err := g.rules.SafeAddr(ip); err != nil {
		return &Blocked{Addr: addr, Why: why(ip)}
	}
	return nil
}

func (g *Guard) allowed(ip netip.Addr) bool {
	for _, p := range g.allow {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// nat64 returns the IPv4 address inside an address of the well-known NAT64 prefix.
func nat64(ip netip.Addr) (netip.Addr, bool) {
	if !ssrf.IPv6NAT64Prefix.Contains(ip) {
		return netip.Addr{}, false
	}
	b := ip.As16()
	return netip.AddrFrom4([4]byte(b[12:])), true
}

// why names the rule that an address falls under.
func why(ip netip.Addr) string {
	denied := append([]netip.Prefix{azureWire()}, ssrf.IPv4DeniedPrefixes...)
	if !ip.Is4() {
		if !ssrf.IPv6GlobalUnicast.Contains(ip) {
			return "it is outside the public range " + ssrf.IPv6GlobalUnicast.String()
		}
		denied = ssrf.IPv6DeniedPrefixes
	}
	for _, p := range denied {
		if p.Contains(ip) {
			return "it is in " + p.String() + ", which is not public"
		}
	}
	return "it is not public"
}

// Control is a Control hook for net.Dialer. It refuses the connection with a *Blocked before a
// packet is sent.
func (g *Guard) Control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return &Blocked{Why: fmt.Sprintf("network %q is not TCP", network)}
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return &Blocked{Why: fmt.Sprintf("address %q is not an IP and port", address)}
	}
	return g.Check(ap.Addr())
}

// ControlContext is Control as a net.Dialer's ControlContext hook.
func (g *Guard) ControlContext(_ context.Context, network, address string, c syscall.RawConn) error {
	return g.Control(network, address, c)
}

// refusalTime is how long a refused dial takes at least. A lookup is rarely slower.
const refusalTime = 500 * time.Millisecond

// DialContext dials within DialTimeout, for http.Transport. It skips addresses of the name that are
// not allowed.
//
// If none is left, or if there is no such name, it fails with fault.Forbidden. Text and time are
// the same for both, so that a client cannot find out which names exist inside the network. The
// cause, for the log, is a *Blocked or a *net.DNSError.
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	over := time.NewTimer(refusalTime)
	defer over.Stop()
	conn, err := g.dialer.DialContext(ctx, network, address)
	if err == nil {
		return conn, nil
	}
	_, blocked := errors.AsType[*Blocked](err)
	if dns, ok := errors.AsType[*net.DNSError](err); !blocked && (!ok || !dns.IsNotFound) {
		return nil, err
	}
	select {
	case <-over.C:
	case <-ctx.Done():
	}
	return nil, fault.Wrap(fault.Forbidden, err, "outbound call refused: the host does not exist, or its address is not public and "+Setting+" does not list it")
}

// Blocked is the refusal of an address that the caller wrote itself, or the cause of a refused
// dial. It carries fault.Forbidden, so that other packages can tell
// it from a failed connection.
type Blocked struct {
	Addr netip.Addr // the address; not valid where there was none to judge
	Why  string
}

// Error returns the refused address, the reason, and how an operator can allow it.
func (b *Blocked) Error() string {
	if !b.Addr.IsValid() {
		return "outbound call refused: " + b.Why
	}
	return fmt.Sprintf("outbound call to %s refused: %s; to allow it, add its network to %s", b.Addr, b.Why, Setting)
}

// Unwrap returns the coded error.
func (b *Blocked) Unwrap() error { return fault.New(fault.Forbidden, "%s", b.Error()) }
