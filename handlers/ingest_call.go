package handlers

import (
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/hosted"
)

// filedJSON is the answer to the report of a call.
type filedJSON struct {
	Status  string `json:"status"` // filed, known or ignored
	AgentID string `json:"agent_id,omitempty"`
	Reason  string `json:"reason,omitempty"`   // of ignored
	LeftOut string `json:"left_out,omitempty"` // fields that could not be read
}

// call serves POST /v1/ingest/{platform}. A request with a signature of the platform needs no
// credentials, because platforms send nothing else.
func (a *noticeAPI) call(entered http.Handler) http.HandlerFunc {
	signed := public(acknowledges(a.signedCall))
	return func(w http.ResponseWriter, r *http.Request) {
		if hosted.Signed(chi.URLParam(r, "platform"), r.Header) {
			signed(w, r)
			return
		}
		entered.ServeHTTP(w, r)
	}
}

// signedCall files a call that a platform reports in a webhook.
func (a *noticeAPI) signedCall(w http.ResponseWriter, r *http.Request) error {
	name := chi.URLParam(r, "platform")
	project, secrets := a.secretsFor(r, name)
	wrong := fault.New(fault.Unauthenticated, "the signature does not match the body and a secret of the project for %s in HEARDLOG_INGEST_SECRETS", name)
	body, err := a.readVerified(w, r, project, secrets[project], wrong, func(s secret.String, body []byte) bool {
		return hosted.Verify(name, s.Reveal(), hosted.Request{Header: r.Header, Body: body, URLs: a.urlsOf(r), Now: a.now()})
	})
	if err != nil {
		a.events.WithLabelValues("none", noticeRefused).Inc()
		return err
	}
	return a.fileCall(w, r, name, body)
}

// enteredCall files a call that a client with credentials reports.
func (a *noticeAPI) enteredCall(w http.ResponseWriter, r *http.Request) error {
	name := chi.URLParam(r, "platform")
	if !hosted.Known(name) {
		_, _, err := hosted.Read(name, nil)
		return err
	}
	if p := r.URL.Query().Get("project"); p != "" && p != projectOf(r) {
		return fault.At(fault.Forbidden, "project", "is not the project of these credentials")
	}
	body, err := a.readRawUpTo(w, r, max(a.limit, maxNotice))
	if err != nil {
		return err
	}
	return a.fileCall(w, r, name, body)
}

func (a *noticeAPI) fileCall(w http.ResponseWriter, r *http.Request, name string, body []byte) error {
	done := func(result string, out filedJSON) error {
		a.events.WithLabelValues(name, result).Inc()
		if out.Status = result; name == "twilio" && hosted.IsForm(r.Header) {
			w.WriteHeader(http.StatusNoContent) // Twilio takes other bodies for instructions
			return nil
		}
		return encode(w, http.StatusOK, out)
	}
	if name == "twilio" && hosted.IsForm(r.Header) && len(body) > 0 && body[0] != '{' {
		var err error
		if body, err = formObject(body); err != nil {
			return err
		}
	}
	if depth := jsonDepth(body); depth > MaxDepth {
		return fault.New(fault.BadRequest, "the JSON nests deeper than %d levels", MaxDepth)
	}
	c, finished, err := hosted.Read(name, body)
	if err != nil {
		return err
	}
	if !finished {
		return done(noticeIgnored, filedJSON{Reason: "not about a call that is over"})
	}
	out := filedJSON{AgentID: c.AgentID(), LeftOut: c.Omitted.String()}
	infoOf(r).agent = out.AgentID
	changed, err := a.file(r, &c)
	switch {
	case fault.Is(err, fault.Stopped), fault.Is(err, fault.Conflict):
		out.Reason = err.Error()
		return done(noticeIgnored, out)
	case err != nil:
		return err
	case !changed:
		return done(noticeKnown, out)
	}
	if c.Omitted.N > 0 {
		a.leftOut.Add(float64(c.Omitted.N))
		infoOf(r).note = "left out of the call: " + out.LeftOut
	}
	return done(noticeFiled, out)
}

// file stores a call, unless its caller was erased after it began: a reconciler would bring back
// what was erased.
func (a *noticeAPI) file(r *http.Request, c *hosted.Call) (changed bool, err error) {
	if a.callers != nil {
		keys := memory.Call{}
		if c.Key != "" {
			keys.Keys = []string{c.Key}
		}
		if err := a.callers.CheckCall(r.Context(), projectOf(r), c.AgentID(), keys); err != nil {
			return false, err
		}
		at, err := a.callers.ErasedAt(r.Context(), projectOf(r), c.Caller)
		if err != nil {
			return false, err
		}
		if at > 0 && c.StartMS < at {
			return false, fault.New(fault.Stopped, "its caller was erased after the call")
		}
	}
	return a.archive.FileCall(r.Context(), projectOf(r), *c)
}

// urlsOf returns the addresses at which a platform may have called, behind proxies too.
func (a *noticeAPI) urlsOf(r *http.Request) (out []string) {
	path := r.URL.RequestURI()
	if a.publicURL != "" {
		out = append(out, strings.TrimSuffix(a.publicURL, "/")+path)
	}
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		host, port = r.Host, ""
	}
	for scheme, usual := range map[string]string{"https": "443", "http": "80"} {
		out = append(out, scheme+"://"+r.Host+path)
		if port == "" {
			out = append(out, scheme+"://"+host+":"+usual+path)
		} else {
			out = append(out, scheme+"://"+host+path)
		}
	}
	return out
}

// formObject returns the fields of a form as a JSON object of texts.
func formObject(body []byte) ([]byte, error) {
	values, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, fault.New(fault.BadRequest, "the form cannot be read")
	}
	fields := map[string]string{}
	for name := range values {
		fields[name] = values.Get(name)
	}
	return json.Marshal(fields)
}
