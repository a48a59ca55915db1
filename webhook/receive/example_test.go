package receive_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/heardlog/heardlog/webhook/receive"
)

// A receiver that takes each event once and looks at finished conversations.
func ExampleHandler() {
	v, err := receive.NewVerifier("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		fmt.Println(err)
		return
	}
	h := &receive.Handler{
		Verifier: v,
		Once:     receive.NewMemory(10_000).Once,
		Handle: func(_ context.Context, e receive.Event) error {
			if history, ok := e.Data.(receive.History); ok {
				fmt.Println(history.AgentID, "ended after", len(history.Contents), "messages")
			}
			return nil
		},
	}
	rec := httptest.NewRecorder() // in a server: http.Handle("/hook", h)
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/hook", strings.NewReader(`{"noticeId":"n","eventType":103,"payload":{}}`)))
	fmt.Println(rec.Code, rec.Body)
	// Output: 401 {"code":401,"msg":"the signature does not hold: webhook-signature is missing"}
}

func ExampleDecode() {
	e, err := receive.Decode([]byte(`{"sid":"a1","noticeId":"n","productId":17,"eventType":103,"notifyMs":1780000000000,"payload":
		{"agent_id":"a1","contents":[{"role":"assistant","content":"The train","metadata":{"interrupted":true,"original":"The train leaves at nine."}}]}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	if history, ok := e.Data.(receive.History); ok {
		for _, m := range history.Contents {
			fmt.Printf("%s was heard of %q\n", m.Content, m.Metadata.Original)
		}
	}
	// Output: The train was heard of "The train leaves at nine."
}
