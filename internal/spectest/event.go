package spectest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/heardlog/heardlog/internal/event"
)

// Event checks a request that a webhook receiver got against the description: method, headers and
// body. It does not read req.Body.
func (s *Spec) Event(req *http.Request, body []byte) error {
	var head struct {
		EventType int `json:"eventType"`
		Payload   struct {
			Thin bool `json:"thin"`
		} `json:"payload"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return fmt.Errorf("the event is not JSON: %w", err)
	}
	name := event.Name(head.EventType)
	if head.Payload.Thin {
		name = "thin"
	}
	item := s.doc.Webhooks[name]
	if item == nil {
		return fmt.Errorf("events of type %d are not described", head.EventType)
	}
	op := item.GetOperation(req.Method)
	if op == nil {
		return fmt.Errorf("events of type %d do not come with method %s", head.EventType, req.Method)
	}
	again := req.Clone(req.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	err := openapi3filter.ValidateRequest(req.Context(), &openapi3filter.RequestValidationInput{
		Request: again,
		Route:   &routers.Route{Spec: s.doc, PathItem: item, Method: req.Method, Operation: op},
		Options: &openapi3filter.Options{MultiError: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	})
	if err != nil {
		return fmt.Errorf("event %d: %w", head.EventType, err)
	}
	return nil
}
