// Package remember connects calls with the long-term memory of their callers. A Service returns the
// Block of earlier talk that belongs in front of the caller's newest words; Decode reads what an
// agent's settings say about it.
//
// A block is fenced, states that it is data, and is never stored: Strip removes blocks from what a
// platform sends back.
package remember

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/heardlog/heardlog/job"
	"github.com/heardlog/heardlog/longterm/recall"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/ossa/pattern"
	"github.com/heardlog/heardlog/store/record"
)

// Deadline is how long an answer waits for its block at most.
const Deadline = 80 * time.Millisecond

// reserve is the part of the deadline that is left when a search must end.
const reserve = 5 * time.Millisecond

// maxWords limits the words that are searched for, in bytes. The newest count.
const maxWords = 4000

// Late is the strength of a block that was not found before the deadline, and Failed that of one
// that could not be searched for. Others have those of package recall.
const (
	Late   = "late"
	Failed = "failed"
)

// Calls finds what was said in a caller's calls; see recall.Service.
type Calls interface {
	Search(ctx context.Context, project, user string, q recall.Query, deadline time.Duration) (recall.Result, error)
}

// Config is what a Service needs. All fields are required.
type Config struct {
	Calls Calls
	Facts Facts
	// Patterns returns the weightiest learned patterns of some types.
	Patterns func(ctx context.Context, project string, types []string, limit int) ([]pattern.Pattern, error)
	// Records keeps what callers have been told would be erased.
	Records record.Store
	// Heard reports whether an agent's answer, by its place in the ledger, counts and was heard to
	// its end.
	Heard func(ctx context.Context, a *memory.Agent, seq int64) (bool, error)
	// Keep stores what is known of an agent's caller, unless something is stored already, and
	// returns what is stored then.
	Keep func(ctx context.Context, project, agentID string, k memory.Known) (memory.Known, error)
	// Allowed reports whether facts of a caller may be used.
	Allowed func(ctx context.Context, project, user string) (bool, error)
	// Extractor finds facts in calls that have ended.
	Extractor *job.AfterCall
	// Key makes the IDs of fences, the same on every server of a store.
	Key []byte
	Now func() time.Time
	// OnError is called when a caller's calls could not be searched.
	OnError func(what string, err error)
}

// Service finds what is remembered for a prompt. Its methods are safe for concurrent use.
type Service struct{ cfg Config }

// New returns a Service.
func New(c Config) *Service { return &Service{c} }

// Joined notes a new agent, durably: facts of its call are extracted once it has ended, if its
// settings ask for that.
func (s *Service) Joined(ctx context.Context, a *memory.Agent) error {
	return s.cfg.Extractor.Joined(ctx, a)
}

// Block is what is added to a prompt.
type Block struct {
	Text     string // "" for nothing
	IDs      []string
	Tokens   int
	Strength string
	Took     time.Duration
}

// Header returns the block's description for a response header.
func (b *Block) Header() string {
	return fmt.Sprintf("count=%d, tokens=%d, ms=%.3f, strength=%s", len(b.IDs), b.Tokens, float64(b.Took.Microseconds())/1000, b.Strength)
}

// Asked is the prompt that a block is for.
type Asked struct {
	Words string // the caller's newest
	Shown *Shown // what the model is shown anyway
	// Room is how many tokens the block may take, besides the limit of the settings; negative for
	// no other limit.
	Room int
	Used int // tokens of the settings' limit that the block of the whole call takes
	// Known are the IDs of the facts in that block.
	Known []string
}

// Recall returns the block for the newest words of an agent's caller: the facts that they ask for,
// unless the block of the whole call has them, and turns. It returns at the deadline at the latest,
// and a block without text if there is nothing to add. ok is false for an agent that wants no turns
// if there are no such facts either, and for a prompt without words.
func (s *Service) Recall(ctx context.Context, a *memory.Agent, asked Asked) (_ Block, ok bool) {
	r, user := &a.Settings.Memory.Remember, a.Settings.Scope.UserID
	if !r.Inject || user == "" || asked.Words == "" {
		return Block{}, false
	}
	began := s.cfg.Now()
	room := r.BudgetTokens - asked.Used
	if asked.Room >= 0 {
		room = min(room, asked.Room)
	}
	b := Block{Strength: Late}
	found := make(chan Block, 1)
	alarm := time.NewTimer(Deadline)
	defer alarm.Stop()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	words := asked.Words[max(0, len(asked.Words)-maxWords):]
	nonce := s.nonce(a)
	go func() { found <- s.search(ctx, a, words, nonce, &asked, room) }()
	select {
	case b = <-found:
	case <-alarm.C:
	case <-ctx.Done():
	}
	b.Took = s.cfg.Now().Sub(began)
	return b, r.Recalls() || b.Text != ""
}

// search returns the block for words, of room tokens at most. Facts have the first claim.
func (s *Service) search(ctx context.Context, a *memory.Agent, words, nonce string, asked *Asked, room int) Block {
	r, user := &a.Settings.Memory.Remember, a.Settings.Scope.UserID
	left := room*recall.BytesPerToken - fenceBytes
	b := Block{Strength: recall.None}
	var lines []string
	var known []Note
	if s.Allowed(ctx, a.Project, user) {
		list, strength, err := s.cfg.Facts.Recall(ctx, a.Project, user, words, r.TopK)
		if err != nil {
			s.failed(ctx, "search what is known of a caller for a prompt", err)
		}
		for _, n := range list {
			if size := len(quote(n.Line)) + 1; adds(r, strength) && !slices.Contains(asked.Known, n.ID) && size <= left {
				left -= size
				lines, b.IDs, b.Strength = append(lines, n.Line), append(b.IDs, n.ID), strength
				known = append(known, n)
			}
		}
	}
	if r.Recalls() {
		found, ids, strength := s.searchTurns(ctx, a, words, asked.Shown, known, left)
		lines, b.IDs = append(lines, found...), append(b.IDs, ids...)
		if len(known) == 0 || len(found) > 0 {
			b.Strength = strength
		}
	}
	if len(lines) > 0 {
		b.Text = fence(nonce, lines)
		b.Tokens = tokens(len(b.Text))
	}
	return b
}

// adds reports whether prompts have what a search found with a strength.
func adds(r *memory.Remember, strength string) bool {
	return strength == recall.Strong || strength == recall.Weak && r.Recall == memory.RecallAlways
}

// searchTurns returns the turns for words as lines of room bytes at most, without those that prove
// what is known.
func (s *Service) searchTurns(ctx context.Context, a *memory.Agent, words string, shown *Shown, known []Note, room int) (lines, ids []string, strength string) {
	r := &a.Settings.Memory.Remember
	q := recall.Query{Text: words, K: r.TopK, Now: s.cfg.Now(), Budget: max(1, (room+fenceBytes)/recall.BytesPerToken), NotCall: shown.all()}
	q.Except = func(t *recall.Turn) bool {
		return shown.has(t) || slices.ContainsFunc(known, func(n Note) bool { return n.provedBy(t) })
	}
	res, err := s.cfg.Calls.Search(ctx, a.Project, a.Settings.Scope.UserID, q, Deadline-reserve)
	if err != nil {
		s.failed(ctx, "search a caller's calls for a prompt", err)
		return nil, nil, Failed
	}
	if adds(r, res.Strength) {
		lines, ids = pick(res.Hits, room)
	}
	return lines, ids, res.Strength
}

// nonce returns the ID of the fences of an agent, the same for the whole call. It cannot be guessed
// from what a caller knows.
func (s *Service) nonce(a *memory.Agent) string {
	h := hmac.New(sha256.New, s.cfg.Key)
	fmt.Fprintf(h, "%q %q %d", a.Project, a.ID, a.StartMS)
	return hex.EncodeToString(h.Sum(nil))[:nonceLen]
}

// Shown is what a model is shown of a call without a block. It must not be changed once it is in
// use.
type Shown struct {
	call  string
	whole bool
	seqs  map[int64]bool
	texts map[string]bool
}

// NewShown returns a Shown for an agent's call. With whole, all messages of the call count as
// shown, since the platform keeps them.
func NewShown(call string, whole bool) *Shown {
	return &Shown{call: call, whole: whole, seqs: map[int64]bool{}, texts: map[string]bool{}}
}

// Add adds a message, by its place in the call's ledger (0 for none) and its text. A text that was
// taken over from an earlier call is shown, too.
func (s *Shown) Add(seq int64, text string) { s.seqs[seq], s.texts[text] = true, true }

// all returns the call of which everything is shown, or "".
func (s *Shown) all() string {
	if s.whole {
		return s.call
	}
	return ""
}

func (s *Shown) has(t *recall.Turn) bool {
	return t.Call == s.call && (s.whole || s.seqs[t.Seq]) || s.texts[t.Text]
}
