package tokens_test

import (
	"encoding/binary"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/tiktoken-go/tokenizer/codec"

	"github.com/heardlog/heardlog/memory/window"
	"github.com/heardlog/heardlog/memory/window/tokens"
)

var update = flag.Bool("update", false, "write the vocabularies anew")

// TestVocabularies compares the embedded vocabularies with those of a library.
func TestVocabularies(t *testing.T) {
	t.Parallel()
	for file, lib := range map[string]*codec.Codec{"o200k.zst": codec.NewO200kBase(), "cl100k.zst": codec.NewCl100kBase()} {
		var want []byte
		for id := uint(0); ; id++ {
			token, err := lib.Decode([]uint{id})
			if err != nil {
				break
			}
			want = append(binary.AppendUvarint(want, uint64(len(token))), token...)
		}
		if *update {
			w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, w.EncodeAll(want, nil), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		packed, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r, err := zstd.NewReader(nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.DecodeAll(packed, nil)
		r.Close()
		if err != nil || string(got) != string(want) {
			t.Errorf("%s: differs from the library's vocabulary (%v); go test -run TestVocabularies -update writes it", file, err)
		}
	}
}

// FuzzCount compares counts with those of a library.
func FuzzCount(f *testing.F) {
	for _, s := range []string{
		"", " ", "Hello, world! It's 12345 o'clock.\r\n\r\n  Next", "\u00a0\u3000x \t\n y", "お誕生日おめでとう", "naïve É́a Ǆa ʰA", "'S'T'LL'ſ", "\xff\xfe\xc3", "🙂🙃 👩‍👩‍👧", "aAaA'RE //\n/", "مرحبا بك", "x\u0301\u0301 \u0301A",
		strings.Repeat("a", 300), strings.Repeat("誕", 100), strings.Repeat(" ", 300) + "a", strings.Repeat("=", 200), strings.Repeat("zqj", 200),
	} {
		f.Add(s)
	}
	c := tokens.New(16)
	libs := map[string]*codec.Codec{"o200k": codec.NewO200kBase(), "cl100k": codec.NewCl100kBase()}
	f.Fuzz(func(t *testing.T, s string) {
		for family, lib := range libs {
			want, err := lib.Count(s)
			if err != nil {
				t.Fatal(err)
			}
			if got := counterOf(t, c, family).Size(&window.Message{Text: s}) - tokens.PerMessage; got != want {
				t.Errorf("%s: %q has %d tokens, want %d", family, s, got, want)
			}
		}
	})
}
