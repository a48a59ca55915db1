package handlers

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The reader is inside the package: over HTTP nobody can tell which of the two has read a body, and that is what is to be shown.

const plainBody = `{"role":"user","content":"I would like to move my appointment from Tuesday morning to some time on Thursday.","source":"asr",` +
	`"timestamp":1780000000000,"metadata":{"publisher":"1001"}}`

// FuzzReadPlain wants whatever the short way reads to be read the same by encoding/json.
func FuzzReadPlain(f *testing.F) {
	for _, s := range []string{
		plainBody, `{}`, `{"role":"user"}x`, `{"role":"user","role":"assistant"}`, ` { "id" : "a" , "turn_id" : 7 } `, `{"turn_id":0}`, `{"timestamp":1.5}`,
		`{"timestamp":1e3}`, `{"timestamp":12345678901234567890}`, `{"metadata":{"a":1,"a":true,"b":false}}`, `{"metadata":{"a":null}}`, `{"metadata":{"a":truex}}`,
		`{"content":"a\u0041"}`, "{\"content\":\"\xff\"}", "{\"content\":\"\x00\"}", `{"Role":"user"}`, `{"messages":[]}`, `{"content":"x",}`, `{"metadata":{}}`,
		`{"id":"x"`, `{"id":""}`, `{"timestamp":01}`, `{"timestamp":1 }`, `{"timestamp":1"id":"x"}`, `[]`, ``, `{"metadata":{"a":"b"},"metadata":{"c":"d"}}`,
	} {
		f.Add([]byte(s))
	}
	a := bodies{validate: newValidator()}
	f.Fuzz(func(t *testing.T, body []byte) {
		var plain, full appendRequest
		if !plain.readPlain(body) {
			if d := cmp.Diff(appendRequest{}, plain, cmp.AllowUnexported(appendRequest{})); d != "" {
				t.Fatalf("something was read of what is left alone:\n%s", d)
			}
			return
		}
		if err := a.unmarshal(body, &full, true); err != nil {
			t.Fatalf("%q is wrong, and was read: %v", body, err)
		}
		if d := cmp.Diff(full, plain, cmp.AllowUnexported(appendRequest{})); d != "" {
			t.Fatalf("%q (-encoding/json +plain):\n%s", body, d)
		}
	})
}

// TestReadPlain wants the usual body to go the short way.
func TestReadPlain(t *testing.T) {
	t.Parallel()
	var in appendRequest
	if !in.readPlain([]byte(plainBody)) {
		t.Fatal("the usual append was not read")
	}
	want := messageRequest{
		Role: "user", Content: json.RawMessage(`"I would like to move my appointment from Tuesday morning to some time on Thursday."`), Source: "asr", Timestamp: 1780000000000,
		Metadata: map[string]json.RawMessage{"publisher": json.RawMessage(`"1001"`)},
	}
	if d := cmp.Diff(want, in.messageRequest); d != "" {
		t.Error(d)
	}
}

func BenchmarkDecodeAppend(b *testing.B) {
	a := bodies{validate: newValidator()}
	for name, decode := range map[string]func(*appendRequest) error{
		"plain":         func(in *appendRequest) error { in.readPlain([]byte(plainBody)); return nil },
		"encoding-json": func(in *appendRequest) error { return a.unmarshal([]byte(plainBody), in, true) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				var in appendRequest
				if err := decode(&in); err != nil || in.Role == "" {
					b.Fatal(err)
				}
			}
		})
	}
}
