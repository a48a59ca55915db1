package storetest

import (
	"time"

	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/inmem"
)

// InMemory is an engine over a store in memory, with everything else that the store keeps: what a
// test of rules needs.
type InMemory struct {
	*engine.Engine
	inMemory // one level deeper, so that the engine's methods win
}

type inMemory struct{ *inmem.Store }

// New returns an empty InMemory. It is never too slow, however busy the machine is.
func New() *InMemory {
	s := inmem.New()
	return &InMemory{engine.New(s, engine.Options{Timeout: time.Hour}), inMemory{s}}
}
