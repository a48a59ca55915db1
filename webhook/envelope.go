package webhook

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
)

// ProductID is the productId of every event: Agora's number for its Conversational AI Engine.
const ProductID = 17

// MaxNoticeID is the length of the longest notice id, in bytes.
const MaxNoticeID = 128

// Notice is an event before it is encoded.
type Notice struct {
	SID string // the session; Heardlog uses the agent's ID
	ID  string // noticeId and webhook-id: what receivers de-duplicate by
	// when it happened, Unix ms; not when it is sent, because the body is the same on every attempt
	AtMS    int64
	Payload Payload // decides the event's type
}

// Envelope is the body of an event as a receiver reads it. The form is that of Agora's Notification
// Center Service.
type Envelope struct {
	SID       string          `json:"sid"`
	NoticeID  string          `json:"noticeId"`
	ProductID int             `json:"productId"`
	EventType int             `json:"eventType"`
	NotifyMS  int64           `json:"notifyMs"` // the event's time, Unix ms
	Payload   json.RawMessage `json:"payload"`
}

// Encode returns the body of an event: one line of JSON in valid UTF-8, always the same bytes for
// the same notice. Bytes that are not UTF-8 become U+FFFD, because verifiers in other languages
// decode the body before they check its signature.
//
// It fails with fault.Invalid if the ID cannot be sent in a header, or if a pre-encoded part is not
// JSON.
func Encode(n Notice) ([]byte, error) {
	if err := checkID(n.ID); err != nil {
		return nil, err
	}
	if n.Payload == nil {
		return nil, fault.New(fault.Missing, "payload: is required")
	}
	b := &builder{buf: make([]byte, 0, 512)}
	b.open()
	b.str("sid", n.SID)
	b.str("noticeId", n.ID)
	b.num("productId", ProductID)
	b.num("eventType", int64(n.Payload.EventType()))
	b.num("notifyMs", n.AtMS)
	b.key("payload")
	b.open()
	n.Payload.encode(b)
	b.close()
	b.close()
	if b.err != nil {
		return nil, b.err
	}
	return b.buf, nil
}

// Decode reads the body of an event, as a receiver does after verifying it. Unknown fields are
// ignored. It fails with fault.BadRequest.
func Decode(body []byte) (Envelope, error) {
	var e Envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return Envelope{}, fault.Wrap(fault.BadRequest, err, "the body is not a webhook event")
	}
	if e.NoticeID == "" || e.EventType == 0 {
		return Envelope{}, fault.New(fault.BadRequest, "the body is not a webhook event: noticeId or eventType is missing")
	}
	return e, nil
}

// checkID checks that an ID can be sent as webhook-id: visible ASCII without a dot, because the dot
// separates the signed parts.
func checkID(id string) error {
	if id == "" {
		return fault.At(fault.Missing, "noticeId", "is required")
	}
	if len(id) > MaxNoticeID {
		return fault.At(fault.Invalid, "noticeId", "is %d bytes long; at most %d are allowed", len(id), MaxNoticeID)
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] >= 0x7f || id[i] == '.' {
			return fault.At(fault.Invalid, "noticeId", "must be visible ASCII characters other than the dot")
		}
	}
	return nil
}

// builder writes JSON objects. Parts come encoded, and concatenating them costs about a hundredth
// of decoding and encoding them again. It keeps the first error.
type builder struct {
	buf []byte
	err error
}

func (b *builder) open() { b.buf = append(b.buf, '{') }

func (b *builder) close() { b.buf = append(b.buf, '}') }

// key writes a name that needs no escaping.
func (b *builder) key(name string) {
	if last := b.buf[len(b.buf)-1]; last != '{' {
		b.buf = append(b.buf, ',')
	}
	b.buf = append(b.buf, '"')
	b.buf = append(b.buf, name...)
	b.buf = append(b.buf, '"', ':')
}

func (b *builder) str(name, value string) { b.value(name, strings.ToValidUTF8(value, "\uFFFD")) }

func (b *builder) num(name string, value int64) { b.value(name, value) }

// value writes anything that encoding/json encodes in one way only; maps are sorted by it.
func (b *builder) value(name string, v any) { b.raw(name, b.encoded(name, v)) }

// fields writes the members of a struct, at the beginning of an object.
func (b *builder) fields(v any) {
	if obj := b.encoded("payload", v); obj != nil {
		b.buf = append(b.buf, obj[1:len(obj)-1]...)
	}
}

// encoded returns v as JSON, or nil after an error.
func (b *builder) encoded(name string, v any) json.RawMessage {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		b.fail(name, err)
		return nil
	}
	return bytes.TrimSpace(out.Bytes())
}

// raw writes a value that comes encoded.
func (b *builder) raw(name string, v json.RawMessage) {
	b.key(name)
	b.item(name, v)
}

// list writes an array of values that come encoded.
func (b *builder) list(name string, items []json.RawMessage) {
	b.key(name)
	size := 0
	for _, v := range items {
		size += len(v) + 1
	}
	b.buf = append(slices.Grow(b.buf, size), '[')
	for i, v := range items {
		if i > 0 {
			b.buf = append(b.buf, ',')
		}
		b.item(name, v)
	}
	b.buf = append(b.buf, ']')
}

func (b *builder) item(name string, v json.RawMessage) {
	if !json.Valid(v) {
		b.fail(name, nil)
		return
	}
	if !utf8.Valid(v) { // allowed inside strings by json.Valid
		v = bytes.ToValidUTF8(v, []byte("\uFFFD"))
	}
	b.buf = append(b.buf, bytes.TrimSpace(v)...)
}

func (b *builder) fail(name string, err error) {
	if b.err == nil {
		b.err = &fault.Error{Code: fault.Invalid, Field: name, Msg: name + ": not JSON", Err: err}
	}
}
