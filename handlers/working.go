package handlers

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
)

// workingProperties is properties.heardlog.working_memory.
type workingProperties struct {
	Enabled    *bool `json:"enabled"`
	MaxSizeMB  int   `json:"max_size_mb" validate:"omitempty,min=1,max=1024"`
	TTLSeconds int   `json:"ttl_seconds" validate:"omitempty,min=60,max=86400"`
}

func (p *workingProperties) settings() memory.WorkingSettings {
	return memory.WorkingSettings{Off: p.Enabled != nil && !*p.Enabled, MaxSizeMB: p.MaxSizeMB, TTL: p.TTLSeconds}
}

// Bounds of the time to live in a working memory, in seconds: those of OSSA's schema.
const (
	minWorkingTTL = 60
	maxWorkingTTL = 86_400
)

// working returns the kvAPI of the paths under an agent: the same calls in the namespace that is
// the agent's working memory.
func (a kvAPI) working() kvAPI {
	a.namespace = func(r *http.Request) string { return kv.AgentPrefix + chi.URLParam(r, "id") }
	a.checkTTL = func(ttl int) (int, error) {
		if ttl == kv.NoEnd { // null
			ttl = kv.DefaultTTL
		}
		if ttl != kv.DefaultTTL && (ttl < minWorkingTTL || ttl > maxWorkingTTL) {
			return 0, fault.At(fault.Invalid, "ttl_seconds", "must be from %d to %d", minWorkingTTL, maxWorkingTTL)
		}
		return ttl, nil
	}
	return a
}
