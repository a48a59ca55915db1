package realtime

import (
	"bytes"
	"strings"

	"github.com/heardlog/heardlog/internal/peek"
)

// event is what is read of a frame. Its values are parts of the frame: what outlives the frame must
// be copied. A frame that is not an event has no kind.
type event struct {
	kind     string // with the name of the current protocol; see currentName
	eventID  string
	item     peek.Value
	itemID   string // the member item_id, or the ID of item
	previous peek.Value
	response peek.Value
	respID   string // the member response_id, or the ID of response
	session  peek.Value
	failure  peek.Value // the member error
	limits   peek.Value
	delta    peek.Value
	text     peek.Value // the member transcript or text
	callID   string
	name     string
	args     peek.Value
	part     int // content_index
	audioEnd int64
	hasEnd   bool
}

// readEvent reads a frame in one pass, without a look into long strings.
func readEvent(frame []byte) (e event) {
	doc := peek.Parse(frame)
	if !doc.IsObject() {
		return e
	}
	_ = peek.Object(doc, func(name, raw []byte) error {
		v := peek.Value(raw)
		switch {
		case len(name) < 2:
		case peek.NameIs(name, "type"):
			e.kind = currentName(v.Str())
		case peek.NameIs(name, "event_id"):
			e.eventID = v.Str()
		case peek.NameIs(name, "item_id"):
			e.itemID = v.Str()
		case peek.NameIs(name, "item"):
			e.item = v
		case peek.NameIs(name, "previous_item_id"):
			e.previous = v
		case peek.NameIs(name, "response"):
			e.response = v
		case peek.NameIs(name, "response_id"):
			e.respID = v.Str()
		case peek.NameIs(name, "session"):
			e.session = v
		case peek.NameIs(name, "error"):
			e.failure = v
		case peek.NameIs(name, "rate_limits"):
			e.limits = v
		case peek.NameIs(name, "delta"):
			e.delta = v
		case peek.NameIs(name, "transcript"), peek.NameIs(name, "text"):
			e.text = v
		case peek.NameIs(name, "call_id"):
			e.callID = v.Str()
		case peek.NameIs(name, "name"):
			e.name = v.Str()
		case peek.NameIs(name, "arguments"):
			e.args = v
		case peek.NameIs(name, "content_index"):
			e.part = int(max(0, min(v.Int(), maxParts-1)))
		case peek.NameIs(name, "audio_end_ms"):
			e.audioEnd, e.hasEnd = max(0, v.Int()), v.IsNumber()
		}
		return nil
	})
	if e.item.IsObject() && e.itemID == "" {
		e.itemID = e.item.At("id").Str()
	}
	if e.response.IsObject() && e.respID == "" {
		e.respID = e.response.At("id").Str()
	}
	return e
}

// maxParts is how many content parts of one item are told apart.
const maxParts = 16

// currentName returns the name that the current protocol has for an event. Several events of the
// beta had shorter names.
func currentName(kind string) string {
	rest, ok := strings.CutPrefix(kind, "response.")
	if !ok {
		if kind == "conversation.item.created" {
			return itemAdded
		}
		return kind
	}
	for _, old := range [...]string{"audio_transcript.", "audio.", "text."} {
		if strings.HasPrefix(rest, old) {
			return "response.output_" + rest
		}
	}
	return kind
}

// The events that are named more than once.
const (
	itemAdded     = "conversation.item.added"
	itemDone      = "conversation.item.done"
	itemCreate    = "conversation.item.create"
	itemTruncate  = "conversation.item.truncate"
	sessionUpdate = "session.update"
	respCreate    = "response.create"
	respCreated   = "response.created"
	respDone      = "response.done"
	audioDelta    = "response.output_audio.delta"
)

// prev returns the item that the event's item follows: "" for none.
func (e *event) prev() string { return e.previous.Str() }

// decodedLen returns how many bytes a string of base64 stands for, without decoding it.
func decodedLen(v peek.Value) int64 {
	if !v.IsString() || len(v) < 2 {
		return 0
	}
	s := bytes.TrimRight(v[1:len(v)-1], "=")
	return int64(len(s)) * 3 / 4
}

// audio is how the audio of one direction is encoded.
type audio struct{ bytesPerSecond int64 }

// pcm is what a session has unless it says otherwise: 16 bits, mono, 24 kHz.
var pcm = audio{bytesPerSecond: 2 * 24000}

// audioOf reads a format: an object of the current protocol, or a word of the beta.
func audioOf(v peek.Value, now audio) audio {
	name := v.Str()
	if v.IsObject() {
		name = v.At("type").Str()
	}
	switch name {
	case "audio/pcmu", "audio/pcma", "g711_ulaw", "g711_alaw":
		return audio{8000}
	case "audio/pcm", "pcm16":
		if rate := v.At("rate").Int(); rate >= 4000 && rate <= 192000 {
			return audio{2 * rate}
		}
		return pcm
	}
	return now
}

// ms returns how long a number of bytes plays.
func (a audio) ms(bytes int64) int64 { return bytes * 1000 / a.bytesPerSecond }

// textOf returns the words of an item's content: of its texts and transcripts. spoken reports
// whether there is audio whose words are not known.
func textOf(item peek.Value) (words string, spoken bool) {
	var b strings.Builder
	for _, part := range item.At("content").List() {
		text := part.At("text")
		if !text.IsString() {
			text = part.At("transcript")
		}
		if text.IsString() {
			if b.Len() > 0 && text.Str() != "" {
				b.WriteByte('\n')
			}
			b.WriteString(text.Str())
		} else if kind := part.At("type").Str(); strings.Contains(kind, "audio") {
			spoken = true
		}
	}
	return b.String(), spoken
}
