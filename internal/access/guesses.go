package access

import (
	"crypto/sha256"
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"github.com/heardlog/heardlog/internal/cache"
)

// Wrong secrets that are answered before further ones have to wait, and how often one is taken
// then: from one address for one ID, and from one address in all. Tokens without an ID count only
// for the address, since many callers behind a proxy have them.
const (
	GuessesPerID      = 10
	everyPerID        = 5 * time.Second
	GuessesPerAddress = 100
	everyPerAddress   = time.Second
)

// Bounds of the tables, and how long after its last use a credential that was right is known.
const (
	guessers = 50_000
	known    = 50_000
	knownFor = time.Hour
)

// Guesses slows down callers with wrong secrets. No request waits in the server: a caller over its
// limit is refused before its secret is checked.
//
// Limits are by address, so that an attacker who guesses at an ID does not lock out its holder
// elsewhere. Behind a reverse proxy all callers have one address. A credential that was right from
// an address within the last hour is therefore let through.
type Guesses struct {
	limits *cache.Cache[guesser, *rate.Limiter]
	right  *cache.Cache[[sha256.Size]byte, int64] // when it was used last, Unix ms, by Attempt.print
	now    func() time.Time
}

// guesser is an address, with an ID or for all of them ("").
type guesser struct {
	addr netip.Prefix
	id   string
}

// NewGuesses returns empty tables.
func NewGuesses(now func() time.Time) *Guesses {
	return &Guesses{
		limits: cache.New[guesser, *rate.Limiter](guessers, nil), right: cache.New[[sha256.Size]byte, int64](known, nil),
		now: now,
	}
}

// Attempt is one use of a credential from an address.
type Attempt struct {
	g        *Guesses
	who      []guesser // whose limits count
	print    [sha256.Size]byte
	wasRight bool
}

// Attempt begins an attempt of a remote address, host:port, with a header that names an ID; "" is
// none.
func (g *Guesses) Attempt(remote, header, id string) Attempt {
	addr := network(remote)
	a := Attempt{g: g, who: []guesser{{addr: addr}}, print: sha256.Sum256([]byte(addr.String() + " " + header))}
	if id != "" {
		a.who = append(a.who, guesser{addr, clip(id)})
	}
	if usedMS, ok := g.right.Get(a.print); ok {
		a.wasRight = g.now().Sub(time.UnixMilli(usedMS)) < knownFor
	}
	return a
}

// clip bounds what an ID takes in the table.
func clip(id string) string { return id[:min(len(id), maxID)] }

// network returns the address without its port. Of IPv6 only the network counts, since its holder
// has all addresses in it.
func network(remote string) netip.Prefix {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{} // no TCP connection; all of them share one limit
	}
	addr, bits := ap.Addr().Unmap().WithZone(""), 64
	if addr.Is4() {
		bits = 32
	}
	p, _ := addr.Prefix(bits) // fails only for more bits than the address has
	return p
}

// Wait returns how long the caller must wait before its secret is checked, 0 if not at all.
func (a Attempt) Wait() time.Duration {
	if a.wasRight {
		return 0
	}
	now := a.g.now()
	for _, who := range a.who {
		l, ok := a.g.limits.Get(who)
		if !ok {
			continue
		}
		if tokens := l.TokensAt(now); tokens < 1 {
			return max(time.Duration((1-tokens)/float64(l.Limit())*float64(time.Second)), time.Millisecond)
		}
	}
	return 0
}

// Wrong counts the attempt as a wrong guess.
func (a Attempt) Wrong() {
	now := a.g.now()
	for _, who := range a.who {
		l := a.g.limits.GetOrSet(who, func() *rate.Limiter {
			if who.id != "" {
				return rate.NewLimiter(rate.Every(everyPerID), GuessesPerID)
			}
			return rate.NewLimiter(rate.Every(everyPerAddress), GuessesPerAddress)
		})
		// A reservation, so that guesses that were made at the same time all count.
		if r := l.ReserveN(now, 1); r.DelayFrom(now) > maxDebt {
			r.CancelAt(now)
		}
	}
}

// maxDebt bounds how long many guesses at the same moment delay the next one.
const maxDebt = time.Minute

// Right remembers that the credential was right from this address.
func (a Attempt) Right() {
	a.g.right.Set(a.print, a.g.now().UnixMilli())
}
