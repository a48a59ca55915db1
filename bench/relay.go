package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// relayed is the number of events of part 17 whose time is taken each way.
const relayed = 2000

// benchRelay is part 17: what a socket of the realtime relay takes, and how much later events come
// through the relay than without it. The two are measured in turn.
func (b *bench) benchRelay(ctx context.Context) (err error) {
	b.sayf("\n17. realtime relay, %d sockets, an event with 4 kB of audio and the answer to it", b.sockets)
	model := httptest.NewServer(http.HandlerFunc(serveRealtime))
	defer model.Close()
	at := "ws" + strings.TrimPrefix(model.URL, "http")
	db := b.db("relay")
	p, _, err := b.startOn(ctx, "sqlite:"+db, db, b.level, "HEARDLOG_REALTIME_URL="+at, "HEARDLOG_AUTO_JOIN=true")
	if err != nil {
		return err
	}
	before, err := p.memory("VmRSS")
	if err != nil {
		return err
	}
	var open []*websocket.Conn
	defer func() { err = errors.Join(err, closeAll(open)) }()
	for range b.sockets {
		c, err := dialRealtime(ctx, "ws://"+p.addr+"/v1/realtime")
		if err != nil {
			return err
		}
		open = append(open, c)
		if _, err := sendAudio(ctx, c); err != nil { // each has been used
			return err
		}
	}
	after, err := p.memory("VmRSS")
	if err != nil {
		return err
	}
	direct, err := dialRealtime(ctx, at)
	if err != nil {
		return err
	}
	defer direct.CloseNow()
	var without, with samples
	for i := range relayed {
		for l, c := range map[*samples]*websocket.Conn{&without: direct, &with: open[i%len(open)]} {
			d, err := sendAudio(ctx, c)
			if err != nil {
				return err
			}
			*l = append(*l, d)
		}
	}
	for _, x := range []struct {
		name  string
		p     float64
		limit float64
	}{{"p50", .5, 300}, {"p99", .99, 2000}} {
		added := micros(with.at(x.p)-without.at(x.p)) / 2
		b.atMost(17, "relay, added each way "+x.name, added, "µs", x.limit, "there and back %.0f µs, %.0f without the relay", micros(with.at(x.p)), micros(without.at(x.p)))
	}
	b.atMost(17, "relay, memory of 1,000 sockets", (after-before)*1000/float64(len(open)), "MB", 150, "the server has %.0f MB with %d of them", after, len(open))
	return nil
}

func closeAll(open []*websocket.Conn) error {
	var all sync.WaitGroup
	errs := make([]error, len(open))
	for i, c := range open {
		all.Go(func() { errs[i] = c.Close(websocket.StatusNormalClosure, "") })
	}
	all.Wait()
	return errors.Join(errs...)
}

// serveRealtime speaks the Realtime protocol as far as this needs it.
func serveRealtime(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer ws.CloseNow()
	send := func(event string) error { return ws.Write(r.Context(), websocket.MessageText, []byte(event)) }
	err = send(`{"type":"session.created","event_id":"e","session":{"type":"realtime","model":"gpt-realtime"}}`)
	for err == nil {
		var frame []byte
		if _, frame, err = ws.Read(r.Context()); err == nil && strings.Contains(string(frame), "input_audio_buffer.clear") {
			err = send(`{"type":"input_audio_buffer.cleared","event_id":"e"}`)
		}
	}
}

func dialRealtime(ctx context.Context, addr string) (*websocket.Conn, error) {
	c, _, err := websocket.Dial(ctx, addr, nil)
	if err != nil {
		return nil, err
	}
	_, _, err = c.Read(ctx) // session.created
	return c, err
}

// sendAudio sends audio and an event, and returns how long the answer to the event took.
func sendAudio(ctx context.Context, c *websocket.Conn) (time.Duration, error) {
	began := time.Now()
	for _, frame := range []string{`{"type":"input_audio_buffer.append","audio":"` + strings.Repeat("A", 4096) + `"}`, `{"type":"input_audio_buffer.clear"}`} {
		if err := c.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
			return 0, err
		}
	}
	for {
		_, frame, err := c.Read(ctx)
		if err != nil || strings.Contains(string(frame), "input_audio_buffer.cleared") {
			return time.Since(began), err
		}
	}
}
