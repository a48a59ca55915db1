package memory_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory"
)

// TestAppendStringAnywhere puts each byte at each place of a text, since the beginning is looked at
// eight bytes at a time.
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
			if got := string(memory.AppendString([]byte("x"), s)); got != "x"+strings.TrimSuffix(want.String(), "\n") {
				t.Errorf("byte %#x at %d: %s, want %s", c, at, got, want.String())
			}
		}
	}
}

func BenchmarkAppendString(b *testing.B) {
	s := "I would like to move my appointment from Tuesday morning to some time on Thursday, if you still have anything free after lunch."
	buf := make([]byte, 0, 256)
	for range b.N {
		buf = memory.AppendString(buf[:0], s)
	}
}
