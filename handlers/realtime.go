package handlers

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/access"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/input"
	"github.com/heardlog/heardlog/platform"
	"github.com/heardlog/heardlog/realtime"
)

// Realtime is the model of calls that name none: a server that speaks OpenAI's Realtime protocol.
type Realtime struct {
	URL     string // "" = none
	APIKey  secret.String
	Relay   *realtime.Server
	Secrets access.ClientSecrets
}

// realtimeAPI relays OpenAI's Realtime protocol.
type realtimeAPI struct {
	bodies
	Realtime
	proxy   *proxyAPI
	access  *Access
	origins []string
	now     func() time.Time
}

// Parameters of our own, for clients that cannot set headers. All others go to the model's server.
const (
	agentParam = "agent_id"
	userParam  = "user_id"
)

// The subprotocols by which browsers send what others send in headers.
const (
	keyProtocol  = "openai-insecure-api-key."
	betaProtocol = "openai-beta."
)

type clientSecretKey struct{}

// enter lets in clients with credentials and those with a client secret. Browsers send either in a
// subprotocol.
func (a *realtimeAPI) enter(style errorStyle) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		withKey := a.access.enter(style)(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if key := protocol(r, keyProtocol); key != "" && r.Header.Get("Authorization") == "" {
				r = r.Clone(r.Context())
				r.Header.Set("Authorization", "Bearer "+key)
			}
			token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if !strings.HasPrefix(token, access.ClientSecretPrefix) {
				withKey.ServeHTTP(w, r)
				return
			}
			s, err := a.Secrets.Open(strings.TrimSpace(token))
			if err != nil {
				answerError(w, r, style, err)
				return
			}
			info := infoOf(r)
			info.project = s.Project
			info.caller = access.Client{Project: s.Project, ID: "client-secret", Scopes: []access.Scope{access.Proxy}}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), clientSecretKey{}, &s)))
		})
	}
}

// protocol returns the rest of the subprotocol that begins with prefix, or "".
func protocol(r *http.Request, prefix string) string {
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for p := range strings.SplitSeq(line, ",") {
			if rest, ok := strings.CutPrefix(strings.TrimSpace(p), prefix); ok {
				return rest
			}
		}
	}
	return ""
}

// serve relays a client's socket to the model of its agent.
func (a *realtimeAPI) serve(w http.ResponseWriter, r *http.Request) error {
	if !wantsSocket(r) {
		return fault.New(fault.Invalid, "this path is a WebSocket: connect to it with a client of OpenAI's Realtime API")
	}
	// A browser sends a key or a client secret only if its page does, but cookies, and requests to
	// an open server, by itself.
	if byPage := r.Header.Get("Authorization") != "" && infoOf(r).caller.ID != ""; !byPage && !pageMayConnect(r, a.origins) {
		return errForeignPage
	}
	q := r.URL.Query()
	c := realtime.Call{Project: projectOf(r), Sideband: q.Get("call_id") != ""}
	s, _ := r.Context().Value(clientSecretKey{}).(*access.ClientSecret)
	agent, ends, err := a.agent(r, q, s)
	if err != nil {
		return err
	}
	infoOf(r).agent = agent.ID
	c.Agent, c.Ends = agent.ID, ends
	if c.Upstream, err = a.upstream(r, &agent); err != nil {
		return err
	}
	for name, values := range q {
		if _, label := namedIn(name, labelParam); name != agentParam && name != userParam && !label {
			if c.Upstream.Query == nil {
				c.Upstream.Query = url.Values{}
			}
			c.Upstream.Query[name] = values
		}
	}
	if s != nil && s.Session != nil {
		c.Session, err = withoutModel(s.Session)
		if err != nil {
			return err
		}
		if model := peek.At(s.Session, "model").Str(); model != "" && !q.Has("model") {
			if c.Upstream.Query == nil {
				c.Upstream.Query = url.Values{}
			}
			c.Upstream.Query.Set("model", model)
		}
	}
	infoOf(r).leaveTurn()
	return a.Relay.Serve(w, r, c)
}

// withoutModel returns a session object without the model, which a session.update cannot set.
func withoutModel(session json.RawMessage) ([]byte, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(session, &m); err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the session of the client secret cannot be read")
	}
	delete(m, "model")
	return json.Marshal(m)
}

// agent returns the agent of a call. ends is set for one that was started for this socket alone.
func (a *realtimeAPI) agent(r *http.Request, q url.Values, s *access.ClientSecret) (g memory.Agent, ends bool, err error) {
	member := func(name string) []byte {
		if !q.Has(name) {
			return nil
		}
		raw, _ := json.Marshal(q.Get(name)) // a string
		return raw
	}
	id := namedAgent(r, q.Get(agentParam))
	if s != nil && s.Agent != "" {
		if id != "" && id != s.Agent {
			return g, false, fault.New(fault.Forbidden, "the client secret is for another agent")
		}
		id = s.Agent
	}
	user, err := callerOf(r, member)
	if err == nil && user == "" {
		if name, ok := platform.Name(q.Get(userParam)); ok {
			user, err = text.CleanKey(userParam, name, maxScopeID)
		}
	}
	if err != nil {
		return g, false, err
	}
	if s != nil { // the app of an end user does not choose who it is
		user = s.User
	}
	if id == "" {
		if key, ok := a.proxy.platforms.Key(projectOf(r), r.Header.Get, member); ok {
			id, err = a.proxy.agentByKey(r, key)
		} else if a.proxy.autoJoin == nil {
			err = fault.At(fault.Missing, agentParam, "is required, because the call names no agent: send it, or the header %s, or set HEARDLOG_AUTO_JOIN=true to start one for each socket", agentIDHeader)
		} else {
			id, ends = newRequestID(), true
		}
	}
	if err == nil && !input.AgentID(id) {
		err = notAnAgent(id)
	}
	if err != nil {
		return g, false, err
	}
	g, err = a.proxy.memory.Agents.Agent(r.Context(), projectOf(r), id)
	if fault.Is(err, fault.NotFound) && a.proxy.autoJoin != nil && chi.URLParam(r, "id") == "" && (s == nil || s.Agent == "") {
		g, err = a.join(r, id)
	}
	if err == nil {
		err = g.MustBeActive(fault.Stopped)
	}
	if err == nil && user != "" && g.Settings.Scope.UserID == "" {
		g, err = a.name(r, g, user)
	}
	return g, ends, err
}

// join starts an agent that is not known.
func (a *realtimeAPI) join(r *http.Request, id string) (memory.Agent, error) {
	labels, err := labelHeaders(r)
	if err != nil {
		return memory.Agent{}, err
	}
	if _, err := a.proxy.autoJoin(r.Context(), projectOf(r), id, memory.Call{}, labels); err != nil {
		if taken := nameTaken(err); taken != nil {
			return memory.Agent{}, fault.At(fault.Conflict, agentIDHeader, "%q is the name of another running agent, %s; use its id", id, taken.AgentID)
		}
		return memory.Agent{}, err
	}
	return a.proxy.memory.Agents.Agent(r.Context(), projectOf(r), id)
}

// name notes who the caller of an agent is.
func (a *realtimeAPI) name(r *http.Request, g memory.Agent, user string) (memory.Agent, error) {
	err := a.proxy.memory.Messages.Change(r.Context(), g.Project, g.ID, func(view memory.AgentView) (memory.Change, error) {
		h := view.Head()
		if g = *h.Agent; g.Settings.Scope.UserID != "" {
			return memory.Change{}, nil
		}
		g.Settings.Scope.UserID, g.Rev = user, h.Rev+1
		return memory.Change{Agent: &g}, nil
	})
	return g, err
}

// upstream returns the server of an agent's model, with what it is sent.
func (a *realtimeAPI) upstream(r *http.Request, g *memory.Agent) (realtime.Upstream, error) {
	target, key := a.URL, a.APIKey
	headers := http.Header{}
	if own := g.Settings.LLM.Realtime; own != nil {
		target, key = own.URL, own.APIKey
		for name, value := range own.Headers {
			headers.Set(name, value.Reveal())
		}
	}
	if target == "" {
		return realtime.Upstream{}, fault.New(fault.Unsupported, "no realtime model is configured: set HEARDLOG_REALTIME_URL, or properties.heardlog.realtime.url in the join")
	}
	if key != "" {
		headers.Set("Authorization", "Bearer "+key.Reveal())
	}
	beta := r.Header.Get("OpenAI-Beta")
	if version := protocol(r, betaProtocol); version != "" && beta == "" {
		name, version, _ := strings.Cut(version, "-")
		beta = name + "=" + version
	}
	for name, value := range map[string]string{"OpenAI-Beta": beta, "OpenAI-Safety-Identifier": r.Header.Get("OpenAI-Safety-Identifier")} {
		if value != "" {
			headers.Set(name, value)
		}
	}
	return realtime.Upstream{URL: realtime.WebURL(target), Headers: headers, Beta: strings.HasPrefix(beta, "realtime")}, nil
}

// Limits of client secrets. OpenAI's last ten minutes unless the request says otherwise, from 10
// seconds to two hours.
const (
	secretSeconds    = 600
	minSecretSeconds = 10
	maxSecretSeconds = 7200
	maxSecretSession = 8 << 10
)

type clientSecretRequest struct {
	ExpiresAfter struct {
		Anchor  string `json:"anchor" validate:"omitempty,oneof=created_at"`
		Seconds int    `json:"seconds"`
	} `json:"expires_after"`
	Session json.RawMessage `json:"session"`
	AgentID string          `json:"agent_id"`
	UserID  string          `json:"user_id"`
}

type clientSecretAnswer struct {
	Value     string          `json:"value"`
	ExpiresAt int64           `json:"expires_at"`
	AgentID   string          `json:"agent_id,omitempty"`
	Session   json.RawMessage `json:"session"`
}

// createSecret mints a secret with which a browser may connect, bound to one agent if one is named.
func (a *realtimeAPI) createSecret(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[clientSecretRequest](a.bodies, w, r, false)
	if err != nil {
		return err
	}
	seconds := cmp.Or(in.ExpiresAfter.Seconds, secretSeconds)
	if seconds < minSecretSeconds || seconds > maxSecretSeconds {
		return fault.At(fault.Invalid, "expires_after.seconds", "must be from %d to %d, not %d", minSecretSeconds, maxSecretSeconds, seconds)
	}
	session := in.Session
	if string(session) == "null" {
		session = nil
	}
	if len(session) > maxSecretSession || session != nil && !peek.Parse(session).IsObject() {
		return fault.At(fault.Invalid, "session", "must be an object of at most %d bytes", maxSecretSession)
	}
	s := access.ClientSecret{Project: projectOf(r), Agent: namedAgent(r, in.AgentID), Until: a.now().Unix() + int64(seconds), Session: session}
	if s.Agent != "" {
		if !input.AgentID(s.Agent) {
			return notAnAgent(s.Agent)
		}
		g, err := a.proxy.memory.Agents.Agent(r.Context(), s.Project, s.Agent)
		if err == nil {
			err = g.MustBeActive(fault.Stopped)
		}
		if err != nil {
			return err
		}
	}
	if in.UserID != "" {
		if s.User, err = text.CleanKey("user_id", in.UserID, maxScopeID); err != nil {
			return err
		}
	}
	out := clientSecretAnswer{ExpiresAt: s.Until, AgentID: s.Agent, Session: session}
	if out.Session == nil {
		out.Session = json.RawMessage(`{"type":"realtime"}`)
	}
	if out.Value, err = a.Secrets.Mint(s); err != nil {
		return err
	}
	return encode(w, http.StatusOK, out)
}
