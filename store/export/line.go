package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/webhook"
)

// line is the JSON form of a record. It has exactly one of these members.
type line struct {
	Key          *Key           `json:"key,omitempty"`
	Endpoint     *endpointLine  `json:"endpoint,omitempty"`
	Agent        *agentLine     `json:"agent,omitempty"`
	Message      *codec.Message `json:"message,omitempty"`
	Item         *itemLine      `json:"item,omitempty"`
	Working      *Working       `json:"working,omitempty"`
	Conversation *Conversation  `json:"conversation,omitempty"`
	Record       *Value         `json:"record,omitempty"`
	Event        *Event         `json:"event,omitempty"`
	Delivery     *deliveryLine  `json:"delivery,omitempty"`
	End          *End           `json:"end,omitempty"`
}

// plainJSON is json.Marshal without HTML escapes.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

type agentLine struct {
	Project    string          `json:"project"`
	ID         string          `json:"id"`
	Name       string          `json:"name,omitempty"`
	Status     memory.Status   `json:"status"`
	StartMS    int64           `json:"start_ms"`
	StopMS     int64           `json:"stop_ms,omitempty"`
	Message    Text            `json:"message,omitempty"`
	Rev        int64           `json:"rev"`
	JoinKey    Text            `json:"join_key,omitempty"`
	JoinHash   Text            `json:"join_hash,omitempty"`
	HeadRev    int64           `json:"head_rev"`
	NextSeq    int64           `json:"next_seq"`
	LastTurn   int64           `json:"last_turn"`
	Tally      []byte          `json:"tally,omitempty"` // memory.Tally.Encode
	Settings   json.RawMessage `json:"settings"`
	Properties Text            `json:"properties,omitempty"`
}

func newAgentLine(a *Agent) (*agentLine, error) {
	settings, err := codec.EncodeSettings(a.Settings)
	return &agentLine{
		Project: a.Project, ID: a.ID, Name: a.Name, Status: a.Status, StartMS: a.StartMS, StopMS: a.StopMS, Message: Text(a.Message), Rev: a.Rev,
		JoinKey: Text(a.JoinKey), JoinHash: Text(a.JoinHash), HeadRev: a.HeadRev, NextSeq: a.NextSeq, LastTurn: a.LastTurn, Tally: a.Tally.Encode(),
		Settings: settings, Properties: Text(a.Properties),
	}, err
}

func (l *agentLine) agent() (*Agent, error) {
	settings, err := codec.DecodeSettings(l.Settings)
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	tally, err := memory.DecodeTally(l.Tally)
	if err != nil {
		return nil, fmt.Errorf("tally: %w", err)
	}
	a := &Agent{Tally: tally, Agent: memory.Agent{
		ID: l.ID, Project: l.Project, Name: l.Name, Status: l.Status, StartMS: l.StartMS, StopMS: l.StopMS, Message: string(l.Message), Rev: l.Rev,
		JoinKey: string(l.JoinKey), JoinHash: string(l.JoinHash), Settings: settings,
	}, HeadRev: l.HeadRev, NextSeq: l.NextSeq, LastTurn: l.LastTurn}
	if len(l.Properties) > 0 {
		a.Properties = json.RawMessage(l.Properties)
	}
	return a, nil
}

type itemLine struct {
	Item
	Row *struct{} `json:"Row,omitempty"` // hides Item's
	Of  string    `json:"of"`            // the item's project
	ID  string    `json:"id"`
	memory.Scope
}

func newItemLine(it *Item) *itemLine {
	return &itemLine{Item: *it, Of: it.Row.Project, ID: it.Row.ID, Scope: it.Row.Scope}
}

func (l *itemLine) item() *Item {
	it := l.Item
	it.Row = memories.Row{Project: l.Of, ID: l.ID, Scope: l.Scope}
	return &it
}

type endpointLine struct {
	ID          string   `json:"id"`
	Project     string   `json:"project"`
	URL         string   `json:"url"`
	Description string   `json:"description,omitempty"`
	Events      []string `json:"events,omitempty"`
	Agora       bool     `json:"agora,omitempty"`
	Payload     string   `json:"payload,omitempty"`
	MaxBody     int64    `json:"max_body,omitempty"`
	// An empty list is one attempt, nil the server's schedule.
	Retry         []time.Duration `json:"retry,omitzero"`
	MaxAge        time.Duration   `json:"max_age,omitempty"`
	Timeout       time.Duration   `json:"timeout,omitempty"`
	MaxInFlight   int             `json:"max_in_flight,omitempty"`
	RateLimit     float64         `json:"rate_limit,omitempty"`
	Disabled      bool            `json:"disabled,omitempty"`
	DisabledWhy   string          `json:"disabled_why,omitempty"`
	KeepUntilMS   int64           `json:"keep_until_ms,omitempty"`
	DisabledMS    int64           `json:"disabled_ms,omitempty"`
	LastSuccessMS int64           `json:"last_success_ms,omitempty"`
	FirstFailure  int64           `json:"first_failure_ms,omitempty"`
	LastFailure   int64           `json:"last_failure_ms,omitempty"`
	CreatedMS     int64           `json:"created_ms,omitempty"`
	UpdatedMS     int64           `json:"updated_ms,omitempty"`
	Rev           int64           `json:"rev,omitempty"`
	MadeOf        string          `json:"made_of,omitempty"`
	Fixed         bool            `json:"fixed,omitempty"`
	Secrets       []secretLine    `json:"secrets,omitempty"`
	Headers       []headerLine    `json:"headers,omitempty"`
	Bearer        string          `json:"bearer,omitempty"`
	User          string          `json:"user,omitempty"`
	Password      string          `json:"password,omitempty"`
	Cert          string          `json:"cert,omitempty"`
	CertKey       string          `json:"cert_key,omitempty"`
}

type secretLine struct {
	ID        string     `json:"id,omitempty"`
	Value     string     `json:"value"`
	CreatedMS int64      `json:"created_ms,omitempty"`
	NotAfter  *time.Time `json:"not_after,omitempty"`
}

type headerLine struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func newEndpointLine(e *webhook.Endpoint) *endpointLine {
	l := &endpointLine{
		ID: e.ID, Project: e.Project, URL: e.URL, Description: e.Description, Events: e.Events, Agora: e.Agora, Payload: e.Payload, MaxBody: e.MaxBodyBytes,
		Retry: e.Retry, MaxAge: e.MaxAge, Timeout: e.Timeout, MaxInFlight: e.MaxInFlight, RateLimit: e.RateLimit, Disabled: e.Disabled, DisabledWhy: e.DisabledWhy, KeepUntilMS: e.KeepUntilMS,
		DisabledMS: e.DisabledMS, LastSuccessMS: e.LastSuccessMS, FirstFailure: e.FirstFailureMS, LastFailure: e.LastFailureMS, CreatedMS: e.CreatedMS,
		UpdatedMS: e.UpdatedMS, Rev: e.Rev, MadeOf: e.MadeOf, Fixed: e.Fixed, Bearer: e.Auth.Bearer.Reveal(), User: e.Auth.User, Password: e.Auth.Password.Reveal(),
		Cert: e.ClientCert.Cert, CertKey: e.ClientCert.Key.Reveal(),
	}
	for _, s := range e.Secrets {
		out := secretLine{ID: s.ID, Value: s.Value.Reveal(), CreatedMS: s.CreatedMS}
		if !s.NotAfter.IsZero() {
			at := s.NotAfter.UTC() // whatever zone the driver's own form left it in
			out.NotAfter = &at
		}
		l.Secrets = append(l.Secrets, out)
	}
	for _, h := range e.Headers {
		l.Headers = append(l.Headers, headerLine{h.Name, h.Value.Reveal()})
	}
	return l
}

func (l *endpointLine) endpoint() *webhook.Endpoint {
	e := &webhook.Endpoint{
		ID: l.ID, Project: l.Project, URL: l.URL, Description: l.Description, Events: l.Events, Agora: l.Agora, Payload: l.Payload, MaxBodyBytes: l.MaxBody,
		Retry: l.Retry, MaxAge: l.MaxAge, Timeout: l.Timeout, MaxInFlight: l.MaxInFlight, RateLimit: l.RateLimit, Disabled: l.Disabled, DisabledWhy: l.DisabledWhy, KeepUntilMS: l.KeepUntilMS,
		DisabledMS: l.DisabledMS, LastSuccessMS: l.LastSuccessMS, FirstFailureMS: l.FirstFailure, LastFailureMS: l.LastFailure, CreatedMS: l.CreatedMS,
		UpdatedMS: l.UpdatedMS, Rev: l.Rev, MadeOf: l.MadeOf, Fixed: l.Fixed,
		Auth:       webhook.Auth{Bearer: secret.String(l.Bearer), User: l.User, Password: secret.String(l.Password)},
		ClientCert: webhook.ClientCert{Cert: l.Cert, Key: secret.String(l.CertKey)},
	}
	for _, s := range l.Secrets {
		out := webhook.SigningSecret{ID: s.ID, Value: secret.String(s.Value), CreatedMS: s.CreatedMS}
		if s.NotAfter != nil {
			out.NotAfter = *s.NotAfter
		}
		e.Secrets = append(e.Secrets, out)
	}
	for _, h := range l.Headers {
		e.Headers = append(e.Headers, webhook.Header{Name: h.Name, Value: secret.String(h.Value)})
	}
	return e
}

type deliveryLine struct {
	Delivery
	Attempts []attemptLine `json:"attempts,omitempty"`
}

type attemptLine struct {
	N          int             `json:"n"`
	StartedMS  int64           `json:"started_ms"`
	DurationMS int64           `json:"duration_ms"`
	Status     int             `json:"status,omitempty"`
	Class      Text            `json:"error_class,omitempty"`
	Error      Text            `json:"error,omitempty"`
	Response   Text            `json:"response,omitempty"`
	Truncated  bool            `json:"truncated,omitempty"`
	Detail     *webhook.Detail `json:"detail,omitempty"`
}

func newDeliveryLine(d *Delivery) *deliveryLine {
	l := &deliveryLine{Delivery: *d}
	for _, a := range d.Attempts {
		out := attemptLine{
			N: a.N, StartedMS: a.StartedMS, DurationMS: a.DurationMS, Status: a.Status, Class: Text(a.ErrorClass), Error: Text(a.Error), Response: a.Response,
			Truncated: a.Truncated,
		}
		if len(a.Detail.Headers)+len(a.Detail.Signed) > 0 || a.Detail.ConnectMS != 0 || a.Detail.TLSMS != 0 || a.Detail.FirstByteMS != 0 || a.Detail.Thin {
			detail := a.Detail
			if len(detail.Headers) == 0 {
				detail.Headers = nil
			}
			out.Detail = &detail
		}
		l.Attempts = append(l.Attempts, out)
	}
	return l
}

func (l *deliveryLine) delivery() *Delivery {
	d := l.Delivery
	for _, a := range l.Attempts {
		out := webhook.Attempt{
			N: a.N, StartedMS: a.StartedMS, DurationMS: a.DurationMS, Status: a.Status, ErrorClass: string(a.Class), Error: string(a.Error), Response: a.Response,
			Truncated: a.Truncated,
		}
		if a.Detail != nil {
			out.Detail = *a.Detail
		}
		d.Attempts = append(d.Attempts, out)
	}
	return &d
}

// encode returns the line of a record, without its end.
func encode(r Record) ([]byte, error) {
	l := line{Key: r.Key, Working: r.Working, Conversation: r.Conversation, Record: r.Value, Event: r.Event}
	var err error
	switch {
	case r.Endpoint != nil:
		l.Endpoint = newEndpointLine(r.Endpoint)
	case r.Agent != nil:
		l.Agent, err = newAgentLine(r.Agent)
	case r.Message != nil:
		l.Message = new(codec.Message)
		err = l.Message.Set(&r.Message.Message)
	case r.Item != nil:
		l.Item = newItemLine(r.Item)
	case r.Delivery != nil:
		l.Delivery = newDeliveryLine(r.Delivery)
	}
	if err != nil {
		return nil, err
	}
	return plainJSON(l)
}

// decode reads a line and sets end if it is the last. A message lacks the agent that it belongs to,
// which is that of the last line of an agent.
func decode(b []byte) (r Record, end *End, err error) {
	var l line
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return r, nil, err
	}
	r = Record{Key: l.Key, Working: l.Working, Conversation: l.Conversation, Value: l.Record, Event: l.Event}
	n := 0
	for _, set := range []bool{l.Key != nil, l.Endpoint != nil, l.Agent != nil, l.Message != nil, l.Item != nil, l.Working != nil, l.Conversation != nil, l.Record != nil, l.Event != nil, l.Delivery != nil, l.End != nil} {
		if set {
			n++
		}
	}
	switch {
	case n != 1:
		return r, nil, errors.New("wants exactly one record")
	case l.Endpoint != nil:
		r.Endpoint = l.Endpoint.endpoint()
	case l.Agent != nil:
		r.Agent, err = l.Agent.agent()
	case l.Message != nil:
		r.Message = &Message{Message: l.Message.Value()}
	case l.Item != nil:
		r.Item = l.Item.item()
	case l.Record != nil:
		err = l.Record.check()
	case l.Delivery != nil:
		r.Delivery = l.Delivery.delivery()
	}
	return r, l.End, err
}
