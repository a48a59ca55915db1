package app

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/google/uuid"
)

// ids creates UUIDv7s, which sort by time and cannot be guessed. They use the clock of deadlines,
// which all servers of a store share, so IDs sort correctly even if the servers' own clocks differ.
type ids struct {
	now func() time.Time

	mu   sync.Mutex
	last uint64 // in units of 1/4096 ms, the resolution of an ID
}

// next returns an ID that sorts after all earlier ones.
func (i *ids) next() string {
	const fine = 4096
	t := i.now()
	at := uint64(t.UnixMilli())*fine + uint64(t.Nanosecond()%int(time.Millisecond))*fine/uint64(time.Millisecond)
	i.mu.Lock()
	at = max(at, i.last+1)
	i.last = at
	i.mu.Unlock()
	id := uuid.New() // random, except for the first 8 bytes
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], at/fine<<16|0x7000|at%fine)
	copy(id[:], b[:])
	return id.String()
}

// NewIDs returns a function that creates such IDs by a clock.
func NewIDs(now func() time.Time) func() string { return (&ids{now: now}).next }
