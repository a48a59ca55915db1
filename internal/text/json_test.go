package text_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/text"
)

// TestAppendStringAnywhere puts each byte at each place of a text, since eight bytes are checked at
// a time. The result is what encoding/json returns, except that U+FFFD is not escaped.
func TestAppendStringAnywhere(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		for at := range 20 {
			s := strings.Repeat("z", at) + string([]byte{byte(c)}) + strings.Repeat("~", 19-at)
			var want bytes.Buffer
			enc := json.NewEncoder(&want)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(s); err != nil {
				t.Fatal(err)
			}
			plain := strings.ReplaceAll(strings.TrimSuffix(want.String(), "\n"), `\ufffd`, "\ufffd")
			if got := string(text.AppendJSON([]byte("x"), s)); got != "x"+plain {
				t.Errorf("byte %#x at %d: %s, want %s", c, at, got, want.String())
			}
		}
	}
}

func BenchmarkAppendString(b *testing.B) {
	s := "I would like to move my appointment from Tuesday morning to some time on Thursday, if you still have anything free after lunch."
	buf := make([]byte, 0, 256)
	for range b.N {
		buf = text.AppendJSON(buf[:0], s)
	}
}
