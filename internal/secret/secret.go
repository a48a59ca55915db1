// Package secret decides what is a secret, and keeps secrets out of logs, errors, answers and
// exports. String holds one value. Named finds secrets by the names of members, parameters and
// headers; MaskURL, InURL, InJSON and Strip apply it to addresses and documents. Set removes known
// secrets from a text from outside.
package secret

// Mask stands for a secret in answers. In a change it stands for the stored value.
const Mask = "[secret]"

// String is a string that prints as "[secret]". Comparing and converting it works as with any
// string type.
type String string

// String returns "[secret]".
func (String) String() string { return Mask }

// GoString returns "[secret]", for %#v.
func (String) GoString() string { return Mask }

// MarshalText returns "[secret]". It hides the value from encoders such as encoding/json.
func (String) MarshalText() ([]byte, error) { return []byte(Mask), nil }

// Reveal returns the value itself. Call it only where the value is sent, stored or compared.
func (s String) Reveal() string { return string(s) }

// Map returns a map of secrets, or nil if it is empty.
func Map(m map[string]string) map[string]String { return convert[String](m) }

// RevealMap returns the values themselves, or nil if there are none. See String.Reveal.
func RevealMap(m map[string]String) map[string]string { return convert[string](m) }

func convert[To, From ~string](m map[string]From) map[string]To {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]To, len(m))
	for k, v := range m {
		out[k] = To(v)
	}
	return out
}
