package redis

import (
	"net/url"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Where a URL does not say otherwise, and what it may say.
const (
	DefaultPrefix = "heardlog"
	DefaultTTL    = 24 * time.Hour
	MinTTL        = time.Minute
	MaxTTL        = 10 * 365 * 24 * time.Hour
	maxPrefix     = 64
)

// slack is how much longer than a live agent's longest life its keys are kept: clocks differ, and its end has to be written.
const slack = time.Hour

// place is what a URL says.
type place struct {
	client rueidis.ClientOption
	prefix string
	ttl    time.Duration // of an ended agent; 0 = for ever
}

// life is how long the keys of a live agent last after a write; 0 = for ever.
func (p *place) life() time.Duration {
	if p.ttl == 0 {
		return 0
	}
	return memory.Lifetime + p.ttl + slack
}

// Check tells what is wrong with a URL. Its errors hold nothing of it, since it may hold a password.
func Check(raw string) error {
	_, err := parse(raw)
	return err
}

// parse reads a URL.
func parse(raw string) (place, error) {
	p := place{prefix: DefaultPrefix, ttl: DefaultTTL}
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return p, fault.New(fault.Invalid, "a Redis store is redis://USER:PASSWORD@HOST:PORT/DATABASE, or rediss:// for TLS")
	}
	q := u.Query()
	for name := range q {
		switch name {
		case "ttl", "prefix", "addr", "db", "client_name", "skip_verify", "dial_timeout", "master_set", "protocol":
		default:
			return p, fault.New(fault.Invalid, "parameters of a Redis store are ttl, prefix, addr, db, client_name, skip_verify, dial_timeout, master_set and protocol; it has another one")
		}
	}
	if v := q.Get("ttl"); q.Has("ttl") {
		if p.ttl, err = time.ParseDuration(v); err != nil || p.ttl != 0 && (p.ttl < MinTTL || p.ttl > MaxTTL) {
			return p, fault.New(fault.Invalid, "ttl is not a duration such as 24h from %s to %s, or 0 for no end", MinTTL, MaxTTL)
		}
	}
	if q.Has("prefix") {
		p.prefix = q.Get("prefix")
	}
	if p.prefix == "" || len(p.prefix) > maxPrefix || strings.Trim(p.prefix, nameBytes) != "" {
		return p, fault.New(fault.Invalid, "prefix is not 1 to %d letters, digits, dots, dashes and underscores", maxPrefix)
	}
	q.Del("ttl")
	q.Del("prefix")
	u.RawQuery = q.Encode()
	if p.client, err = rueidis.ParseURL(u.String()); err != nil {
		return p, fault.New(fault.Invalid, "a Redis store is redis://USER:PASSWORD@HOST:PORT/DATABASE with a number for DATABASE; it cannot be read")
	}
	if p.client.ClientName == "" {
		p.client.ClientName = "heardlog"
	}
	// Nothing is read without asking: another server may have written. Nothing is sent twice behind our back: what is not known to have failed may have been done.
	p.client.DisableCache, p.client.DisableRetry = true, true
	if p.client.Dialer.Timeout == 0 {
		p.client.Dialer.Timeout = 5 * time.Second
	}
	return p, nil
}

// Redact gives a URL for logs: without user, password and parameters.
func Redact(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return "a Redis server"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
