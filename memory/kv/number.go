package kv

import (
	"context"
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
)

// maxNumber is how long a decimal that is incremented, and its sum, may be.
const maxNumber = 40

// decimal matches the numbers that Increment adds: JSON's, without an exponent.
var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?$`)

// Increment adds delta to the number under a key, which counts as 0 if there is none, and returns
// the new entry. Of calls at the same time none is lost. The sum is exact: of whole numbers it must
// fit into 64 bits; decimals are added digit by digit and may have 40 characters. A new entry lives
// for ttl seconds; an entry that is there keeps its end, unless ttl is not DefaultTTL. It fails
// with fault.Conflict if the value is no such number, and as Set does. For OnceFor, calls with the
// same call, an Idempotency-Key, add once; "" is none.
func (s *Service) Increment(ctx context.Context, project, name, key, delta string, ttl int, call string) (Entry, error) {
	if err := validKey("key", key, MaxKey); err != nil {
		return Entry{}, err
	}
	if err := checkTTL("ttl_seconds", ttl); err != nil {
		return Entry{}, err
	}
	if len(delta) > maxNumber || !decimal.MatchString(delta) {
		return Entry{}, fault.At(fault.Invalid, "delta", "must be a whole or decimal number of at most %d characters, without an exponent", maxNumber)
	}
	once := onceFor(call, key, fmt.Sprint("increment ", delta, " ", ttl))
	return s.update(ctx, project, name, key, once, ttl, func(p *place, old *Entry, now int64) (Entry, error) {
		e := Entry{Key: key, ExpiresMS: p.expires(now, ttl)}
		value := "0"
		if old != nil {
			value = strings.TrimSpace(string(old.Value))
			if ttl == DefaultTTL {
				e.ExpiresMS = old.ExpiresMS
			}
		}
		if len(value) > maxNumber || !decimal.MatchString(value) {
			return e, fault.At(fault.Conflict, "key", "holds a value that is not a number, or one with an exponent or more than %d characters: it cannot be incremented", maxNumber)
		}
		sum, err := add(value, delta)
		e.Value = []byte(sum)
		return e, err
	})
}

// add returns the sum of two decimals, with as many decimal places as the longer of them.
func add(a, b string) (string, error) {
	places := max(placesOf(a), placesOf(b))
	if places == 0 {
		x, _ := new(big.Int).SetString(a, 10)
		y, _ := new(big.Int).SetString(b, 10)
		if sum := x.Add(x, y); sum.IsInt64() {
			return sum.String(), nil
		}
		return "", fault.At(fault.Invalid, "delta", "%s + %s does not fit into 64 bits", a, b)
	}
	x, _ := new(big.Rat).SetString(a)
	y, _ := new(big.Rat).SetString(b)
	sum := x.Add(x, y).FloatString(places)
	if len(sum) > maxNumber {
		return "", fault.At(fault.Invalid, "delta", "%s + %s has more than %d characters", a, b, maxNumber)
	}
	return sum, nil
}

// placesOf returns the number of digits after the point.
func placesOf(n string) int {
	_, places, _ := strings.Cut(n, ".")
	return len(places)
}

// Expire sets when an entry ends: in ttl seconds, or never with NoEnd. It returns the entry, or
// fault.NotFound if there is none.
func (s *Service) Expire(ctx context.Context, project, name, key string, ttl int) (Entry, error) {
	if err := validKey("key", key, MaxKey); err != nil {
		return Entry{}, err
	}
	if err := checkTTL("ttl_seconds", ttl); err != nil {
		return Entry{}, err
	}
	return s.update(ctx, project, name, key, Once{}, ttl, func(p *place, old *Entry, now int64) (Entry, error) {
		if old == nil {
			return Entry{}, errNoKey(p.Space, key)
		}
		e := *old
		e.ExpiresMS = p.expires(now, ttl)
		return e, nil
	})
}

// update changes the entry of a key to what decide returns; see Store.UpdateKey.
func (s *Service) update(ctx context.Context, project, name, key string, once Once, ttl int, decide func(p *place, old *Entry, nowMS int64) (Entry, error)) (Entry, error) {
	p, err := s.open(ctx, project, name)
	if err != nil {
		return Entry{}, err
	}
	if err := p.check(ttl); err != nil {
		return Entry{}, err
	}
	now := s.nowMS()
	var e Entry
	put := func() (err error) {
		e, err = s.Store.UpdateKey(ctx, p.Space, key, once, p.limit, now, func(old *Entry) (Entry, error) {
			e, err := decide(&p, old, now)
			e.UpdatedMS = now
			e.Pinned = old != nil && old.Pinned
			return e, err
		})
		return err
	}
	size := int64(len(key))
	err = s.makingRoom(ctx, &p, []string{key}, size+maxNumber, func() error { return s.counted(&p, size, put) })
	return e, err
}
