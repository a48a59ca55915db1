package facts

import (
	"context"
	"math"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
)

// The speakers.
const (
	speakerUser      = string(memory.User)
	speakerAssistant = string(memory.Assistant)
)

// Reasons why a fact is refused, withdrawn or a draft.
const (
	ReasonInvalid     = "invalid"
	ReasonQuote       = "quote"
	ReasonSpeaker     = "speaker"
	ReasonProposal    = "proposal"
	ReasonNoAnswer    = "no_answer"
	ReasonWeak        = "weak_evidence"
	ReasonUnheard     = "unheard"
	ReasonDigits      = "digits"
	ReasonSecret      = "secret"
	ReasonTooMany     = "too_many"
	ReasonConsent     = "consent"
	ReasonDuplicate   = "duplicate"
	ReasonPredecessor = "predecessor"
	ReasonNoSource    = "no_source"
	ReasonFull        = "full"
)

// explain maps each reason to its meaning.
var explain = map[string]string{
	ReasonQuote:    "the quote does not stand in what was heard of these messages",
	ReasonSpeaker:  "only the caller's own words prove this kind of fact",
	ReasonProposal: "the caller only agreed, and no answer that was heard holds what was proposed",
	ReasonNoAnswer: "the caller said nothing after the proposal",
	ReasonWeak:     "it is not certain that the caller heard what it rests on; it stays a draft until better evidence comes",
	ReasonUnheard:  "it has words of an answer that the caller did not hear",
	ReasonDigits:   "it has a number or date that the quote lacks",
	ReasonNoSource: "the call has no such messages",
}

// verdict is what checking a proof found.
type verdict struct {
	reason  string // "" if the proof stands
	weak    bool   // it stands, but it is not certain that the caller heard the words
	method  string
	version memory.Version // of the agent, from before the check
	end     int64          // the last message that the check depends on; see around
}

// counts reports whether a message was said or heard. A message that only left the window counts.
func counts(m *memory.Message) bool {
	injected := m.Role == memory.User && (m.Source == memory.SourceCommand || m.Source == memory.SourceSilence)
	return (m.Role == memory.User || m.Role == memory.Assistant) && (m.State == memory.Final || m.State == memory.Dropped) &&
		m.Status == memory.Accepted && m.Content != "" && !injected
}

// prove checks a fact against the call that its source names.
func (s *Service) prove(ctx context.Context, project, user string, f *Fact) (verdict, error) {
	names, err := s.cfg.Callers.Names(ctx, project, user)
	if err != nil {
		return verdict{}, err
	}
	versions, err := s.versions(ctx, project, names)
	if err != nil {
		return verdict{}, err
	}
	version, ok := versions[f.Source.AgentID]
	if !ok {
		h, err := s.head(ctx, project, f.Source.AgentID, names)
		if err != nil {
			return verdict{}, err
		}
		version = memory.Version{Rev: h.Rev}
	}
	msgs, _, err := s.around(ctx, project, f.Source, names)
	if err != nil {
		return verdict{}, err
	}
	v := judge(f, msgs)
	v.version = version
	return v, nil
}

// head returns the head of an agent whose call may be one of a caller's. It fails with
// fault.Invalid if the call is another caller's.
func (s *Service) head(ctx context.Context, project, agentID string, names []string) (memory.Head, error) {
	h, err := s.cfg.Ledger.Head(ctx, project, agentID)
	if err != nil {
		return h, err
	}
	if owner := h.Agent.Settings.Scope.UserID; owner != "" && !slices.Contains(names, owner) {
		return h, fault.At(fault.Invalid, "agent_id", "is an agent of another caller")
	}
	return h, nil
}

// versions returns the versions of a caller's agents, by ID.
func (s *Service) versions(ctx context.Context, project string, names []string) (map[string]memory.Version, error) {
	list, err := memories.AgentsOf(ctx, s.cfg.Items, project, names)
	out := map[string]memory.Version{}
	for _, a := range list {
		out[a.ID] = a.Version
	}
	return out, err
}

// around returns the messages of a source, maxBefore before it, and what comes after it up to the
// caller's next words; those that count, and those that were lost. end is the place of these words,
// or beyond all messages if the caller has not spoken yet.
func (s *Service) around(ctx context.Context, project string, src *Source, names []string) (out []memory.Message, end int64, err error) {
	q := memory.MessageQuery{AfterSeq: max(src.FromSeq-1-maxBefore, 0), Limit: maxBefore + 100}
	for {
		msgs, err := s.cfg.Ledger.Messages(ctx, project, src.AgentID, q)
		if err != nil {
			return nil, 0, err
		}
		for i := range msgs {
			m := &msgs[i]
			if said(m, names) || lost(m) {
				out = append(out, *m)
			}
			if src.endsAt(m, said(m, names)) {
				return src.within(out), m.Seq, nil
			}
			q.AfterSeq = m.Seq
		}
		if len(msgs) < q.Limit {
			return src.within(out), math.MaxInt64, nil
		}
	}
}

// endsAt reports whether a message is the last that is read to check a source.
func (src *Source) endsAt(m *memory.Message, said bool) bool {
	return m.Seq > src.ToSeq && (said && m.Role == memory.User || m.Seq > src.ToSeq+maxProofRange)
}

// within returns those of the messages of a call that prove a source: see around.
func (src *Source) within(msgs []memory.Message) []memory.Message {
	from := slices.IndexFunc(msgs, func(m memory.Message) bool { return m.Seq >= src.FromSeq-maxBefore })
	if from < 0 {
		return nil
	}
	msgs = msgs[from:]
	for i := range msgs {
		if src.endsAt(&msgs[i], counts(&msgs[i])) {
			return msgs[:i+1]
		}
	}
	return msgs
}

// said reports whether a message counts and is of a caller's call.
func said(m *memory.Message, names []string) bool {
	owner := m.Filed().Scope.UserID
	return counts(m) && (owner == "" || slices.Contains(names, owner))
}

// lost reports whether a message is an answer of which nothing was heard.
func lost(m *memory.Message) bool {
	return m.Role == memory.Assistant && !counts(m) && m.Original() != ""
}

// judge checks whether messages of one call, in order, prove a fact.
func judge(f *Fact, all []memory.Message) verdict {
	src := f.Source
	msgs := slices.DeleteFunc(slices.Clone(all), func(m memory.Message) bool { return !counts(&m) })
	if src.Speaker != speakerUser && f.Kind != Agreement {
		return verdict{reason: ReasonSpeaker}
	}
	at := find(msgs, src)
	if len(at) == 0 {
		return verdict{reason: ReasonQuote}
	}
	if missing(f, src.Quote) {
		return verdict{reason: ReasonDigits}
	}
	if f.Kind == Agreement {
		return agreed(f, msgs, all, at)
	}
	return heard(f, all, at)
}

// agreed checks that what was proposed in an agreement was heard and answered. at are the messages
// of the quote.
func agreed(f *Fact, msgs, all, at []memory.Message) verdict {
	proposal := at
	own := f.Source.Speaker == speakerUser
	if own { // the proposal came before the caller's words
		proposal = nil
		for _, m := range msgs {
			if m.Role == memory.Assistant && m.Seq >= f.Source.FromSeq && m.Seq < at[0].Seq {
				proposal = append(proposal, m)
			}
		}
		if len(proposal) == 0 {
			return verdict{reason: ReasonProposal}
		}
	}
	last := proposal[len(proposal)-1]
	if !slices.ContainsFunc(msgs, func(m memory.Message) bool { return m.Role == memory.User && m.Seq > last.Seq }) {
		return verdict{reason: ReasonNoAnswer}
	}
	w := newWords(f, all, at)
	if w.unheard() {
		return verdict{reason: ReasonUnheard}
	}
	v := verdict{method: string(last.Method)}
	// "Shall I do that?" asks about what came before.
	if cut := lastCut(all, proposal[0].Seq); cut != nil && 2*w.covered(slices.Concat(w.own, w.heard)) < len(w.claim) {
		v.weak, v.reason, v.method = true, ReasonWeak, string(cut.Method)
	}
	for i := range proposal {
		// What was cut may have been a condition, even if all that the agreement says was heard.
		if m := &proposal[i]; uncertain(m) || cutShort(m) {
			v.weak, v.reason, v.method = true, ReasonWeak, string(m.Method)
		}
	}
	return v
}

// find returns the last messages in which the quote of a source was heard: one, or several of the
// speaker that nothing else came between. It returns none if it was not heard.
func find(msgs []memory.Message, src *Source) (found []memory.Message) {
	quote := fold(src.Quote)
	if quote.text == "" {
		return nil
	}
	var run []memory.Message
	inRun := func() bool {
		var all []string
		for _, m := range run {
			all = append(all, m.Content)
		}
		return fold(strings.Join(all, " ")).has(quote.text)
	}
	for _, m := range msgs {
		if m.Seq < src.FromSeq || m.Seq > src.ToSeq {
			continue
		}
		if string(m.Role) != src.Speaker {
			if len(run) > 1 && inRun() {
				found = run
			}
			run = nil
			continue
		}
		if fold(m.Content).has(quote.text) {
			found, run = []memory.Message{m}, nil
			continue
		}
		run = append(run, m)
	}
	if len(run) > 1 && inRun() {
		found = run
	}
	return found
}

// folded is a text without case, spaces and punctuation.
type folded struct {
	text string
	edge []bool // by byte of text and at its end: whether a word begins or ends there
}

// fold folds a text. What separates two digits stays, as a space: 1.50 is not 150.
func fold(s string) folded {
	s = strings.ToLower(norm.NFKC.String(s))
	var b strings.Builder
	var f folded
	gap, last, long := true, rune(0), 0
	for i, r := range s {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) {
			within := r == '\'' || r == '’' // a word: don't, but not j'habite
			gap = gap || !within || long <= 2 && elided(s[i+len(string(r)):])
			continue
		}
		if long++; gap {
			long = 1
		}
		free := text.Unspaced(r)
		if gap && unicode.IsDigit(r) && unicode.IsDigit(last) {
			f.edge = append(f.edge, true)
			b.WriteByte(' ')
		}
		for n := range len(string(r)) {
			f.edge = append(f.edge, n == 0 && (gap || free || b.Len() == 0))
		}
		b.WriteRune(r)
		gap, last = free, r
	}
	f.text, f.edge = b.String(), append(f.edge, true)
	return f
}

// elided reports whether a text begins with a word of at least three letters, as after an article
// or a pronoun that has lost its vowel.
func elided(s string) bool {
	n := 0
	for _, r := range s {
		if !unicode.IsLetter(r) {
			break
		}
		n++
	}
	return n >= 3
}

// has reports whether whole words of the text are those of a folded quote.
func (f folded) has(quote string) bool {
	for from := 0; ; {
		i := strings.Index(f.text[from:], quote)
		if i < 0 {
			return false
		}
		i += from
		if f.edge[i] && f.edge[i+len(quote)] {
			return true
		}
		from = i + 1
	}
}

// missing reports whether a fact has a number that its quote lacks; an agreement, also a number in
// words, a weekday or a month.
func missing(f *Fact, quote string) bool {
	has := exact(quote, true)
	texts := append([]string{f.Content, f.Subject, f.Attribute}, f.Topics...)
	for _, s := range texts {
		for w := range exact(s, f.Kind == Agreement) {
			if !has[w] {
				return true
			}
		}
	}
	return false
}

// exact returns the numbers in a text, and with words also those in words, weekdays and months.
func exact(s string, words bool) map[string]bool {
	out := map[string]bool{}
	s = strings.ToLower(norm.NFKC.String(s))
	isWord := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) }
	for _, w := range strings.FieldsFunc(withoutThousands(s), func(r rune) bool { return !isWord(r) }) {
		digits := strings.FieldsFunc(w, func(r rune) bool { return !unicode.IsDigit(r) })
		for _, d := range digits {
			out[d] = true
		}
		if words && len(digits) == 0 && exactWords[w] {
			out[w] = true
		}
	}
	return out
}

// withoutThousands removes the separators of thousands: 1,200 is 1200.
func withoutThousands(s string) string {
	r := []rune(s)
	out := make([]rune, 0, len(r))
	digit := func(i int) bool { return i >= 0 && i < len(r) && unicode.IsDigit(r[i]) }
	for i, c := range r {
		if strings.ContainsRune(",.'’\u00a0\u202f", c) && digit(i-1) && digit(i+1) && digit(i+2) && digit(i+3) && !digit(i+4) {
			continue
		}
		out = append(out, c)
	}
	return string(out)
}

// exactWords are numbers, weekdays and months in words.
var exactWords = wordSet(`two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
	eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million half quarter
	monday tuesday wednesday thursday friday saturday sunday january february march april june july august september october
	november december today tomorrow tonight noon midnight
	zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn zwanzig
	dreißig vierzig fünfzig sechzig siebzig achtzig neunzig hundert tausend montag dienstag mittwoch donnerstag freitag samstag sonntag
	januar februar märz mai juni juli oktober dezember heute morgen übermorgen
	deux trois quatre cinq sept huit neuf dix onze douze treize quatorze quinze seize vingt trente quarante cinquante soixante cent
	mille lundi mardi mercredi jeudi vendredi samedi dimanche janvier février mars avril juin juillet août septembre octobre novembre
	décembre demain
	dos tres cuatro cinco siete ocho nueve diez once doce trece catorce veinte treinta cuarenta cincuenta sesenta
	setenta ochenta noventa cien ciento mil lunes martes miércoles jueves viernes sábado domingo enero febrero marzo abril mayo junio julio
	agosto septiembre octubre noviembre diciembre mañana
	due tre quattro cinque sette otto nove dieci venti trenta quaranta cinquanta sessanta settanta ottanta novanta cento
	lunedì martedì mercoledì giovedì venerdì sabato domenica gennaio febbraio aprile maggio giugno luglio settembre ottobre dicembre domani`)

func wordSet(s string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(s) {
		out[w] = true
	}
	return out
}

// current returns the facts of a caller, locked, after those were withdrawn or expired that no
// longer hold.
func (s *Service) current(ctx context.Context, project, user string) (c *caller, err error) {
	err = retry(ctx, func() error {
		for {
			if c, err = s.settleSome(ctx, project, user); c != nil || err != nil {
				return err
			}
		}
	})
	return c, err
}

// settleSome returns the facts of a caller, locked, if all of them are settled. If not, it settles
// some and returns nil.
func (s *Service) settleSome(ctx context.Context, project, user string) (settled *caller, err error) {
	c, err := s.enter(ctx, project, user)
	if err != nil {
		return nil, err
	}
	defer func() {
		if settled == nil {
			c.leave()
		}
	}()
	t := s.newChange(c)
	if err := s.settle(ctx, t); err != nil {
		return nil, err
	}
	if len(t.puts) == 0 {
		return c, nil
	}
	return nil, s.commit(ctx, s.cfg.Upkeep, t)
}

// settle looks for facts whose time is over or whose proof has changed.
func (s *Service) settle(ctx context.Context, t *change) error {
	open := func(f *Fact) bool { return f.State == Active || f.State == Draft }
	var versions map[string]memory.Version
	for _, e := range t.facts {
		if open(e.Fact) && e.Source != nil {
			var err error
			if versions, err = s.versions(ctx, t.project, t.names); err != nil {
				return err
			}
			break
		}
	}
	due := func(f *Fact) bool {
		if f.Source == nil || f.ended(t.now) {
			return open(f) && f.ended(t.now)
		}
		version, ok := versions[f.Source.AgentID]
		return open(f) && (!ok || version != t.facts[f.ID].checked)
	}
	for _, f := range t.list(due) {
		if now, err := t.get(f.ID); err != nil || now != f {
			continue // changed by one before it
		}
		if len(t.puts) >= atOnce {
			return nil // the rest comes next
		}
		if f.ended(t.now) {
			t.put(edit(f), EventExpired, causeTime)
			continue
		}
		v, changed, err := s.again(ctx, t, f, versions)
		switch {
		case err != nil:
			return err
		case !changed:
		case v.reason != "" && (!v.weak || f.Kind == Agreement && f.State == Active && !f.Accepted):
			t.withdraw(f, v.reason, causeEvidence)
		case v.weak && f.State == Active && !f.Accepted:
			t.demote(f, v)
		case f.State == Draft && f.Reason == ReasonWeak && !v.weak && t.room():
			if err := s.allowed(ctx, t.project, t.user); fault.Is(err, fault.Forbidden) {
				continue // it is checked again, for the consent may change
			} else if err != nil {
				return err
			}
			f = edit(f)
			f.Source.Heard, f.Source.Checked = v.method, v.version
			t.activate(f, EventAccepted, causeEvidence)
		default:
			e := t.facts[f.ID]
			e.checked, e.end = v.version, v.end
		}
	}
	return nil
}

// again checks the proof of a fact again if the agent has changed since.
func (s *Service) again(ctx context.Context, t *change, f *Fact, versions map[string]memory.Version) (v verdict, changed bool, err error) {
	id := f.Source.AgentID
	version, ok := versions[id]
	switch {
	case ok:
		delete(t.gone, id)
	case t.gone[id]:
		return v, false, nil
	default:
		h, err := s.cfg.Ledger.Head(ctx, t.project, id)
		if fault.Is(err, fault.NotFound) { // the call was erased; what it proved still holds
			t.gone[id] = true
			return v, false, nil
		}
		if err != nil {
			return v, false, err
		}
		version = memory.Version{Rev: h.Rev}
		versions[id] = version
	}
	e := t.facts[f.ID]
	if e.checked == version {
		return v, false, nil
	}
	if same, err := s.untouched(ctx, t, e, version); same || err != nil {
		if same {
			e.checked = version
		}
		return v, false, err
	}
	msgs, end, err := s.around(ctx, t.project, f.Source, t.names)
	if fault.Is(err, fault.NotFound) {
		return v, false, nil
	}
	if err != nil {
		return v, false, err
	}
	v = judge(f, msgs)
	v.version, v.end = version, end
	return v, true, nil
}

// maxChanged is how many changed messages of a call are read to see which proofs they touch.
const maxChanged = 200

// untouched reports whether none of the messages that prove a fact has changed since its last
// check, although its agent has: a call that runs changes with every turn.
func (s *Service) untouched(ctx context.Context, t *change, e *entry, now memory.Version) (bool, error) {
	was := e.checked
	// Changes that revisions do not show, such as an import, raise Ver alone.
	if e.end == 0 || was.No != now.No || now.Rev < was.Rev || now.Ver-was.Ver != now.Rev-was.Rev && now.Ver > 0 {
		return false, nil
	}
	id := e.Source.AgentID
	since, ok := t.since[id]
	if !ok || since.rev > was.Rev {
		msgs, err := s.cfg.Ledger.Messages(ctx, t.project, id, memory.MessageQuery{AfterRev: was.Rev, Limit: maxChanged})
		if fault.Is(err, fault.NotFound) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		since = changes{was.Rev, msgs}
		t.since[id] = since
	}
	return len(since.msgs) < maxChanged && !slices.ContainsFunc(since.msgs, func(m memory.Message) bool {
		return m.Rev > was.Rev && m.Seq >= e.Source.FromSeq-maxBefore && m.Seq <= e.end
	}), nil
}
