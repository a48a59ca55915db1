// Package quota counts what each project uses and refuses what exceeds its limits. A Keeper holds
// the counts: rates (requests, messages and bytes a second) are counted by this server alone; what
// is stored is read from the store every few seconds, and this server's own writes are added in
// between.
package quota

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
)

// Config configures a Keeper. Count and Now are required.
type Config struct {
	Rate  Rate         // of one project
	Limit memory.Usage // of one project; a zero field means no limit, Agents is not used
	// Count returns what each project has stored.
	Count func(ctx context.Context) ([]memory.Usage, error)
	Now   func() time.Time
	// OnError is called if Count fails; the last counts are used further. nil ignores it.
	OnError func(error)
}

// The names of the settings, which refusals show.
const (
	RateSetting     = "HEARDLOG_RATE_LIMIT"
	MessagesSetting = "HEARDLOG_MAX_PROJECT_MESSAGES"
	MBSetting       = "HEARDLOG_MAX_PROJECT_MB"
)

// Counts are at most this old. A count that takes long is repeated less often, so that counting
// takes at most a fiftieth of the time.
const (
	maxAge   = 5 * time.Second
	maxShare = 50
	// countFor bounds a count. Those who wait for one leave it to go on.
	countFor = 5 * time.Minute
)

// Keeper counts what projects use. Its methods are safe for concurrent use.
type Keeper struct {
	c Config

	mu       sync.Mutex
	stored   map[string]memory.Usage // as of the last count, and of what this server wrote since
	recent   map[string]memory.Usage // what this server wrote since the last count began
	buckets  map[string]*buckets
	counted  time.Time     // when the last count began; zero before the first
	took     time.Duration // how long it took
	counting singleflight.Group
	cancel   context.CancelFunc // of the last count; nil before the first
}

// New returns a Keeper. Before the first count nothing is stored.
func New(c Config) *Keeper {
	if c.OnError == nil {
		c.OnError = func(error) {}
	}
	return &Keeper{c: c, stored: map[string]memory.Usage{}, recent: map[string]memory.Usage{}, buckets: map[string]*buckets{}}
}

// Run counts every few seconds until ctx is done, and returns nil. A count under way ends then.
func (k *Keeper) Run(ctx context.Context) error {
	defer k.stop()
	for {
		if err := k.count(ctx); err != nil && ctx.Err() == nil {
			k.c.OnError(err)
		}
		k.mu.Lock()
		wait := max(maxAge, maxShare*k.took)
		k.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

func (k *Keeper) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cancel != nil {
		k.cancel()
	}
}

// fresh counts, unless the last count is young enough.
func (k *Keeper) fresh(ctx context.Context) error {
	k.mu.Lock()
	young := !k.counted.IsZero() && k.c.Now().Sub(k.counted) < max(maxAge, maxShare*k.took)
	k.mu.Unlock()
	if young {
		return nil
	}
	return k.count(ctx)
}

// count waits for the count that is under way, or for one that it begins, until ctx is done. The
// count itself goes on then, since others may wait for it.
func (k *Keeper) count(ctx context.Context) error {
	done := k.counting.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), countFor)
		defer cancel()
		k.mu.Lock()
		k.cancel = cancel
		k.mu.Unlock()
		return nil, k.countNow(ctx)
	})
	select {
	case r := <-done:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *Keeper) countNow(ctx context.Context) error {
	k.mu.Lock()
	began := k.c.Now()
	before := k.recent
	k.recent = map[string]memory.Usage{}
	k.mu.Unlock()
	clock := time.Now()
	list, err := k.c.Count(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		for project, u := range before {
			k.recent[project] = plus(k.recent[project], u)
		}
		return err
	}
	k.counted, k.took = began, time.Since(clock)
	k.stored = make(map[string]memory.Usage, len(list))
	for _, u := range list {
		project := memories.ProjectOf(u.Project)
		sum := plus(k.stored[project], u)
		sum.Agents += u.Agents
		k.stored[project] = sum
	}
	// A write during the count may be counted twice until the next one: a limit may be reached too
	// soon by that, never too late.
	for project, u := range k.recent {
		k.stored[project] = plus(k.stored[project], u)
	}
	k.sweep(began)
	return nil
}

func plus(a, b memory.Usage) memory.Usage {
	a.Messages += b.Messages
	a.Bytes += b.Bytes
	return a
}

// Stored counts messages that this server has stored, by about how many bytes. It implements
// agents.Quota.
func (k *Keeper) Stored(project string, messages int, bytes int64) {
	project = memories.ProjectOf(project) // memories outside ledgers are the project's too
	k.mu.Lock()
	defer k.mu.Unlock()
	added := memory.Usage{Messages: int64(messages), Bytes: bytes}
	k.stored[project] = plus(k.stored[project], added)
	k.recent[project] = plus(k.recent[project], added)
	if k.c.Rate.Messages > 0 {
		take(k.of(project).messages, k.c.Now(), int64(messages))
	}
}

// Room fails with fault.Quota if the project may not store that much more. It implements
// agents.Quota.
func (k *Keeper) Room(project string, messages int, bytes int64) error {
	if messages == 0 && bytes == 0 || k.c.Limit.Messages == 0 && k.c.Limit.Bytes == 0 {
		return nil
	}
	k.mu.Lock()
	have := k.stored[project]
	k.mu.Unlock()
	if most := k.c.Limit.Messages; most > 0 && messages > 0 && have.Messages+int64(messages) > most {
		return fault.New(fault.Quota, "the project has %d messages stored, and %d more would exceed its limit of %d (%s)", have.Messages, messages, most, MessagesSetting)
	}
	if most := k.c.Limit.Bytes; most > 0 && have.Bytes+bytes > most {
		return fault.New(fault.Quota, "the project has %d bytes stored, and %d more would exceed its limit of %d (%s)", have.Bytes, bytes, most, MBSetting)
	}
	return nil
}

// Usage returns what a project has stored, as of some seconds ago, or longer if counting takes
// long.
func (k *Keeper) Usage(ctx context.Context, project string) (memory.Usage, error) {
	if err := k.fresh(ctx); err != nil {
		return memory.Usage{}, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	u := k.stored[project]
	u.Project = project
	return u, nil
}

// Limits returns the limits of a project.
func (k *Keeper) Limits() (Rate, memory.Usage) { return k.c.Rate, k.c.Limit }

// Largest returns the usage of the n projects that have the most messages, and the sum of all
// others, whose Project is "".
func (k *Keeper) Largest(n int) (list []memory.Usage, others memory.Usage) {
	k.mu.Lock()
	for project, u := range k.stored {
		u.Project = project
		list = append(list, u)
	}
	k.mu.Unlock()
	slices.SortFunc(list, func(a, b memory.Usage) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Project, b.Project))
	})
	for _, u := range list[min(n, len(list)):] {
		others = plus(others, u)
		others.Agents += u.Agents
	}
	return list[:min(n, len(list))], others
}
