package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// The targets of part 7; those of the rates are this project's own.
const (
	webhookRate      = .5
	webhookRateLarge = .1
	webhookWakeMS    = 5
	webhookWrites    = 2
	webhookOthers    = 1.2
	webhookFair      = 2
)

// webhookEndpoints is how many endpoints get each event, for the rates.
const webhookEndpoints = 8

// benchWebhooks is part 7: how fast deliveries are made, how soon a new event is sent, and what
// deliveries cost others. The receiver is in this process. Every event is a stored message.
func (b *bench) benchWebhooks(ctx context.Context) error {
	b.sayf("\n7. webhooks: %d deliveries to %d endpoints of a receiver in the bench's process", b.events, webhookEndpoints)
	if err := b.webhookRates(ctx); err != nil {
		return err
	}
	if err := b.webhookWake(ctx); err != nil {
		return err
	}
	for _, way := range []struct{ what, path string }{{"silent", "/silent"}, {"refusing", ""}} {
		what := fmt.Sprintf("endpoint B, A %s with %d waiting, p99 against alone", way.what, b.events)
		if err := b.webhookDead(ctx, 7, what, way.path, 1, webhookOthers); err != nil {
			return fmt.Errorf("endpoint A %s: %w", way.what, err)
		}
	}
	return nil
}

// fairDeliveries measures the deliveries of part 13: B's beside a project whose receivers never
// answer, and appends beside a queue that works as fast as it can.
func (b *bench) fairDeliveries(ctx context.Context) error {
	what := fmt.Sprintf("B's deliveries, A with %d silent endpoints and %d waiting, p99 against alone", b.silent, b.events)
	if err := b.webhookDead(ctx, 13, what, "/silent", b.silent, webhookFair); err != nil {
		return err
	}
	return b.webhookAppends(ctx)
}

// sender is a server with two projects, each with an agent whose messages are events, and a
// receiver.
type sender struct {
	b      *bench
	db     string
	server *process
	hooks  *receiver
	agents [2]string // by project
	conns  chan *conn
}

// senderConns is how many requests a sender makes at a time.
const senderConns = 16

// openSender starts a server and a receiver.
func (b *bench) openSender(ctx context.Context, name string) (*sender, error) {
	s := &sender{b: b, db: b.db(name)}
	var err error
	if s.hooks, err = startReceiver(ctx); err != nil {
		return nil, err
	}
	if err = s.start(ctx); err == nil {
		err = s.do(func(c *conn) error {
			for project := range s.agents {
				var err error
				if s.agents[project], err = joined(c, request("POST", "/v1/join", s.server.addr, joinBody("sender", "", 0), authorization(project))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start starts the server, on the data that it had before.
func (s *sender) start(ctx context.Context) error {
	var err error
	if s.server, _, err = s.b.startOn(ctx, "sqlite:"+s.db, s.db, s.b.level, twoProjects); err != nil {
		return err
	}
	s.conns = make(chan *conn, senderConns)
	for range senderConns {
		c, err := dial(ctx, s.server.addr)
		if err != nil {
			return err
		}
		s.conns <- c
	}
	return nil
}

// stop kills the server: in good order it would wait for attempts at a silent receiver.
func (s *sender) stop() {
	for range len(s.conns) {
		c := <-s.conns
		_ = c.Close() // nothing more is asked of it
	}
	if s.server != nil {
		s.server.stop(true)
	}
}

// Close ends the server and the receiver.
func (s *sender) Close() error {
	err := s.hooks.Close()
	s.stop()
	return err
}

// authorization returns the header line of a project's credentials.
func authorization(project int) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "k%d:secret-%d", project, project)) + "\r\n"
}

// do runs f with a free connection.
func (s *sender) do(f func(*conn) error) error {
	c := <-s.conns
	defer func() { s.conns <- c }()
	return f(c)
}

// endpoint makes an endpoint of a project that gets every stored message.
func (s *sender) endpoint(project int, url string) error {
	return s.do(func(c *conn) error {
		body := fmt.Appendf(nil, `{"url":%q,"events":["agent.message"],"secrets":[{"secret":"whsec_aGVhcmRsb2ctYmVuY2gtc2VjcmV0LTAxMjM0NTY3ODk="}]}`, url)
		status, err := c.do(request("POST", "/v1/webhooks/endpoints", s.server.addr, body, authorization(project)))
		if err == nil && status != 201 {
			err = fmt.Errorf("status %d: %.300s", status, c.body)
		}
		return err
	})
}

// say appends one message to a project's agent.
func (s *sender) say(project int, text string) error {
	return s.do(func(c *conn) error {
		body := fmt.Appendf(nil, `{"role":"user","source":"asr","content":%q}`, text)
		return wantOK(c, request("POST", "/v1/agents/"+s.agents[project]+"/messages", s.server.addr, body, authorization(project)))
	})
}

// emit appends n messages whose events are about as long as size.
func (s *sender) emit(n, size int) error {
	const envelope = 500 // bytes of an event beside the text
	text := strings.Repeat("word ", max(1, (size-envelope)/5))
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = s.say(0, text) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// wait makes so many deliveries wait at endpoints of project 0, all of one receiver that holds
// them.
func (s *sender) wait(deliveries, size int) error {
	for range webhookEndpoints {
		if err := s.endpoint(0, "http://"+s.hooks.addr+"/held"); err != nil {
			return err
		}
	}
	return s.emit(deliveries/webhookEndpoints, size)
}

// webhookRates compares deliveries a second with how often the disk can be synced.
func (b *bench) webhookRates(ctx context.Context) error {
	for _, size := range []struct {
		name  string
		bytes int
		n     int
		limit float64
	}{{"1 KB", 1 << 10, b.events, webhookRate}, {"200 KB", 200 << 10, max(webhookEndpoints, b.events/10), webhookRateLarge}} {
		n := size.n / webhookEndpoints * webhookEndpoints
		var ratios, rates, disk, cpus []float64
		for round := range b.rounds {
			took, cpu, err := b.drainRound(ctx, fmt.Sprintf("rate-%d-%d", size.bytes, round), n, size.bytes)
			if err != nil {
				return err
			}
			sync, err := b.fdatasync()
			if err != nil {
				return err
			}
			rates, disk = append(rates, float64(n)/took.Seconds()), append(disk, 1/sync.at(.5).Seconds())
			ratios, cpus = append(ratios, rates[round]/disk[round]), append(cpus, micros(cpu)/float64(n))
		}
		b.atLeast(7, "deliveries of "+size.name+" a second against fdatasync", median(ratios), "x", size.limit,
			"%.0f/s against %.0f/s; the server's CPU %.0f µs each", median(rates), median(disk), median(cpus))
	}
	return nil
}

// drainRound makes n deliveries wait, lets them go, and returns how long they took and the server's
// CPU.
func (b *bench) drainRound(ctx context.Context, name string, n, size int) (took, cpu time.Duration, err error) {
	s, err := b.openSender(ctx, name)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.wait(n, size); err != nil {
		return 0, 0, err
	}
	before, err := s.server.cpu()
	if err != nil {
		return 0, 0, err
	}
	if took, err = s.hooks.drained(ctx, n); err != nil {
		return 0, 0, err
	}
	after, err := s.server.cpu()
	return took, after - before, err
}

// webhookWake measures from the append of a message to its event's arrival, with nothing else to
// do.
func (b *bench) webhookWake(ctx context.Context) (err error) {
	s, err := b.openSender(ctx, "wake")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.endpoint(1, "http://"+s.hooks.addr+"/"); err != nil {
		return err
	}
	got, err := s.arrive(ctx, 50, b.wakes)
	if err != nil {
		return err
	}
	b.atMost(7, "append to receiver, commit included, p50", micros(got.at(.5))/1000, "ms", webhookWakeMS,
		"p99 %.2f ms", micros(got.at(.99))/1000)
	return nil
}

// arrive appends n messages of project 1 at a steady rate and returns how long each event took from
// its append to the receiver.
func (s *sender) arrive(ctx context.Context, perSecond, n int) (samples, error) {
	numbers, began := make([]int, n), make([]time.Time, n)
	_, err := paced(ctx, perSecond, n, always, func(i int) error {
		numbers[i], began[i] = s.hooks.expect(), time.Now()
		return s.say(1, fmt.Sprintf("%s%d%s %s", mark, numbers[i], mark, sentence))
	})
	if err != nil {
		return nil, err
	}
	out := make(samples, n)
	for i, number := range numbers {
		at, err := s.hooks.arrival(ctx, number)
		if err != nil {
			return nil, err
		}
		out[i] = at.Sub(began[i])
	}
	return out, nil
}

// webhookAppends compares appends of another project while deliveries are made with the same
// appends when there are none.
func (b *bench) webhookAppends(ctx context.Context) error {
	const perSecond = 500
	var ratios, idles, busies []float64
	for round := range b.rounds {
		idle, busy, err := b.appendsRound(ctx, fmt.Sprintf("appends-%d", round), perSecond)
		if err != nil {
			return err
		}
		i, d := micros(idle.at(.99))/1000, micros(busy.at(.99))/1000
		ratios, idles, busies = append(ratios, d/i), append(idles, i), append(busies, d)
	}
	b.atMost(13, fmt.Sprintf("appends while %d deliveries are made, p99 against idle", b.events), median(ratios), "x", webhookWrites,
		"%.2f against %.2f ms, %d appends/s", median(busies), median(idles), perSecond)
	return nil
}

func (b *bench) appendsRound(ctx context.Context, name string, perSecond int) (idle, busy samples, err error) {
	s, err := b.openSender(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	add := func(int) error { return s.say(1, sentence) }                  // project 1 has no endpoint
	if _, err = paced(ctx, perSecond, b.wakes, always, add); err != nil { // to be warm
		return nil, nil, err
	}
	if err := s.wait(b.events, 1<<10); err != nil {
		return nil, nil, err
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.hooks.drained(ctx, b.events/webhookEndpoints*webhookEndpoints)
		done <- err
	}()
	var drainErr error
	running := true
	const most = 1 << 16
	busy, err = paced(ctx, perSecond, most, func() bool {
		select {
		case drainErr = <-done:
			running = false
		default:
		}
		return running
	}, add)
	if running {
		drainErr = <-done
	}
	if err = errors.Join(err, drainErr); err != nil {
		return nil, nil, err
	}
	idle, err = paced(ctx, perSecond, max(len(busy), b.wakes), always, add)
	return idle, busy, err
}

// webhookDead compares how soon B's events arrive alone and beside dead endpoints of another
// project. With a path they take requests there and never answer; without one, their port is
// closed.
func (b *bench) webhookDead(ctx context.Context, part int, what, path string, endpoints int, limit float64) error {
	var ratios, alones, besides []float64
	for round := range b.rounds {
		alone, beside, err := b.deadRound(ctx, fmt.Sprintf("dead-%d-%d-%d%s", part, endpoints, round, strings.ReplaceAll(path, "/", "-")), path, endpoints)
		if err != nil {
			return err
		}
		a, d := micros(alone.at(.99))/1000, micros(beside.at(.99))/1000
		ratios, alones, besides = append(ratios, d/a), append(alones, a), append(besides, d)
	}
	b.atMost(part, what, median(ratios), "x", limit,
		"%.2f against %.2f ms", median(besides), median(alones))
	return nil
}

// deadSlices is into how many turns a round is cut: a disk that stalls for a second then stalls
// both sides.
const deadSlices = 4

// deadRound measures both in turn: a server where B is alone, and one where A is dead and has
// everything waiting. Each turn restarts its server, so that A's breakers are closed again.
func (b *bench) deadRound(ctx context.Context, name, path string, endpoints int) (alone, beside samples, err error) {
	const perSecond = 200
	got := make([]samples, 2)
	var sides []*sender
	for i := range got {
		s, err := b.openSender(ctx, fmt.Sprintf("%s-%d", name, i))
		if err != nil {
			return nil, nil, err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		if err := s.endpoint(1, "http://"+s.hooks.addr+"/"); err != nil {
			return nil, nil, err
		}
		sides = append(sides, s)
	}
	busy := sides[1]
	dead := "http://" + busy.hooks.addr + path
	if path == "" {
		addr, err := freePort(ctx)
		if err != nil {
			return nil, nil, err
		}
		dead = "http://" + addr
	}
	for range endpoints {
		if err := busy.endpoint(0, dead); err != nil {
			return nil, nil, err
		}
	}
	if err := busy.emit(max(b.events/endpoints, 1), 1<<10); err != nil {
		return nil, nil, err
	}
	for _, s := range sides {
		s.stop()
	}
	for range deadSlices {
		for i, s := range sides {
			if err := s.start(ctx); err != nil {
				return nil, nil, err
			}
			if _, err := s.arrive(ctx, perSecond, b.wakes/16+1); err != nil { // to be warm
				return nil, nil, err
			}
			times, err := s.arrive(ctx, perSecond, max(b.wakes/deadSlices, 1))
			if err != nil {
				return nil, nil, err
			}
			got[i] = append(got[i], times...)
			s.stop()
		}
	}
	return got[0], got[1], nil
}

// paced calls do n times in an open loop, or as long as more says so, and returns how long each
// took from the moment it was planned for.
func paced(ctx context.Context, perSecond, n int, more func() bool, do func(i int) error) (samples, error) {
	var wg sync.WaitGroup
	out := make(samples, n)
	errs := make([]error, n)
	start, made := time.Now(), 0
	for i := range n {
		if !more() || ctx.Err() != nil {
			break
		}
		made++
		planned := start.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		time.Sleep(time.Until(planned))
		wg.Go(func() {
			errs[i] = do(i)
			out[i] = time.Since(planned)
		})
	}
	wg.Wait()
	return out[:made], errors.Join(append(errs, ctx.Err())...)
}

func always() bool { return true }
