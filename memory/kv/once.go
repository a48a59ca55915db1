package kv

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// OnceFor is how long the Idempotency-Key of an update is remembered.
const OnceFor = 24 * time.Hour

// Once lets an update of an entry be repeated: of updates with the same ID, the first one counts,
// and the others return its entry. The zero value is an update without that.
type Once struct {
	ID      string
	Request string // what the update does; a repeat must have the same
}

// onceFor returns the Once of an Idempotency-Key, "" for none, in a call for an entry.
func onceFor(call, key, request string) Once {
	if call == "" {
		return Once{}
	}
	sum := sha256.Sum256([]byte(key + "\x00" + call))
	return Once{base64.RawURLEncoding.EncodeToString(sum[:]), request}
}

// Marks returns where a store keeps the marks of updates of a space. It is in no export, and its
// entries have an end.
func (s Space) Marks() Space {
	if s.Agent != "" {
		return Space{Project: "~calls/" + s.Project + "/" + AgentPrefix + s.Agent}
	}
	return Space{Project: "~calls/" + s.Owner()}
}

// mark is the value of a mark.
type mark struct {
	Request   string          `json:"request"`
	Value     json.RawMessage `json:"value"`
	UpdatedMS int64           `json:"updated_ms"`
	ExpiresMS int64           `json:"expires_ms"`
	Pinned    bool            `json:"pinned"`
}

// Mark returns the entry that remembers an update, which has stored e. It is stored in the same
// transaction, under the ID in Space.Marks.
func (o Once) Mark(e *Entry, nowMS int64) (Entry, error) {
	b, err := json.Marshal(mark{o.Request, e.Value, e.UpdatedMS, e.ExpiresMS, e.Pinned})
	if err != nil {
		return Entry{}, fault.Wrap(fault.Internal, err, "the mark of an Idempotency-Key could not be encoded")
	}
	return Entry{Key: o.ID, Value: b, UpdatedMS: nowMS, ExpiresMS: nowMS + OnceFor.Milliseconds()}, nil
}

// Repeat returns the entry that the first update has stored under a key, from the value of its
// mark. It fails with fault.Conflict if that update was another one.
func (o Once) Repeat(key string, value []byte) (Entry, error) {
	var m mark
	if err := json.Unmarshal(value, &m); err != nil {
		return Entry{}, fault.Wrap(fault.Internal, err, "the mark of an Idempotency-Key could not be read")
	}
	if m.Request != o.Request {
		return Entry{}, fault.At(fault.Conflict, "Idempotency-Key", "was used for another call for this key")
	}
	return Entry{Key: key, Value: m.Value, UpdatedMS: m.UpdatedMS, ExpiresMS: m.ExpiresMS, Pinned: m.Pinned}, nil
}
