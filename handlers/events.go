package handlers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/fault"
)

// Why a reader of a tail is let go, as the event "dropped" and the metric say.
const (
	droppedSlow     = "slow"
	droppedShutdown = "shutdown"
	droppedErased   = "erased"
	droppedError    = "error" // the store does not answer, or we made a mistake
)

// tail streams an agent's changes as server-sent events; docs/live-tail.md tells which. What stands in the ledger carries an id, with which Last-Event-ID (or
// after=) resumes without a gap and without a repeat. The tail ends when the agent has.
func (a *API) tail(w http.ResponseWriter, r *http.Request) error {
	project, id := projectOf(r), chi.URLParam(r, "id")
	kinds, err := tailTypes(r.URL.Query()["types"])
	if err != nil {
		return err
	}
	from := r.Header.Get("Last-Event-ID")
	if from == "" {
		from = r.URL.Query().Get("after")
	}
	var at place
	if from != "" {
		if at, err = readPlace(from); err != nil {
			return err
		}
	}
	head, err := a.Memory.Head(r.Context(), project, id)
	if err != nil {
		return err
	}
	now := whole(head.Rev)
	if from == "" || at.compare(now) > 0 { // an id that is not ours yet would wait for ever
		at = now
	}
	if from != "" && at == now && head.Agent.Status.Ended() {
		w.WriteHeader(http.StatusNoContent) // tells an EventSource to come back no more
		return nil
	}
	reader, err := a.tails.join(r.Context(), project, id)
	if err != nil {
		return err
	}
	defer reader.leave()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	s := tailStream{api: a, r: r, w: w, rc: http.NewResponseController(w), reader: reader, kinds: kinds, told: at}
	var first [][]byte
	if from == "" && kinds&tailAgent != 0 { // the agent as it is, then what comes
		data, err := appendJSON(nil, newAgentEvent(head.Agent))
		if err == nil {
			first = append(first, sse("agent", &now, data))
		}
	}
	if s.write(first, nil) != nil {
		return nil // the status is sent: what is left to say is the end
	}
	if why := s.run(reader.hub.sees(at)); why != "" {
		a.Metrics.tail.dropped.WithLabelValues(why).Inc()
		a.Log.Debug().Str("agent", id).Str("reason", why).Msg("a reader of the live tail was let go")
	}
	return nil
}

// tailStream is one reader's stream.
type tailStream struct {
	api    *API
	r      *http.Request
	w      http.ResponseWriter
	rc     *http.ResponseController
	reader *tailReader
	kinds  int
	told   place // the last id that was sent
	// caughtUp tells that the reader was up to date once, and behind since when it is not any more.
	caughtUp bool
	behind   time.Time
}

// run sends until the agent has ended or the reader has gone, and tells why it was let go; "" where it was not.
func (s *tailStream) run(have seen) string {
	limits := &s.api.tails.limits
	beat := time.NewTicker(limits.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-s.api.Done:
			return s.drop(droppedShutdown)
		default:
		}
		n := s.reader.hub.news(have, s.kinds)
		if n.dropped != "" {
			return s.drop(n.dropped)
		}
		if n.behind {
			next, why, ok := s.catchUp(have.at)
			if have.at = next; !ok {
				return why
			}
			continue
		}
		if err := s.write(n.extra, n.frames); err != nil {
			return broke(err)
		}
		if have = n.next; n.more {
			if s.late() {
				return s.drop(droppedSlow)
			}
			continue
		}
		s.caughtUp, s.behind = true, time.Time{}
		if n.ended {
			return ""
		}
		select {
		case <-s.r.Context().Done():
			return ""
		case <-s.api.Done:
		case <-s.reader.wake:
		case <-beat.C:
			if err := s.beat(have.at); err != nil {
				return broke(err)
			}
		}
	}
}

// catchUp sends what stands behind a place in the store, or a part of it, and gives the place after it; without ok the stream is over, for the reason that it
// gives. Only so many readers do that at once.
func (s *tailStream) catchUp(at place) (_ place, dropped string, ok bool) {
	if s.late() {
		return at, s.drop(droppedSlow), false
	}
	ctx, t := s.r.Context(), s.api.tails
	select {
	case t.slots <- struct{}{}:
	case <-ctx.Done():
		return at, "", false
	case <-s.api.Done:
		return at, "", true // which run sees too
	}
	defer func() { <-t.slots }()
	f, _, err := t.load(ctx, s.reader.hub.project, s.reader.hub.id, at, s.kinds)
	switch {
	case ctx.Err() != nil:
		return at, "", false
	case fault.Is(err, fault.NotFound):
		return at, s.drop(droppedErased), false
	case err != nil:
		return at, s.drop(droppedError), false
	}
	t.api.Metrics.tail.reads.WithLabelValues("reader").Inc()
	frames, next := f.done()
	if next.compare(at) < 0 {
		next = at
	}
	if err := s.write(nil, frames); err != nil {
		return at, broke(err), false
	}
	return next, "", true
}

// late notes that the reader is behind, and tells whether it has been so for too long after it was up to date once.
func (s *tailStream) late() bool {
	now := s.api.Now()
	if s.behind.IsZero() {
		s.behind = now
	}
	return s.caughtUp && now.Sub(s.behind) > s.api.tails.limits.Behind
}

// broke tells why a write failed: the reader took nothing for too long, or has gone by itself, which is no reason.
func broke(err error) string {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return droppedSlow
	}
	return ""
}

// drop tells the reader why it is let go, and when to come back.
func (s *tailStream) drop(why string) string {
	data, err := appendJSON(nil, droppedEvent{Reason: why})
	if err == nil {
		retry := fmt.Appendf(nil, "retry: %d\n", 500+rand.IntN(2500)) // not all at once
		_ = s.write([][]byte{append(retry, sse("dropped", nil, data)...)}, nil)
	}
	return why
}

// beat says that we are still here, and how far the reader is where nothing that it wants has said so.
func (s *tailStream) beat(at place) error {
	b := []byte(": still here\n")
	if at.compare(s.told) > 0 {
		b = append(at.appendID(append(b, "id: "...)), '\n')
		s.told = at
	}
	return s.write([][]byte{append(b, '\n')}, nil)
}

// write sends what stands in the ledger and then the rest, in one go.
func (s *tailStream) write(rest [][]byte, frames []frame) error {
	if err := s.rc.SetWriteDeadline(time.Now().Add(s.api.tails.limits.Write)); err != nil {
		return err
	}
	for i := range frames {
		if _, err := s.w.Write(frames[i].bytes); err != nil {
			return err
		}
		s.told = frames[i].at
	}
	for _, b := range rest {
		if _, err := s.w.Write(b); err != nil {
			return err
		}
	}
	s.api.Metrics.tail.sent.Add(float64(len(frames) + len(rest)))
	return s.rc.Flush()
}

// tailMetrics count what the live tails do.
type tailMetrics struct {
	readers                 prometheus.Gauge
	made, sent              prometheus.Counter
	reads, dropped, refused *prometheus.CounterVec
}

func newTailMetrics(reg prometheus.Registerer) tailMetrics {
	m := tailMetrics{
		readers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "heardlog_tail_readers", Help: "Live tails that are open."}),
		made: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "heardlog_tail_events_made_total", Help: "Events of live tails that were encoded, once for all readers of the agent.",
		}),
		sent: prometheus.NewCounter(prometheus.CounterOpts{Name: "heardlog_tail_events_sent_total", Help: "Events written to readers of live tails."}),
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_tail_reads_total", Help: "Reads of the store for live tails: by an agent's hub, after changes that came from elsewhere, and by readers that were behind.",
		}, []string{"by"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_tail_dropped_total", Help: "Readers of live tails that were let go, by reason.",
		}, []string{"reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "heardlog_tail_refused_total", Help: "Readers of live tails that were refused, by the limit: the agent's or the server's.",
		}, []string{"limit"}),
	}
	reg.MustRegister(m.readers, m.made, m.sent, m.reads, m.dropped, m.refused)
	return m
}
