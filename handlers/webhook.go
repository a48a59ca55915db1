package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory/input"
	"github.com/heardlog/heardlog/webhook"
)

// webhookAPI serves webhook endpoints, and what was and will be sent to them.
type webhookAPI struct {
	bodies
	webhooks *webhook.Service
	now      func() time.Time
}

// eventTypes lists the event types with their schemas.
func (a webhookAPI) eventTypes(w http.ResponseWriter, _ *http.Request) error {
	list, err := webhook.Catalogue()
	if err != nil {
		return err
	}
	return encode(w, http.StatusOK, map[string]any{"event_types": list})
}

// fetch answers with the full body of an event, found by the token of a thin one. The token is the
// permission, so receivers need no credentials.
func (a webhookAPI) fetch(w http.ResponseWriter, r *http.Request) error {
	body, unused, err := a.webhooks.Fetch(r.Context(), chi.URLParam(r, "token"), r.Method != http.MethodHead)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "private, no-store")
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if err := errors.Join(writeBody(w, body), http.NewResponseController(w).Flush()); err != nil {
		infoOf(r).err = errors.Join(err, unused(context.WithoutCancel(r.Context())))
	}
	return nil
}

// members reads a JSON object without decoding its members, so that absent and null differ.
func members(body []byte) (map[string]json.RawMessage, error) {
	var obj map[string]json.RawMessage
	if err := json.Unmarshal(body, &obj); err != nil {
		return nil, input.Error(err)
	}
	if obj == nil {
		return nil, fault.New(fault.BadRequest, "the body must be a JSON object, not null")
	}
	return obj, nil
}

// member decodes one member strictly; null is the zero value. Errors start with its name.
func member[T any](name string, raw json.RawMessage) (v T, err error) {
	if string(raw) == "null" {
		return v, nil
	}
	if strays := straysOf(raw, reflect.TypeFor[T](), name); len(strays) > 0 {
		return v, strays[0].err()
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		// The member itself or an entry of it.
		if typ, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && typ.Field == "" {
			return v, fault.At(fault.Invalid, name, "must be or hold %s, not a JSON %s", input.TypeName(typ.Type), input.ValueName(typ.Value))
		}
		return v, inMember(name, input.Error(err))
	}
	return v, nil
}

// entries decodes a list of at most limit entries strictly; null is none. Errors start with the
// entry's index.
func entries[T any](name string, raw json.RawMessage, most int) ([]T, error) {
	list, err := member[[]json.RawMessage](name, raw)
	if err != nil {
		return nil, err
	}
	if len(list) > most {
		return nil, fault.At(fault.Invalid, name, "has %d entries; at most %d are allowed", len(list), most)
	}
	if list == nil {
		return nil, nil
	}
	out := make([]T, 0, len(list))
	for i, r := range list {
		v, err := member[T](fmt.Sprintf("%s[%d]", name, i), r)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// inMember adds a member's name to an error about a part of it.
func inMember(name string, err error) error {
	text := err.Error()
	if field, rest, ok := strings.Cut(text, ": "); ok && !strings.Contains(field, " ") {
		return fault.At(fault.CodeOf(err), name+"."+field, "%s", rest)
	}
	text = strings.Replace(text, "the body is a JSON", "is a JSON", 1)
	return fault.At(fault.Invalid, name, "%s", text)
}

// defaultWebhookPage is the default page size.
const defaultWebhookPage = 50

// typesOf returns the numbers of the event types that match the patterns of a filter.
func typesOf(field string, patterns []string) ([]int, error) {
	if len(patterns) == 0 {
		return nil, nil
	}
	if err := webhook.CheckFilter(field, patterns); err != nil {
		return nil, err
	}
	var out []int
	for _, t := range event.Types() {
		if webhook.Matches(patterns, t.Number) {
			out = append(out, t.Number)
		}
	}
	return out, nil
}

// statesOf reads the names of delivery states.
func statesOf(field string, names []string) ([]webhook.DeliveryState, error) {
	var out []webhook.DeliveryState
	for _, n := range names {
		switch s := webhook.DeliveryState(n); s {
		case webhook.Pending, webhook.Delivered, webhook.Dead, webhook.Canceled:
			out = append(out, s)
		default:
			return nil, fault.At(fault.Invalid, field, "must be one of pending, delivered, dead, canceled, not %s", strconv.Quote(text.Clip(n, 40)))
		}
	}
	return out, nil
}
