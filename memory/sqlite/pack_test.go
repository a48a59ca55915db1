package sqlite

import (
	"encoding/json"
	"reflect"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/memory"
)

// filled sets every field of a message to something, those of its parts too, so that one which is added later is in it.
func filled(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Interface().(type) {
	case json.RawMessage:
		v.SetBytes([]byte(`{"a":[1,"b"]}`))
		return
	case map[string]json.RawMessage:
		v.Set(reflect.ValueOf(map[string]json.RawMessage{"k": json.RawMessage(`"v"`), "l": json.RawMessage("2")}))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			filled(t, v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		filled(t, v.Index(0))
		filled(t, v.Index(1))
	case reflect.String:
		v.SetString("some \"text\"\n")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(1)<<40 - int64(v.Type().Align()))
	case reflect.Float64:
		v.SetFloat(0.5)
	default:
		t.Fatalf("a message holds a %s, which this test cannot fill", v.Type())
	}
}

// TestPackKeepsEveryField wants a message out of memory to be the one that the database would give.
func TestPackKeepsEveryField(t *testing.T) {
	t.Parallel()
	var full memory.Message
	filled(t, reflect.ValueOf(&full).Elem())
	full.GivenTurn = false // of a message that is not stored yet
	known := full
	known.Role, known.Source, known.Method = memory.Assistant, memory.SourceSilence, memory.AssumedFull
	for name, m := range map[string]memory.Message{
		"full": full, "full, of known words": known, "empty": {}, "plain": {Seq: 3, Rev: -1, Role: memory.User, Content: "é", TurnID: -5, ID: "c"},
	} {
		var got memory.Message
		new(unpacker).unpack(pack(&m), &got)
		if d := cmp.Diff(m, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if rev, turn, id := pack(&m).found(); pack(&m).seq() != m.Seq || rev != m.Rev || turn != m.TurnID || id != m.ID {
			t.Errorf("%s: found under %d, %d, %d, %q", name, pack(&m).seq(), rev, turn, id)
		}
	}
}

// TestUnpackedListsGo wants what is unpacked to be there while somebody holds it, and to take no memory afterwards.
func TestUnpackedListsGo(t *testing.T) { // not parallel: it counts on collections
	v := (&view{}).withTail([]memory.Message{{Seq: 1, Role: memory.User, Content: "one"}, {Seq: 2, Role: memory.Tool, Content: "two"}}, true)
	held := v.messages(2)
	shown := v.history(held, 2)
	runtime.GC()
	if again := v.messages(2); &again[0] != &held[0] || len(again) != 2 {
		t.Error("a list that is held was unpacked again")
	}
	if again := v.history(held, 2); &again[0] != &shown[0] || len(again) != 1 {
		t.Error("a history that is held was made again")
	}
	runtime.KeepAlive(held)
	runtime.KeepAlive(shown)
	runtime.GC()
	runtime.GC()
	if _, ok := v.list.get(); ok {
		t.Error("an unpacked list that nobody uses is kept")
	}
	if got := v.messages(2); len(got) != 2 || got[0].Content != "one" || got[1].Content != "two" {
		t.Errorf("unpacked again: %v", got)
	}
}

func BenchmarkPack(b *testing.B) {
	for name, m := range map[string]memory.Message{
		"user": {Seq: 41, Rev: 80, TurnID: 20, Role: memory.User, Source: memory.SourceASR, Timestamp: 1780000000000, TurnHasUser: true, AnswerSeq: 42,
			Content:  "I would like to move my appointment from Tuesday morning to some time on Thursday, if you still have anything free after lunch.",
			Metadata: map[string]json.RawMessage{"publisher": json.RawMessage(`"1001"`)}},
		"assistant": {Seq: 42, Rev: 81, TurnID: 20, Role: memory.Assistant, Source: memory.SourceLLM, Timestamp: 1780000000500, TurnHasUser: true,
			Content: "Thursday at two or at half past three would be free; which of them may I book for you?", Method: memory.AssumedFull, FinishRsn: "stop",
			UpstreamID: "chatcmpl-0123456789abcdef", Timings: &memory.Timings{StartMS: 1780000000000, FirstTokenMS: 300, FirstSentenceMS: 500, TotalMS: 900}},
	} {
		p := pack(&m)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				p = pack(&m)
			}
		})
		b.Run(name+"-unpack", func(b *testing.B) {
			b.ReportAllocs()
			b.ReportMetric(float64(len(p)), "bytes")
			var u unpacker
			for range b.N {
				var m memory.Message
				u.unpack(p, &m)
			}
		})
	}
}
