package handlers

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

const (
	tailHeartbeat = 15 * time.Second // keeps proxies from closing a quiet tail
	tailWrite     = 10 * time.Second // a reader that takes nothing for so long is let go; it may resume
	tailPage      = 200
)

// tail streams an agent's changes as server-sent events: "message" for each new or changed message, as the ledger shows it, and "agent" for
// each change of the agent. An id is the agent's revision, so that Last-Event-ID (or after=) resumes without a gap. The tail ends when the agent has.
func (a *API) tail(w http.ResponseWriter, r *http.Request) error {
	project, id := projectOf(r), chi.URLParam(r, "id")
	after := int64(0)
	from := r.Header.Get("Last-Event-ID")
	if from == "" {
		from = r.URL.Query().Get("after")
	}
	if from != "" {
		n, err := strconv.ParseInt(from, 10, 64)
		if err != nil || n < 0 {
			return fault.At(fault.Invalid, "Last-Event-ID", "%q is not an id of this stream", clip(from, 40))
		}
		after = n
	}
	changed, stop := a.Memory.Watch(project, id)
	defer stop()
	head, err := a.Memory.Head(r.Context(), project, id)
	if err != nil {
		return err
	}
	after = min(after, head.Rev) // an id that is not ours yet would wait for ever
	if from != "" && after == head.Rev && head.Agent.Status.Ended() {
		w.WriteHeader(http.StatusNoContent) // tells an EventSource to come back no more
		return nil
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	s := tailStream{w: w, rc: http.NewResponseController(w)}
	if from == "" { // the agent as it is, then what comes
		after = head.Rev
		if s.event("agent", head.Rev, newAgentEvent(head.Agent)) != nil {
			return nil
		}
	}
	beat := time.NewTicker(tailHeartbeat)
	defer beat.Stop()
	for {
		done, next, err := a.tailOnce(r, &s, project, id, after)
		if err != nil || done {
			return nil // the status is sent: what is left to say is the end
		}
		after = next
		select {
		case <-r.Context().Done():
			return nil
		case <-a.Done:
			return nil
		case <-changed:
		case <-beat.C:
			if s.raw(": still here\n\n") != nil {
				return nil
			}
		}
	}
}

// tailOnce sends what changed after the revision and gives the new one; done when the agent has ended. Only the last event of a batch carries
// an id, so that a reader that was cut off in the middle of one gets the whole batch again.
func (a *API) tailOnce(r *http.Request, s *tailStream, project, id string, after int64) (bool, int64, error) {
	head, err := a.Memory.Head(r.Context(), project, id)
	if err != nil {
		return false, after, err
	}
	var held func(rev int64) error // the event before, sent when it is known whether it is the last
	send := func(next func(rev int64) error) error {
		if held != nil {
			if err := held(0); err != nil {
				return err
			}
		}
		held = next
		return nil
	}
	for seq := int64(0); ; {
		msgs, err := a.Memory.Messages(r.Context(), project, id, memory.MessageQuery{AfterSeq: seq, AfterRev: after, Limit: tailPage})
		if err != nil {
			return false, after, err
		}
		for _, m := range msgs {
			if m.Rev > head.Rev {
				continue // came while we read; the next round has it
			}
			entry, err := appendLedgerEntry(nil, &m, !head.Agent.Status.Ended(), head.Agent.Settings.Memory.BaseSeq)
			if err == nil {
				err = send(func(rev int64) error { return s.event("message", rev, json.RawMessage(entry)) })
			}
			if err != nil {
				return false, after, err
			}
		}
		if len(msgs) < tailPage {
			break
		}
		seq = msgs[len(msgs)-1].Seq
	}
	if head.Agent.Rev > after {
		if err := send(func(rev int64) error { return s.event("agent", rev, newAgentEvent(head.Agent)) }); err != nil {
			return false, after, err
		}
	}
	if held != nil {
		if err := held(head.Rev); err != nil {
			return false, after, err
		}
	}
	return head.Agent.Status.Ended(), max(after, head.Rev), nil
}

type agentEvent struct {
	AgentID string `json:"agent_id"`
	Status  string `json:"status"`
	Message string `json:"message"`
	StartTS int64  `json:"start_ts"`
	StopTS  int64  `json:"stop_ts"`
}

func newAgentEvent(a memory.Agent) agentEvent {
	return agentEvent{AgentID: a.ID, Status: a.Status.String(), Message: a.Message, StartTS: a.StartTS(), StopTS: a.StopTS()}
}

type tailStream struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

func (s *tailStream) event(name string, id int64, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	head := "event: " + name + "\n"
	if id > 0 {
		head += "id: " + strconv.FormatInt(id, 10) + "\n"
	}
	return s.raw(head + "data: " + string(data) + "\n\n")
}

func (s *tailStream) raw(text string) error {
	if err := s.rc.SetWriteDeadline(time.Now().Add(tailWrite)); err != nil {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.rc.Flush()
}
