package redis

import (
	"context"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Probed is what is to be known of a server before it is used.
type Probed struct {
	Version string        // its name and version
	Replica bool          // it takes no writes
	Lossy   string        // what may be lost, in plain words; "" for nothing
	Skew    time.Duration // how far its clock is before ours
}

// Probe looks at a server and changes nothing. Its errors hold no password.
func Probe(ctx context.Context, url string) (p Probed, err error) {
	at, err := parse(url)
	if err != nil {
		return p, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s := &Store{}
	if s.client, err = rueidis.NewClient(at.client); err != nil {
		return p, classify(err, "connect")
	}
	defer s.client.Close()
	info := func(section string) (string, error) {
		return s.client.Do(ctx, s.client.B().Info().Section(section).Build()).ToString()
	}
	server, err := info("server")
	if err != nil {
		return p, classify(err, "ask the server")
	}
	p.Version = "Redis " + infoLine(server, "redis_version")
	if v := infoLine(server, "valkey_version"); v != "" {
		p.Version = "Valkey " + v
	}
	replication, err := info("replication")
	if err != nil {
		return p, classify(err, "ask the server")
	}
	p.Replica = infoLine(replication, "role") == "slave"
	p.Lossy = s.durability(ctx)
	if err := s.syncClock(ctx); err != nil {
		return p, classify(err, "ask the server")
	}
	p.Skew = time.Duration(s.offset.Load())
	return p, nil
}

// infoLine gives a value of INFO's answer.
func infoLine(text, name string) string {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return v
		}
	}
	return ""
}
