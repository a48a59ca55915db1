package redis

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/memory"
)

// Redis Cluster puts all keys with the same text in braces on one node, and a script may touch one node only. So everything of an agent has the tag {project/agent}, what
// finds the agents of a project has {project/}, and what belongs to the whole has {/}: three places that are written one after the other, never together.

type key struct{ project, id string }

// nameBytes are the bytes of names that stand in keys as they are; every other is written %XX, so that no name can end a tag or look like another.
const nameBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-~"

const hexDigits = "0123456789ABCDEF"

// enc writes a name for a key. The order of names is not kept.
func enc(name string) string {
	if strings.Trim(name, nameBytes) == "" {
		return name
	}
	b := make([]byte, 0, len(name)+16)
	for i := range len(name) {
		if c := name[i]; strings.IndexByte(nameBytes, c) >= 0 {
			b = append(b, c)
		} else {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return string(b)
}

// dec reads what enc wrote.
func dec(text string) string {
	name, _ := url.PathUnescape(text) // it is ours, and so it can be read
	return name
}

// The keys of an agent, in the order in which scripts get them.
const (
	kHead     = iota // hash: v the stamp, a the agent, r its revision, n the next seq, t the highest turn, s the status, k how many messages a view wants, w bytes of working memory
	kBody            // hash: seq → message
	kRev             // zset: seq by revision
	kTurn            // zset: seq by turn
	kClient          // hash: client id → seq
	kWork            // hash: key → value of working memory
	kWorkMeta        // hash: key → size, when set, when it ends
	kWorkEnd         // zset: key by its end
	kSeen            // hash: what servers have seen of the agent
	kVoid            // string: the claim of an agent that must not be made any more
	agentKeys = iota
)

var agentSuffix = [agentKeys]string{":h", ":m", ":r", ":t", ":c", ":w", ":wm", ":we", ":seen", ":void"}

// AgentTag and ProjectTag give what all keys of an agent, and of what finds the agents of a project, begin with.
func (s *Store) AgentTag(project, id string) string { return s.agentTag(key{project, id}) }

// ProjectTag is told with AgentTag.
func (s *Store) ProjectTag(project string) string { return s.projectTag(project) }

func (s *Store) agentTag(k key) string {
	return s.prefix + ":{" + enc(k.project) + "/" + enc(k.id) + "}"
}

func (s *Store) agentKey(k key, which int) string { return s.agentTag(k) + agentSuffix[which] }

func (s *Store) agentKeys(k key) []string {
	tag := s.agentTag(k)
	out := make([]string, agentKeys)
	for i := range out {
		out[i] = tag + agentSuffix[i]
	}
	return out
}

// leaseKey is where a lease of the agent stands.
func (s *Store) leaseKey(k key, what memory.Work) string { return s.agentTag(k) + ":l:" + string(what) }

// The keys of a project, in the order in which scripts get them.
const (
	kInfo       = iota // hash: agent → its entry, see info
	kNames             // hash: name → the live agent that has it
	kOwn               // hash: own key → the live agent that has it
	kJoins             // hash: join key → agent
	kPending           // zset: agents that are being made, by when that began
	kAll               // zset: agents, all of score 0, so that they stand by id
	kEnded             // zset: ended agents by their end
	kCheck             // zset: agents by when their keys may have expired
	kFind              // zset by text: key, live or not, number, agent
	kLast              // zset by text: name, end, number, agent
	kNo                // counter of agents
	kWorkDue           // zset: agents by when something of their working memory ends
	kStatus            // and the following: zsets of agents by status, as kAll
	projectKeys = kStatus + memory.Statuses
)

var projectSuffix = [kStatus]string{":info", ":names", ":own", ":joins", ":pending", ":all", ":ended", ":check", ":find", ":last", ":no", ":workdue"}

func (s *Store) projectTag(project string) string { return s.prefix + ":{" + enc(project) + "/}" }

func (s *Store) projectKey(project string, which int) string {
	tag := s.projectTag(project)
	if which < kStatus {
		return tag + projectSuffix[which]
	}
	return tag + ":st" + strconv.Itoa(which-kStatus)
}

func (s *Store) projectKeys(project string) []string {
	out := make([]string, projectKeys)
	for i := range out {
		out[i] = s.projectKey(project, i)
	}
	return out
}

// rootKey is a key of the whole.
func (s *Store) rootKey(name string) string { return s.prefix + ":{/}:" + name }
