package handlers

import (
	"crypto/sha256"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/longterm/caller"
	"github.com/heardlog/heardlog/memory/ingest"
	"github.com/heardlog/heardlog/webhook"
)

// maxNotice is the maximum length of a notification in bytes, even if HEARDLOG_MAX_BODY is less:
// event 103 holds a whole conversation, and Agora gives up after three retries.
const maxNotice = 8 << 20

// maxUnverified bounds the bodies, in bytes, that are read at once before their signatures can be
// checked, so that a client without a secret cannot fill the memory. More are refused with 503, and
// Agora sends them again.
const maxUnverified = 64 << 20

// What happened to a notification: values of a metric's label.
const (
	noticeFiled   = "filed"
	noticeKnown   = "known"
	noticeIgnored = "ignored"
	noticeCheck   = "check"
	noticeRefused = "refused"
)

// noticeAPI takes what platforms say of agents that run there: Agora's notifications, and reports
// of calls that are over.
type noticeAPI struct {
	bodies
	archive        ingest.Service
	callers        *caller.Service
	secrets        map[string][]secret.String // by project; of platforms by project/platform
	publicURL      string                     // "" = not known
	now            func() time.Time
	defaultProject string
	log            zerolog.Logger
	events         *prometheus.CounterVec // by type and result
	leftOut        prometheus.Counter
	unverified     atomic.Int64 // bytes that are being read and not verified yet
}

// noticeAnswer is the answer that Agora documents for receivers.
type noticeAnswer struct {
	Code int    `json:"code"` // 0
	Msg  string `json:"msg"`
}

// receive files one notification. A signature takes the place of credentials, because Agora's
// console accepts only a URL. A notification that can never be filed is answered with 200: Agora
// would send it three times more.
func (a *noticeAPI) receive(w http.ResponseWriter, r *http.Request) error {
	body, err := a.verified(w, r)
	if err != nil {
		a.events.WithLabelValues("none", noticeRefused).Inc()
		return err
	}
	if depth := jsonDepth(body); depth > MaxDepth {
		return a.logRefused(r, ingest.Notification{}, body, fault.New(fault.BadRequest, "the JSON nests deeper than %d levels", MaxDepth))
	}
	in, err := ingest.DecodeAgora(body)
	if err != nil {
		return a.logRefused(r, in, body, err)
	}
	kind := "other"
	if in.Filed() {
		kind = strconv.Itoa(int(in.Type))
	}
	done := func(result, msg string) error {
		a.events.WithLabelValues(kind, result).Inc()
		return encode(w, http.StatusOK, noticeAnswer{Msg: msg})
	}
	switch {
	case in.HealthCheck():
		return done(noticeCheck, "success")
	case !in.Filed():
		return done(noticeIgnored, "ignored: not a notification about an agent's conversation")
	}
	notice, omitted, err := in.Notice()
	if err != nil {
		return a.logRefused(r, in, body, err)
	}
	infoOf(r).agent = notice.AgentID
	changed, err := a.archive.File(r.Context(), projectOf(r), notice)
	switch {
	case fault.Is(err, fault.Stopped):
		return done(noticeIgnored, "ignored: "+err.Error())
	case err != nil:
		return err
	case !changed:
		return done(noticeKnown, "success, known already")
	case omitted.N == 0:
		return done(noticeFiled, "success")
	}
	a.leftOut.Add(float64(omitted.N))
	infoOf(r).note = "left out of the notification: " + omitted.String()
	return done(noticeFiled, "success; left out: "+omitted.String())
}

// logRefused logs a signed notification that is refused, because Agora does not repeat it after
// three retries. It logs a hash instead of the content; two lines with the same hash are about the
// same body.
func (a *noticeAPI) logRefused(r *http.Request, in ingest.Notification, body []byte, err error) error {
	sum := sha256.Sum256(body)
	a.log.Warn().Str("request_id", infoOf(r).id).Str("project", infoOf(r).project).Str("notice", text.Clip(string(in.ID), 256)).Int("type", int(in.Type)).
		Int("bytes", len(body)).Hex("sha256", sum[:]).Str("error", text.Clip(causeOf(err), 1024)).Msg("a notification of Agora's cannot be filed")
	return err
}

// verified reads the body of a notification and checks that a secret of the project signed it.
func (a *noticeAPI) verified(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	project, secrets := a.secretsFor(r, "")
	if len(secrets) == 0 {
		return nil, fault.New(fault.NotFound, "notifications are not accepted, because HEARDLOG_INGEST_SECRETS is not set")
	}
	wrong := fault.New(fault.Unauthenticated, "%s does not match the body and a secret of the project", webhook.HeaderAgoraV2)
	if len(r.Header.Get(webhook.HeaderAgoraV2)) != 64 { // hex of SHA-256
		return nil, wrong
	}
	return a.readVerified(w, r, project, secrets[project], wrong, func(s secret.String, body []byte) bool {
		return webhook.VerifyAgora(s, r.Header, body) == nil
	})
}

// secretsFor returns the project of a webhook, and the secrets for a platform ("" for Agora) by
// project. The only project that has some need not be named.
func (a *noticeAPI) secretsFor(r *http.Request, platform string) (project string, secrets map[string][]secret.String) {
	secrets = map[string][]secret.String{}
	for key, list := range a.secrets {
		if owner, name, _ := strings.Cut(key, "/"); name == platform {
			secrets[owner] = list
		}
	}
	project = a.defaultProject
	if names := r.URL.Query()["project"]; len(names) > 0 {
		project = names[0]
	} else if len(secrets) == 1 {
		for project = range secrets {
		}
	}
	return project, secrets
}

// readVerified reads a body that one of the secrets has signed, and notes the project. It returns
// wrong for others, and reads nothing without secrets.
func (a *noticeAPI) readVerified(w http.ResponseWriter, r *http.Request, project string, secrets []secret.String, wrong error, fits func(secret.String, []byte) bool) ([]byte, error) {
	if len(secrets) == 0 {
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
	valid := false
	for _, s := range secrets { // all of them, so that the time does not show which one fits
		valid = fits(s, body) || valid
	}
	if !valid {
		return nil, wrong
	}
	infoOf(r).project = project
	return body, nil
}
