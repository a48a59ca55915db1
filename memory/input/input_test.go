package input_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/input"
)

func TestContent(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, text, parts, err string }{
		{name: "absent"},
		{name: "null", in: `null`},
		{name: "text", in: `"hello"`, text: "hello"},
		{name: "escapes", in: `"a\"b\u00e9"`, text: `a"bé`},
		{name: "broken UTF-8", in: "\"a\xff\xfeb\"", text: "a\uFFFD\uFFFDb"},
		{name: "NUL", in: `"a\u0000"`, text: "a\uFFFD"},
		{name: "parts", in: `[ {"type":"text","text":"a"}, {"type":"image_url"}, {"type":"text","text":"b"} ]`, text: "a\nb",
			parts: `[{"type":"text","text":"a"},{"type":"image_url"},{"type":"text","text":"b"}]`},
		{name: "NUL in parts", in: `[{"type":"text","text":"\u0000"}]`, text: "\uFFFD", parts: `[{"type":"text","text":"\ufffd"}]`},
		{name: "list of numbers", in: `[1]`, err: "array of parts"},
		{name: "number", in: `1`, err: "neither a string nor an array"},
		{name: "longest", in: `"` + strings.Repeat("x", memory.MaxText) + `"`, text: strings.Repeat("x", memory.MaxText)},
		{name: "too long", in: `"` + strings.Repeat("x", memory.MaxText+1) + `"`, err: "bytes long"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text, parts, err := input.Content("content", json.RawMessage(tt.in), memory.MaxText)
			if tt.err != "" {
				if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "content") || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want content and %q", err, tt.err)
				}
				return
			}
			if err != nil || text != tt.text || string(parts) != tt.parts {
				t.Errorf("%q %s %v", text, parts, err)
			}
		})
	}
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	got, err := input.Metadata("metadata", map[string]json.RawMessage{
		"user": json.RawMessage(`"7"`), "list": json.RawMessage(`[ 1, 2 ]`), "source": json.RawMessage(`"asr"`), "interrupted": json.RawMessage(`true`),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]json.RawMessage{"user": json.RawMessage(`"7"`), "list": json.RawMessage(`[1,2]`)}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got, err := input.Metadata("metadata", map[string]json.RawMessage{"source": json.RawMessage(`"asr"`)}); got != nil || err != nil {
		t.Errorf("own keys alone: %v, %v", got, err)
	}
	got, err = input.Metadata("metadata", map[string]json.RawMessage{"a\x00": json.RawMessage(`["\u0000"]`)})
	if d := cmp.Diff(map[string]json.RawMessage{"a\uFFFD": json.RawMessage(`["\ufffd"]`)}, got); d != "" || err != nil {
		t.Errorf("NUL: %v%s", err, d)
	}
	for name, in := range map[string]map[string]json.RawMessage{
		"too long": {"a": json.RawMessage(`"` + strings.Repeat("x", input.MaxMetadataBytes) + `"`)},
	} {
		if _, err := input.Metadata("metadata", in); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNUL(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`"a\u0000b"`:     `"a\ufffdb"`,
		`"a\\u0000b"`:    `"a\\u0000b"`, // an escaped backslash
		`"\\\u0000"`:     `"\\\ufffd"`,
		`{"\u0000":"x"}`: `{"\ufffd":"x"}`,
		`"u0000"`:        `"u0000"`,
	} {
		got := string(input.ReplaceNUL(json.RawMessage(in)))
		if got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}

func TestMillis(t *testing.T) {
	t.Parallel()
	for in, want := range map[int64]int64{0: 0, 1: 1, 1_780_000_000: 1_780_000_000_000, 1_780_000_000_123: 1_780_000_000_123, 1e14: 1e14} {
		if got, err := input.Millis("at", in); got != want || err != nil {
			t.Errorf("%d became %d, %v", in, got, err)
		}
	}
	for _, in := range []int64{-1, 1e14 + 1} {
		if _, err := input.Millis("at", in); !fault.Is(err, fault.Invalid) {
			t.Errorf("%d: %v", in, err)
		}
	}
}

func TestError(t *testing.T) {
	t.Parallel()
	type embedded struct {
		Name string `json:"name"`
	}
	type body struct {
		embedded
		Count int `json:"count"`
	}
	for in, want := range map[string]string{
		`{"count":"x"}`: "count: must be a whole number, not a JSON string",
		`{"name":1}`:    "name: must be a string, not a JSON number",
		`[]`:            "the body must be a JSON object, not a JSON array",
		`{"a":1}`:       "a: is not a field of this call",
		``:              "the body must be a JSON object, not empty",
		`{`:             "the body is not valid JSON",
	} {
		dec := json.NewDecoder(strings.NewReader(in))
		dec.DisallowUnknownFields()
		err := input.Error(dec.Decode(new(body)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}

func TestAgentID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"a": true, "A-b_c.9": true, strings.Repeat("x", 128): true, "": false, strings.Repeat("x", 129): false, "a b": false, "a/b": false, "é": false,
	} {
		if input.AgentID(id) != want {
			t.Errorf("%q: %v", id, !want)
		}
	}
}
