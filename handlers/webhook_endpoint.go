package handlers

import (
	"encoding/json"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/webhook"
)

func (a webhookAPI) createEndpoint(w http.ResponseWriter, r *http.Request) error {
	body, err := a.read(w, r)
	if err != nil {
		return err
	}
	obj, err := members(body)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r, maxKey)
	if err != nil {
		return err
	}
	e := webhook.Endpoint{Project: projectOf(r), Agora: true}
	signers, err := a.newSigners(obj)
	if err != nil {
		return err
	}
	delete(obj, "secret")
	delete(obj, "secrets")
	if err := setEndpoint(&e, obj); err != nil {
		return err
	}
	e, again, err := a.webhooks.Create(r.Context(), e, signers, key, body)
	if err != nil {
		return err
	}
	infoOf(r).target = e.ID
	w.Header().Set("Location", "/v1/webhooks/endpoints/"+e.ID)
	if again {
		return encode(w, http.StatusOK, a.show(&e))
	}
	out := a.show(&e)
	for i := range out.Secrets {
		if i >= len(signers) || signers[i].Value == "" { // the caller knows those it sent
			out.Secrets[i].Secret = e.Secrets[i].Value.Reveal()
		}
	}
	return encode(w, http.StatusCreated, out)
}

func (a webhookAPI) endpoints(r *http.Request) (any, error) {
	list, err := a.webhooks.Store.Endpoints(r.Context(), projectOf(r), "")
	return struct {
		Endpoints []endpointJSON `json:"endpoints"`
	}{each(list, a.show)}, err
}

func (a webhookAPI) endpoint(r *http.Request) (any, error) {
	return shown(a.show)(webhook.FindEndpoint(r.Context(), a.webhooks.Store, projectOf(r), chi.URLParam(r, "id")))
}

// patchEndpoint changes the fields that the body names.
func (a webhookAPI) patchEndpoint(w http.ResponseWriter, r *http.Request) error {
	return a.changeEndpoint(w, r, func(*webhook.Endpoint) {})
}

// putEndpoint resets fields that the body does not name to their defaults. Signing secrets have
// calls of their own and stay.
func (a webhookAPI) putEndpoint(w http.ResponseWriter, r *http.Request) error {
	return a.changeEndpoint(w, r, func(e *webhook.Endpoint) {
		was := *e
		*e = webhook.Endpoint{Agora: true, URL: was.URL, Secrets: was.Secrets, ID: was.ID, Project: was.Project}
		// A body that does not say so must not enable an endpoint that was disabled.
		e.Disabled, e.DisabledWhy, e.DisabledMS, e.KeepUntilMS = was.Disabled, was.DisabledWhy, was.DisabledMS, was.KeepUntilMS
		// A value of "[secret]" in the body stands for these.
		e.Headers, e.Auth, e.ClientCert = was.Headers, was.Auth, was.ClientCert
	})
}

func (a webhookAPI) changeEndpoint(w http.ResponseWriter, r *http.Request, begin func(*webhook.Endpoint)) error {
	body, err := a.read(w, r)
	if err != nil {
		return err
	}
	obj, err := members(body)
	if err != nil {
		return err
	}
	rev, err := member[int64]("rev", orNull(obj["rev"]))
	if err != nil {
		return err
	}
	if rev < 0 {
		return fault.At(fault.Invalid, "rev", "must be the rev of an earlier answer, not %d", rev)
	}
	delete(obj, "rev")
	if r.Method == http.MethodPut {
		for _, name := range []string{"url", "headers", "auth", "client_cert"} {
			if _, ok := obj[name]; !ok {
				obj[name] = []byte("null")
			}
		}
	}
	e, err := a.webhooks.Update(r.Context(), projectOf(r), chi.URLParam(r, "id"), rev, func(e *webhook.Endpoint) error {
		begin(e)
		if err := dropSecrets(e, obj); err != nil {
			return err
		}
		return setEndpoint(e, obj)
	})
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, a.show(&e))
}

// dropSecrets removes an endpoint's stored secrets if its URL moves to another origin: otherwise a
// client that may change the URL could read them there. It fails if the body does not name them, so
// that deliveries do not fail for their lack.
func dropSecrets(e *webhook.Endpoint, obj map[string]json.RawMessage) error {
	raw, ok := obj["url"]
	if !ok {
		return nil
	}
	next, err := member[string]("url", raw)
	if err != nil || webhook.SameOrigin(e.URL, next) {
		return err
	}
	for _, m := range []struct {
		name   string
		stored bool
	}{{"auth", !e.Auth.Zero()}, {"client_cert", !e.ClientCert.Zero()}, {"headers", len(e.Headers) > 0}} {
		if _, given := obj[m.name]; m.stored && !given {
			return fault.At(fault.Invalid, m.name, "is stored for the host of the old url and is not sent to another host: set it again, or set it to null")
		}
	}
	e.Auth, e.ClientCert, e.Headers = webhook.Auth{}, webhook.ClientCert{}, nil
	return nil
}

func (a webhookAPI) deleteEndpoint(r *http.Request) error {
	return a.webhooks.Delete(r.Context(), projectOf(r), chi.URLParam(r, "id"))
}

// secretAnswer shows a new secret once.
type secretAnswer struct {
	Secret   secretJSON   `json:"secret"`
	Endpoint endpointJSON `json:"endpoint"`
}

func (a webhookAPI) rotateSecret(w http.ResponseWriter, r *http.Request) error {
	var in rotateRequest
	err := a.decodeOptional(w, r, &in)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r, maxKey)
	if err != nil {
		return err
	}
	overlap := webhook.DefaultOverlap
	if in.Overlap != nil {
		if overlap, err = seconds("overlap", *in.Overlap, 0, maxOverlap); err != nil {
			return err
		}
	}
	n, err := in.signer("")
	if err != nil {
		return err
	}
	e, fresh, again, err := a.webhooks.Rotate(r.Context(), projectOf(r), chi.URLParam(r, "id"), n, overlap, key)
	if err != nil {
		return err
	}
	out := secretAnswer{newSecretJSON(fresh, a.now()), a.show(&e)}
	if again {
		return encode(w, http.StatusOK, out)
	}
	if n.Value == "" {
		out.Secret.Secret = fresh.Value.Reveal()
	}
	return encode(w, http.StatusCreated, out)
}

func (a webhookAPI) revokeSecret(r *http.Request) error {
	_, err := a.webhooks.Revoke(r.Context(), projectOf(r), chi.URLParam(r, "id"), chi.URLParam(r, "secret_id"))
	return err
}

func (a webhookAPI) switchEndpoint(enable bool) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		return shown(a.show)(a.webhooks.Switch(r.Context(), projectOf(r), chi.URLParam(r, "id"), enable))
	}
}

// testEndpoint stores a test event. Its result is read from its delivery.
func (a webhookAPI) testEndpoint(w http.ResponseWriter, r *http.Request) error {
	key, err := idempotencyKey(r, maxKey)
	if err != nil {
		return err
	}
	rec, err := a.webhooks.Test(r.Context(), projectOf(r), chi.URLParam(r, "id"), key)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/webhooks/deliveries/"+deliveryID(rec.ID))
	return encode(w, http.StatusAccepted, newDeliveryJSON(&rec))
}
