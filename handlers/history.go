package handlers

import (
	"net/http"
	"strconv"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
)

// historyPage is the page size of limit=all, and the maximum of limit.
const historyPage = 1024

// Memory for reuse, not state.
var historyBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 16<<10); return &b }}

// history answers with the newest max_history messages in Agora's form. limit=N sets another
// number; limit=all pages through everything. confidence=true adds
// metadata.confidence to answers.
func (a messageAPI) history(w http.ResponseWriter, r *http.Request) error {
	id, project := chi.URLParam(r, "id"), projectOf(r)
	var head memory.Head
	var msgs []memory.Message
	var next int64
	var err error
	query := r.URL.RawQuery
	confidence := false
	if query != "" {
		switch v := r.URL.Query().Get("confidence"); v {
		case "", "false":
		case "true":
			confidence = true
		default:
			return fault.At(fault.Invalid, "confidence", "%q is neither true nor false", text.Clip(v, 40))
		}
	}
	switch {
	case query == "":
		head, msgs, err = a.memory.Messages.History(r.Context(), project, id, 0)
	case r.URL.Query().Get("limit") == "all":
		head, msgs, next, err = a.wholeHistory(r, project, id)
	default:
		if r.URL.Query().Get("cursor") != "" && ownPath(r) {
			return fault.At(fault.Invalid, "cursor", "needs limit=all; other limits return the newest messages")
		}
		var n int
		if n, err = intParam(r.URL.Query(), "limit", 0, 1, historyPage); err != nil {
			return fault.At(fault.Invalid, "limit", "must be all or a whole number from 1 to %d, not %q", historyPage, text.Clip(r.URL.Query().Get("limit"), 40))
		}
		head, msgs, err = a.memory.Messages.History(r.Context(), project, id, n)
	}
	if err != nil {
		return err
	}
	buf := historyBuffers.Get().(*[]byte)
	b := appendHistory((*buf)[:0], *head.Agent, msgs, next, confidence)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	_ = writeBody(w, b) // the client may be gone
	a.historyBytes.Add(float64(len(b)))
	if cap(b) <= 1<<20 {
		*buf = b
		historyBuffers.Put(buf)
	}
	return nil
}

func (a messageAPI) wholeHistory(r *http.Request, project, id string) (memory.Head, []memory.Message, int64, error) {
	after, err := intParam(r.URL.Query(), "cursor", 0, 0, 1<<53)
	if err != nil {
		return memory.Head{}, nil, 0, err
	}
	head, err := a.memory.Messages.Head(r.Context(), project, id)
	if err != nil {
		return memory.Head{}, nil, 0, err
	}
	from := max(int64(after), head.Agent.Settings.Memory.BaseSeq-1)
	msgs, err := a.memory.Messages.Page(r.Context(), project, id, memory.MessageQuery{AfterSeq: from, Limit: historyPage + 1, Bytes: maxPageBytes, HistoryOnly: true})
	if err != nil {
		return head, nil, 0, err
	}
	msgs, next := firstPage(msgs, historyPage)
	return head, msgs, next, nil
}

// appendHistory appends the answer as JSON. It is written by hand because history is read at every
// turn: it takes a tenth of the time of encoding/json (see BenchmarkAnswers).
func appendHistory(b []byte, a memory.Agent, msgs []memory.Message, next int64, confidence bool) []byte {
	b = append(b, `{"agent_id":`...)
	b = text.AppendJSON(b, a.ID)
	b = append(b, `,"start_ts":`...)
	b = strconv.AppendInt(b, a.StartTS(), 10)
	if a.Status.Ended() {
		b = append(b, `,"stop_ts":`...)
		b = strconv.AppendInt(b, a.StopTS(), 10)
	}
	b = append(b, `,"status":"`...)
	b = append(b, a.Status.String()...)
	b = append(b, `","contents":[`...)
	for i, m := range msgs {
		if i > 0 {
			b = append(b, ',')
		}
		b = m.AppendHistory(b)
		if _, own := m.Metadata["confidence"]; confidence && m.Confidence > 0 && !own { // metadata is the last member
			b = append(b[:len(b)-2], `,"confidence":`...)
			b = strconv.AppendInt(b, m.Confidence, 10)
			b = append(b, "}}"...)
		}
	}
	b = append(b, ']')
	if next > 0 {
		b = append(b, `,"next_cursor":"`...)
		b = strconv.AppendInt(b, next, 10)
		b = append(b, '"')
	}
	return append(b, "}\n"...)
}
