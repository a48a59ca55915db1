package facts

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/redact"
)

// Limits of an extraction.
const (
	MaxExtracted = 12       // facts of one call
	MaxAnswer    = 64 << 10 // bytes of a model's answer
	maxItems     = 100      // entries that are read of it
	maxCall      = 5000     // messages of a call that are read, the newest
)

// Item is what a model's answer says about one fact.
type Item struct {
	Op        string   `json:"op"` // add, supersede or none; "" is add
	ID        string   `json:"id"` // of what it supersedes; "" is found by subject and attribute
	Kind      Kind     `json:"kind"`
	Subject   string   `json:"subject"`
	Attribute string   `json:"attribute"`
	Content   string   `json:"content"`
	Topics    []string `json:"topics"`
	Speaker   string   `json:"speaker"`
	FromSeq   int64    `json:"from_seq"`
	ToSeq     int64    `json:"to_seq"`
	Quote     string   `json:"quote"`
}

// Rejection is an entry of an answer that was not stored.
type Rejection struct {
	Index   int    // of the entry, from 0
	Reason  string // one of the reasons
	Detail  string
	Content string // of the entry, shortened; "" if it holds a secret
}

// Extracted is what an extraction stored.
type Extracted struct {
	Facts    []*Fact
	Rejected []Rejection
}

// Parse returns the entries of a model's answer: a JSON array from the first "[" to the last "]".
// An answer without one has no facts. It returns fault.Invalid for an array that is broken.
func Parse(answer string) ([]json.RawMessage, error) {
	if len(answer) > MaxAnswer {
		return nil, fault.At(fault.Invalid, "answer", "is %d bytes long; at most %d are allowed", len(answer), MaxAnswer)
	}
	from, to := strings.Index(answer, "["), strings.LastIndex(answer, "]")
	if from < 0 || to < from {
		if from >= 0 {
			return nil, fault.At(fault.Invalid, "answer", `has a "[" without a "]" after it: the model's JSON is cut off`)
		}
		return nil, nil
	}
	var out []json.RawMessage
	if err := json.Unmarshal([]byte(answer[from:to+1]), &out); err != nil {
		return nil, fault.At(fault.Invalid, "answer", `from its first "[" to its last "]" is not a JSON array: %v; nothing was stored`, err)
	}
	if len(out) > maxItems {
		return nil, fault.At(fault.Invalid, "answer", "holds %d entries; at most %d are allowed", len(out), maxItems)
	}
	return out, nil
}

// Extract stores the facts of a model's answer. Each is checked against what was heard in the
// agent's call, and those that fail are returned with a reason. Without an agent there is no call
// to check: the caller of the API vouches for the facts, and agreements are drafts.
func (s *Service) Extract(ctx context.Context, project, user, agentID, answer string) (Extracted, error) {
	return s.extract(ctx, project, user, answer, &extraction{agentID: agentID})
}

// ExtractPart is Extract for the answer to a Part of a call, from and to as that had them. An entry
// that rests on what was read before is a duplicate. If it is called again for the same part, it
// stores nothing.
func (s *Service) ExtractPart(ctx context.Context, project, user, agentID, answer string, from, to Read) (Extracted, error) {
	return s.extract(ctx, project, user, answer, &extraction{agentID: agentID, from: from, to: to})
}

func (s *Service) extract(ctx context.Context, project, user, answer string, x *extraction) (out Extracted, err error) {
	entries, err := Parse(answer)
	if err != nil {
		return out, err
	}
	erased, err := s.cfg.Callers.Guard(ctx, project, user)
	if err != nil {
		return out, err
	}
	if x.agentID != "" {
		if err := s.load(ctx, project, user, x); err != nil {
			return out, err
		}
	}
	err = s.allowed(ctx, project, user)
	refused := fault.Is(err, fault.Forbidden)
	if err != nil && !refused {
		return out, err
	}
	agent := memory.Agent{Project: project}
	if x.agent != nil {
		agent = *x.agent
	}
	err = s.cfg.Redact(ctx, &agent, func(r *redact.Redactor) {
		x.list = nil
		for i, raw := range entries {
			c := candidate{index: i}
			if refused {
				c.reject(ReasonConsent, "the caller's consent does not allow to keep facts")
			} else {
				c.check(raw, x, r)
			}
			if c.op != "none" || c.rejected != nil {
				x.list = append(x.list, &c)
			}
		}
	})
	if err != nil {
		return out, err
	}
	ids := make([]string, len(x.list))
	for i := range ids {
		ids[i] = s.cfg.NewID()
	}
	err = s.update(ctx, project, user, func(t *change) error {
		out = Extracted{}
		x.store(t, ids, &out)
		return nil
	})
	if err != nil {
		return out, err
	}
	for _, r := range out.Rejected {
		s.cfg.Count("rejected", r.Reason)
	}
	return out, s.unlessErased(ctx, project, user, out.Facts, erased)
}

// unlessErased deletes facts again if their caller was erased while they were made, and returns
// fault.Conflict then.
func (s *Service) unlessErased(ctx context.Context, project, user string, list []*Fact, erased func(context.Context) (bool, error)) error {
	if len(list) == 0 {
		return nil
	}
	ctx = context.WithoutCancel(ctx) // what was stored must not stay because a client left
	gone, err := erased(ctx)
	if err != nil || !gone {
		return err
	}
	for _, f := range list {
		if err := s.Delete(ctx, project, user, f.ID); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	return fault.New(fault.Conflict, "the caller was erased meanwhile; no fact was kept")
}

// extraction is one answer with the call that it is about.
type extraction struct {
	agentID string
	agent   *memory.Agent // nil without agentID
	version memory.Version
	msgs    []memory.Message // of the call that count, in order
	list    []*candidate
	// from and to are where a part of the call begins and ends; zero is the whole call.
	from, to Read
	least    int64 // the first message that a source may begin with
	of       int   // facts that were extracted from the call
}

// load reads the call.
func (s *Service) load(ctx context.Context, project, user string, x *extraction) error {
	names, err := s.cfg.Callers.Names(ctx, project, user)
	if err != nil {
		return err
	}
	versions, err := s.versions(ctx, project, names)
	if err != nil {
		return err
	}
	h, err := s.head(ctx, project, x.agentID, names)
	if err != nil {
		return err
	}
	x.agent, x.version = h.Agent, memory.Version{Rev: h.Rev}
	if v, ok := versions[x.agentID]; ok {
		x.version = v // from before the head: what came between is checked again
	}
	mem := &h.Agent.Settings.Memory
	first := max(mem.BaseSeq, 1)
	if mem.Inherited != nil { // it is proved by the call that it comes from
		first = max(first, mem.Inherited.UpToSeq+1)
	}
	if before := x.from.UpTo - maxBefore; before > first {
		x.least, first = before, max(first, before-maxBefore)
	}
	q := memory.MessageQuery{AfterSeq: max(first-1, h.NextSeq-1-maxCall), Limit: 500}
	for {
		msgs, err := s.cfg.Ledger.Messages(ctx, project, x.agentID, q)
		if err != nil {
			return err
		}
		for i := range msgs {
			if x.to.UpTo > 0 && msgs[i].Seq > x.to.UpTo {
				return nil
			}
			if said(&msgs[i], names) && msgs[i].InHistory() || lost(&msgs[i]) {
				x.msgs = append(x.msgs, msgs[i])
			}
			q.AfterSeq = msgs[i].Seq
		}
		if len(msgs) < q.Limit {
			return nil
		}
	}
}

// candidate is an entry of an answer.
type candidate struct {
	index    int
	op       string
	replaces string // the ID that the entry names
	new      New
	reason   string // why it can only be a draft
	rejected *Rejection
}

func (c *candidate) reject(reason, detail string) {
	c.rejected = &Rejection{Index: c.index, Reason: reason, Detail: detail, Content: clip(c.new.Content)}
}

// check checks an entry, in which r replaces personal data, against its call.
func (c *candidate) check(raw json.RawMessage, x *extraction, r *redact.Redactor) {
	var in Item
	if err := json.Unmarshal(raw, &in); err != nil || raw[0] != '{' {
		c.reject(ReasonInvalid, "the entry is not an object with the fields of a fact")
		return
	}
	c.op, c.replaces = strings.ToLower(in.Op), in.ID
	switch c.op {
	case "":
		c.op = "add"
	case "none":
		return
	case "add", "supersede":
	default:
		c.reject(ReasonInvalid, "op: must be add, supersede or none, not "+clip(in.Op))
		return
	}
	if secretIn(slices.Concat([]string{in.Content, in.Quote, in.Subject, in.Attribute}, in.Topics)...) != "" {
		c.reject(ReasonSecret, "secrets are not kept as facts")
		return
	}
	in.Content, in.Quote, in.Subject, in.Attribute, in.Topics = r.Text(in.Content), r.Text(in.Quote), r.Text(in.Subject), r.Text(in.Attribute), redactedTopics(r, in.Topics)
	c.new = New{Content: strings.TrimSpace(in.Content), Kind: in.Kind, Subject: in.Subject, Attribute: in.Attribute, Topics: in.Topics, By: ByExtractor, Cause: "extraction"}
	if x.agentID != "" {
		c.new.Source = &Source{AgentID: x.agentID, FromSeq: max(in.FromSeq, x.least), ToSeq: in.ToSeq, Quote: in.Quote, Speaker: speakerOf(&in), Read: x.to.UpTo}
		if strings.TrimSpace(in.Quote) == "" {
			c.reject(ReasonQuote, "the entry has no quote")
			return
		}
		if !slices.ContainsFunc(x.msgs, func(m memory.Message) bool { return counts(&m) && m.Seq >= in.FromSeq && m.Seq <= in.ToSeq }) {
			c.reject(ReasonNoSource, explain[ReasonNoSource])
			return
		}
	}
	if err := c.new.check(); err != nil {
		c.reject(ReasonInvalid, messageOf(err))
		return
	}
	if x.agentID == "" {
		if c.new.Kind == Agreement {
			c.new.Draft, c.reason = true, reasonNoProof
		}
		return
	}
	v := judge(&Fact{Content: c.new.Content, Kind: c.new.Kind, Subject: c.new.Subject, Attribute: c.new.Attribute, Topics: c.new.Topics, Source: c.new.Source}, c.new.Source.within(x.msgs))
	if v.reason != "" && !v.weak {
		c.reject(v.reason, explain[v.reason])
		return
	}
	c.new.Draft, c.reason = v.weak, v.reason
	c.new.Source.Heard, c.new.Source.Checked = v.method, x.version
}

// speakerOf returns whose words the quote of an entry is.
func speakerOf(in *Item) string {
	switch strings.ToLower(in.Speaker) {
	case speakerUser, "caller", "customer", "human":
		return speakerUser
	case speakerAssistant, "agent", "bot", "ai":
		return speakerAssistant
	case "":
		if in.Kind == Agreement {
			return speakerAssistant
		}
		return speakerUser
	}
	return in.Speaker
}

func messageOf(err error) string {
	if fault.CodeOf(err) == fault.Internal {
		return "it cannot be stored"
	}
	return err.Error()
}

// store puts the candidates among the facts of the caller.
func (x *extraction) store(t *change, ids []string, out *Extracted) {
	active := 0
	said := map[string]*Fact{}
	x.resume(t.caller)
	for _, e := range t.facts {
		if e.State == Active {
			active++
		}
		if e.State == Active || e.State == Draft {
			said[meaning(e.Kind, e.Content)] = e.Fact
		}
	}
	for i, c := range x.list {
		reject := func(reason, detail string) {
			out.Rejected = append(out.Rejected, Rejection{Index: c.index, Reason: reason, Detail: detail, Content: clip(c.new.Content)})
		}
		var old *Fact
		switch {
		case c.rejected != nil:
			out.Rejected = append(out.Rejected, *c.rejected)
			continue
		case x.of >= MaxExtracted && (c.new.Kind != Agreement || x.of >= 2*MaxExtracted):
			reject(ReasonTooMany, "a call has at most 12 facts, and 12 agreements more")
			continue
		case x.to.UpTo > 0 && !x.isNew(&c.new):
			reject(ReasonDuplicate, "what proves it was read for facts before")
			continue
		case said[meaning(c.new.Kind, c.new.Content)] != nil:
			reject(ReasonDuplicate, "the caller has this fact already")
			x.seen(t, said[meaning(c.new.Kind, c.new.Content)], c)
			continue
		}
		if c.op == "supersede" {
			if old = t.predecessor(c); old == nil {
				reject(ReasonPredecessor, "there is no active fact of this subject and attribute to supersede")
				continue
			}
		}
		more := !c.new.Draft && old == nil // active facts
		if more && active >= MaxActive || len(t.facts)+len(out.Facts) >= MaxFacts {
			reject(ReasonFull, "the caller has as many facts as are allowed")
			continue
		}
		if more {
			active++
		}
		f := c.new.fact(ids[i], t.now)
		f.Reason = c.reason
		if old != nil {
			f.Supersedes, f.OrderUS = old.ID, old.order()
		}
		f.CreatedUS += int64(len(out.Facts)) // in the order of the answer
		f.SeenUS = f.CreatedUS
		t.put(f, EventAdded, c.new.Cause)
		if old != nil && f.State == Active {
			t.supersede(old, f.ID, c.new.Cause)
			delete(said, meaning(old.Kind, old.Content))
		}
		said[meaning(f.Kind, f.Content)] = f
		out.Facts = append(out.Facts, f)
		x.of++
	}
}

// seen notes that the caller said an active fact again in another call than the one it comes from.
// A draft for which there was too little proof is active once the caller's words prove it.
func (x *extraction) seen(t *change, f *Fact, c *candidate) {
	if f.State == Draft && f.Reason == ReasonWeak && !c.new.Draft && t.puts[f.ID] == nil && t.room() {
		f = edit(f)
		f.Source, f.Reason = c.new.Source, ""
		t.activate(f, EventAccepted, c.new.Cause)
		return
	}
	if x.agentID == "" || c.new.Draft || f.State != Active || f.Source != nil && f.Source.AgentID == x.agentID || t.puts[f.ID] != nil {
		return
	}
	f = edit(f)
	f.SeenUS = t.now.UnixMicro()
	t.put(f, EventReinforced, c.new.Cause)
	f.History = slices.Clone(f.History)
	f.History[len(f.History)-1].Call = x.agentID
}

// meaning returns what is the same for two facts that say the same.
func meaning(k Kind, content string) string { return string(k) + " " + fold(content).text }

// predecessor returns the active fact of the entry's subject and attribute: the one that it names,
// or the newest. It returns nil if there is none.
func (t *change) predecessor(c *candidate) (found *Fact) {
	if c.replaces == "" && c.new.Subject == "" && c.new.Attribute == "" {
		return nil
	}
	same := func(a, b string) bool { return a == b || fold(a).text == fold(b).text }
	look := func(f *Fact) {
		fits := f.State == Active && (c.replaces == "" || c.replaces == f.ID) && same(f.Subject, c.new.Subject) && same(f.Attribute, c.new.Attribute)
		if fits && (found == nil || older(found, f) < 0) {
			found = f
		}
	}
	for id, e := range t.facts {
		if t.puts[id] == nil {
			look(e.Fact)
		}
	}
	for _, f := range t.puts {
		look(f)
	}
	return found
}
