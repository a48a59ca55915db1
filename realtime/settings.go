package realtime

import (
	"bytes"
	"encoding/json"

	"github.com/heardlog/heardlog/internal/peek"
)

// settings are what a client has set of its session, for the next connection. The zero value is
// nothing.
type settings struct{ session map[string]json.RawMessage }

// maxSettings limits their length in bytes. What a client sets beyond it is not repeated.
const maxSettings = 512 << 10

// merge adds the session of an update, as the server does: fields replace others of the same name,
// and audio has fields in two directions.
func (s *settings) merge(session peek.Value) {
	if len(session) > maxSettings || !peek.Valid(session) {
		return
	}
	if s.session == nil {
		s.session = map[string]json.RawMessage{}
	}
	into(s.session, session, 0)
}

// into adds the members of an object to a map. Audio and its directions are objects of fields; all
// others are values.
func into(m map[string]json.RawMessage, object peek.Value, depth int) {
	_ = peek.Object(object, func(quoted, value []byte) error {
		name := peek.Unquote(quoted)
		nested := depth == 0 && name == "audio" || depth == 1 && (name == "input" || name == "output")
		if !nested || !peek.Value(value).IsObject() {
			m[name] = bytes.Clone(value)
			return nil
		}
		below := map[string]json.RawMessage{}
		into(below, peek.Value(m[name]), depth+1)
		into(below, value, depth+1)
		if raw, err := json.Marshal(below); err == nil {
			m[name] = raw
		}
		return nil
	})
}

// frame returns a session.update with the settings, nil for nothing.
func (s *settings) frame() []byte {
	if len(s.session) == 0 {
		return nil
	}
	raw, err := json.Marshal(map[string]any{"type": sessionUpdate, "event_id": newID(), "session": s.session})
	if err != nil {
		return nil
	}
	return raw
}
