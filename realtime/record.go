package realtime

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/evidence"
)

// Limits of what a record keeps of one socket.
const (
	maxKnown  = 4096      // items, for late transcripts and truncations
	maxText   = 256 << 10 // of one item
	maxNote   = 4 << 10   // of an error or a list of rate limits
	maxErrors = 4         // noted with one answer
)

// record follows the events of one conversation and passes to its writer what the ledger keeps. The
// caller serializes its methods. Nothing waits.
type record struct {
	now        func() time.Time
	out        *writer
	items      []*item // in the order of the conversation, those that are not stored yet
	known      map[string]*item
	order      []string         // of known, oldest first
	connection int              // counts those to the model's server
	older      map[string]*item // of connections before this one
	given      map[string]bool  // IDs that the client has chosen
	gone       map[string]bool  // items that the client has deleted

	responses map[string]*response
	asides    int // requested, out of band
	prices    memory.Prices
	format    audio
	voice     voice
	model     string
	textOnly  bool // the session only transcribes
	silent    bool // speech does not interrupt
	playEnd   time.Time
	stopped   time.Time // when the caller stopped speaking, or asked for an answer
	limits    json.RawMessage
	errors    []json.RawMessage
}

func newRecord(now func() time.Time, prices memory.Prices, out *writer) *record {
	return &record{
		now: now, prices: prices, out: out, known: map[string]*item{}, older: map[string]*item{}, given: map[string]bool{}, gone: map[string]bool{}, responses: map[string]*response{}, format: pcm,
	}
}

// fromClient follows an event that the client has sent.
func (r *record) fromClient(e *event) {
	switch e.kind {
	case sessionUpdate:
		r.session(e.session)
	case respCreate:
		r.stopped = r.now()
		if e.response.At("conversation").Str() == "none" {
			r.asides++
		}
	case itemCreate:
		if e.itemID != "" && len(r.given) < maxKnown {
			r.given[e.itemID] = true
		}
	case "response.cancel":
		for _, resp := range r.responses {
			if e.respID == "" && !resp.aside || e.respID == resp.id {
				resp.canceled = true
			}
		}
		r.interrupted()
	case "output_audio_buffer.clear":
		r.interrupted()
	case itemTruncate:
		r.truncate(e)
	}
}

// fromServer follows an event of the model's server.
func (r *record) fromServer(e *event) {
	switch e.kind {
	case "session.created", "session.updated":
		r.session(e.session)
	case "input_audio_buffer.speech_started":
		if !r.silent {
			for _, resp := range r.responses {
				resp.canceled = resp.canceled || !resp.aside
			}
			r.interrupted()
		}
	case "input_audio_buffer.speech_stopped":
		r.stopped = r.now()
	case "input_audio_buffer.committed":
		if it := r.item(e.itemID, e.prev()); it != nil {
			it.role, it.voiced, it.speech, it.added, it.ready = memory.User, true, it.text == "", true, true
		}
		r.stopped = r.now()
		r.flush()
	case itemAdded, itemDone:
		r.addItem(e)
		r.flush()
	case "conversation.item.deleted":
		r.gone[e.itemID] = true
	case "conversation.item.input_audio_transcription.completed":
		r.transcribed(e.itemID, e.text.Str(), "")
	case "conversation.item.input_audio_transcription.failed":
		r.transcribed(e.itemID, "", "failed")
	case "conversation.item.truncated":
		r.truncate(e)
	case "rate_limits.updated":
		r.limits = note(e.limits)
	case "error":
		if r.errors = append(r.errors, note(e.failure)); len(r.errors) > maxErrors {
			r.errors = r.errors[1:]
		}
	default:
		if strings.HasPrefix(e.kind, "response.") {
			r.ofResponse(e)
		}
	}
}

// session reads settings of the session, as the client or the server states them.
func (r *record) session(s peek.Value) {
	if !s.IsObject() {
		return
	}
	out := s.Path("audio.output.format")
	if !out.Exists() {
		out = s.At("output_audio_format")
	}
	r.format = audioOf(out, r.format)
	if m := s.At("model").Str(); m != "" {
		r.model = m
	}
	turns := s.Path("audio.input.turn_detection")
	if !turns.Exists() {
		turns = s.At("turn_detection")
	}
	if turns.Exists() {
		stop := turns.At("interrupt_response")
		r.silent = turns.IsNull() || stop.Exists() && !stop.Bool()
	}
	if s.At("type").Str() == "transcription" {
		r.textOnly = true
	}
}

// ofResponse follows an event of an answer.
func (r *record) ofResponse(e *event) {
	switch e.kind {
	case respCreated:
		r.settleCuts()
		resp := r.response(e.respID)
		if resp == nil {
			return
		}
		id := e.response.At("conversation_id")
		resp.aside = r.asides > 0 && id.IsNull() || id.Exists() && id.IsNull()
		resp.metadata = note(e.response.At("metadata"))
		return
	case respDone:
		r.done(e)
		return
	}
	resp := r.response(e.respID)
	if resp == nil || e.itemID == "" {
		return
	}
	it := r.item(e.itemID, "")
	if it == nil || it.stored {
		return
	}
	if it.resp == nil {
		it.resp, it.role, it.ready = resp, memory.Assistant, false
		resp.items = append(resp.items, it)
	}
	switch e.kind {
	case "response.output_item.added":
		r.describe(it, e.item)
	case "response.output_item.done":
		r.describe(it, e.item)
		it.complete = e.item.At("status").Str() != "incomplete"
	case "response.output_audio_transcript.delta", "response.output_text.delta":
		r.began(resp)
		s := e.delta.Str()
		if it.track.text.Len()+len(s) <= maxText {
			it.track.addText(s)
			it.parts[e.part] += s
		}
	case "response.output_audio_transcript.done", "response.output_text.done":
		if e.text.IsString() {
			it.parts[e.part] = clip(e.text.Str())
		}
	case audioDelta:
		r.began(resp)
		r.heardFrom(it, decodedLen(e.delta))
	case "response.function_call_arguments.done":
		it.kind = call
		it.args = clip(e.args.Str())
		if e.callID != "" {
			it.callID = e.callID
		}
		if e.name != "" {
			it.name = e.name
		}
	}
}

func (r *record) began(resp *response) {
	if resp.first.IsZero() {
		resp.first = r.now()
	}
}

// heardFrom adds audio of an answer, which is played after that of earlier ones.
func (r *record) heardFrom(it *item, bytes int64) {
	t := &it.track
	if t.from.IsZero() {
		t.from = r.now()
		if r.playEnd.After(t.from) {
			t.from = r.playEnd
		}
	}
	t.bytes += bytes
	t.ms = r.format.ms(t.bytes)
	if end := t.end(); end.After(r.playEnd) {
		r.playEnd = end
	}
}

// response returns an answer by its ID, nil without one.
func (r *record) response(id string) *response {
	if id == "" {
		return nil
	}
	resp := r.responses[id]
	if resp == nil {
		if len(r.responses) >= maxParts*4 { // no server makes so many at a time
			return nil
		}
		resp = &response{id: id, from: r.stopped}
		if resp.from.IsZero() {
			resp.from = r.now()
		}
		r.responses[id] = resp
		r.stopped = time.Time{}
	}
	return resp
}

// interrupted notes where answers that may be playing are cut, unless a better report comes.
func (r *record) interrupted() {
	now := r.now()
	for _, id := range slices.Backward(r.order) {
		it := r.known[id]
		if it == nil || it.track.ms == 0 || it.told || it.cut {
			continue
		}
		if !it.track.end().After(now) && (it.resp == nil || it.complete) {
			if it.stored {
				break // it was played, and so were those before
			}
			continue
		}
		it.cut, it.endMS, it.cutAt = true, it.track.played(now), now
	}
	r.playEnd = now
}

// truncate has a client's or the server's word on how much of an answer was played.
func (r *record) truncate(e *event) {
	it := r.known[e.itemID]
	if it == nil {
		it = r.older[e.itemID]
	}
	if it == nil || !e.hasEnd || it.told && it.endMS == e.audioEnd {
		return
	}
	it.told, it.endMS, it.stated = true, e.audioEnd, false
	if it.cutAt.IsZero() {
		it.cutAt = r.now()
	}
	r.playEnd = r.now()
	if it.stored {
		r.state(it)
	}
}

// settleCuts has the estimates stored of answers that were not truncated.
func (r *record) settleCuts() {
	for _, id := range slices.Backward(r.order) {
		it := r.known[id]
		if it != nil && it.stored && it.cut {
			if it.stated {
				break
			}
			r.state(it)
		}
	}
}

// state passes on what was heard of a stored answer.
func (r *record) state(it *item) {
	if it.stated {
		return
	}
	it.stated = true
	text, t := it.text, &it.track
	words := t.words(it.complete)
	if words != nil && t.text.String() != text { // the final transcript differs from its pieces
		words = nil
	}
	whole := t.ms
	if !it.complete {
		whole = r.voice.whole(t.text.String(), t.ms)
	}
	end := it.endMS
	rep := evidence.Report{ItemID: it.key, HeardMS: &end, WholeMS: whole, Words: words, Estimated: true, Cut: true, AtMS: it.cutAt.UnixMilli()}
	if it.told && it.complete && t.ms > 0 && end >= t.ms { // played to its end
		rep = evidence.Report{ItemID: it.key, Full: true, AtMS: it.cutAt.UnixMilli()}
	}
	r.out.heard(rep, it.told)
}

// done follows the end of an answer.
func (r *record) done(e *event) {
	resp := r.response(e.respID)
	if resp == nil {
		return
	}
	for _, v := range e.response.At("output").List() {
		it := r.item(v.At("id").Str(), "")
		if it == nil || it.stored {
			continue
		}
		if it.resp == nil {
			it.resp = resp
			resp.items = append(resp.items, it)
		}
		r.describe(it, v)
	}
	status := e.response.At("status").Str()
	r.settle(resp, status, e.response)
	if resp.aside && r.asides > 0 {
		r.asides--
	}
	r.flush()
}

// settle ends an answer. v is its final object, nil if there is none.
func (r *record) settle(resp *response, status string, v peek.Value) {
	delete(r.responses, resp.id)
	for _, it := range resp.items {
		if it.stored {
			continue
		}
		if status == "completed" {
			it.complete = true
		} else if status != "incomplete" || it.kind == message {
			it.complete = it.complete && status != broken && it.text != ""
		}
		if words := strings.Join(slices.DeleteFunc(slices.Clone(it.parts[:]), func(s string) bool { return s == "" }), "\n"); words != "" {
			it.text = words
		}
		if it.complete && it.track.ms > 0 {
			r.voice.note(it.text, it.track.ms)
		}
		it.ready = true
		m := r.answer(it, resp, status, v)
		it.made = &m
		if resp.aside && !it.added {
			r.items = slices.DeleteFunc(r.items, func(o *item) bool { return o == it })
			it.stored = true
			r.out.append(it.key, m, false)
		}
	}
	if len(resp.items) == 0 && (status == "failed" || v.At("usage").IsObject()) {
		nothing := &item{at: r.now(), role: memory.Assistant}
		r.out.append("", r.answer(nothing, resp, status, v), false)
	}
}

// flush passes on the items that are ready, in the order of the conversation.
func (r *record) flush() {
	for len(r.items) > 0 && r.items[0].ready {
		it := r.items[0]
		r.items = r.items[1:]
		it.stored = true
		m, ok := r.message(it)
		if !ok {
			continue
		}
		r.out.append(it.key, m, r.given[it.id])
		if it.told {
			r.state(it)
		}
	}
}

// broken is the status of an answer whose connection broke: the caller did not interrupt it.
const broken = "broken"

// finish ends the record: the conversation goes on elsewhere, or is over. over is set if the caller
// can hear no more.
func (r *record) finish(over bool) {
	if over {
		r.interrupted()
	}
	for _, resp := range r.responses {
		status := "cancelled"
		if !over {
			status = broken
		}
		r.settle(resp, status, nil)
	}
	for _, it := range r.items {
		it.ready = true
	}
	r.flush()
	if over {
		r.settleCuts()
	}
}

// reconnected begins with the items of another connection, whose IDs may be those of this one.
func (r *record) reconnected() {
	if len(r.older) > maxKnown {
		clear(r.older)
	}
	for id, it := range r.known {
		r.older[id] = it
	}
	r.connection++
	r.known, r.order, r.items, r.asides = map[string]*item{}, nil, nil, 0
	clear(r.responses)
	r.stopped = time.Time{}
}

// note returns a small copy of a value, nil for none.
func note(v peek.Value) json.RawMessage {
	if v.IsNull() || len(v) > maxNote || !peek.Valid(v) {
		return nil
	}
	return bytes.Clone(v)
}

func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "")
}
