// Package secret holds values that must not appear in logs, errors or answers: keys, passwords and
// URLs that may contain one. Its only type is String.
package secret

const hidden = "[secret]"

// String is a string that prints as "[secret]". Comparing and converting it works as with any
// string type.
type String string

// String returns "[secret]".
func (String) String() string { return hidden }

// GoString returns "[secret]", for %#v.
func (String) GoString() string { return hidden }

// MarshalText returns "[secret]". It hides the value from encoders such as encoding/json.
func (String) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// Reveal returns the value itself. Call it only where the value is sent, stored or compared.
func (s String) Reveal() string { return string(s) }
