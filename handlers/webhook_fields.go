package handlers

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/webhook"
)

// maxOverlap is the longest time for which a replaced secret goes on signing.
const maxOverlap = 30 * 24 * time.Hour

// orNull returns null for a member that is absent.
func orNull(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("null")
	}
	return raw
}

// setEndpoint sets the fields of an endpoint; null is a field's default. Endpoint.Validate checks
// the values later.
func setEndpoint(e *webhook.Endpoint, obj map[string]json.RawMessage) error {
	// So that the same one of two errors is reported.
	for _, name := range slices.Sorted(maps.Keys(obj)) {
		if err := setField(e, name, obj[name]); err != nil {
			return err
		}
	}
	return nil
}

// endpointFields are the fields of an endpoint that a client can set.
var endpointFields = []string{
	"agora_signatures", "auth", "client_cert", "description", "disabled", "events", "headers", "max_age", "max_body_bytes", "max_in_flight", "payload",
	"rate_limit", "retry_schedule", "secrets", "timeout", "url",
}

func setField(e *webhook.Endpoint, name string, raw json.RawMessage) (err error) {
	switch name {
	case "url":
		return setURL(e, raw)
	case "description":
		e.Description, err = member[string](name, raw)
	case "events":
		e.Events, err = entries[string](name, raw, webhook.MaxFilter)
	case "headers":
		return setHeaders(e, raw)
	case "auth":
		return setAuth(e, raw)
	case "client_cert":
		return setCert(e, raw)
	case "agora_signatures":
		e.Agora, err = member[bool](name, orDefault(raw, "true"))
	case "payload":
		e.Payload, err = member[string](name, raw)
	case "max_body_bytes":
		e.MaxBodyBytes, err = positive[int64](name, raw)
	case "retry_schedule":
		return setRetry(e, raw)
	case "max_age":
		e.MaxAge, err = durationOf(name, raw, webhook.MinMaxAge, webhook.MaxMaxAge)
	case "timeout":
		e.Timeout, err = durationOf(name, raw, webhook.MinTimeout, webhook.MaxTimeout)
	case "max_in_flight":
		e.MaxInFlight, err = positive[int](name, raw)
	case "rate_limit":
		e.RateLimit, err = positive[float64](name, raw)
	case "disabled":
		e.Disabled, err = member[bool](name, raw)
	case "secret", "secrets":
		return fault.At(fault.Invalid, name, "can only be set when the endpoint is created; later, POST …/secrets adds one and DELETE …/secrets/{secret_id} ends one")
	default:
		return stray{text.Clip(name, 80), name, text.Nearest(name, endpointFields), endpointFields}.err()
	}
	return err
}

// orDefault returns the default for a member that is null.
func orDefault(raw json.RawMessage, def string) json.RawMessage {
	if string(raw) == "null" {
		return json.RawMessage(def)
	}
	return raw
}

// positive reads a number above 0. Only null means the default, so that 0 is not taken for "none".
func positive[T int | int64 | float64](name string, raw json.RawMessage) (T, error) {
	v, err := member[T](name, raw)
	if err == nil && v <= 0 && string(raw) != "null" {
		return 0, fault.At(fault.Invalid, name, "must be a number above 0, or null for the default, not %v", v)
	}
	return v, err
}

// durationOf reads a duration in seconds from least to most. It returns 0, the default, for null.
func durationOf(name string, raw json.RawMessage, least, most time.Duration) (time.Duration, error) {
	v, err := positive[float64](name, raw)
	if err != nil || v == 0 {
		return 0, err
	}
	return seconds(name, v, least, most)
}

// seconds returns a duration of v seconds, which must be from least to most.
func seconds(field string, v float64, least, most time.Duration) (time.Duration, error) {
	if v < least.Seconds() || v > most.Seconds() {
		return 0, fault.At(fault.Invalid, field, "must be from %.0f to %.0f seconds, not %v", least.Seconds(), most.Seconds(), v)
	}
	return time.Duration(v * float64(time.Second)).Round(time.Millisecond), nil
}

// setURL sets the URL. Masked query parameters keep their stored values if the host stays the same.
func setURL(e *webhook.Endpoint, raw json.RawMessage) error {
	next, err := member[string]("url", raw)
	if err != nil {
		return err
	}
	was := ""
	if webhook.SameOrigin(e.URL, next) {
		was = e.URL
	}
	var ok bool
	if e.URL, ok = secret.RestoreURL(next, was); !ok {
		return notStored("url")
	}
	return nil
}

func setRetry(e *webhook.Endpoint, raw json.RawMessage) error {
	list, err := entries[float64]("retry_schedule", raw, webhook.MaxRetries)
	if err != nil {
		return err
	}
	e.Retry = nil
	if list != nil {
		// An empty list means one try, null the server's schedule.
		e.Retry = make([]time.Duration, 0, len(list))
	}
	for i, v := range list {
		d, err := seconds(fmt.Sprintf("retry_schedule[%d]", i), v, webhook.MinRetryWait, webhook.MaxRetryWait)
		if err != nil {
			return err
		}
		e.Retry = append(e.Retry, d)
	}
	return nil
}

func setHeaders(e *webhook.Endpoint, raw json.RawMessage) error {
	in, err := member[map[string]json.RawMessage]("headers", raw)
	if err != nil {
		return err
	}
	if len(in) > webhook.MaxHeaderLines {
		return fault.At(fault.Invalid, "headers", "has %d entries; at most %d are allowed", len(in), webhook.MaxHeaderLines)
	}
	was := map[string]secret.String{}
	for _, h := range e.Headers {
		was[strings.ToLower(h.Name)] = h.Value
	}
	e.Headers = nil
	for _, name := range slices.Sorted(maps.Keys(in)) {
		field := "headers." + text.Clip(name, webhook.MaxHeaderName)
		text, err := member[string](field, in[name])
		if err != nil {
			return err
		}
		v, err := secretOf(field, text, was[strings.ToLower(name)])
		if err != nil {
			return err
		}
		e.Headers = append(e.Headers, webhook.Header{Name: name, Value: v})
	}
	return nil
}

// secretOf returns the secret that a value means: the value, or the stored one for a mask.
func secretOf(field, value string, was secret.String) (secret.String, error) {
	if !secret.IsMask(value) {
		return secret.String(value), nil
	}
	if was == "" {
		return "", notStored(field)
	}
	return was, nil
}

func notStored(field string) error {
	return fault.At(fault.Invalid, field, "must not hold %q, which stands for a stored value: none is stored for the url's host", secret.Mask)
}

type authRequest struct {
	Bearer   string `json:"bearer"`
	Username string `json:"username"`
	Password string `json:"password"`
}

func setAuth(e *webhook.Endpoint, raw json.RawMessage) error {
	in, err := member[authRequest]("auth", raw)
	if err != nil {
		return err
	}
	was := e.Auth
	e.Auth = webhook.Auth{User: in.Username}
	if e.Auth.Bearer, err = secretOf("auth.bearer", in.Bearer, was.Bearer); err != nil {
		return err
	}
	e.Auth.Password, err = secretOf("auth.password", in.Password, was.Password)
	return err
}

type certRequest struct {
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

func setCert(e *webhook.Endpoint, raw json.RawMessage) error {
	in, err := member[certRequest]("client_cert", raw)
	if err != nil {
		return err
	}
	was := e.ClientCert.Key
	e.ClientCert = webhook.ClientCert{Cert: in.Cert}
	e.ClientCert.Key, err = secretOf("client_cert.key", in.Key, was)
	return err
}

// signerRequest asks for a signing secret: a new one, or the caller's.
type signerRequest struct {
	Secret    string `json:"secret"`
	Kind      string `json:"kind"`
	ExpiresAt string `json:"expires_at"` // "" = no end
}

// rotateRequest is a signerRequest and what happens to the secrets before it.
type rotateRequest struct {
	Secret    string   `json:"secret"`
	Kind      string   `json:"kind"`
	ExpiresAt string   `json:"expires_at"`
	Overlap   *float64 `json:"overlap"` // seconds
}

func (in rotateRequest) signer(at string) (webhook.NewSigner, error) {
	return signerRequest{in.Secret, in.Kind, in.ExpiresAt}.signer(at)
}

func (in signerRequest) signer(at string) (webhook.NewSigner, error) {
	n := webhook.NewSigner{Kind: in.Kind, Value: secret.String(in.Secret)}
	ms, err := timeOf(at+"expires_at", in.ExpiresAt)
	if err == nil && ms != 0 {
		n.NotAfter = time.UnixMilli(ms)
	}
	return n, err
}

// newSigners reads the secrets of a request to create an endpoint.
func (a webhookAPI) newSigners(obj map[string]json.RawMessage) ([]webhook.NewSigner, error) {
	list, err := entries[signerRequest]("secrets", orNull(obj["secrets"]), webhook.MaxSecrets)
	if err != nil {
		return nil, err
	}
	if raw := obj["secret"]; given(raw) { // one secret, without a list
		one, err := member[string]("secret", raw)
		switch {
		case err != nil:
			return nil, err
		case len(list) > 0:
			return nil, fault.At(fault.Invalid, "secret", "cannot be combined with secrets")
		case one == "":
			return nil, fault.At(fault.Invalid, "secret", "must not be empty; leave it out to have one made")
		}
		list = []signerRequest{{Secret: one}}
	}
	var out []webhook.NewSigner
	for i, in := range list {
		n, err := in.signer(fmt.Sprintf("secrets[%d].", i))
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}
