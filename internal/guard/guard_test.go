package guard_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/guard"
)

func TestCheckBlocks(t *testing.T) {
	t.Parallel()
	g := guard.New(guard.Options{})
	for name, addrs := range map[string]string{
		"this network":        "0.0.0.0 0.0.0.1 0.255.255.255",
		"private":             "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.1 192.168.255.255",
		"carrier NAT":         "100.64.0.0 100.100.100.200 100.127.255.255",
		"loopback":            "127.0.0.1 127.255.255.255 ::1",
		"link local":          "169.254.0.1 169.254.169.254 fe80::1 febf::1",
		"protocol":            "192.0.0.0 192.0.0.8 192.0.0.170 192.0.0.192 192.0.0.255",
		"documentation":       "192.0.2.1 198.51.100.7 203.0.113.255 2001:db8::1 3fff::1 3fff:fff:ffff::1",
		"benchmark":           "198.18.0.1 198.19.255.255 2001:2::1",
		"AS112, AMT, relay":   "192.31.196.1 192.52.193.1 192.175.48.1 192.88.99.1 2620:4f:8000::1",
		"multicast":           "224.0.0.1 233.252.0.1 239.255.255.255 ff02::1 ff0e::1",
		"reserved, broadcast": "240.0.0.1 255.255.255.254 255.255.255.255",
		"Azure":               "168.63.129.16 ::ffff:168.63.129.16",
		"unspecified":         ":: ::ffff:0.0.0.0",
		"mapped":              "::ffff:127.0.0.1 ::ffff:10.1.2.3 ::ffff:169.254.169.254 ::ffff:a9fe:a9fe",
		"compatible":          "::127.0.0.1 ::8.8.8.8",
		"translated":          "::ffff:0:10.0.0.1 ::ffff:0:8.8.8.8",
		"NAT64":               "64:ff9b::8.8.8.8 64:ff9b::a9fe:a9fe 64:ff9b:1::1 64:ff9b:1:ffff::10.0.0.1",
		"6to4":                "2002::1 2002:7f00:1:: 2002:a9fe:a9fe::1",
		"Teredo, ORCHID":      "2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:10::1 2001:20::1 2001:1ff:ffff::",
		"unique local":        "fc00::1 fd00:ec2::254 fd20:ce::254 fdff:ffff::1",
		"site local":          "fec0::1 feff::1",
		"discard":             "100::1",
		"segment routing":     "5f00::1",
		"outside 2000::/3":    "1fff:ffff::1 4000::1 8000::1 e000::1",
		"zone":                "fe80::1%eth0 2606:4700::1111%eth0 ::1%lo",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for s := range strings.FieldsSeq(addrs) {
				ip, err := netip.ParseAddr(s)
				if err != nil {
					t.Fatal(err)
				}
				err = g.Check(ip)
				b, ok := errors.AsType[*guard.Blocked](err)
				if !ok {
					t.Errorf("%s: %v, want it blocked", s, err)
					continue
				}
				if fault.CodeOf(err) != fault.Forbidden {
					t.Errorf("%s: code %s, want forbidden", s, fault.CodeOf(err))
				}
				for _, want := range []string{b.Addr.String(), guard.Setting} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%s: text %q does not name %q", s, err, want)
					}
				}
				// The hook sees what the dialer would connect to.
				if err := g.Control("tcp6", netip.AddrPortFrom(ip, 443).String(), nil); err == nil {
					t.Errorf("%s: the dial hook lets it through", s)
				}
			}
		})
	}
}

func TestCheckPasses(t *testing.T) {
	t.Parallel()
	g := guard.New(guard.Options{})
	for _, s := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
		"168.63.129.15", "168.63.129.17", "169.253.255.255", "172.15.255.255", "172.32.0.0", "192.0.1.0", "198.17.255.255",
		"198.20.0.0", "223.255.255.255", "::ffff:8.8.8.8", "2001:200::1", "2001:4860:4860::8888", "2606:4700:4700::1111",
		"2a00:1450::1", "3ffe::1",
	} {
		if err := g.Check(netip.MustParseAddr(s)); err != nil {
			t.Errorf("%s: %v, want it allowed", s, err)
		}
	}
}

func TestAllowWins(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, allow, addr string
		loopback, ok      bool
	}{
		{"private", "10.0.0.0/8", "10.1.2.3", false, true},
		{"beside it", "10.0.0.0/8", "192.168.0.1", false, false},
		{"not masked", "10.9.9.9/8", "10.1.2.3", false, true},
		{"mapped address", "10.0.0.0/8", "::ffff:10.1.2.3", false, true},
		{"mapped prefix", "::ffff:10.0.0.0/104", "10.1.2.3", false, true},
		{"metadata, if one must", "169.254.169.254/32", "169.254.169.254", false, true},
		{"Azure, if one must", "168.63.129.16/32", "168.63.129.16", false, true},
		{"unique local", "fd00::/8", "fd00::7", false, true},
		{"link local with zone", "fe80::/10", "fe80::1%eth0", false, true},
		{"loopback v4", "", "127.0.0.1", true, true},
		{"loopback v4, other", "", "127.9.9.9", true, true},
		{"loopback v6", "", "::1", true, true},
		{"loopback mapped", "", "::ffff:127.0.0.1", true, true},
		{"loopback allows no more", "", "10.0.0.1", true, false},
		{"unspecified is not loopback", "", "0.0.0.0", true, false},
		{"NAT64 to the internet", "64:ff9b::/96", "64:ff9b::8.8.8.8", false, true},
		{"NAT64 to metadata", "64:ff9b::/96", "64:ff9b::169.254.169.254", false, false},
		{"NAT64 to what is allowed", "64:ff9b::/96 10.0.0.0/8", "64:ff9b::10.0.0.1", false, true},
		{"all", "0.0.0.0/0", "127.0.0.1", false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := guard.Options{AllowLoopback: tt.loopback}
			for p := range strings.FieldsSeq(tt.allow) {
				o.Allow = append(o.Allow, netip.MustParsePrefix(p))
			}
			err := guard.New(o).Check(netip.MustParseAddr(tt.addr))
			if (err == nil) != tt.ok {
				t.Errorf("%s: %v, want allowed=%t", tt.addr, err, tt.ok)
			}
		})
	}
}

func TestControlRefusesOtherNetworks(t *testing.T) {
	t.Parallel()
	g := guard.New(guard.Options{Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}})
	for _, tt := range []struct{ network, address string }{
		{"unix", "/var/run/docker.sock"}, {"udp4", "8.8.8.8:53"}, {"tcp4", "localhost:80"}, {"tcp4", ""},
	} {
		err := g.ControlContext(t.Context(), tt.network, tt.address, nil)
		if _, ok := errors.AsType[*guard.Blocked](err); !ok {
			t.Errorf("%s %q: %v, want it blocked", tt.network, tt.address, err)
		}
	}
}

func TestDialLiteral(t *testing.T) {
	t.Parallel()
	ln := listen(t)
	_, port, _ := net.SplitHostPort(ln.Addr().String())

	for _, host := range []string{"127.0.0.1", "::ffff:127.0.0.1"} {
		addr := net.JoinHostPort(host, port)
		_, err := guard.New(guard.Options{}).DialContext(t.Context(), "tcp", addr)
		if _, ok := errors.AsType[*guard.Blocked](err); !ok {
			t.Errorf("dial %s: %v, want it blocked", addr, err)
		}
		conn, err := guard.New(guard.Options{AllowLoopback: true}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Errorf("dial %s with loopback allowed: %v", addr, err)
			continue
		}
		conn.Close()
	}
	// Some resolvers read these as addresses; none may get through on any machine.
	for _, host := range []string{"2130706433", "0x7f000001", "127.1", "0177.0.0.1"} {
		g := guard.New(guard.Options{Resolver: noSuchHost(t)})
		if conn, err := g.DialContext(t.Context(), "tcp", net.JoinHostPort(host, port)); err == nil {
			conn.Close()
			t.Errorf("dial %s went through", host)
		}
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}
