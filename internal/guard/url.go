package guard

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
)

// MaxURL is the length of the longest URL that CheckURL takes, in bytes.
const MaxURL = 2048

// CheckURL checks that raw can be the address of an outbound HTTP call: an absolute http or https
// URL of at most MaxURL bytes with a host, without user name or password, and with no port that
// belongs to another protocol. It fails with fault.Missing or fault.Invalid and never repeats the
// URL, which may hold a secret.
//
// It does not resolve the host: that is checked when the address is dialled. A host that is written
// as a blocked address is refused here, so that the error comes when the URL is saved and not with
// the first call.
func (g *Guard) CheckURL(raw string) error {
	u, err := parseURL(raw)
	if err != nil {
		return err
	}
	if ip, err := netip.ParseAddr(strings.TrimSuffix(u.Hostname(), ".")); err == nil {
		return g.Check(ip)
	}
	return nil
}

func parseURL(raw string) (*url.URL, error) {
	if raw == "" {
		return nil, fault.New(fault.Missing, "the URL must be an http or https URL, not empty")
	}
	if len(raw) > MaxURL {
		return nil, fault.New(fault.Invalid, "the URL is %d bytes long; at most %d are allowed", len(raw), MaxURL)
	}
	if strings.TrimSpace(raw) != raw {
		return nil, fault.New(fault.Invalid, "the URL begins or ends with white space")
	}
	u, err := url.Parse(raw)
	if err != nil { // its text quotes the URL
		return nil, fault.New(fault.Invalid, "the URL cannot be read; it must be like https://host/path")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fault.New(fault.Invalid, "the URL must begin with http:// or https://")
	case u.Opaque != "" || u.Hostname() == "":
		return nil, fault.New(fault.Invalid, "the URL has no host")
	case u.User != nil:
		return nil, fault.New(fault.Invalid, "the URL must not hold a user name or password")
	case strings.Contains(u.Hostname(), "%"):
		return nil, fault.New(fault.Invalid, "the URL's host must not name a network interface (%%)")
	case strings.ContainsAny(u.Hostname(), " \t\r\n\x00\\@"):
		return nil, fault.New(fault.Invalid, "the URL's host contains a character that is not allowed")
	}
	return u, checkPort(u.Port())
}

func checkPort(port string) error {
	if port == "" {
		return nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return fault.New(fault.Invalid, "the URL's port must be from 1 to 65535")
	}
	if otherProtocol(uint16(n)) {
		return fault.New(fault.Invalid, "the URL's port %d belongs to another protocol than HTTP", n)
	}
	return nil
}

// otherProtocol reports whether a port is one that browsers refuse too (the "bad ports" of the
// Fetch standard), because its protocol could take an HTTP request for a mail or a command.
func otherProtocol(port uint16) bool {
	switch port {
	case 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109, 110,
		111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532,
		540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061,
		6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080:
		return true
	}
	return false
}
