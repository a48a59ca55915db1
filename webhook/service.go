package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
)

// Service implements the rules about endpoints and deliveries that do not depend on the store.
// Every field but Thin, and Once without it, is required.
type Service struct {
	Store interface {
		Endpoints
		Log
	}
	// CheckURL refuses addresses that may not be called, as far as the URL alone shows it. Host
	// names are checked when they are dialled.
	CheckURL func(raw string) error
	// Nil if receivers could not reach the server: then no endpoint can ask for thin events.
	Thin *Thin
	// Once marks the fetch URLs that were used.
	Once interface {
		// Use marks a name as used until a time. It fails with fault.Conflict if it is marked.
		Use(ctx context.Context, project, name string, until time.Time) error
		// Used reports whether a name is marked.
		Used(ctx context.Context, project, name string) (bool, error)
		// Forget removes the mark.
		Forget(ctx context.Context, project, name string) error
	}
	Now    func() time.Time
	NewID  func() string
	Random io.Reader // for secrets
}

// The kinds of signing secrets.
const (
	KindHMAC    = "hmac"    // v1 signatures
	KindEd25519 = "ed25519" // v1a signatures
)

// NewSigner asks for a signing secret.
type NewSigner struct {
	Kind     string        // KindHMAC or KindEd25519; "" = as Value is, else KindHMAC
	Value    secret.String // "" = a new one is made
	NotAfter time.Time     // zero = no end
}

// signer returns the secret that was requested. id is its ID; field is its place in the caller's
// input.
func (s *Service) signer(n NewSigner, id, field string) (SigningSecret, error) {
	now := s.Now()
	out := SigningSecret{ID: id, Value: n.Value, CreatedMS: now.UnixMilli(), NotAfter: n.NotAfter}
	at := func(name string) string { return strings.TrimPrefix(field+"."+name, ".") }
	if n.Kind == "" {
		n.Kind = KindHMAC
		if Asymmetric(n.Value) {
			n.Kind = KindEd25519
		}
	}
	var err error
	switch {
	case n.Kind != KindHMAC && n.Kind != KindEd25519:
		return out, fault.At(fault.Invalid, at("kind"), "must be %s or %s", KindHMAC, KindEd25519)
	case !n.NotAfter.IsZero() && !n.NotAfter.After(now):
		return out, fault.At(fault.Invalid, at("expires_at"), "must be in the future")
	case n.Value != "" && Asymmetric(n.Value) != (n.Kind == KindEd25519):
		return out, fault.At(fault.Invalid, at("kind"), "is %s, but the secret is of the other kind", n.Kind)
	case n.Value != "":
		_, err = ParseKey(n.Value.Reveal())
		if err != nil {
			err = within(at("secret"), err)
		}
	case n.Kind == KindEd25519:
		out.Value, err = NewKey(s.Random)
	default:
		out.Value, err = newSecret(s.Random)
	}
	return out, err
}

// Create stores a new endpoint of e.Project with these signers, or one of KindHMAC if there are
// none. A key makes the call idempotent: if the endpoint was created with the same key and request,
// nothing is stored and again is true. It fails with fault.Invalid or fault.Missing for bad input,
// with fault.Conflict if the key was used for another request, and with fault.Quota if the project
// has MaxEndpoints.
func (s *Service) Create(ctx context.Context, e Endpoint, signers []NewSigner, key string, request []byte) (_ Endpoint, again bool, err error) {
	e.ID = "ep_" + s.NewID()
	if key != "" {
		// The ID is derived from the key, so that a repeated call finds the first result, and two
		// concurrent calls create one endpoint.
		e.ID = "ep_" + digest(16, e.Project, key)
		if e.MadeOf, err = s.madeOf(ctx, request); err != nil {
			return Endpoint{}, false, err
		}
		if old, err := s.made(ctx, e); !fault.Is(err, fault.NotFound) {
			return old, err == nil, err
		}
	}
	if len(signers) == 0 {
		signers = []NewSigner{{}}
	}
	for i, n := range signers {
		secret, err := s.signer(n, "sec_"+s.NewID(), fmt.Sprintf("secrets[%d]", i))
		if err != nil {
			return Endpoint{}, false, err
		}
		e.Secrets = append(e.Secrets, secret)
	}
	if err := s.check(&e); err != nil {
		return Endpoint{}, false, err
	}
	now := s.Now()
	if len(e.live(now)) == 0 {
		return Endpoint{}, false, fault.At(fault.Invalid, "secrets", "must have at least one that signs")
	}
	if err := e.checkAgora(now); err != nil {
		return Endpoint{}, false, err
	}
	e.CreatedMS, e.UpdatedMS, e.Rev = now.UnixMilli(), now.UnixMilli(), 1
	s.note(Endpoint{}, &e)
	if err := CreateEndpoint(ctx, s.Store, e, MaxEndpoints); err != nil {
		if key != "" && fault.Is(err, fault.Conflict) { // the same call at the same time
			old, err := s.made(ctx, e)
			return old, err == nil, err
		}
		return Endpoint{}, false, err
	}
	return e, false, nil
}

// made returns the endpoint of an earlier call with the same key, or fault.NotFound.
func (s *Service) made(ctx context.Context, e Endpoint) (Endpoint, error) {
	old, err := FindEndpoint(ctx, s.Store, e.Project, e.ID)
	if err == nil && old.MadeOf != e.MadeOf {
		return Endpoint{}, fault.At(fault.Conflict, "Idempotency-Key", "was used for an endpoint with another body")
	}
	return old, err
}

// madeOf returns a keyed hash of a request, which may hold secrets. Without the store's own key it
// reveals nothing.
func (s *Service) madeOf(ctx context.Context, request []byte) (string, error) {
	key, err := s.Store.ServerKey(ctx, "webhook idempotency")
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(request)
	return hex.EncodeToString(mac.Sum(nil)[:16]), nil
}

// check is Validate and what only the server knows.
func (s *Service) check(e *Endpoint) error {
	if err := e.Validate(); err != nil {
		return err
	}
	if err := s.CheckURL(e.URL); err != nil {
		return fault.At(fault.Invalid, "url", "%s", shown(err))
	}
	if e.Payload == PayloadThin && s.Thin == nil {
		return fault.At(fault.Invalid, "payload", "thin requires HEARDLOG_PUBLIC_URL, because thin events contain a URL of this server")
	}
	return nil
}

// disabledByHand is the reason of an endpoint that a caller has disabled.
const disabledByHand = "disabled through the API"

// note keeps when and why an endpoint was disabled.
func (s *Service) note(old Endpoint, next *Endpoint) {
	if next.Disabled && !old.Disabled {
		next.DisabledWhy, next.DisabledMS = disabledByHand, s.Now().UnixMilli()
	}
}

// fixed is the refusal to change what the settings say.
func fixed() error {
	return fault.New(fault.Conflict, "the endpoint comes from the server's settings (HEARDLOG_WEBHOOK_URL): change it there; the API can only enable, disable and test it")
}

// Update stores the endpoint as edit changes it. rev, if not 0, is the revision that the caller has
// seen. It fails with fault.NotFound, with fault.Conflict for another revision or an endpoint from
// the settings, with the error of edit, and with fault.Invalid.
func (s *Service) Update(ctx context.Context, project, id string, rev int64, edit func(*Endpoint) error) (Endpoint, error) {
	return UpdateEndpoint(ctx, s.Store, project, id, rev, func(old Endpoint) (Endpoint, error) {
		if old.Fixed {
			return Endpoint{}, fixed()
		}
		next := old.Clone()
		if err := edit(&next); err != nil {
			return Endpoint{}, err
		}
		if err := s.check(&next); err != nil {
			return Endpoint{}, err
		}
		// One whose secret has run out meanwhile may still be changed in other ways.
		if err := next.checkAgora(s.Now()); err != nil && old.checkAgora(s.Now()) == nil {
			return Endpoint{}, err
		}
		s.note(old, &next)
		next.UpdatedMS = s.Now().UnixMilli()
		return next, nil
	})
}

// Switch enables or disables an endpoint. Pending deliveries of a disabled endpoint stay, and go
// out when it is enabled; its earlier failures then no longer count. It fails with fault.NotFound.
func (s *Service) Switch(ctx context.Context, project, id string, enable bool) (Endpoint, error) {
	return UpdateEndpoint(ctx, s.Store, project, id, 0, func(old Endpoint) (Endpoint, error) {
		next := old.Clone()
		next.Disabled = !enable
		s.note(old, &next)
		next.UpdatedMS = s.Now().UnixMilli()
		return next, nil
	})
}

// Delete removes an endpoint; its pending deliveries become dead. It fails with fault.NotFound, and
// with fault.Conflict for an endpoint from the settings.
func (s *Service) Delete(ctx context.Context, project, id string) error {
	e, err := FindEndpoint(ctx, s.Store, project, id)
	if err != nil {
		return err
	}
	if e.Fixed {
		return fixed()
	}
	return s.Store.DeleteEndpoint(ctx, project, id)
}

// DeleteAll removes the project's endpoints that were created up to a time, Unix ms, except those
// from the settings, and returns how many it removed.
func (s *Service) DeleteAll(ctx context.Context, project string, untilMS int64) (n int, err error) {
	list, err := s.Store.Endpoints(ctx, project, "")
	for _, e := range list {
		if e.Fixed || e.Project != project || e.CreatedMS > untilMS {
			continue
		}
		err := s.Store.DeleteEndpoint(ctx, project, e.ID)
		if fault.Is(err, fault.NotFound) { // deleted by a concurrent call
			continue
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, err
}

// Rotate adds a new signing secret to the endpoint and returns both; the old secrets of its kind
// keep signing for the overlap. A key makes the call idempotent while that secret lives: nothing
// changes and again is true. It fails with fault.Conflict if the key was used for another secret.
func (s *Service) Rotate(ctx context.Context, project, id string, n NewSigner, overlap time.Duration, key string) (e Endpoint, fresh SigningSecret, again bool, err error) {
	secretID := "sec_" + s.NewID()
	if key != "" {
		secretID = "sec_" + digest(16, project, id, key)
	}
	fresh, err = s.signer(n, secretID, "") // before the decision, which may run twice
	if err != nil {
		return Endpoint{}, SigningSecret{}, false, err
	}
	e, err = UpdateEndpoint(ctx, s.Store, project, id, 0, func(old Endpoint) (Endpoint, error) {
		again = slices.ContainsFunc(old.Secrets, func(x SigningSecret) bool { return x.ID == secretID })
		if again {
			return Endpoint{}, errRepeated
		}
		if old.Fixed {
			return Endpoint{}, fixed()
		}
		next, err := old.Rotate(fresh, overlap, s.Now())
		next.UpdatedMS = s.Now().UnixMilli()
		return next, err
	})
	if !again {
		return e, fresh, false, err
	}
	if e, err = FindEndpoint(ctx, s.Store, project, id); err != nil {
		return Endpoint{}, SigningSecret{}, true, err
	}
	at := slices.IndexFunc(e.Secrets, func(x SigningSecret) bool { return x.ID == secretID })
	if at < 0 {
		return Endpoint{}, SigningSecret{}, true, fault.New(fault.NotFound, "the secret of this Idempotency-Key has just ended")
	}
	made := e.Secrets[at]
	if Asymmetric(made.Value) != Asymmetric(fresh.Value) || n.Value != "" && n.Value != made.Value {
		return Endpoint{}, SigningSecret{}, true, fault.At(fault.Conflict, "Idempotency-Key", "was used for another secret")
	}
	return e, made, true, nil
}

// errRepeated leaves an endpoint as it is.
var errRepeated = fault.New(fault.Conflict, "the secret exists already")

// Revoke ends a secret at once. It fails with fault.NotFound, and with fault.Conflict for the last
// secret that signs.
func (s *Service) Revoke(ctx context.Context, project, id, secretID string) (Endpoint, error) {
	return s.Update(ctx, project, id, 0, func(e *Endpoint) error {
		next, err := e.Revoke(secretID, s.Now())
		if err != nil {
			return err
		}
		if next.checkAgora(s.Now()) != nil && e.checkAgora(s.Now()) == nil {
			return fault.New(fault.Conflict, "this is the last secret of kind %s, which agora_signatures require; set agora_signatures to false first, or add a new secret", KindHMAC)
		}
		*e = next
		return nil
	})
}

// Test sends a webhook.test event to the endpoint, through the same worker and sender as every
// other event. A key makes the call idempotent. It fails with fault.NotFound, and with
// fault.Conflict for a disabled endpoint.
func (s *Service) Test(ctx context.Context, project, id, key string) (Record, error) {
	e, err := FindEndpoint(ctx, s.Store, project, id)
	if err != nil {
		return Record{}, err
	}
	m := Event{ID: s.NewID(), Type: event.Test, Project: project, CreatedMS: s.Now().UnixMilli()}
	if key != "" {
		m.ID = digest(24, "test", project, id, key)
	}
	m.ID += fmt.Sprintf(":%d", event.Test)
	m.Body, err = Encode(Notice{SID: e.ID, ID: m.ID, AtMS: m.CreatedMS, Payload: Test{EndpointID: e.ID, Message: "This is a test; nothing has happened."}})
	if err != nil {
		return Record{}, err
	}
	m.Size = len(m.Body)
	r, err := s.Store.Send(ctx, m, id)
	if err == nil || key == "" || !fault.Is(err, fault.Conflict) {
		return r, err
	}
	// Created by the first call.
	if first, ok := s.tested(ctx, DeliveryQuery{Project: project, Endpoint: id, EventID: m.ID, Limit: MaxPage}); ok {
		return first, nil
	}
	return r, err
}

// tested returns the delivery that a test created, not one of its replays.
func (s *Service) tested(ctx context.Context, q DeliveryQuery) (Record, bool) {
	for {
		page, err := s.Store.Deliveries(ctx, q)
		if err != nil {
			return Record{}, false
		}
		for _, d := range page.Deliveries {
			if d.ReplayOf == 0 {
				return d, true
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return Record{}, false
		}
	}
}

// Replay sends the event of a delivery again, whatever the delivery's state: on every call, or once
// for all calls with the same key.
func (s *Service) Replay(ctx context.Context, project string, id int64, key string) (Record, error) {
	return s.Store.Replay(ctx, project, id, s.Now().UnixMilli(), keyName(key))
}

// ReplayAll does the same for many deliveries. It continues if its caller leaves, so that it is not
// half done.
func (s *Service) ReplayAll(ctx context.Context, r Replay, key string) (Replayed, error) {
	r.NowMS, r.Name = s.Now().UnixMilli(), keyName(key)
	if r.DryRun {
		r.Name = ""
		return s.Store.ReplayAll(ctx, r)
	}
	return s.Store.ReplayAll(context.WithoutCancel(ctx), r)
}

// keyName returns the name under which a replay's key is stored.
func keyName(key string) string {
	if key == "" {
		return ""
	}
	return digest(16, "replay", key)
}

// Fetch returns the full body behind a thin event and, if use is set, marks its URL as used. unused
// removes the mark if the body could not be sent. Fetch fails like Thin.Open, with fault.NotFound
// if the endpoint is deleted or the retention of the event is over, and with fault.Stopped if the
// URL was used before. While a delivery of the event to the endpoint is pending, the URL may be
// used again: the receiver may not have got or processed the body.
func (s *Service) Fetch(ctx context.Context, token string, use bool) (body []byte, unused func(context.Context) error, err error) {
	if s.Thin == nil {
		return nil, nil, fault.New(fault.NotFound, "this server has no fetch URLs, because HEARDLOG_PUBLIC_URL is not set")
	}
	eventID, endpointID, ends, err := s.Thin.Open(token, s.Now())
	if err != nil {
		return nil, nil, err
	}
	e, err := FindEndpoint(ctx, s.Store, "", endpointID)
	if err != nil {
		return nil, nil, err
	}
	m, err := s.Store.Event(ctx, e.Project, eventID)
	if err != nil {
		return nil, nil, err
	}
	mark := digest(16, "fetch", token)
	unused = func(context.Context) error { return nil }
	used := false
	if use {
		unused = func(ctx context.Context) error { return s.Once.Forget(ctx, e.Project, mark) }
		err = s.Once.Use(ctx, e.Project, mark, ends)
		if used = fault.Is(err, fault.Conflict); used {
			err = nil
		}
	} else {
		used, err = s.Once.Used(ctx, e.Project, mark)
	}
	if err != nil || !used {
		return m.Body, unused, err
	}
	page, err := s.Store.Deliveries(ctx, DeliveryQuery{Project: e.Project, Endpoint: endpointID, EventID: eventID, States: []DeliveryState{Pending}, Limit: 1})
	if err != nil {
		return nil, nil, err
	}
	if len(page.Deliveries) == 0 && page.Next == "" { // a next page may hold one
		return nil, nil, fault.New(fault.Stopped, "the fetch URL was used already, and its delivery has ended; replay the delivery to get a fresh one")
	}
	return m.Body, unused, nil
}

// digest returns n bytes of a hash over the parts, in hex. Different lists of parts have different
// inputs.
func digest(n int, parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:n])
}
