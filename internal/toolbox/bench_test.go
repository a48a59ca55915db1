package toolbox_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/toolbox"
	"github.com/heardlog/heardlog/llmadapter"
)

// BenchmarkTurn offers the tools to a request of 60 messages and passes on an answer of 40 chunks.
func BenchmarkTurn(b *testing.B) {
	body := []byte(`{"model":"m","messages":[` + strings.Repeat(`{"role":"user","content":"What time do you open on Saturday?"},`, 59) +
		`{"role":"user","content":"Hello?"}],"stream":true,"tools":[{"type":"function","function":{"name":"book"}}]}`)
	var answer strings.Builder
	for i := range 40 {
		fmt.Fprintf(&answer, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"word %d "},"finish_reason":null}]}`+"\n\n", i)
	}
	answer.WriteString("data: [DONE]\n\n")
	to := &llmadapter.Recipient{}
	b.ReportAllocs()
	for b.Loop() {
		s := toolbox.Offer(body, to, run).Stream(b.Context(), llmadapter.NewEvents(strings.NewReader(answer.String())), nil)
		for {
			if _, err := s.Next(); err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
	}
}
