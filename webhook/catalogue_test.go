package webhook_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/heardlog/heardlog"
	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/spectest"
	"github.com/heardlog/heardlog/webhook"
)

// everyPayload returns a body of each type with every field set.
func everyPayload() []webhook.Payload {
	fact := func(eventType int, state string) webhook.Fact {
		return webhook.Fact{
			Type: eventType, UserID: "anna", FactID: "f", Kind: "preference",
			Confidence: .8, State: state, Reason: "quote", Supersedes: "e", SupersededBy: "g", AgentID: "a",
		}
	}
	about := webhook.About{AgentID: "a", Name: "n", Channel: "c", StartMS: 1_780_000_000_000, Labels: map[string]string{"tenant": "t1"}, Sequence: 4096}
	item := json.RawMessage(`{"role":"user","content":"hi","turn_id":0,"timestamp":1780000009000,"metadata":{"source":"asr"}}`)
	return []webhook.Payload{
		webhook.Joined{About: about},
		webhook.Left{About: about, StopMS: 1_780_000_300_000, Status: "STOPPED", Message: "OK"},
		webhook.History{About: about, StopMS: 1_780_000_300_000, Contents: []json.RawMessage{item}, EndReason: "answer_cut", EndTurn: 3},
		webhook.Expiring{About: about, ExpireMS: 1_780_259_200_000},
		webhook.Failed{About: about, TurnID: 2, Errors: []webhook.Failure{{Module: "llm", TurnID: 2, Code: 503, Message: "no"}}},
		webhook.Metrics{About: about, StopMS: 1_780_000_300_000, Turns: []webhook.TurnMetrics{{TurnID: 0, TTFBMS: 520, TTFSMS: 900}, {TurnID: 2}}},
		webhook.Turns{About: about, StopMS: 1_780_000_300_000, Turns: []webhook.Turn{{
			Start: webhook.TurnEdge{AtMS: 1_780_000_009_000, Type: "voice_input"}, End: &webhook.TurnEdge{AtMS: 1_780_000_010_000, Type: "ok"}, E2EMS: 640,
		}}},
		webhook.Scored{About: about, ScoreID: "s1", ScoreName: "tone", Value: []byte(`"friendly"`), TurnID: new(int64(1)), Comment: "Warm.", Author: "anna", Source: "human"},
		webhook.Interrupted{
			About: about, TurnID: 1, Seq: 2, State: "final", Cut: true, AtMS: 1_780_000_010_900, CausedBy: "start_of_speech", Heard: "At", Sent: "At nine", Generated: "At nine.",
			Complete: true, Method: "echo_diff", Confidence: 98,
		},
		webhook.Messages{About: about, Messages: []json.RawMessage{append([]byte(`{"seq":1,"state":"final",`), item[1:]...)}},
		webhook.DeadLetter{
			EndpointID: "e", DeliveryID: "7", EventID: "x:1:103", Type: 103, AgentID: "a", Attempts: 10, LastStatus: 503, Reason: "no attempt is left", CreatedMS: 1_780_000_300_000,
		},
		webhook.EndpointDisabled{EndpointID: "e", URL: "https://hooks.example.com/", Description: "d", Reason: "r", DisabledMS: 1_780_000_300_000},
		webhook.Test{EndpointID: "e", Message: "This is a test."},
		fact(event.FactAdded, "active"), fact(event.FactSuperseded, "superseded"), fact(event.FactWithdrawn, "withdrawn"), fact(event.FactExpired, "expired"),
		webhook.UserErased{UserID: "anna", Agents: 3, Memories: 12, Records: 4, Aliases: 2, ErasedMS: 1_780_000_300_000},
		webhook.KVProvider{Provider: "redis", Hook: "on_error", Error: "e", AtMS: 1_780_000_300_000},
	}
}

// TestCatalogue checks that each type is listed once, and that its schema and openapi.yaml accept
// its example and what Encode makes of it, field by field.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	entries, err := webhook.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := spectest.Load(t.Context(), heardlog.Spec)
	if err != nil {
		t.Fatal(err)
	}
	byNumber := map[int]webhook.CatalogueEntry{}
	names := map[string]bool{}
	for _, e := range entries {
		byNumber[e.Number] = e
		if names[e.Name] || e.Description == "" || e.Name != event.Name(e.Number) || e.Default != webhook.Matches(nil, e.Number) {
			t.Errorf("%s: twice, without a description, or not what filters take it for: %+v", e.Name, e)
		}
		names[e.Name] = true
	}
	payloads := everyPayload()
	if len(byNumber) != len(payloads) || len(entries) != len(payloads) {
		t.Errorf("%d entries with %d numbers for %d payloads", len(entries), len(byNumber), len(payloads))
	}
	for _, p := range payloads {
		e, ok := byNumber[p.EventType()]
		if !ok {
			t.Errorf("type %d is not in the catalogue", p.EventType())
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			schema := compile(t, e.Schema)
			body, err := webhook.Encode(webhook.Notice{SID: "a", ID: "x:1:1", AtMS: 1_780_000_000_000, Payload: p})
			if err != nil {
				t.Fatal(err)
			}
			for what, doc := range map[string][]byte{"example": e.Example, "body": body} {
				if err := schema.Validate(parse(t, doc)); err != nil {
					t.Errorf("%s: %v\n%s", what, err, doc)
				}
				if err := spec.Event(attempt(t, doc), doc); err != nil {
					t.Errorf("%s: openapi.yaml: %v\n%s", what, err, doc)
				}
			}
			// The schema accepts fields that it does not know, so compare the fields.
			if diff := cmp.Diff(described(t, e.Schema), fields(t, body)); diff != "" {
				t.Errorf("the schema describes other fields of the payload than Encode writes:\n%s", diff)
			}
		})
	}
}

// attempt makes a request with the body, and with headers of the form that deliveries have.
func attempt(t *testing.T, body []byte) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://receiver/", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", webhook.HeaderID: "x:1:1", webhook.HeaderTimestamp: "1780000000", webhook.HeaderAttempt: "1",
		webhook.HeaderSignature: "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
	} {
		req.Header.Set(name, value)
	}
	return req
}

func compile(t *testing.T, schema []byte) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	if err := c.AddResource("event.json", parse(t, schema)); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("event.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func parse(t *testing.T, doc []byte) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		t.Fatalf("%v: %s", err, doc)
	}
	return v
}

func described(t *testing.T, schema []byte) map[string]bool {
	t.Helper()
	var s struct {
		Properties struct {
			Payload struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		t.Fatal(err)
	}
	return keys(s.Properties.Payload.Properties)
}

func fields(t *testing.T, body []byte) map[string]bool {
	t.Helper()
	var b struct{ Payload map[string]any }
	if err := json.Unmarshal(body, &b); err != nil {
		t.Fatal(err)
	}
	return keys(b.Payload)
}

func keys(m map[string]any) map[string]bool {
	out := map[string]bool{}
	for k := range m {
		out[k] = true
	}
	return out
}
