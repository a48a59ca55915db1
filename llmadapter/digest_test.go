package llmadapter_test

import (
	"testing"

	"github.com/heardlog/heardlog/llmadapter"
)

func TestDigest(t *testing.T) {
	t.Parallel()
	digest := func(body string) [32]byte {
		r, err := llmadapter.ParseRequest([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return r.Digest()
	}
	const one = `{"messages":[{"role":"user","content":"a"}],"stream":true,"n":1}`
	for body, same := range map[string]bool{
		one: true,
		` { "n" : 1.0, "stream":true, "messages" : [ {"content":"\u0061","role":"user"} ] } `:              true,
		`{"messages":[{"role":"user","content":"a"}],"stream":true,"n":1,"timestamp":5}`:                   true,
		`{"messages":[{"role":"user","content":"a"}],"stream":false,"n":1}`:                                false,
		`{"messages":[{"role":"user","content":"a"}],"stream":true,"n":2}`:                                 false,
		`{"messages":[{"role":"user","content":"a "}],"stream":true,"n":1}`:                                false,
		`{"messages":[{"role":"user","content":"a"},{"role":"user","content":"a"}],"stream":true,"n":1}`:   false,
		`{"messages":[{"role":"user","content":"a","turn_id":1}],"stream":true,"n":1}`:                     false,
		`{"messages":[{"role":"user","content":"a"}],"stream":true,"n":1,"metadata":{"agent_id":"other"}}`: false,
		`{"messages":[{"role":"user","content":"\ud800"}],"stream":true,"n":1}`:                            false,
	} {
		if got := digest(body) == digest(one); got != same {
			t.Errorf("%s: the same %v, want %v", body, got, same)
		}
	}
}
