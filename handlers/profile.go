package handlers

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/platform"
)

// What happens to a chat completion that names neither an agent nor a call.
const (
	NoKeyRefuse = "refuse"
	NoKeyWords  = "words" // the key is made of the first words, see platform.WordsKey
	NoKeyStart  = "start" // it goes on with the call that its list repeats, or starts one
)

type profilesAnswer struct {
	Profiles []profileJSON `json:"profiles"`
	NoKey    string        `json:"no_key"`
}

type profileJSON struct {
	Name   string       `json:"name"`
	Own    bool         `json:"own"` // from a setting
	Keys   []sourceJSON `json:"keys"`
	Strip  []string     `json:"strip"`
	Events []string     `json:"events"`
	Trust  string       `json:"trust,omitempty"`
}

type sourceJSON struct {
	Name   string `json:"name"`
	Header string `json:"header,omitempty"`
	Path   string `json:"path,omitempty"`
	Event  string `json:"event,omitempty"`
	Weak   bool   `json:"weak_key"`
}

// profiles lists how the agent of a call is found, in order.
func (a *proxyAPI) profiles(w http.ResponseWriter, r *http.Request) error {
	out := profilesAnswer{Profiles: []profileJSON{}, NoKey: a.noKey}
	for _, p := range a.platforms.List(projectOf(r)) {
		j := profileJSON{Name: p.Name, Own: p.Trust == "", Keys: []sourceJSON{}, Strip: []string{}, Events: []string{}, Trust: p.Trust}
		for _, s := range p.Sources {
			j.Keys = append(j.Keys, sourceJSON{Name: s.Name, Header: s.Header, Path: s.Path, Event: s.Event, Weak: s.Weak})
		}
		j.Strip = append(j.Strip, p.Strip...)
		j.Events = append(j.Events, platform.Types(p.Name)...)
		out.Profiles = append(out.Profiles, j)
	}
	return encode(w, http.StatusOK, out)
}

// keyOfCall returns the key by which a chat request names its call.
func (a *proxyAPI) keyOfCall(r *http.Request, req *llmadapter.Request, member func(string) []byte) (platform.Key, error) {
	if k, ok := a.platforms.Key(projectOf(r), r.Header.Get, member); ok {
		return k, nil
	}
	if a.noKey == NoKeyWords {
		var texts []string
		for i := range req.Messages {
			m := &req.Messages[i]
			if m.IsSystem() {
				texts = append(texts, m.Text())
			}
			if m.Role == "user" {
				return platform.WordsKey(append(texts, m.Text())), nil
			}
		}
	}
	return platform.Key{}, fault.At(fault.Missing, "metadata.agent_id",
		"is required, because the call names no agent: send it, or the header %s, or a key that GET /v1/profiles lists, or use the base URL /v1/agents/{id}", agentIDHeader)
}

// agentByKey returns the running agent that has a key. If there is none it creates one, linked to
// the last agent that had the key, or fails with fault.NotFound if agents do not join by
// themselves.
func (a *proxyAPI) agentByKey(r *http.Request, key platform.Key) (string, error) {
	ctx, project := r.Context(), projectOf(r)
	agent, err := a.memory.Agents.ByKey(ctx, project, key.Text)
	switch {
	case err == nil && !agent.Status.Ended():
		return agent.ID, nil
	case err != nil && !fault.Is(err, fault.NotFound):
		return "", err
	case a.autoJoin == nil:
		return "", fault.New(fault.NotFound, "no agent has the key %s: set HEARDLOG_AUTO_JOIN=true to start one for each call, or join one that names the key in properties.heardlog.keys, or name the agent in %s", key.Text, agentIDHeader)
	}
	labels, err := labelHeaders(r)
	if err != nil {
		return "", err
	}
	id, err := a.autoJoin(ctx, project, "", memory.Call{Keys: []string{key.Text}, Previous: agent.ID, Weak: key.Weak}, labels)
	if taken := nameTaken(err); taken != nil {
		return taken.AgentID, nil // another request of the call created it in the meantime
	}
	return id, err
}

func unknownKey(keys string) error {
	return fault.New(fault.NotFound, "no agent has the key %s; join one that names the key in properties.heardlog.keys, or name the agent in %s", keys, agentIDHeader)
}

// keyRules checks the keys of a join.
func (p *joinProperties) keyRules() error {
	for i, k := range p.Heardlog.Keys {
		if _, ok := platform.ParseKey(k); !ok {
			return fault.At(fault.Invalid, fmt.Sprintf("properties.heardlog.keys[%d]", i),
				"must be the name of a kind of key (see GET /v1/profiles), a colon and a value, without spaces or control characters, not %q", text.Clip(k, 80))
		}
	}
	return nil
}

// call returns the keys by which a join's agent is found: those it names, and its channel.
func (p *joinProperties) call() memory.Call {
	var c memory.Call
	for _, text := range p.Heardlog.Keys {
		if k, ok := platform.ParseKey(text); ok && !slices.Contains(c.Keys, k.Text) {
			c.Keys = append(c.Keys, k.Text)
		}
	}
	if p.Channel != "" {
		c.Shared = []string{platform.ChannelKey(p.Channel)}
	}
	return c
}
