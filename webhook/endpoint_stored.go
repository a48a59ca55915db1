package webhook

import (
	"encoding/json"
	"time"

	"github.com/heardlog/heardlog/internal/secret"
)

// storedSecrets holds the secrets of an endpoint, which stores seal.
type storedSecrets struct {
	URL      string         `json:"url,omitempty"` // whole, if it holds secrets; the body has it masked
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
	shown := *e
	shown.URL = secret.MaskURL(e.URL)
	b, err := json.Marshal(shown)
	if err != nil {
		return "", nil, err
	}
	out := storedSecrets{
		Bearer: e.Auth.Bearer.Reveal(), User: e.Auth.User, Password: e.Auth.Password.Reveal(), Cert: e.ClientCert.Cert, Key: e.ClientCert.Key.Reveal(),
	}
	if shown.URL != e.URL {
		out.URL = e.URL
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
	e := Endpoint{ID: id, Project: project}
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		return Endpoint{}, err
	}
	var hidden storedSecrets
	if err := json.Unmarshal(secrets, &hidden); err != nil {
		return Endpoint{}, err
	}
	e.Auth = Auth{Bearer: secret.String(hidden.Bearer), User: hidden.User, Password: secret.String(hidden.Password)}
	e.ClientCert = ClientCert{Cert: hidden.Cert, Key: secret.String(hidden.Key)}
	if hidden.URL != "" {
		e.URL = hidden.URL
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
