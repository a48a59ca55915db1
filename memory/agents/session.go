package agents

import (
	"context"
	"errors"
	"hash/fnv"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/window"
)

// Limits of what InheritFull takes over. Older messages are not taken over.
const (
	MaxInherited      = 1000
	maxInheritedBytes = 8 << 20
)

// maxAncestors is of how many agents before it a new one may still have to make a summary.
const maxAncestors = 8

// sessionTTL returns the idle timeout, in seconds, of an agent that has none of its own: that of
// its policy's preset, else the server's.
func sessionTTL(m *memory.Memory, server int) int {
	if m.Policy != nil && window.PresetName(m.Policy.Preset) == "limits" {
		return 3600
	}
	return server
}

// predecessor returns the agent whose memory a new one continues: the last ended one of its name,
// else of the project's with one of its keys, else nil.
func (s *Agents) predecessor(ctx context.Context, a *memory.Agent) (*memory.Agent, error) {
	look := func(id string, err error) (*memory.Agent, error) {
		if err == nil {
			var h memory.Head
			if h, err = s.cfg.Ledger.Head(ctx, a.Project, id); err == nil && h.Agent.Status.Ended() {
				return h.Agent, nil
			}
		}
		// It is live, or was erased in the meantime.
		if err == nil || fault.Is(err, fault.NotFound) {
			return nil, nil
		}
		return nil, err
	}
	if a.Name != "" {
		if found, err := look(s.cfg.Ledger.LastNamed(ctx, a.Project, a.Name)); found != nil || err != nil {
			return found, err
		}
	}
	for _, key := range slices.Concat(a.Settings.Call.Keys, a.Settings.Call.Shared) {
		if found, err := look(s.cfg.Ledger.ByKey(ctx, a.Project, key)); found != nil || err != nil {
			return found, err
		}
	}
	return nil, nil
}

// inherit sets what a new agent takes over, and returns the messages.
func (s *Agents) inherit(ctx context.Context, a *memory.Agent, mode memory.Inherit) ([]memory.Message, error) {
	if mode == "" || mode == memory.InheritNone {
		return nil, nil
	}
	from, err := s.predecessor(ctx, a)
	if err != nil || from == nil {
		return nil, err
	}
	h, msgs, err := s.messages.Remembered(ctx, a.Project, from.ID)
	if fault.Is(err, fault.NotFound) {
		return nil, nil // erased in the meantime
	}
	if err != nil {
		return nil, err
	}
	old, m := &h.Agent.Settings.Memory, &a.Settings.Memory
	in := memory.Inherited{From: from.ID, Mode: mode, Summary: old.Summary != ""}
	m.Summary, m.SummaryMS, a.Settings.Names = old.Summary, old.SummaryMS, h.Agent.Settings.Names
	if old.Inherited != nil {
		in.Ancestors = old.Inherited.Ancestors
	}
	var taken []memory.Message
	switch {
	case mode == memory.InheritFull:
		taken = s.messages.inheritable(msgs)
		in.Messages, in.LeftOut = len(taken), len(msgs)-len(taken)
	case s.cfg.Summaries != nil && slices.ContainsFunc(msgs, func(m memory.Message) bool { return !m.Role.Instructs() }):
		in.Ancestors = append(slices.Clone(in.Ancestors), memory.Ancestor{ID: from.ID})
		in.Ancestors = in.Ancestors[max(0, len(in.Ancestors)-maxAncestors):]
	}
	seq := int64(0)
	for i := range taken {
		seq++
		taken[i] = inherited(taken[i], a.ID, seq)
	}
	in.UpToSeq = seq
	m.Inherited = &in
	return taken, nil
}

// Limits of the older instructions (system and developer messages) that are taken over in addition.
const (
	maxInstructions      = 32
	maxInstructionsBytes = 256 << 10
)

// inheritable returns a copy of the newest messages within the limits, and before them the newest
// older instructions, which apply to all that follows. The messages do not start with a tool's
// result.
func (s *Messages) inheritable(msgs []memory.Message) []memory.Message {
	most := MaxInherited
	if s.cfg.MaxMessages > 0 {
		most = min(most, s.cfg.MaxMessages/2)
	}
	from, size := len(msgs), 0
	for from > 0 && len(msgs)-from < most {
		if size += sizeOf(&msgs[from-1]); size > maxInheritedBytes {
			break
		}
		from--
	}
	var standing []memory.Message
	size = 0
	for i := from - 1; i >= 0 && len(standing) < min(maxInstructions, most/2); i-- {
		if m := &msgs[i]; m.Role.Instructs() {
			if size += sizeOf(m); size > maxInstructionsBytes {
				break
			}
			standing = append(standing, *m)
		}
	}
	slices.Reverse(standing)
	if from > 0 {
		for from += max(0, len(standing)+len(msgs)-from-most); from < len(msgs) && msgs[from].Role == memory.Tool; {
			from++
		}
	}
	return slices.Concat(standing, msgs[from:])
}

// bytes returns the size of the message's texts.
func sizeOf(m *memory.Message) int {
	return len(m.Content) + len(m.Parts) + len(m.ToolCalls) + len(m.Generated) + len(m.Sent) + len(m.Filed().Raw) + len(m.Made().Members)
}

// inherited returns the message as another agent takes it over: what was said and heard. Its IDs,
// measures and costs stay with the old agent.
func inherited(m memory.Message, agentID string, seq int64) memory.Message {
	m.Seq, m.Rev, m.ID, m.AnswerSeq = seq, 1, "", 0
	m.UpstreamID, m.Timings, m.Usage, m.Failure = "", nil, nil, nil
	m.DropPlayback()
	m.DropTold()
	if m.Filed().CopyOf != 0 { // of a ledger that is another agent's
		m.Amend(func(r *memory.Details) { r.CopyOf = 0 })
	}
	m.Marks = memory.Marks{}             // the revisions of the other agent
	if it := m.Filed().Item; it != nil { // the copy has an id of its own, and is its agent's
		item := *it
		item.ID, item.AgentID = "", agentID
		m.Amend(func(r *memory.Details) { r.Item = &item })
	}
	return m
}

// EndDropped is the message with which an agent ends that gave its place to a new one.
const EndDropped = "Dropped for a newer agent"

// evictionLocks serializes joins that must end another agent to get a place. Without them two joins
// could end the same agent, or one each. A lock may be shared by projects.
type evictionLocks [32]sync.Mutex

func (t *evictionLocks) of(project string) *sync.Mutex {
	h := fnv.New32a()
	_, _ = io.WriteString(h, project)
	return &t[h.Sum32()%uint32(len(t))]
}

// create stores a new agent. At the project's limit it ends the agent that has been idle longest,
// if the server is configured so.
func (s *Agents) create(ctx context.Context, a memory.Agent, c memory.Change) (stored memory.Agent, created bool, err error) {
	store := func() error {
		stored, created, err = s.cfg.Ledger.Create(ctx, a, s.cfg.MaxAgents, c)
		if created {
			s.live.add(stored.Ref(), s.cfg.Now()) // now, so that the next in line finds it
		}
		return err
	}
	if err := store(); !s.cfg.DropIdle || !fault.Is(err, fault.Quota) {
		return stored, created, err
	}
	one := s.evicting.of(a.Project)
	one.Lock()
	defer one.Unlock()
	const tries = 16 // others join at the same time without having to wait for a place
	for range tries {
		if err := store(); !fault.Is(err, fault.Quota) {
			return stored, created, err
		}
		dropped, dropErr := s.dropIdlest(ctx, &a)
		if dropErr != nil {
			return stored, created, dropErr
		}
		if dropped {
			continue
		}
		if a.Settings.Memory.MaxSessions > 0 || s.live.running(a.Project) >= s.cfg.MaxAgents {
			return stored, created, err
		}
		select { // some agents are stored but not registered here yet
		case <-time.After(unknownWait):
		case <-ctx.Done():
			return stored, created, context.Cause(ctx)
		}
	}
	return stored, created, err
}

// unknownWait is how long a join waits for agents that have just started to be registered.
const unknownWait = 5 * time.Millisecond

// dropIdlest ends the agent of the project that was idle for longest; false where none is idle. For
// a new agent whose memory model has all its sessions, only agents with that model may go.
func (s *Agents) dropIdlest(ctx context.Context, a *memory.Agent) (bool, error) {
	project := a.Project
	only, err := s.sessions(ctx, a)
	if err != nil {
		return false, err
	}
	ref, since, ok := s.live.idlest(project, only, s.cfg.Now())
	if !ok {
		return false, nil
	}
	if s.peers != nil { // others may have had to do with it
		if err := s.peers.learn(ctx, ref); err != nil {
			return false, err
		}
	}
	err = s.stop(ctx, ref, EndDropped, "", func(a memory.Agent) error {
		if !a.Status.Ended() && s.live.activity(ref, s.cfg.Now()).After(since) {
			return errNotDue // the agent was asked for in the meantime
		}
		return nil
	})
	if fault.Is(err, fault.NotFound) || errors.Is(err, errNotDue) {
		err = nil // there is another to be found
	}
	return err == nil, err
}

// sessions returns the live agents with the memory model of a new one if there are as many as the
// model allows, else nil.
func (s *Agents) sessions(ctx context.Context, a *memory.Agent) (map[string]bool, error) {
	m := &a.Settings.Memory
	if m.MaxSessions == 0 {
		return nil, nil
	}
	page, err := s.cfg.Ledger.Agents(ctx, memory.AgentQuery{
		Project: a.Project, Labels: map[string]string{memory.ModelTag: m.Model}, Limit: m.MaxSessions, NoTotal: true,
		Statuses: []memory.Status{memory.Idle, memory.Starting, memory.Running, memory.Stopping, memory.Recovering},
	})
	if err != nil || len(page.Heads) < m.MaxSessions {
		return nil, err
	}
	out := map[string]bool{}
	for i := range page.Heads {
		out[page.Heads[i].Agent.ID] = true
	}
	return out, nil
}

// running returns how many live agents of a project are registered.
func (r *registry) running(project string) (n int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for ref, a := range r.agents {
		if ref.Project == project {
			a.mu.Lock()
			if a.live {
				n++
			}
			a.mu.Unlock()
		}
	}
	return n
}

// idlest returns the live agent of a project that has been idle longest, and since when; ok is
// false if all are busy. Unless only is nil, it is one of those.
func (r *registry) idlest(project string, only map[string]bool, now time.Time) (out memory.Ref, since time.Time, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for ref, a := range r.agents {
		if ref.Project != project || only != nil && !only[ref.ID] {
			continue
		}
		a.mu.Lock()
		idle := a.live && len(a.answers)+len(a.feeds) == 0
		a.mu.Unlock()
		at := time.Unix(0, a.asked.Load())
		if idle && (!ok || at.Before(since) || at.Equal(since) && ref.ID < out.ID) {
			out, since, ok = ref, at, true
		}
	}
	return out, since, ok
}
