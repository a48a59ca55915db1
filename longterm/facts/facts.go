// Package facts keeps statements about callers, each with its proof: where in which call it was
// said, in words that were heard. A Fact is one statement, and a Service adds, finds, changes and
// withdraws facts. A fact whose words turn out not to have been heard is withdrawn.
//
// Facts of a caller are records of one space. A Service keeps those of recent callers in memory and
// reads what has changed before each call, so several servers on one store agree.
package facts

import (
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
)

// Limits of facts.
const (
	MaxActive     = 1000 // active facts of a caller
	MaxFacts      = 5000 // facts of a caller in any state
	MaxContent    = 300  // characters of a content or quote
	MaxTopics     = 20
	MaxTopic      = 64 // characters of a topic, subject, attribute or cause
	MaxID         = 128
	maxHistory    = 50     // events kept of a fact, the newest
	maxProofRange = 10_000 // messages between the first and the last of a proof
	maxBefore     = 200    // messages before the first of a proof that may have what was not heard
)

// Kind is what a fact is about.
type Kind string

// The kinds.
const (
	Profile     Kind = "profile"
	Preference  Kind = "preference"
	Agreement   Kind = "agreement" // active only if the caller heard what was proposed
	Happening   Kind = "event"
	Instruction Kind = "instruction"
)

// Kinds lists the kinds.
func Kinds() []Kind { return []Kind{Profile, Preference, Agreement, Happening, Instruction} }

// State is whether a fact holds.
type State string

// The states.
const (
	Draft      State = "draft" // not proved enough; never used until it is accepted
	Active     State = "active"
	Superseded State = "superseded" // another fact holds in its place
	Withdrawn  State = "withdrawn"  // not true: its words were not heard, or it was undone
	Expired    State = "expired"    // its time is over
)

// States lists the states.
func States() []State { return []State{Draft, Active, Superseded, Withdrawn, Expired} }

// The values of Fact.By.
const (
	ByAPI       = "api"
	ByTool      = "tool"
	ByExtractor = "extractor@1"
	ByImport    = "imported" // from another product
)

// Source is where a fact was said.
type Source struct {
	AgentID string `json:"agent_id"`
	FromSeq int64  `json:"from_seq"`
	ToSeq   int64  `json:"to_seq"`
	Quote   string `json:"quote"`
	// Speaker is user or assistant: whose words the quote is.
	Speaker string `json:"speaker"`
	// Heard is the method by which it is known that the quote was heard; "" for words of the
	// caller.
	Heard string `json:"heard,omitempty"`
	// Read is the last message that the extraction read that found the fact, if it may have read a
	// part of the call; 0 for others.
	Read int64 `json:"read,omitempty"`
	// Checked is the agent's version of the last check that is stored.
	Checked memory.Version `json:"checked,omitzero"`
}

// Fact is a statement about a caller that later calls should know: an allergy, an address, a wish.
// A model finds it in a call, or a client states it. Its proof is where it was said. A fact is
// withdrawn when it turns out that its words were not heard, and a newer fact may replace it. It
// outlives the call that it comes from. Facts are immutable once returned.
type Fact struct {
	ID         string   `json:"-"`
	Content    string   `json:"content"`
	Kind       Kind     `json:"kind"`
	Subject    string   `json:"subject,omitempty"`
	Attribute  string   `json:"attribute,omitempty"`
	Topics     []string `json:"topics,omitempty"`
	Confidence float64  `json:"confidence"` // 0 to 1
	State      State    `json:"state"`
	// Reason is why it is a draft or withdrawn: one of the reasons of Extract, or "undone".
	Reason string `json:"reason,omitempty"`
	// Times in Unix µs, so that facts of one millisecond have an order.
	CreatedUS int64 `json:"created_us"`
	SeenUS    int64 `json:"seen_us"` // last stated or reinforced
	UpdatedUS int64 `json:"updated_us"`
	// OrderUS is when the first fact was added that this one supersedes; 0 for none.
	OrderUS int64 `json:"order_us,omitempty"`
	// When it holds, Unix ms; 0 is open.
	ValidFromMS int64 `json:"valid_from_ms,omitempty"`
	ValidToMS   int64 `json:"valid_to_ms,omitempty"`
	// ActiveMS is when it became active and EndedMS when it ceased to be, Unix ms.
	ActiveMS int64 `json:"active_ms,omitempty"`
	EndedMS  int64 `json:"ended_ms,omitempty"`
	// Supersedes is the fact that this one replaces, or will once it is active.
	Supersedes   string `json:"supersedes,omitempty"`
	SupersededBy string `json:"superseded_by,omitempty"`
	Hits         int    `json:"hits,omitempty"` // how often it was reinforced
	// Accepted is set if a person accepted it although it was not proved enough.
	Accepted bool    `json:"accepted,omitempty"`
	Source   *Source `json:"source,omitempty"`
	By       string  `json:"by"`
	History  []Event `json:"history"`
}

// Event is one change of a fact.
type Event struct {
	AtMS       int64   `json:"at_ms"`
	Name       string  `json:"event"` // see the names
	Cause      string  `json:"cause,omitempty"`
	State      State   `json:"state"`
	Confidence float64 `json:"confidence"`
	// Call is the call in which the caller said the fact again, if an extraction found that.
	Call string `json:"call,omitempty"`
}

// The names of events.
const (
	EventAdded      = "added"
	EventChanged    = "changed"
	EventAccepted   = "accepted"
	EventReinforced = "reinforced"
	EventDecayed    = "decayed"
	EventSuperseded = "superseded"
	EventRestored   = "restored"
	EventWithdrawn  = "withdrawn"
	EventExpired    = "expired"
)

// New is a fact to add.
type New struct {
	ID         string // "" makes one
	Content    string
	Kind       Kind // "" is Profile
	Subject    string
	Attribute  string
	Topics     []string
	Confidence *float64 // nil is 1
	// ValidFromMS and ValidToMS are Unix ms; 0 is open.
	ValidFromMS, ValidToMS int64
	Source                 *Source // nil has none
	// CreatedMS and SeenMS, in Unix ms, are when a fact that comes from elsewhere was first added
	// and last seen there. CreatedMS 0 is now, and SeenMS 0 is CreatedMS.
	CreatedMS, SeenMS int64
	Draft             bool // is not to be used until it is accepted
	By                string
	Cause             string
}

// check cleans a new fact and returns fault.Invalid or fault.Missing for one that cannot be stored.
func (n *New) check() (err error) {
	if strings.TrimSpace(n.Content) == "" {
		return fault.At(fault.Missing, "content", "is required: what is true of the caller, in one sentence")
	}
	if n.ID != "" {
		if err := text.ValidName("id", n.ID, MaxID); err != nil {
			return err
		}
	}
	if n.Kind == "" {
		n.Kind = Profile
	}
	if !slices.Contains(Kinds(), n.Kind) {
		return fault.At(fault.Invalid, "kind", "must be one of %s, not %q", Join(Kinds()), text.Clip(string(n.Kind), 40))
	}
	if n.Content, err = short("content", n.Content, MaxContent); err != nil {
		return err
	}
	if n.Subject, err = short("subject", n.Subject, MaxTopic); err != nil {
		return err
	}
	if n.Attribute, err = short("attribute", n.Attribute, MaxTopic); err != nil {
		return err
	}
	if n.Cause, err = short("cause", n.Cause, MaxTopic); err != nil {
		return err
	}
	if n.Topics, err = topics(n.Topics); err != nil {
		return err
	}
	if n.Confidence != nil {
		if err := share("confidence", *n.Confidence); err != nil {
			return err
		}
	}
	if err := n.checkSource(); err != nil {
		return err
	}
	if n.ValidToMS != 0 && n.ValidToMS <= n.ValidFromMS {
		return fault.At(fault.Invalid, "valid_to", "must be after valid_from")
	}
	if what := secretIn(slices.Concat([]string{n.Content, n.Subject, n.Attribute}, n.Topics)...); what != "" {
		return fault.At(fault.Invalid, "content", "holds %s, and secrets are not kept as facts", what)
	}
	return nil
}

func (n *New) checkSource() (err error) {
	s := n.Source
	if s == nil {
		return nil
	}
	switch {
	case s.AgentID == "":
		return fault.At(fault.Missing, "source.agent_id", "is required")
	case s.FromSeq < 1:
		return fault.At(fault.Invalid, "source.from_seq", "must be the seq of a message, at least 1")
	case s.ToSeq < s.FromSeq || s.ToSeq-s.FromSeq > maxProofRange:
		return fault.At(fault.Invalid, "source.to_seq", "must be at least from_seq and at most %d more", maxProofRange)
	case s.Speaker != speakerUser && s.Speaker != speakerAssistant:
		return fault.At(fault.Invalid, "source.speaker", "must be user or assistant, not %q", text.Clip(s.Speaker, 40))
	}
	if s.Quote, err = short("source.quote", s.Quote, MaxContent); err != nil {
		return err
	}
	if what := secretIn(s.Quote); what != "" {
		return fault.At(fault.Invalid, "source.quote", "holds %s, and secrets are not kept as facts", what)
	}
	return nil
}

// short returns a text that may be stored, of at most the given number of characters.
func short(field, s string, most int) (string, error) {
	s, err := text.Clean(field, s, 4*most)
	if err != nil {
		return "", err
	}
	if n := utf8.RuneCountInString(s); n > most {
		return "", fault.At(fault.Invalid, field, "has %d characters; at most %d are allowed", n, most)
	}
	return s, nil
}

func topics(list []string) ([]string, error) {
	if len(list) > MaxTopics {
		return nil, fault.At(fault.Invalid, "topics", "has %d entries; at most %d are allowed", len(list), MaxTopics)
	}
	out := make([]string, 0, len(list))
	for _, t := range list {
		t, err := short("topics", t, MaxTopic)
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(t) == "" {
			return nil, fault.At(fault.Invalid, "topics", "must not hold an empty topic")
		}
		out = append(out, t)
	}
	return out, nil
}

// share checks a number from 0 to 1.
func share(field string, x float64) error {
	if !(x >= 0 && x <= 1) {
		return fault.At(fault.Invalid, field, "must be a number from 0 to 1, not %v", x)
	}
	return nil
}

// checkTimes refuses times that cannot have been.
func (n *New) checkTimes(now time.Time) error {
	switch ms := now.UnixMilli(); {
	case n.CreatedMS > ms:
		return fault.At(fault.Invalid, "created_at", "must not be in the future")
	case n.SeenMS > ms:
		return fault.At(fault.Invalid, "last_seen_at", "must not be in the future")
	case n.SeenMS != 0 && (n.CreatedMS == 0 || n.SeenMS < n.CreatedMS):
		return fault.At(fault.Invalid, "last_seen_at", "needs a created_at that is not after it")
	}
	return nil
}

// round removes what adding tenths leaves in a binary number, so that .7 and .1 are .8.
func round(x float64) float64 { return math.Round(x*1e9) / 1e9 }

// Join returns words with commas between them, as errors list what is allowed.
func Join[T ~string](list []T) string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return strings.Join(out, ", ")
}

// fact returns the stored form of a fact.
func (n *New) fact(id string, now time.Time) *Fact {
	f := &Fact{
		ID: id, Content: n.Content, Kind: n.Kind, Subject: n.Subject, Attribute: n.Attribute, Topics: n.Topics, Confidence: 1, State: Active,
		CreatedUS: now.UnixMicro(), SeenUS: now.UnixMicro(), ValidFromMS: n.ValidFromMS, ValidToMS: n.ValidToMS, By: n.By,
	}
	if n.Confidence != nil {
		f.Confidence = *n.Confidence
	}
	if n.Draft {
		f.State = Draft
	}
	if n.Source != nil {
		s := *n.Source
		f.Source = &s
	}
	if n.CreatedMS != 0 {
		f.CreatedUS = n.CreatedMS * 1000
		f.SeenUS = max(f.CreatedUS, n.SeenMS*1000)
		if f.State == Active {
			f.ActiveMS = n.CreatedMS
		}
	}
	return f
}

// faded returns the fact with the confidence that is left of the stored one, which is that of when
// it was last seen: half of it after each half-life, in steps of a hundredth. 0 = all of it.
func (f *Fact) faded(halfLife time.Duration, now time.Time) *Fact {
	if halfLife == 0 {
		return f
	}
	since := max(0, now.Sub(time.UnixMicro(f.SeenUS)))
	left := math.Round(100*math.Exp2(-float64(since)/float64(halfLife))) / 100
	if left == 1 {
		return f
	}
	c := *f
	c.Confidence = round(f.Confidence * left)
	return &c
}

// order returns when the fact, or the first that it supersedes, was added.
func (f *Fact) order() int64 {
	if f.OrderUS != 0 {
		return f.OrderUS
	}
	return f.CreatedUS
}

// holdsAt reports whether the fact was held to be true at a time, Unix ms.
func (f *Fact) holdsAt(ms int64) bool {
	from := f.ValidFromMS
	if from == 0 {
		from = f.ActiveMS
	}
	switch {
	case f.State == Draft, f.State == Withdrawn, f.ActiveMS == 0, ms < from:
		return false
	case f.ValidToMS != 0 && ms >= f.ValidToMS:
		return false
	}
	return f.EndedMS == 0 || ms < f.EndedMS
}

// Word returns how sure a fact is: high, medium or low.
func (f *Fact) Word() string {
	switch {
	case f.Confidence >= .8:
		return "high"
	case f.Confidence >= .5:
		return "medium"
	}
	return "low"
}
