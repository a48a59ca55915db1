package agents

import "github.com/heardlog/heardlog/memory"

// Summaries makes summaries in the background. Its methods are called after a change is stored, and
// must not block.
type Summaries interface {
	// Grew reports that an agent's memory has grown by at most so many code points and messages.
	Grew(project, id string, chars, messages int64)
	// Changed reports that an agent started, or changed in another way than by growing.
	Changed(project, id string)
	// Ended reports that an agent has ended or was erased.
	Ended(project, id string)
}

// notifySummaries reports a stored change to Summaries. ended is the agent's status after it.
func (s *Messages) notifySummaries(ref memory.Ref, c *memory.Change, ended bool) {
	switch {
	case ended && c.Agent != nil:
		s.cfg.Summaries.Ended(ref.Project, ref.ID)
	case ended:
	case c.Agent != nil:
		s.cfg.Summaries.Changed(ref.Project, ref.ID)
	default:
		chars := int64(0)
		for _, list := range [][]memory.Message{c.Append, c.Replace} {
			for i := range list {
				chars += list[i].Size()
			}
		}
		s.cfg.Summaries.Grew(ref.Project, ref.ID, chars, int64(len(c.Append)))
	}
}

// mayMakeSummaries reports whether an agent's policy may ask for summaries. It is cheap.
func (s *Messages) mayMakeSummaries(a *memory.Agent) bool {
	return s.cfg.Summaries != nil && (s.policies.differsFor(a, nil) || a.Settings.Memory.Ancestry())
}
