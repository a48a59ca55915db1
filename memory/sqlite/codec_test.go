package sqlite

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/heardlog/heardlog/memory"
)

// The codec is inside the package: its two functions are no one else's business, and the stores' contract cannot reach every
// string. withoutColumns gives what a body holds.
func withoutColumns(m memory.Message) memory.Message {
	m.Seq, m.Rev, m.TurnID, m.ID = 0, 0, 0, ""
	return m
}

// roundTrip holds appendBody and readBody to encoding/json.
func roundTrip(t *testing.T, m memory.Message) {
	t.Helper()
	m = withoutColumns(m)
	b, err := appendBody(nil, &m)
	std, stdErr := json.Marshal(m)
	if (err != nil) != (stdErr != nil) {
		t.Fatalf("appendBody: %v, encoding/json: %v", err, stdErr)
	}
	if err != nil {
		return
	}
	if !utf8.Valid(b) || !json.Valid(b) {
		t.Fatalf("not JSON: %q", b)
	}
	var want, viaJSON, own, ownOfStd memory.Message
	if err := json.Unmarshal(std, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &viaJSON); err != nil {
		t.Fatal(err)
	}
	if err := readBody(string(b), &own); err != nil {
		t.Fatal(err)
	}
	if err := readBody(string(std), &ownOfStd); err != nil {
		t.Fatal(err)
	}
	compact := cmp.Transformer("compact", func(r json.RawMessage) string {
		var v any
		d := json.NewDecoder(strings.NewReader(string(r)))
		d.UseNumber()
		if len(r) > 0 && d.Decode(&v) != nil {
			return "broken " + string(r)
		}
		c, _ := json.Marshal(v)
		return string(c)
	})
	if d := cmp.Diff(want, viaJSON, compact); d != "" {
		t.Fatalf("encoding/json reads our body otherwise (-want +got):\n%s\n%s", d, b)
	}
	if d := cmp.Diff(want, own, compact); d != "" {
		t.Fatalf("readBody reads our body otherwise (-want +got):\n%s\n%s", d, b)
	}
	var kept memory.Message
	new(unpacker).unpack(pack(&own), &kept)
	if d := cmp.Diff(own, kept, cmpopts.EquateEmpty()); d != "" {
		t.Fatalf("packed and unpacked (-want +got):\n%s\n%s", d, b)
	}
	if d := cmp.Diff(want, withoutColumns(ownOfStd), compact); d != "" {
		t.Fatalf("readBody reads encoding/json's body otherwise (-want +got):\n%s\n%s", d, std)
	}
}

func FuzzCodec(f *testing.F) {
	for _, s := range []string{"", "plain", "a\"b\\c\n\r\t\x00\x1f\x7f", "é\u2028\U0001F600", "\xff\xfe", `{"a":[1,2]}`, `"x\u00e9"`, "null", "<b>&", `\`, `"`} {
		f.Add(s, "k", `{"a":1}`, int64(5), uint16(0xffff))
		f.Add("x", s, s, int64(-1), uint16(0x00ff))
	}
	f.Fuzz(func(t *testing.T, s, k, raw string, n int64, bits uint16) {
		has := func(i int) bool { return bits&(1<<i) != 0 }
		m := memory.Message{Role: memory.Role(s), Content: s, Timestamp: n}
		if has(0) {
			m.Metadata = map[string]json.RawMessage{k: json.RawMessage(raw), s: json.RawMessage(`[null, 1.50]`)}
		}
		if has(1) {
			m.Interrupted, m.InterruptMS, m.InterruptBy = true, n, k
		}
		if has(2) {
			m.Generated, m.Sent, m.CutGenerated = s+k, k, true
		}
		if has(3) {
			m.ToolCalls, m.ToolCallID, m.ToolName = json.RawMessage(raw), k, s
		}
		if has(4) {
			m.Parts, m.Usage = json.RawMessage(raw), json.RawMessage(`{"a": {"b": "]}"}}`)
		}
		if has(5) {
			m.Timings = &memory.Timings{StartMS: n, FirstTokenMS: 1, TotalMS: n, UpstreamFirstByteMS: n, UpstreamBytes: n}
		}
		if has(6) {
			m.Failure = &memory.Failure{Reason: s, Code: int(int32(n)), Message: k}
		}
		if has(7) {
			m.AnswerSeq, m.TurnHasUser, m.FinishRsn, m.UpstreamID = n, true, k, s
			m.Amend(func(r *memory.Rare) { r.Upstream, r.Filler, r.UnheardTokens = k, s, n })
		}
		if has(8) {
			m.Source, m.State, m.Method, m.EvidenceMS = memory.Source(k), memory.State(s), memory.Method(k), n
		}
		if has(10) {
			m.Opens, m.Marks = true, memory.Marks{Born: n, Cut: 1, Heard: n, Turn: 2, State: n}
		}
		if has(9) {
			m.Amend(func(r *memory.Rare) {
				r.Playback = &memory.Playback{Spoken: 3, Cut: true, CutMS: n, By: k, Stretches: []memory.Stretch{{StartMS: n, Text: s, Ends: []int64{n, 1}}}}
			})
		}
		if has(10) {
			m.Status, m.Chars = memory.MessageStatus(k), n
			m.Amend(func(r *memory.Rare) { r.Scope, r.Category, r.Raw = memory.Scope{UserID: s, TaskID: k}, s, raw })
		}
		if has(12) {
			m.Amend(func(r *memory.Rare) {
				r.Item = &memory.Item{ID: s, AgentID: k, Extra: json.RawMessage(raw), UpdatedMS: n, IsError: has(3)}
			})
		}
		if f := float64(n) / 7; has(11) {
			m.Amend(func(r *memory.Rare) { r.Importance = &f })
		}
		roundTrip(t, m)
	})
}

// FuzzReadBody: whatever stands in the file, reading it ends and does not panic.
func FuzzReadBody(f *testing.F) {
	for _, s := range []string{
		"", "{", "{}", `{"role":"user"}`, `{"content":"\ud83d"}`, `{"x":{"y":[`, `{"metadata":{"a":}}`, `{"content":"a\`, `{"timestamp":--1}`, `{"timings":{"start_ms":1}`,
		`{,,,}`, `{"a":1}}`, `{"interrupted":tru`, `[]`, `{"usage":}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var m memory.Message
		_ = readBody(s, &m)
	})
}

// TestCodecKnowsEveryField fails when memory.Message gets a field that bodies do not hold.
func TestCodecKnowsEveryField(t *testing.T) {
	t.Parallel()
	var m memory.Message
	set(reflect.ValueOf(&m).Elem())
	roundTrip(t, m)
	b, err := appendBody(nil, &m)
	if err != nil {
		t.Fatal(err)
	}
	var got memory.Message
	if err := readBody(string(b), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(withoutColumns(m), got); d != "" {
		t.Errorf("lost (-want +got):\n%s", d)
	}
}

// set gives every field a value that is not zero.
func set(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("json") != "-" { // not stored
				set(v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		set(v.Elem())
	case reflect.String:
		v.SetString("text of " + v.Type().Name())
	case reflect.Int, reflect.Int64:
		v.SetInt(42)
	case reflect.Float64:
		v.SetFloat(0.25)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			set(v.Index(0))
			return
		}
		v.SetBytes([]byte(`{"raw":[1]}`))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]json.RawMessage{"k": json.RawMessage(`1`)}))
	default:
		panic("a field of kind " + v.Kind().String())
	}
}

func BenchmarkCodec(b *testing.B) {
	m := memory.Message{
		Role: memory.User, Content: strings.Repeat("some words that were said ", 6), Timestamp: 1780000000000, Source: memory.SourceASR,
		Metadata: map[string]json.RawMessage{"lang": json.RawMessage(`"en"`)},
	}
	body, err := appendBody(nil, &m)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			body, _ = appendBody(body[:0], &m)
		}
	})
	b.Run("read", func(b *testing.B) {
		text := string(body)
		b.ReportAllocs()
		for range b.N {
			var got memory.Message
			if err := readBody(text, &got); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("json", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			var got memory.Message
			if err := json.Unmarshal(body, &got); err != nil {
				b.Fatal(err)
			}
		}
	})
}
