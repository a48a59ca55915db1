package inmem_test

import (
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/inmem"
	"github.com/heardlog/heardlog/memory/memorytest"
)

func TestStore(t *testing.T) {
	memorytest.Run(t, func(*testing.T) memory.Store { return inmem.New() })
}
