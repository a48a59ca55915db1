package webhook

import (
	"encoding/json"
	"time"

	"github.com/heardlog/heardlog/internal/secret"
)

// storedEndpoint is the part of an endpoint that is stored in clear: fields that are not secret and
// change seldom.
type storedEndpoint struct {
	URL         string   `json:"url"`
	Description string   `json:"description,omitempty"`
	Events      []string `json:"events,omitempty"`
	Agora       bool     `json:"agora,omitempty"`
	Payload     string   `json:"payload,omitempty"`
	MaxBody     int64    `json:"max_body,omitempty"`
	// an empty list means one attempt, nil the server's schedule
	Retry       []time.Duration `json:"retry,omitzero"`
	MaxAge      time.Duration   `json:"max_age,omitempty"`
	Timeout     time.Duration   `json:"timeout,omitempty"`
	MaxInFlight int             `json:"max_in_flight,omitempty"`
	RateLimit   float64         `json:"rate_limit,omitempty"`
	Disabled    bool            `json:"disabled,omitempty"`
	DisabledWhy string          `json:"disabled_why,omitempty"`
	DisabledMS  int64           `json:"disabled_ms,omitempty"`
	KeepUntilMS int64           `json:"keep_until_ms,omitempty"`
	CreatedMS   int64           `json:"created_ms,omitempty"`
	UpdatedMS   int64           `json:"updated_ms,omitempty"`
	Rev         int64           `json:"rev,omitempty"`
	MadeOf      string          `json:"made_of,omitempty"`
	Fixed       bool            `json:"fixed,omitempty"`
}

// storedSecrets holds the secrets of an endpoint, which stores seal.
type storedSecrets struct {
	Signing  []storedSecret `json:"signing,omitempty"`
	Headers  []storedHeader `json:"headers,omitempty"`
	Bearer   string         `json:"bearer,omitempty"`
	User     string         `json:"user,omitempty"`
	Password string         `json:"password,omitempty"`
	Cert     string         `json:"cert,omitempty"`
	Key      string         `json:"key,omitempty"`
}

type storedSecret struct {
	ID        string     `json:"id,omitempty"`
	Value     string     `json:"value"`
	CreatedMS int64      `json:"created_ms,omitempty"`
	NotAfter  *time.Time `json:"not_after,omitempty"`
}

type storedHeader struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// EncodeEndpoint returns the stored form of an endpoint: its body, without secrets, and its secrets
// in clear, which a store with a key seals. Project, ID and the times of its health are columns of
// their own and not part of it.
func EncodeEndpoint(e *Endpoint) (body string, secrets []byte, err error) {
	b, err := json.Marshal(storedEndpoint{
		URL: e.URL, Description: e.Description, Events: e.Events, Agora: e.Agora, Payload: e.Payload, MaxBody: e.MaxBodyBytes, Retry: e.Retry,
		MaxAge: e.MaxAge, Timeout: e.Timeout, MaxInFlight: e.MaxInFlight, RateLimit: e.RateLimit, Disabled: e.Disabled, DisabledWhy: e.DisabledWhy,
		DisabledMS: e.DisabledMS, KeepUntilMS: e.KeepUntilMS, CreatedMS: e.CreatedMS, UpdatedMS: e.UpdatedMS, Rev: e.Rev, MadeOf: e.MadeOf, Fixed: e.Fixed,
	})
	if err != nil {
		return "", nil, err
	}
	out := storedSecrets{
		Bearer: e.Auth.Bearer.Reveal(), User: e.Auth.User, Password: e.Auth.Password.Reveal(), Cert: e.ClientCert.Cert, Key: e.ClientCert.Key.Reveal(),
	}
	for _, s := range e.Secrets {
		stored := storedSecret{ID: s.ID, Value: s.Value.Reveal(), CreatedMS: s.CreatedMS}
		if !s.NotAfter.IsZero() {
			stored.NotAfter = &s.NotAfter
		}
		out.Signing = append(out.Signing, stored)
	}
	for _, h := range e.Headers {
		out.Headers = append(out.Headers, storedHeader{h.Name, h.Value.Reveal()})
	}
	secrets, err = json.Marshal(out)
	return string(b), secrets, err
}

// DecodeEndpoint reads what EncodeEndpoint wrote.
func DecodeEndpoint(id, project, body string, secrets []byte) (Endpoint, error) {
	var in storedEndpoint
	if err := json.Unmarshal([]byte(body), &in); err != nil {
		return Endpoint{}, err
	}
	var hidden storedSecrets
	if err := json.Unmarshal(secrets, &hidden); err != nil {
		return Endpoint{}, err
	}
	e := Endpoint{
		ID: id, Project: project, URL: in.URL, Description: in.Description, Events: in.Events, Agora: in.Agora, Payload: in.Payload,
		MaxBodyBytes: in.MaxBody, Retry: in.Retry, MaxAge: in.MaxAge, Timeout: in.Timeout, MaxInFlight: in.MaxInFlight, RateLimit: in.RateLimit,
		Disabled: in.Disabled, DisabledWhy: in.DisabledWhy, DisabledMS: in.DisabledMS, KeepUntilMS: in.KeepUntilMS, CreatedMS: in.CreatedMS, UpdatedMS: in.UpdatedMS,
		Rev: in.Rev, MadeOf: in.MadeOf, Fixed: in.Fixed,
		Auth:       Auth{Bearer: secret.String(hidden.Bearer), User: hidden.User, Password: secret.String(hidden.Password)},
		ClientCert: ClientCert{Cert: hidden.Cert, Key: secret.String(hidden.Key)},
	}
	for _, s := range hidden.Signing {
		secret := SigningSecret{ID: s.ID, Value: secret.String(s.Value), CreatedMS: s.CreatedMS}
		if s.NotAfter != nil {
			secret.NotAfter = *s.NotAfter
		}
		e.Secrets = append(e.Secrets, secret)
	}
	for _, h := range hidden.Headers {
		e.Headers = append(e.Headers, Header{Name: h.Name, Value: secret.String(h.Value)})
	}
	return e, nil
}
