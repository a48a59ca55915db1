package codec

import (
	_ "embed"
	"fmt"
	"sync"

	"github.com/klauspost/compress/s2"
)

// dictionary has what bodies have in common: usual words of calls, and the members of bodies, the
// most frequent last. Stored rows need it for ever: a better one gets another number and stands
// beside it.
//
//go:embed body.dict
var dictionary []byte

// packed is the first byte of a body that is packed with the dictionary. A body that is not packed
// begins with a brace.
const packed = 1

// maxBody limits how long a packed body may be when it is unpacked, in bytes. A message has no more
// in its limits.
const maxBody = 64 << 20

// large is the length of bodies that are packed better, which takes some 15 µs more.
const large = 2 << 10

var packer = sync.OnceValue(func() *s2.Dict { return s2.MakeDict(dictionary, nil) })

// Pack returns the stored form of the body of a message or an event, which is shorter and not text.
// A body that would not get shorter stays as it is. DecodeMessage and Unpack read both.
func Pack[B string | []byte](body B) []byte {
	if len(body) > maxBody {
		return []byte(body)
	}
	out := make([]byte, 1+s2.MaxEncodedLen(len(body)))
	out[0] = packed
	encode := packer().Encode
	if len(body) > large {
		encode = packer().EncodeBetter
	}
	if n := 1 + len(encode(out[1:], []byte(body))); n < len(body) {
		return out[:n:n]
	}
	return []byte(body)
}

// Unpack returns the body of which the stored form is given, as a copy.
func Unpack[B string | []byte](body B) ([]byte, error) {
	if len(body) == 0 || body[0] != packed {
		return append([]byte(nil), body...), nil
	}
	block := []byte(body[1:])
	if n, err := s2.DecodedLen(block); err != nil || n > maxBody {
		return nil, fmt.Errorf("unpack %d bytes: %w", n, s2.ErrCorrupt)
	}
	out, err := packer().Decode(nil, block)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	return out, nil
}
