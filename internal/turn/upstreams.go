package turn

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heardlog/heardlog/internal/breaker"
	"github.com/heardlog/heardlog/internal/secret"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/memory"
)

// UpstreamHeader names the LLM that answered, or the last that was asked.
const UpstreamHeader = "X-Heardlog-Upstream"

// PrimaryUpstream is the name of the LLM that is asked first: the agent's, or the server's.
const PrimaryUpstream = "primary"

// Fallback is one of the server's own upstreams behind its first.
type Fallback struct {
	memory.Upstream
	Projects []string // whose agents it serves; empty = all
}

// Retries bounds asking the same upstreams again when all have failed. A voice turn cannot wait: what would begin later than Budget after the call's
// first attempt is not tried, whatever Retry-After says. Zero fields mean none.
type Retries struct {
	Times  int
	Budget time.Duration
}

// target is one upstream of a call.
type target struct {
	name, label string // label is the name in metrics, "agent" for those of agents
	url         string // of its chat completions
	azure       bool
	custom      bool // every message field is sent
	key         string
	headers     map[string]secret.String
	model       string // in place of any other; "" = none
	breaker     *breaker.Breaker

	tried bool          // in this round
	spent bool          // will not be asked again by this call
	wait  time.Duration // Retry-After
}

// targets gives the upstreams of a call in their order. A fallback of the server serves agents that use the server's own LLM, and agents that bring
// a list use that alone: nobody's words go where they were not meant to.
func (x *exchange) targets() []target {
	l, agent := &x.llm, &x.turn.Agent.Settings.LLM
	own := agent.URL == ""
	azure := llmadapter.IsAzure(l.URL, l.Vendor)
	out := x.alone[:]
	out[0] = target{
		name: PrimaryUpstream, label: agentLabel, url: llmadapter.ChatURL(l.URL, azure, !own), azure: azure,
		custom: l.Vendor == memory.VendorCustom, key: l.APIKey.Reveal(), headers: l.Headers,
	}
	if own && agent.APIKey == "" {
		out[0].label = PrimaryUpstream
	}
	switch {
	case len(l.Upstreams) > 0:
		for i := range l.Upstreams {
			out = append(out, newTarget(&l.Upstreams[i], agentLabel))
		}
	case own:
		for i := range x.cfg.Fallbacks {
			f := &x.cfg.Fallbacks[i]
			if len(f.Projects) == 0 || slices.Contains(f.Projects, x.turn.Agent.Project) {
				out = append(out, newTarget(&f.Upstream, f.Name))
			}
		}
	}
	if x.aside { // what is asked has no turn, and no fields beyond the standard's
		for i := range out {
			out[i].custom = false
		}
	}
	if len(out) > 1 { // with one alone there is nothing to choose
		for i := range out {
			out[i].breaker = x.breakers.of(x.turn.Agent.Project, &out[i])
		}
	}
	return out
}

// agentLabel stands in metrics for all upstreams that agents bring: their number has no bound.
const agentLabel = "agent"

func newTarget(u *memory.Upstream, label string) target {
	azure := llmadapter.IsAzure(u.URL, u.Vendor)
	return target{
		name: u.Name, label: label, url: llmadapter.ChatURL(u.URL, azure, false), azure: azure, custom: u.Vendor == memory.VendorCustom,
		key: u.APIKey.Reveal(), headers: u.Headers, model: u.Model,
	}
}

// breakers holds the breakers of upstreams: one for each of the server's own, and, in a bounded number, one for each project and address of agents.
type breakers struct {
	own map[string]*breaker.Breaker // by label; never changed

	mu     sync.Mutex
	agents map[breakerKey]*breaker.Breaker
}

// breakerKey has the project in it: what one project's key is refused says nothing of another's.
type breakerKey struct{ project, url string }

// upstreamBreaker are the settings of the breakers of upstreams. An upstream that names a longer pause
// in Retry-After gets it, up to a minute.
var upstreamBreaker = breaker.Settings{Failures: 5, Pause: 10 * time.Second, Longest: time.Minute}

// maxBreakers is how many breakers of agents' upstreams are kept. Losing one forgets a few failures.
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
		if c.Metrics != nil {
			c.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "heardlog_upstream_breaker", Help: "State of the breaker of each upstream of the settings: 0 closed, 1 half-open, 2 open.",
				ConstLabels: prometheus.Labels{"upstream": name},
			}, func() float64 { return float64(one.State(c.Now())) }))
		}
	}
	return b
}

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
