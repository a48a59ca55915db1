package codec_test

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/codec"
)

// TestPack: a packed body is read as the one before, whatever is in it, and a usual one takes less
// than half of the bytes.
func TestPack(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "Yes.", "When is my train? It leaves at nine from platform two.", strings.Repeat("你好, \x00 \U0001F600 ", 2000), rand.Text(), string(make([]byte, 5<<20))} {
		m := memory.Message{Seq: 3, Rev: 4, TurnID: 1, Role: memory.Assistant, Content: text, Timestamp: 1780000000123, Source: memory.SourceLLM, TurnHasUser: true, Method: memory.EchoDiff, Confidence: 99, Chars: 5}
		body, err := codec.EncodeMessage(&m)
		if err != nil {
			t.Fatal(err)
		}
		stored := codec.Pack(body)
		if len(stored) > len(body) || len(text) < 200 && len(stored) > len(body)/2+len(text)/2 {
			t.Errorf("%.20q: %d bytes of %d", text, len(stored), len(body))
		}
		for _, form := range []string{body, string(stored)} {
			got := memory.Message{Seq: 3, Rev: 4, TurnID: 1}
			if err := codec.DecodeMessage(form, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(m, got); diff != "" {
				t.Error(diff)
			}
		}
	}
}

// TestUnpackDamaged: a body that is not whole is an error.
func TestUnpackDamaged(t *testing.T) {
	t.Parallel()
	m := memory.Message{Seq: 3, Role: memory.User, Content: "When is my train? It leaves at nine from platform two."}
	body, err := codec.EncodeMessage(&m)
	if err != nil {
		t.Fatal(err)
	}
	stored := string(codec.Pack(body))
	for _, s := range []string{stored[:1], stored[:len(stored)-1], "\x01\x00\x00", "\x02" + stored[1:]} {
		if err := codec.DecodeMessage(s, &memory.Message{}); err == nil {
			t.Errorf("%q was read", s)
		}
	}
}

func BenchmarkPack(b *testing.B) {
	m := memory.Message{Seq: 3, Rev: 4, TurnID: 1, Role: memory.Assistant, Content: strings.Repeat("It leaves at nine from platform two. ", 5), Timestamp: 1780000000123, Source: memory.SourceLLM}
	body, err := codec.EncodeMessage(&m)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("pack", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			codec.Pack(body)
		}
	})
	packed := string(codec.Pack(body))
	for name, s := range map[string]string{"read": packed, "readJSON": body} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := codec.DecodeMessage(s, &memory.Message{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
