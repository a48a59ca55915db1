package redis_test

import (
	"bytes"
	"net"
	"sync/atomic"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redis"
	"github.com/heardlog/heardlog/memory/redis/redistest"
)

// mute stands before a server. Once told of a text it lets the next request that holds it through, keeps the answer and cuts the connection.
type mute struct {
	net.Listener
	text atomic.Pointer[string]
}

func before(t *testing.T, srv *redistest.Server) *mute {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	m := &mute{Listener: l}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go m.serve(c, srv.Addr())
		}
	}()
	return m
}

func (m *mute) serve(c net.Conn, to string) {
	defer c.Close()
	s, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer s.Close()
	var hot atomic.Bool
	go func() {
		defer s.Close()
		defer c.Close()
		for buf := make([]byte, 1<<16); ; {
			n, err := c.Read(buf)
			if text := m.text.Load(); text != nil && bytes.Contains(buf[:n], []byte(*text)) {
				hot.Store(true)
			}
			if _, werr := s.Write(buf[:n]); err != nil || werr != nil {
				return
			}
		}
	}()
	for buf := make([]byte, 1<<16); ; {
		n, err := s.Read(buf)
		if hot.Load() && !bytes.Contains(buf[:n], []byte("NOSCRIPT")) { // the server is asked again with the script in full
			m.text.Store(nil)
			return
		}
		if _, werr := c.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// TestJoinAnswerLost cuts the connection after the agent was made, and before its maker is told: it is found, and other servers are told of it.
func TestJoinAnswerLost(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	m := before(t, srv)
	s, other := open(t, redis.Options{URL: "redis://" + m.Addr().String()}), open(t, redis.Options{URL: srv.URL()})
	create(t, s, agent(9))
	at, err := other.NewLive(t.Context(), 0, func(memory.Head) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	a := agent(1)
	a.Name, a.Settings.Call.Keys = "desk", []string{"call:1"}
	text := "{acme/" + a.ID + "}:void"
	m.text.Store(&text)
	if _, made, err := s.Create(t.Context(), a, 0, memory.Change{}); err != nil || !made {
		t.Errorf("made: %v, %v", made, err)
	}
	if m.text.Load() != nil {
		t.Fatal("no answer was lost")
	}
	if id, err := other.ByKey(t.Context(), "acme", "call:1"); err != nil || id != a.ID {
		t.Errorf("by its key: %q, %v", id, err)
	}
	told := 0
	if _, err := other.NewLive(t.Context(), at, func(h memory.Head) error {
		if h.Agent.ID == a.ID {
			told++
		}
		return nil
	}); err != nil || told != 1 {
		t.Errorf("other servers are told %d times, %v", told, err)
	}
}

// TestClaimAnswerLost cuts the connection after a join has taken its name, and before it knows: the join fails, and the name is free at once.
func TestClaimAnswerLost(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	m := before(t, srv)
	s := open(t, redis.Options{URL: "redis://" + m.Addr().String()})
	create(t, s, agent(9))
	a, b := agent(1), agent(2)
	a.Name, b.Name = "desk", "desk"
	text := "{acme/}:workdue"
	m.text.Store(&text)
	if _, _, err := s.Create(t.Context(), a, 0, memory.Change{}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a join whose answer is lost: %v", err)
	}
	if m.text.Load() != nil {
		t.Fatal("no answer was lost")
	}
	if _, _, err := s.Create(t.Context(), b, 0, memory.Change{}); err != nil {
		t.Errorf("the next join of that name: %v", err)
	}
}
