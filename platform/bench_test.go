package platform_test

import (
	"testing"

	"github.com/heardlog/heardlog/platform"
)

// BenchmarkRequest finds the key and the caller of a chat request that has them in its body.
func BenchmarkRequest(b *testing.B) {
	members := map[string][]byte{
		"model": []byte(`"m"`), "messages": []byte(`[{"role":"user","content":"Hello?"}]`),
		"call":     []byte(`{"id":"5f0c","orgId":"o","type":"inboundPhoneCall","customer":{"name":"A","number":"+4930123456"}}`),
		"metadata": []byte(`{"session":"s","from":"x"}`),
	}
	member := func(name string) []byte { return members[name] }
	header := func(string) string { return "" }
	set, err := platform.NewSet(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if k, ok := set.Key("p", header, member); !ok || platform.Caller(member) == "" {
			b.Fatal(k, ok)
		}
		set.Resends(header, member)
	}
}

// BenchmarkEvent reads an event with the memory of a call.
func BenchmarkEvent(b *testing.B) {
	row := `{"role":"user","content":"What time?","turn_id":1,"timestamp":1760000000000,"metadata":{"source":"asr"}},` +
		`{"role":"assistant","content":"At","turn_id":1,"timestamp":1760000000001,"metadata":{"source":"llm","interrupted":true,"original":"At nine."}}`
	body := `{"noticeId":"n","productId":17,"eventType":103,"notifyMs":1760000000002,"payload":{"agent_id":"a","channel":"c","contents":[` + row
	for range 30 {
		body += "," + row
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := platform.Read("agora", []byte(body+`]}}`)); err != nil {
			b.Fatal(err)
		}
	}
}
