package turn

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/heardlog/heardlog/internal/breaker"
	"github.com/heardlog/heardlog/internal/prompt"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// UpstreamHeader names the upstream that answered, or the last that was asked.
const UpstreamHeader = "X-Heardlog-Upstream"

// PrimaryUpstream is the name of the upstream that is asked first: the agent's, or the server's.
const PrimaryUpstream = "primary"

// Fallback is one of the server's upstreams after its first.
type Fallback struct {
	memory.Upstream
	Projects []string // whose agents it serves; empty = all
}

// Retries limits how often the same upstreams are asked again when all have failed. A voice turn
// cannot wait: no attempt begins later than Budget after the first, whatever Retry-After says. Zero
// fields mean no retries.
type Retries struct {
	Times  int
	Budget time.Duration
}

// target is one upstream of a call.
type target struct {
	name, label string // label is the name in metrics
	url         string // of its chat completions
	azure       bool
	to          prompt.Recipient
	key         string
	headers     map[string]secret.String
	breaker     *breaker.Breaker

	tried bool          // in this round
	spent bool          // will not be asked again by this call
	wait  time.Duration // Retry-After
}

// targets returns the upstreams of a call in their order. The server's fallbacks serve only agents
// that use the server's own LLM, and an agent with a list of its own uses that alone, so that no
// words go where they were not meant to.
func (x *exchange) targets() []target {
	l, agent := &x.llm, &x.turn.Agent.Settings.LLM
	own := agent.URL == ""
	first := newTarget(&memory.Upstream{Name: PrimaryUpstream, URL: l.URL, APIKey: l.APIKey, Vendor: l.Vendor, Headers: l.Headers, Cache: l.Cache}, agentLabel, !own)
	if own && agent.APIKey == "" {
		first.label = PrimaryUpstream
	}
	out := []target{first}
	switch {
	case len(l.Upstreams) > 0:
		for i := range l.Upstreams {
			out = append(out, newTarget(&l.Upstreams[i], agentLabel, false))
		}
	case own:
		for i := range x.cfg.Fallbacks {
			f := &x.cfg.Fallbacks[i]
			if len(f.Projects) == 0 || slices.Contains(f.Projects, x.turn.Agent.Project) {
				out = append(out, newTarget(&f.Upstream, f.Name, false))
			}
		}
	}
	for i := range out {
		t := &out[i]
		t.to.Fallback, t.to.Members = i > 0, x.llm.Members
		t.to.Thoughts, t.to.Shape = cmp.Or(t.to.Thoughts, x.llm.Thoughts), cmp.Or(t.to.Shape, x.llm.Shape)
		t.to.Shape = x.shapes.get(x.turn.Agent.Project, t)
		if x.llm.Members == nil {
			t.to.Members = llmadapter.PassedMembers()
		}
		if x.aside { // a question has no turn, and no fields beyond OpenAI's
			t.to.Custom = false
		}
	}
	if len(out) > 1 { // a single one needs no breaker
		for i := range out {
			out[i].breaker = x.breakers.of(x.turn.Agent.Project, &out[i])
		}
	}
	return out
}

// agentLabel is the label in metrics for all upstreams that agents bring, since their number is not
// limited.
const agentLabel = "agent"

// newTarget returns the target for an upstream; for exact see llmadapter.ChatURL.
func newTarget(u *memory.Upstream, label string, exact bool) target {
	azure := llmadapter.IsAzure(u.URL, u.Vendor)
	t := target{
		name: u.Name, label: label, url: llmadapter.ChatURL(u.URL, azure, exact), azure: azure,
		key: u.APIKey.Reveal(), headers: u.Headers, to: prompt.Recipient{Model: u.Model, Shape: u.Shape, Cache: u.Cache},
	}
	t.to.Custom, t.to.Thoughts, t.to.Origin = u.Vendor == memory.VendorCustom, u.Thoughts, originOf(t.url, u.Model)
	return t
}

// originOf identifies an upstream by its address and the model that it is asked for, so that an
// answer's signatures return to the LLM that made them. It holds no secret.
func originOf(url, model string) string {
	address, _, _ := strings.Cut(url, "?")
	sum := sha256.Sum256([]byte(address + "\x00" + model))
	return hex.EncodeToString(sum[:8])
}

// breakers holds the circuit breakers of upstreams: one for each of the server's own, and one for
// each project and address of agents, up to maxBreakers.
type breakers struct {
	own map[string]*breaker.Breaker // by label; never changed

	mu     sync.Mutex
	agents map[breakerKey]*breaker.Breaker
}

// breakerKey includes the project, since an upstream may refuse one project's key and accept
// another's.
type breakerKey struct{ project, url string }

// upstreamBreaker are the settings of the breakers of upstreams. An upstream that names a longer
// pause in Retry-After gets it, up to a minute.
var upstreamBreaker = breaker.Settings{Failures: 5, Pause: 10 * time.Second, Longest: time.Minute}

// maxBreakers limits how many breakers of agents' upstreams are kept. Dropping one forgets a few
// failures.
const maxBreakers = 4096

func newBreakers(c Config) *breakers {
	b := &breakers{own: map[string]*breaker.Breaker{}, agents: map[breakerKey]*breaker.Breaker{}}
	if len(c.Fallbacks) == 0 {
		return b
	}
	names := []string{PrimaryUpstream}
	for i := range c.Fallbacks {
		names = append(names, c.Fallbacks[i].Name)
	}
	for _, name := range names {
		one := breaker.New(upstreamBreaker)
		b.own[name] = one
		promauto.With(c.Metrics).NewGaugeFunc(prometheus.GaugeOpts{
			Name: "heardlog_upstream_breaker", Help: "State of the breaker of each upstream of the settings: 0 closed, 1 half-open, 2 open.",
			ConstLabels: prometheus.Labels{"upstream": name},
		}, func() float64 { return float64(one.State(c.Now())) })
	}
	return b
}

// of returns the breaker of an upstream.
func (b *breakers) of(project string, t *target) *breaker.Breaker {
	if own := b.own[t.label]; own != nil {
		return own
	}
	key := breakerKey{project, t.url}
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.agents[key]
	if one == nil {
		if len(b.agents) >= maxBreakers {
			for k := range b.agents { // any: maps have no order
				delete(b.agents, k)
				break
			}
		}
		one = breaker.New(upstreamBreaker)
		b.agents[key] = one
	}
	return one
}

// shapes are the shapes of lists that upstreams turned out to want, each for one project, since any
// project may name any address. Up to maxBreakers are kept.
type shapes struct {
	mu sync.Mutex
	of map[breakerKey]string
}

// learn notes the shape that an upstream is asked with from now on.
func (s *shapes) learn(project string, t *target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.of) >= maxBreakers {
		clear(s.of) // they are learned again
	}
	s.of[breakerKey{project, t.to.Origin}] = t.to.Shape
}

// get returns the shape that an upstream turned out to want, or else that of its settings.
func (s *shapes) get(project string, t *target) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.of[breakerKey{project, t.to.Origin}], t.to.Shape)
}
