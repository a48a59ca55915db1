package rediskv_test

import (
	"testing"
	"time"

	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/memory/kv/kvtest"
	"github.com/heardlog/heardlog/memory/kv/rediskv"
)

func TestStore(t *testing.T) {
	t.Parallel()
	kvtest.Run(t, false, func(t *testing.T) kv.Store {
		s, err := rediskv.Open(rediskv.Options{Address: kvtest.StartRedis(t).Addr, Conns: 10, Timeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	})
}
