package codec_test

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/codec"
)

// withoutColumns returns what a body holds of a message.
func withoutColumns(m memory.Message) memory.Message {
	m.Seq, m.Rev, m.TurnID, m.ID = 0, 0, 0, ""
	return m
}

// roundTrip checks that a message comes back as encoding/json would bring it back, and its raw JSON
// byte for byte.
func roundTrip(t *testing.T, m memory.Message) {
	t.Helper()
	m = withoutColumns(m)
	text, err := codec.EncodeMessage(&m)
	std, stdErr := json.Marshal(m)
	if (err != nil) != (stdErr != nil) {
		t.Fatalf("EncodeMessage: %v, encoding/json: %v", err, stdErr)
	}
	if err != nil {
		return
	}
	if !json.Valid([]byte(text)) {
		t.Fatalf("not JSON: %q", text)
	}
	var want memory.Message
	if err := json.Unmarshal(std, &want); err != nil {
		t.Fatal(err)
	}
	got := memory.Message{Seq: 7, Rev: 8, TurnID: 9, ID: "id"}
	if err := codec.DecodeMessage(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Seq != 7 || got.Rev != 8 || got.TurnID != 9 || got.ID != "id" {
		t.Errorf("the columns became %d, %d, %d, %q", got.Seq, got.Rev, got.TurnID, got.ID)
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
	if d := cmp.Diff(want, withoutColumns(got), compact); d != "" {
		t.Fatalf("(-want +got):\n%s\n%s", d, text)
	}
	for name, raw := range map[string][2]json.RawMessage{
		"tool_calls": {m.ToolCalls, got.ToolCalls}, "parts": {m.Parts, got.Parts}, "usage": {m.Usage, got.Usage},
	} {
		if want := strings.ToValidUTF8(string(raw[0]), ""); want == string(raw[0]) && want != string(raw[1]) {
			t.Errorf("%s: %q became %q", name, want, raw[1])
		}
	}
}

func FuzzMessage(f *testing.F) {
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
			m.Amend(func(r *memory.Details) {
				r.Upstream, r.Model, r.Filler, r.UnheardTokens, r.Cost = k, k, s, n, &memory.Cost{In: n, Out: 1, Estimated: has(3)}
			})
		}
		if has(8) {
			m.Source, m.State, m.Method, m.EvidenceMS = memory.Source(k), memory.State(s), memory.Method(k), n
		}
		if has(10) {
			m.Opens, m.Marks = true, memory.Marks{Born: n, Cut: 1, Heard: n, Turn: 2, State: n}
		}
		if has(9) {
			m.Amend(func(r *memory.Details) {
				r.Playback = &memory.Playback{Spoken: 3, Cut: true, CutMS: n, By: k, Stretches: []memory.Stretch{{StartMS: n, Text: s, Ends: []int64{n, 1}}}}
			})
		}
		if has(10) {
			m.Status, m.Chars = memory.MessageStatus(k), n
			m.Amend(func(r *memory.Details) { r.Scope, r.Category, r.Raw = memory.Scope{UserID: s, TaskID: k}, s, raw })
		}
		if has(12) {
			m.Amend(func(r *memory.Details) {
				r.Item = &memory.Item{ID: s, AgentID: k, Extra: json.RawMessage(raw), UpdatedMS: n, IsError: has(3)}
			})
		}
		if f := float64(n) / 7; has(11) {
			m.Amend(func(r *memory.Details) { r.Importance = &f })
		}
		roundTrip(t, m)
	})
}

// FuzzDecode: whatever the database holds, reading it ends and does not panic.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		"", "{", "{}", `{"role":"user"}`, `{"content":"\ud83d"}`, `{"x":{"y":[`, `{"metadata":{"a":}}`, `{"content":"a\`, `{"timestamp":--1}`,
		`{"timings":{"start_ms":1}`, `{,,,}`, `{"a":1}}`, `{"interrupted":tru`, `[]`, `{"usage":}`, `null`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var m memory.Message
		_ = codec.DecodeMessage(s, &m)
		var a memory.Agent
		_ = codec.DecodeAgent([]byte(s), &a)
	})
}

// TestEveryField fails if a message or an agent's settings get a field that is not stored.
func TestEveryField(t *testing.T) {
	t.Parallel()
	var m memory.Message
	set(reflect.ValueOf(&m).Elem())
	roundTrip(t, m)
	text, err := codec.EncodeMessage(&m)
	if err != nil {
		t.Fatal(err)
	}
	var got memory.Message
	if err := codec.DecodeMessage(text, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(withoutColumns(m), got); d != "" {
		t.Errorf("lost of a message (-want +got):\n%s", d)
	}
	var a, back memory.Agent
	set(reflect.ValueOf(&a.Settings).Elem())
	a.Properties = json.RawMessage(`{"a": 1}`)
	blob, err := codec.EncodeAgent(&a)
	if err != nil {
		t.Fatal(err)
	}
	if err := codec.DecodeAgent(blob, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(a, back); d != "" {
		t.Errorf("lost of an agent (-want +got):\n%s", d)
	}
	for n := range blob[:min(len(blob), 3000)] {
		if err := codec.DecodeAgent(blob[:n], &back); n < len(blob)-len(a.Properties) && err == nil {
			t.Fatalf("the first %d bytes of %d were read", n, len(blob))
		}
	}
}

// TestStoredBefore checks that messages which an earlier version stored are read, and stored again
// as the same bytes.
func TestStoredBefore(t *testing.T) {
	t.Parallel()
	bodies, err := os.ReadFile("testdata/bodies.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var m memory.Message
	n := 0
	for body := range strings.Lines(string(bodies)) {
		body, n = strings.TrimSuffix(body, "\n"), n+1
		m = memory.Message{}
		if err := codec.DecodeMessage(body, &m); err != nil {
			t.Fatal(err)
		}
		again, err := codec.EncodeMessage(&m)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(body, again); d != "" {
			t.Errorf("message %d (-stored +stored again):\n%s", n, d)
		}
		if n == 1 { // it has every field
			var all memory.Message
			set(reflect.ValueOf(&all).Elem())
			if d := cmp.Diff(withoutColumns(all), m); d != "" {
				t.Errorf("the message with every field (-want +got):\n%s", d)
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d messages", n)
	}
}

// set sets every stored field to a value that is not zero.
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
		value := reflect.New(v.Type().Elem()).Elem()
		set(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k"), value)
	default:
		panic("a field of kind " + v.Kind().String())
	}
}

func BenchmarkMessage(b *testing.B) {
	m := memory.Message{
		Role: memory.User, Content: strings.Repeat("some words that were said ", 6), Timestamp: 1780000000000, Source: memory.SourceASR,
		Metadata: map[string]json.RawMessage{"lang": json.RawMessage(`"en"`)},
	}
	text, err := codec.EncodeMessage(&m)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = codec.EncodeMessage(&m)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var got memory.Message
			if err := codec.DecodeMessage(text, &got); err != nil {
				b.Fatal(err)
			}
		}
	})
}
