package realtime

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/memory"
)

// kind is what an item of the conversation is.
type kind int8

const (
	message kind = iota
	call         // a call of a function
	result       // its result
	other        // what the ledger has no form for
)

// item is an item of the conversation, as the model's server numbers and orders them.
type item struct {
	id     string
	key    string // of it for the writer
	kind   kind
	role   memory.Role
	text   string // as far as it is known; that of an answer is in track until it is done
	parts  [maxParts]string
	track  track
	callID string
	name   string
	args   string

	at       time.Time // when it was added
	voiced   bool      // it came as audio of the caller
	speech   bool      // its words are still to be transcribed
	added    bool      // it is part of the conversation
	ready    bool      // it can be stored
	stored   bool      // it was given to the writer
	complete bool      // the model has made all of it
	resp     *response
	made     *memory.Message // of an answer that is done
	truncated
}

// truncated is what is known of where an answer was cut.
type truncated struct {
	told   bool  // a client or the server said how much was played
	endMS  int64 // that, or an estimate
	cut    bool  // there is an estimate
	cutAt  time.Time
	stated bool // the writer was told
}

// response is an answer that is being made.
type response struct {
	id       string
	from     time.Time // when the caller stopped speaking, or asked
	first    time.Time // of its words or audio
	items    []*item
	aside    bool // it is not part of the conversation
	canceled bool
	metadata json.RawMessage
	asked    []byte // the frame that asked for it; nil for the server's own decision
	noted    bool   // its usage is with an item
}

// item returns an item by its ID, a new one after another of the conversation. It returns nil
// without an ID.
func (r *record) item(id, after string) *item {
	if id == "" || len(id) > memory.MaxMessageID {
		return nil
	}
	if it := r.known[id]; it != nil {
		return it
	}
	it := &item{id: id, key: id, at: r.now(), kind: message}
	if r.connection > 0 {
		it.key += keySeparator + strconv.Itoa(r.connection)
	}
	r.known[id] = it
	r.order = append(r.order, id)
	if len(r.order) > maxKnown {
		delete(r.known, r.order[0])
		r.order = r.order[1:]
	}
	at := len(r.items)
	if after != "" {
		if i := slices.IndexFunc(r.items, func(o *item) bool { return o.id == after }); i >= 0 {
			at = i + 1
		}
	}
	r.items = slices.Insert(r.items, at, it)
	return it
}

// addItem follows an item that is now part of the conversation.
func (r *record) addItem(e *event) {
	it := r.item(e.itemID, e.prev())
	if it == nil || it.stored {
		return
	}
	it.added = true
	r.describe(it, e.item)
	if it.resp == nil && (it.role != memory.Assistant || e.item.At("status").Str() != "in_progress") {
		it.ready, it.complete = true, true
	}
	if it.resp == nil && it.role == memory.Assistant && it.text == "" && it.kind == message {
		it.ready = e.kind == itemDone
	}
}

// describe reads the object of an item.
func (r *record) describe(it *item, v peek.Value) {
	switch v.At("type").Str() {
	case "message":
		it.kind, it.role = message, memory.Role(v.At("role").Str())
		words, spoken := textOf(v)
		if words != "" {
			it.text = clip(words)
		}
		it.voiced = it.voiced || spoken && it.role == memory.User
		it.speech = it.speech || spoken && it.role == memory.User && words == ""
		if words != "" {
			it.speech = false
		}
	case "function_call":
		it.kind, it.role = call, memory.Assistant
		it.callID, it.name = v.At("call_id").Str(), v.At("name").Str()
		if args := v.At("arguments").Str(); args != "" {
			it.args = clip(args)
		}
	case "function_call_output":
		it.kind, it.role = result, memory.Tool
		it.callID, it.text = v.At("call_id").Str(), clip(v.At("output").Str())
	default:
		it.kind = other
	}
}

// transcribed has the words of a caller, which may come long after the answer to them.
func (r *record) transcribed(id, words, failed string) {
	it := r.item(id, "")
	if it == nil {
		return
	}
	it.role = memory.User
	words = clip(words)
	if !it.stored {
		it.text, it.voiced, it.speech, it.added, it.ready = words, true, words == "", true, true
		r.flush()
		return
	}
	it.speech = false
	r.out.transcript(it.key, words, failed)
}
