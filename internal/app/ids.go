package app

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/google/uuid"
)

// ids makes ids that sort by time and cannot be guessed: UUIDv7, of the clock that decides what is due, so that those of servers whose own clocks differ sort as they were made.
type ids struct {
	now func() time.Time

	mu   sync.Mutex
	last uint64 // in 4096ths of a millisecond, as an id has it
}

// next gives an id that sorts behind all that it gave before.
func (i *ids) next() string {
	const fine = 4096
	t := i.now()
	at := uint64(t.UnixMilli())*fine + uint64(t.Nanosecond()%int(time.Millisecond))*fine/uint64(time.Millisecond)
	i.mu.Lock()
	at = max(at, i.last+1)
	i.last = at
	i.mu.Unlock()
	id := uuid.New() // random but for what follows
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], at/fine<<16|0x7000|at%fine)
	copy(id[:], b[:])
	return id.String()
}
