package handlers

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/requests"
)

// maxLeftOutText limits the text of a message that was left out, in bytes.
const maxLeftOutText = 200

type requestsAnswer struct {
	TurnID   int64         `json:"turn_id"`
	Requests []requestJSON `json:"requests"`
}

// requestJSON is one request to an LLM.
type requestJSON struct {
	Seq      int64             `json:"seq"`
	Exact    bool              `json:"exact"`
	Messages []json.RawMessage `json:"messages"`
	LeftOut  []leftOutJSON     `json:"left_out"`
	Policy   memory.Limits     `json:"policy"`
	URL      string            `json:"url"`
	Body     string            `json:"body"`
	Attempts []memory.Try      `json:"attempts"`
	Timings  toldTimings       `json:"timings"`
	Filler   string            `json:"filler,omitempty"`
	Response toldResponse      `json:"response"`
}

type leftOutJSON struct {
	Seq     int64       `json:"seq"`
	Role    memory.Role `json:"role"`
	Content string      `json:"content"`
	Reason  string      `json:"reason"`
}

// toldTimings has ms after ReceivedAt; 0 is not measured.
type toldTimings struct {
	ReceivedAt      timeMS `json:"received_at"`
	SentMS          int64  `json:"sent_ms,omitempty"`
	FirstByteMS     int64  `json:"first_byte_ms,omitempty"`
	FirstTokenMS    int64  `json:"first_token_ms,omitempty"`
	FirstSentenceMS int64  `json:"first_sentence_ms,omitempty"`
	TotalMS         int64  `json:"total_ms,omitempty"`
}

// toldResponse is what the LLM answered, put together from the stream.
type toldResponse struct {
	ID           string          `json:"id,omitempty"`
	Content      string          `json:"content"`
	ToolCalls    json.RawMessage `json:"tool_calls,omitempty"`
	FinishReason string          `json:"finish_reason,omitempty"`
	Usage        json.RawMessage `json:"usage,omitempty"`
	Bytes        int64           `json:"bytes,omitempty"`
	Error        *memory.Failure `json:"error,omitempty"`
}

// requests answers what the LLM was given in one turn.
func (a messageAPI) requests(r *http.Request) (any, error) {
	turn, err := strconv.ParseInt(chi.URLParam(r, "turn_id"), 10, 64)
	if err != nil || turn < 0 {
		return nil, fault.At(fault.Invalid, "turn_id", "must be a whole number from 0, not %q", text.Clip(chi.URLParam(r, "turn_id"), 40))
	}
	list, err := requests.Turn(r.Context(), a.memory.Messages, projectOf(r), chi.URLParam(r, "id"), turn)
	if err != nil {
		return nil, err
	}
	out := requestsAnswer{TurnID: turn, Requests: []requestJSON{}}
	for i := range list {
		j, err := newRequestJSON(&list[i])
		if err != nil {
			return nil, err
		}
		out.Requests = append(out.Requests, j)
	}
	return out, nil
}

func newRequestJSON(t *requests.Request) (requestJSON, error) {
	m, record := &t.Answer, t.Answer.Made().Request
	out := requestJSON{
		Seq: m.Seq, Exact: t.Exact, Messages: []json.RawMessage{}, LeftOut: []leftOutJSON{}, Policy: record.Policy, URL: record.URL,
		Body: string(t.Body), Attempts: record.Tries, Filler: m.Made().Filler,
		Response: toldResponse{ID: m.UpstreamID, Content: m.Produced(), ToolCalls: m.ToolCalls, FinishReason: m.FinishRsn, Usage: m.Usage, Error: m.Failure},
	}
	if out.Attempts == nil {
		out.Attempts = []memory.Try{}
	}
	if x := m.Timings; x != nil {
		out.Timings = toldTimings{timeMS(x.StartMS), 0, x.UpstreamFirstByteMS, x.FirstTokenMS, x.FirstSentenceMS, x.TotalMS}
		out.Response.Bytes = x.UpstreamBytes
	}
	if len(record.Tries) > 0 {
		out.Timings.SentMS = record.Tries[0].SentMS
	}
	for _, said := range t.Messages {
		raw, err := withPlace(&said)
		if err != nil {
			return out, err
		}
		out.Messages = append(out.Messages, raw)
	}
	for _, l := range t.LeftOut {
		out.LeftOut = append(out.LeftOut, leftOutJSON{l.Seq, l.Role, text.Clip(l.Original(), maxLeftOutText), l.Reason})
	}
	return out, nil
}

// withPlace returns a message of a request with its places in the ledger as fields of its own.
func withPlace(m *requests.Message) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(m.JSON, &fields); err != nil {
		return m.JSON, nil //nolint:nilerr // clients may send a message that is not an object
	}
	if m.Changed {
		fields["changed"] = json.RawMessage("true")
	}
	if len(m.Seqs) > 0 {
		seqs, err := marshal(m.Seqs)
		if err != nil {
			return nil, err
		}
		fields["seqs"] = seqs
	}
	return marshal(fields)
}
