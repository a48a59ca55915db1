package handlers

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory/archive"
	"github.com/heardlog/heardlog/webhook"
)

// maxNotice is how long a notification may be, in bytes, also where HEARDLOG_MAX_BODY allows less: a 103 holds a whole conversation, and Agora gives up
// after three retries.
const maxNotice = 8 << 20

// agoraProduct is the productId of notifications about conversational agents (reference/agora-api.md 5.1).
const agoraProduct = 17

// What became of a notification; the values of a metric's label.
const (
	ingestFiled   = "filed"
	ingestKnown   = "known"
	ingestIgnored = "ignored"
	ingestCheck   = "check"
	ingestRefused = "refused"
)

// noticeAPI takes Agora's notifications about agents that run there.
type noticeAPI struct {
	bodies
	archive        archive.Service
	secrets        map[string][]secret.String // by project
	defaultProject string
	log            zerolog.Logger
	events         *prometheus.CounterVec // by type and result
	leftOut        prometheus.Counter
	unverified     atomic.Int64 // bytes of bodies that are being read, whose sender is not known yet
}

// ingestAnswer is what Agora's senders want to see (reference/agora-api.md 5.2).
type ingestAnswer struct {
	Code int    `json:"code"` // 0
	Msg  string `json:"msg"`
}

// ingestAgora takes one notification of Agora's. Who sends it is told by the signature, not by credentials: Agora's console takes a URL and nothing else.
func (a *noticeAPI) receive(w http.ResponseWriter, r *http.Request) error {
	body, err := a.verified(w, r)
	if err != nil {
		a.events.WithLabelValues("none", ingestRefused).Inc()
		return err
	}
	if depth := jsonDepth(body); depth > MaxDepth {
		return a.logRefused(r, noticeRequest{}, body, fault.New(fault.BadRequest, "the JSON nests deeper than %d levels", MaxDepth))
	}
	var in noticeRequest
	if err := json.Unmarshal(body, &in); err != nil {
		if typ, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && typ.Field != "" { // names that jsonFault would take for Go's
			err = fault.At(fault.Invalid, typ.Field, "is a JSON %s, which is not allowed here; %s is wanted", typ.Value, jsonName(typ.Type))
		}
		return a.logRefused(r, in, body, jsonFault(err))
	}
	kind := "other"
	if in.filed() {
		kind = strconv.Itoa(int(in.EventType))
	}
	done := func(result, msg string) error {
		a.events.WithLabelValues(kind, result).Inc()
		return encode(w, http.StatusOK, ingestAnswer{Msg: msg})
	}
	switch {
	case in.check():
		return done(ingestCheck, "success")
	case !in.filed(): // refused, it would come again, three times
		return done(ingestIgnored, "ignored: not a notification about an agent's conversation")
	}
	var left omitted
	n, err := in.notice(&left)
	if err != nil {
		return a.logRefused(r, in, body, err)
	}
	infoOf(r).agent = n.AgentID
	changed, err := a.archive.File(r.Context(), projectOf(r), n)
	switch {
	case fault.Is(err, fault.Stopped): // refused, it would come again
		return done(ingestIgnored, "ignored: "+err.Error())
	case err != nil:
		return err
	case !changed:
		return done(ingestKnown, "success, known already")
	}
	if left.n > 0 {
		a.leftOut.Add(float64(left.n))
		infoOf(r).note = "left out of the notification: " + left.String()
		return done(ingestFiled, "success; left out: "+left.String())
	}
	return done(ingestFiled, "success")
}

// lostNotice writes a line of its own about a notification that is refused though its signature is right: Agora sends it three times more, and then nobody does. What
// was said is not in it, and the hash tells whether two lines are of one body.
func (a *noticeAPI) logRefused(r *http.Request, in noticeRequest, body []byte, err error) error {
	sum := sha256.Sum256(body)
	a.log.Warn().Str("request_id", infoOf(r).id).Str("project", infoOf(r).project).Str("notice", clip(string(in.NoticeID), maxNoticeID)).Int("type", int(in.EventType)).
		Int("bytes", len(body)).Hex("sha256", sum[:]).Str("error", clip(causeOf(err), 1024)).Msg("a notification of Agora's cannot be filed")
	return err
}

// verifiedNotice reads the body and checks that a secret of the project signed it. Nothing is read for a caller who could not be right.
func (a *noticeAPI) verified(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if len(a.secrets) == 0 {
		return nil, fault.New(fault.NotFound, "no secret is configured, so that nothing is taken here; see HEARDLOG_INGEST_SECRETS")
	}
	project := a.defaultProject
	if names := r.URL.Query()["project"]; len(names) > 0 {
		project = names[0]
	} else if len(a.secrets) == 1 {
		for only := range a.secrets {
			project = only
		}
	}
	wrong := fault.New(fault.Unauthenticated, "%s does not fit the body and a secret of the project", webhook.HeaderAgoraV2)
	secrets := a.secrets[project]
	if len(secrets) == 0 || len(r.Header.Get(webhook.HeaderAgoraV2)) != 64 { // hex of SHA-256
		return nil, wrong
	}
	limit := max(a.limit, maxNotice)
	size := min(r.ContentLength, limit)
	if size < 0 {
		size = limit
	}
	defer a.unverified.Add(-size)
	if a.unverified.Add(size) > maxUnverified {
		return nil, fault.New(fault.Unavailable, "too many notifications are being read; send it again")
	}
	body, err := a.readRawUpTo(w, r, limit)
	if err != nil {
		return nil, err
	}
	fits := false
	for _, s := range secrets { // all of them, so that the time does not tell which
		fits = webhook.VerifyAgora(s, r.Header, body) == nil || fits
	}
	if !fits {
		return nil, wrong
	}
	infoOf(r).project = project
	return body, nil
}

// maxUnverified bounds the bodies, in bytes, that are read at once before their signatures can be checked: whoever has no secret must not fill the memory.
// What comes beyond is refused with 503, and Agora sends it again.
const maxUnverified = 64 << 20

// checkChannel is the channel that the console's health check names.
const checkChannel = "test_webhook"

// noticeRequest is a notification (reference/agora-api.md 5.1 and 5.5). What is not known of it is passed over.
type noticeRequest struct {
	NoticeID  textOrNumber    `json:"noticeId"`
	ProductID numberOrText    `json:"productId"`
	EventType numberOrText    `json:"eventType"`
	NotifyMS  wholeNumber     `json:"notifyMs"`
	Payload   json.RawMessage `json:"payload"` // of another product it may be anything
}

// noticePayload is what payloads of all types have together. Only AgentID has to be right.
type noticePayload struct {
	AgentID  textOrNumber             `json:"agent_id"`
	Name     looseText                `json:"name"`
	Channel  looseText                `json:"channel"`
	Labels   looseObject              `json:"labels"`
	StartTS  wholeNumber              `json:"start_ts"`
	StopTS   wholeNumber              `json:"stop_ts"`
	Status   looseText                `json:"status"`
	Message  looseText                `json:"message"`
	Contents looseList[noticeMessage] `json:"contents"`
	Errors   looseList[noticeError]   `json:"errors"`
	Metrics  looseList[noticeMetrics] `json:"metrics"`
	Turns    looseList[noticeTurn]    `json:"turns"`
}

// check tells whether this is the console's health check, whose payload is none of an agent (reference/agora-api.md 5.2).
func (in *noticeRequest) check() bool {
	var p struct {
		ChannelName string `json:"channelName"`
		AgentID     string `json:"agent_id"`
	}
	return json.Unmarshal(in.Payload, &p) == nil && p.ChannelName == checkChannel && p.AgentID == ""
}

// filed tells whether the notification is one that is filed.
func (in *noticeRequest) filed() bool {
	if in.ProductID != agoraProduct {
		return false
	}
	switch in.EventType {
	case event.Joined, event.Left, event.History, event.Expiring, event.Error, event.Metrics, event.Turns:
		return true
	}
	return false
}

// Bounds of a notification's parts.
const (
	maxNoticeID    = 256
	maxNoticeName  = 1024
	maxNoticeRows  = 10_000
	maxNoticeError = 1024
)

// notice gives the notification in the domain's form; what of it could not be read is noted. It fails where it cannot be told whose it is.
func (in *noticeRequest) notice(o *omitted) (archive.Notice, error) {
	var p noticePayload
	if len(in.Payload) > 0 {
		if err := json.Unmarshal(in.Payload, &p); err != nil {
			if typ, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
				typ.Field = strings.TrimSuffix("payload."+typ.Field, ".")
			}
			return archive.Notice{}, jsonFault(err)
		}
	}
	n := archive.Notice{AgentID: string(p.AgentID)}
	switch {
	case in.NoticeID == "":
		return n, fault.At(fault.Missing, "noticeId", "is required")
	case len(in.NoticeID) > maxNoticeID:
		return n, fault.At(fault.Invalid, "noticeId", "is %d bytes long; at most %d are allowed", len(in.NoticeID), maxNoticeID)
	case p.AgentID == "":
		return n, fault.At(fault.Missing, "payload.agent_id", "is required")
	case !validID(n.AgentID):
		return n, fault.At(fault.Invalid, "payload.agent_id", "may hold letters, digits, dot, dash and underscore, at most 128")
	}
	var err error
	if n.ID, err = noticeText("noticeId", string(in.NoticeID), maxNoticeID); err != nil {
		return n, err
	}
	n.Name = p.Name.text("payload.name", maxNoticeName, o)
	n.Channel = p.Channel.text("payload.channel", maxNoticeName, o)
	n.Labels = noticeLabels(p.Labels, o)
	n.StartMS = p.StartTS.stampOr("payload.start_ts", o)
	n.StopMS = p.StopTS.stampOr("payload.stop_ts", o)
	n.ToldMS = in.NotifyMS.stampOr("notifyMs", o)
	switch in.EventType { // a payload has what belongs to its type
	case event.Left:
		n.Left = p.left(o)
	case event.History:
		n.History = historyOf(p.Contents, o)
	case event.Error:
		n.Errors = errorsOf(p.Errors, o)
	case event.Metrics:
		n.Turns = metricsOf(p.Metrics, o)
	case event.Turns:
		n.Turns = turnsOf(p.Turns, o)
	}
	return n, nil
}
