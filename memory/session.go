package memory

import (
	"context"
	"errors"
	"hash/fnv"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// Inherit is what a new agent takes over from the last one of its name.
type Inherit string

// The ways to inherit. The zero value is InheritNone.
const (
	InheritNone    Inherit = "none"
	InheritSummary Inherit = "summary" // begins with a summary of what the last one remembered
	InheritFull    Inherit = "full"    // goes on with its messages and its summary
)

// Limits of what InheritFull takes over. Older messages are not taken over.
const (
	MaxInherited      = 1000
	maxInheritedBytes = 8 << 20
)

// maxAncestors is of how many agents before it a new one may still have to make a summary.
const maxAncestors = 8

// Inherited is what an agent took over when it began. It is not changed once set, but replaced.
type Inherited struct {
	From     string  `json:"from"` // the agent's id
	Mode     Inherit `json:"mode"`
	Messages int     `json:"messages,omitempty"` // how many were taken over
	LeftOut  int     `json:"left_out,omitempty"` // how many older ones were not, for the bounds
	Summary  bool    `json:"summary,omitempty"`  // there was a summary
	// UpToSeq is the Seq of the last message that was taken over; 0 is none. Later messages are the
	// agent's own.
	UpToSeq int64 `json:"up_to_seq,omitempty"`
	// Ancestors are agents whose messages are still to be put into the summary, oldest first.
	Ancestors []Ancestor `json:"ancestors,omitempty"`
}

// Ancestor is an agent that has ended, of whose messages some are not summarised yet.
type Ancestor struct {
	ID    string `json:"id"`
	After int64  `json:"after,omitempty"` // Seq of the last message that is
}

// sessionTTL returns the idle timeout, in seconds, of an agent that has none of its own: that of
// its policy's preset, else the server's.
func (m *Memory) sessionTTL(server int) int {
	if m.Policy != nil && m.Policy.Preset == "ossa" {
		return 3600
	}
	return server
}

// ownSince returns the Seq after which the agent's own messages begin.
func (m *Memory) ownSince() int64 {
	if m.Inherited == nil {
		return 0
	}
	return m.Inherited.UpToSeq
}

// own returns the messages of a ledger that were not taken over from an earlier agent.
func (m *Memory) own(msgs []Message) []Message {
	since := m.ownSince()
	if since == 0 {
		return msgs
	}
	return slices.DeleteFunc(slices.Clone(msgs), func(msg Message) bool { return msg.Seq <= since })
}

// predecessor returns the agent whose memory a new one continues: the last ended one of its name,
// else of the project's with one of its keys, else nil.
func (s *Service) predecessor(ctx context.Context, a *Agent) (*Agent, error) {
	look := func(id string, err error) (*Agent, error) {
		if err == nil {
			var h Head
			if h, err = s.cfg.Store.Head(ctx, a.Project, id); err == nil && h.Agent.Status.Ended() {
				return &h.Agent, nil
			}
		}
		// It is live, or was erased in the meantime.
		if err == nil || fault.Is(err, fault.NotFound) {
			return nil, nil
		}
		return nil, err
	}
	if a.Name != "" {
		if found, err := look(s.cfg.Store.LastNamed(ctx, a.Project, a.Name)); found != nil || err != nil {
			return found, err
		}
	}
	for _, key := range slices.Concat(a.Settings.Call.Keys, a.Settings.Call.Shared) {
		if found, err := look(s.cfg.Store.ByKey(ctx, a.Project, key)); found != nil || err != nil {
			return found, err
		}
	}
	return nil, nil
}

// inherit sets what a new agent takes over, and returns the messages.
func (s *Service) inherit(ctx context.Context, a *Agent, mode Inherit) ([]Message, error) {
	if mode == "" || mode == InheritNone {
		return nil, nil
	}
	from, err := s.predecessor(ctx, a)
	if err != nil || from == nil {
		return nil, err
	}
	h, msgs, err := s.Remembered(ctx, a.Project, from.ID)
	if fault.Is(err, fault.NotFound) {
		return nil, nil // erased in the meantime
	}
	if err != nil {
		return nil, err
	}
	old, m := &h.Agent.Settings.Memory, &a.Settings.Memory
	in := Inherited{From: from.ID, Mode: mode, Summary: old.Summary != ""}
	m.Summary, m.SummaryMS = old.Summary, old.SummaryMS
	if old.Inherited != nil {
		in.Ancestors = old.Inherited.Ancestors
	}
	var taken []Message
	switch {
	case mode == InheritFull:
		taken = s.inheritable(msgs)
		in.Messages, in.LeftOut = len(taken), len(msgs)-len(taken)
	case s.cfg.Summaries != nil && slices.ContainsFunc(msgs, func(m Message) bool { return !instructs(m.Role) }):
		in.Ancestors = append(slices.Clone(in.Ancestors), Ancestor{ID: from.ID})
		in.Ancestors = in.Ancestors[max(0, len(in.Ancestors)-maxAncestors):]
	}
	seq := int64(0)
	for i := range taken {
		seq++
		taken[i] = taken[i].inherited(a.ID, seq)
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
func (s *Service) inheritable(msgs []Message) []Message {
	most := MaxInherited
	if s.cfg.MaxMessages > 0 {
		most = min(most, s.cfg.MaxMessages/2)
	}
	from, size := len(msgs), 0
	for from > 0 && len(msgs)-from < most {
		if size += msgs[from-1].bytes(); size > maxInheritedBytes {
			break
		}
		from--
	}
	var standing []Message
	size = 0
	for i := from - 1; i >= 0 && len(standing) < min(maxInstructions, most/2); i-- {
		if m := &msgs[i]; instructs(m.Role) {
			if size += m.bytes(); size > maxInstructionsBytes {
				break
			}
			standing = append(standing, *m)
		}
	}
	slices.Reverse(standing)
	if from > 0 {
		for from += max(0, len(standing)+len(msgs)-from-most); from < len(msgs) && msgs[from].Role == Tool; {
			from++
		}
	}
	return slices.Concat(standing, msgs[from:])
}

// bytes returns the size of the message's texts.
func (m *Message) bytes() int {
	return len(m.Content) + len(m.Parts) + len(m.ToolCalls) + len(m.Generated) + len(m.Sent) + len(m.Raw())
}

// inherited returns the message as another agent takes it over: what was said and heard. Its IDs,
// measures and costs stay with the old agent.
func (m Message) inherited(agentID string, seq int64) Message {
	m.Seq, m.Rev, m.ID, m.AnswerSeq = seq, 1, "", 0
	m.UpstreamID, m.Timings, m.Usage, m.Failure = "", nil, nil, nil
	m.dropPlayback()
	if m.CopyOf() != 0 { // of a ledger that is another agent's
		m.Amend(func(r *Rare) { r.CopyOf = 0 })
	}
	m.Marks = Marks{}              // the revisions of the other agent
	if it := m.Item(); it != nil { // the copy has an id of its own, and is its agent's
		item := *it
		item.ID, item.AgentID = "", agentID
		m.Amend(func(r *Rare) { r.Item = &item })
	}
	return m
}

// ancestry returns what to add to the summary of a new agent from the first ancestor that is left.
// ok is false if there is none.
func (s *Service) ancestry(ctx context.Context, h *Head) (l Leaving, ok bool, err error) {
	in := h.Agent.Settings.Memory.Inherited
	if in == nil || len(in.Ancestors) == 0 || s.cfg.Summaries == nil {
		return Leaving{}, false, nil
	}
	first := in.Ancestors[0]
	_, msgs, err := s.Remembered(ctx, h.Agent.Project, first.ID)
	if err != nil && !fault.Is(err, fault.NotFound) { // what was erased is not summarised
		return Leaving{}, false, err
	}
	l = Leaving{Agent: h.Agent, Earlier: h.Agent.Settings.Memory.Summary, ancestor: &first, rev: h.Rev}
	for _, m := range msgs {
		if m.Seq > first.After && !instructs(m.Role) {
			l.Messages = append(l.Messages, m)
		}
	}
	if len(l.Messages) > 0 {
		return l, true, nil
	}
	err = s.ancestorDone(ctx, l, 0, l.Earlier) // nothing is left of it
	return Leaving{}, false, err
}

// ancestorDone stores a summary that covers the first n messages of an earlier agent.
func (s *Service) ancestorDone(ctx context.Context, l Leaving, n int, text string) error {
	_, err := s.remember(ctx, l.Agent.Project, l.Agent.ID, func(_ *Head, m *Memory) (Change, error) {
		if m.Summary != l.Earlier || m.Inherited == nil || len(m.Inherited.Ancestors) == 0 || m.Inherited.Ancestors[0] != *l.ancestor {
			return Change{}, ErrSummaryStale
		}
		in := *m.Inherited
		in.Ancestors = slices.Clone(in.Ancestors)
		if n < len(l.Messages) {
			in.Ancestors[0].After = l.Messages[n-1].Seq
		} else {
			in.Ancestors = in.Ancestors[1:]
		}
		m.Inherited = &in
		if text != m.Summary {
			m.Summary, m.SummaryMS = text, s.NowMS()
		}
		return Change{}, nil
	})
	return err
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
func (s *Service) create(ctx context.Context, a Agent, c Change) (stored Agent, created bool, err error) {
	store := func() error {
		stored, created, err = s.cfg.Store.Create(ctx, a, s.cfg.MaxAgents, c)
		if created {
			s.live.add(keyOf(stored), s.cfg.Now()) // now, so that the next in line finds it
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
		dropped, dropErr := s.dropIdlest(ctx, a.Project)
		if dropErr != nil {
			return stored, created, dropErr
		}
		if dropped {
			continue
		}
		if s.live.running(a.Project) >= s.cfg.MaxAgents {
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

// dropIdlest ends the agent of the project that was idle for longest; false where none is idle.
func (s *Service) dropIdlest(ctx context.Context, project string) (bool, error) {
	k, since, ok := s.live.idlest(project, s.cfg.Now())
	if !ok {
		return false, nil
	}
	if s.peers != nil { // others may have had to do with it
		if err := s.learn(ctx, k); err != nil {
			return false, err
		}
	}
	err := s.stop(ctx, project, k.id, EndDropped, "", func(a Agent) error {
		if !a.Status.Ended() && s.live.activity(k, s.cfg.Now()).After(since) {
			return errNotDue // the agent was asked for in the meantime
		}
		return nil
	})
	if fault.Is(err, fault.NotFound) || errors.Is(err, errNotDue) {
		err = nil // there is another to be found
	}
	return err == nil, err
}

// running returns how many live agents of a project are registered.
func (r *registry) running(project string) (n int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for k, a := range r.agents {
		if k.project == project {
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
// false if all are busy.
func (r *registry) idlest(project string, now time.Time) (out agentKey, since time.Time, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for k, a := range r.agents {
		if k.project != project {
			continue
		}
		a.mu.Lock()
		idle := a.live && len(a.flights)+len(a.feeds) == 0
		a.mu.Unlock()
		at := time.Unix(0, a.asked.Load())
		if idle && (!ok || at.Before(since) || at.Equal(since) && k.id < out.id) {
			out, since, ok = k, at, true
		}
	}
	return out, since, ok
}
