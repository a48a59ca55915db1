package ingest

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory/input"
)

// agoraProduct is the productId of notifications about conversational agents.
const agoraProduct = 17

// healthCheckChannel is the channel that the health check of Agora's console names.
const healthCheckChannel = "test_webhook"

// Limits of a notification's parts, in bytes or entries.
const (
	maxID      = 256
	maxName    = 1024
	maxRows    = 10_000
	maxMessage = 1024 // of an error
)

// Notification is one of Agora's webhook notifications, with its payload not decoded yet. Fields
// that it does not know are ignored.
type Notification struct {
	ID      textOrNumber    `json:"noticeId"`
	Product numberOrText    `json:"productId"`
	Type    numberOrText    `json:"eventType"`
	SentMS  wholeNumber     `json:"notifyMs"`
	Payload json.RawMessage `json:"payload"` // of another product it may be anything
}

// DecodeAgora reads a notification's envelope. If it fails, the Notification has what could be
// read.
func DecodeAgora(body []byte) (Notification, error) {
	var n Notification
	err := json.Unmarshal(body, &n)
	if typ, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && typ.Field != "" {
		return n, fault.At(fault.Invalid, typ.Field, "must be %s, not a JSON %s", input.TypeName(typ.Type), input.ValueName(typ.Value))
	}
	if err != nil {
		return n, input.Error(err)
	}
	return n, nil
}

// HealthCheck reports whether the notification is the health check of Agora's console, whose
// payload is about no agent.
func (n *Notification) HealthCheck() bool {
	var p struct {
		Channel string `json:"channelName"`
		AgentID string `json:"agent_id"`
	}
	return json.Unmarshal(n.Payload, &p) == nil && p.Channel == healthCheckChannel && p.AgentID == ""
}

// Filed reports whether notifications of this product and type are filed.
func (n *Notification) Filed() bool {
	if n.Product != agoraProduct {
		return false
	}
	switch n.Type {
	case event.Joined, event.Left, event.History, event.Expiring, event.Error, event.Metrics, event.Turns:
		return true
	}
	return false
}

// payload is what the payloads of all types may hold. Only AgentID must be valid.
type payload struct {
	AgentID  textOrNumber        `json:"agent_id"`
	Name     looseText           `json:"name"`
	Channel  looseText           `json:"channel"`
	Labels   looseObject         `json:"labels"`
	StartTS  wholeNumber         `json:"start_ts"`
	StopTS   wholeNumber         `json:"stop_ts"`
	Status   looseText           `json:"status"`
	Message  looseText           `json:"message"`
	Contents looseList[message]  `json:"contents"`
	Errors   looseList[agentErr] `json:"errors"`
	Metrics  looseList[metrics]  `json:"metrics"`
	Turns    looseList[turn]     `json:"turns"`
}

// Notice decodes the payload. A notification is sent four times at most, so it is filed as far as
// it can be read; Omitted holds what was left out. Notice fails only if it is not clear which agent
// and notification it is.
func (n *Notification) Notice() (Notice, Omitted, error) {
	var p payload
	var o Omitted
	if len(n.Payload) > 0 {
		if err := json.Unmarshal(n.Payload, &p); err != nil {
			if typ, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
				typ.Field = strings.TrimSuffix("payload."+typ.Field, ".")
			}
			return Notice{}, o, input.Error(err)
		}
	}
	out := Notice{AgentID: string(p.AgentID)}
	switch {
	case n.ID == "":
		return out, o, fault.At(fault.Missing, "noticeId", "is required")
	case len(n.ID) > maxID:
		return out, o, fault.At(fault.Invalid, "noticeId", "is %d bytes long; at most %d are allowed", len(n.ID), maxID)
	case p.AgentID == "":
		return out, o, fault.At(fault.Missing, "payload.agent_id", "is required")
	case !input.AgentID(out.AgentID):
		return out, o, fault.At(fault.Invalid, "payload.agent_id", "may hold letters, digits, dot, dash and underscore, at most 128")
	}
	var err error
	if out.ID, err = text.Clean("noticeId", strings.ReplaceAll(string(n.ID), "\x00", "\uFFFD"), maxID); err != nil {
		return out, o, err
	}
	out.Name = p.Name.text("payload.name", maxName, &o)
	out.Channel = p.Channel.text("payload.channel", maxName, &o)
	out.Labels = labels(p.Labels, &o)
	out.StartMS = p.StartTS.time("payload.start_ts", &o)
	out.StopMS = p.StopTS.time("payload.stop_ts", &o)
	out.ToldMS = n.SentMS.time("notifyMs", &o)
	switch n.Type {
	case event.Left:
		out.Left = p.left(&o)
	case event.History:
		out.History = history(p.Contents, &o)
	case event.Error:
		out.Errors = agentErrors(p.Errors, &o)
	case event.Metrics:
		out.Turns = metricRows(p.Metrics, &o)
	case event.Turns:
		out.Turns = turnRows(p.Turns, &o)
	}
	return out, o, nil
}
