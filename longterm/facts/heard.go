package facts

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/longterm/recall"
	"github.com/heardlog/heardlog/memory"
)

// heard checks a fact other than an agreement. Its quote is the caller's own words. If these carry
// what the fact says, they prove it. A fact that rests on what the agent said before them, as one
// that is quoted from "yes, please" does, is proved by the heard words of these answers alone:
//
//   - It is refused if a word of it stands only in what was not heard of the call. If the caller's
//     words say something of their own, it is a draft: a model may name what was asked for.
//   - It is a draft if it is not certain how much of the answers was heard, or if one of the last
//     five was cut and the heard words do not cover all that the fact says: "shall I do that?" asks
//     about what came before.
//   - If the caller's words say something of their own and cover less than two thirds of the fact,
//     it is a draft if the answer right before them was cut. It is also one if any of the last five
//     answers was cut and the heard words do not cover the fact, and the caller's words agree to
//     something, or are few and have no word of the fact.
func heard(f *Fact, all, at []memory.Message) verdict {
	if provedByOwn(f, all) { // most are, and the rest of the call need not be searched
		return verdict{}
	}
	w := newWords(f, all, at)
	own, bare := w.covered(w.own), w.bare()
	weak := func(m *memory.Message) verdict {
		return verdict{weak: true, reason: ReasonWeak, method: string(m.Method)}
	}
	if w.unheard() {
		if bare {
			return verdict{reason: ReasonUnheard}
		}
		return weak(w.unheardIn)
	}
	cut := lastCut(all, at[0].Seq)
	about := slices.Concat(w.own, w.heard)
	if cut == nil || cut.Seq < w.near { // what was said before is not what the answer at hand offers
		about = append(about, w.before...)
	}
	total := w.covered(about)
	if !bare {
		direct := slices.ContainsFunc(w.answers, cutShort)
		agrees := consents(at) || len(w.quote) <= few && w.covered(w.quote) == 0
		if cut != nil && 3*own < 2*len(w.claim) && (direct || agrees && total < len(w.claim)) {
			return weak(cut)
		}
		return verdict{}
	}
	if len(w.answers) == 0 {
		return verdict{reason: ReasonProposal}
	}
	if cut != nil && (len(w.claim) == 0 || total < len(w.claim)) {
		return weak(cut)
	}
	if i := slices.IndexFunc(w.answers, uncertain); i >= 0 {
		return weak(w.answers[i])
	}
	return verdict{}
}

// uncertain reports whether how much of an answer was heard is a guess.
func uncertain(m *memory.Message) bool { return m.Method.Rank() <= memory.DisconnectOnly.Rank() }

// cutShort reports whether some of an answer was not heard.
func cutShort(m *memory.Message) bool {
	return m.Role == memory.Assistant && (m.CutGenerated || fold(m.Original()).text != fold(m.Content).text)
}

// few is how many words callers may have of their own that perhaps only agree: "count me in".
const few = 3

// open is how many answers back an offer may be that a caller still agrees to.
const open = 5

// lastCut returns the last of the newest answers before a message of which something was not heard,
// or nil.
func lastCut(all []memory.Message, before int64) *memory.Message {
	n := 0
	for i := range slices.Backward(all) {
		m := &all[i]
		if m.Role != memory.Assistant || m.Seq >= before || m.State == memory.Superseded {
			continue // another answer was spoken in place of one that was superseded
		}
		if n++; n > open {
			break
		}
		if lost(m) || cutShort(m) {
			return m
		}
	}
	return nil
}

// words are the words of a fact beside those of its proof.
type words struct {
	claim     []recall.Term     // of what the fact says, without those that only frame it
	labels    []recall.Term     // of its subject, attribute and topics
	quote     []recall.Term     // of the caller's words that are quoted, but for those that only agree
	own       []recall.Term     // the caller's, in the messages of the source
	heard     []recall.Term     // of the answers and those of the source, as far as they were heard
	lost      []recall.Term     // of these, heard or not, if they were not heard to their end
	before    []recall.Term     // as own and heard, of the call before
	lostThere []recall.Term     // as lost, of the call before
	unheardIn *memory.Message   // the last answer that is in lost or lostThere
	answers   []*memory.Message // that the caller's words may answer
	near      int64             // the first message of these and of the source
}

// claimOf returns the words of what a fact says, without those that only frame it.
func claimOf(f *Fact) []recall.Term {
	return slices.DeleteFunc(recall.Terms(f.Content), func(t recall.Term) bool { return framing[t[0]] })
}

// provedByOwn reports whether the caller's words in the messages of the source have all that a fact
// says.
func provedByOwn(f *Fact, all []memory.Message) bool {
	w := words{claim: claimOf(f)}
	for i := range all {
		if m := &all[i]; m.Role == memory.User && m.Seq >= f.Source.FromSeq && m.Seq <= f.Source.ToSeq {
			w.own = append(w.own, recall.Terms(m.Content)...)
		}
	}
	return len(w.claim) > 0 && w.covered(w.own) == len(w.claim)
}

// newWords returns the words of a fact and its proof. at are the messages of its quote.
func newWords(f *Fact, all, at []memory.Message) *words {
	w := &words{claim: claimOf(f)}
	w.labels = recall.Terms(strings.Join(append([]string{f.Subject, f.Attribute}, f.Topics...), "\n"))
	first, last, near := at[0].Seq, at[len(at)-1].Seq, f.Source.FromSeq
	// The answers are those before the quote, up to words of the caller before them.
	for i := len(all) - 1; i >= 0 && f.Source.Speaker == speakerUser; i-- {
		m := &all[i]
		if m.Role == memory.User && m.Seq < first && len(w.answers) > 0 {
			break
		}
		if m.Role == memory.Assistant && m.Seq < first && counts(m) {
			w.answers, near = append(w.answers, m), min(near, m.Seq)
		}
	}
	for i := range all {
		m := &all[i]
		terms := recall.Terms(m.Content)
		if m.Seq >= first && m.Seq <= last {
			for _, t := range terms {
				if !assent[t[0]] {
					w.quote = append(w.quote, t)
				}
			}
		}
		switch {
		case m.Role == memory.User && m.Seq < f.Source.FromSeq:
			w.before = append(w.before, terms...)
		case m.Role == memory.User && (m.Seq <= f.Source.ToSeq || f.Source.Speaker == speakerAssistant):
			w.own = append(w.own, terms...)
		case m.Role != memory.Assistant:
		case counts(m) && m.Seq < near:
			w.before = append(w.before, terms...)
		case counts(m) && m.Seq <= last:
			w.heard = append(w.heard, terms...)
		}
		if lost(m) || cutShort(m) {
			list := &w.lost
			if m.Seq < near {
				list = &w.lostThere
			}
			*list, w.unheardIn = append(*list, recall.Terms(m.Original())...), m
		}
	}
	w.near = near
	return w
}

// unheard reports whether the fact has a word that stands only in what was not heard.
func (w *words) unheard() bool {
	only := func(t recall.Term) bool {
		if among(t, w.own) || among(t, w.heard) {
			return false
		}
		return among(t, w.lost) || among(t, w.lostThere) && !among(t, w.before)
	}
	return slices.ContainsFunc(w.claim, only) || w.bare() && slices.ContainsFunc(w.labels, only)
}

// covered returns how many words of what the fact says are among others.
func (w *words) covered(by []recall.Term) (n int) {
	for _, t := range w.claim {
		if among(t, by) {
			n++
		}
	}
	return n
}

// bare reports whether the caller's quoted words say nothing of their own: they only agree or
// refuse, but for a word at most that the fact does not have.
func (w *words) bare() bool { return len(w.quote) == 0 || len(w.quote) == 1 && w.covered(w.quote) == 0 }

// Shared returns how many words of what a fact says are in a text.
func Shared(content, text string) (n int) {
	by := recall.Terms(text)
	for _, t := range recall.Terms(content) {
		if among(t, by) {
			n++
		}
	}
	return n
}

func among(t recall.Term, list []recall.Term) bool {
	return slices.ContainsFunc(list, func(o recall.Term) bool { return akin(t, o) })
}

// akin reports whether two words have the same stem, one begins with the other, as payment does
// with pay, or two thirds of both are the same beginning, as of allergy and allergic.
func akin(a, b recall.Term) bool {
	if slices.ContainsFunc(a, func(form string) bool { return slices.Contains(b, form) }) {
		return true
	}
	short, long := a[0], b[0]
	if len(short) > len(long) {
		short, long = long, short
	}
	first, _ := utf8.DecodeRuneInString(short)
	n := utf8.RuneCountInString(short)
	switch {
	case text.Unspaced(first), exactWords[a[0]], exactWords[b[0]]: // seventy is not seventeen
		return false
	case strings.HasPrefix(long, short):
		return n >= 4 || n == 3 && endings[long[len(short):]]
	}
	same := 0
	for i, r := range short {
		if !strings.HasPrefix(long[i:], string(r)) {
			break
		}
		same++
	}
	return same >= 4 && 3*same >= 2*utf8.RuneCountInString(long)
}

// endings are those of words that a word of three letters is the beginning of.
var endings = wordSet(`s ed er ers ing ment ments able`)

// framing are words that say whose fact it is and how it came about, not what it says.
var framing = wordSet(`name names named called heißt nombre nom naam caller customer client user guest patient
	person speaker agree agrees agreed agreement accept accepts accepted confirm confirms
	confirmed say says said state states stated mention mentions mentioned want wants wanted
	wish wishes prefer prefers preference like likes kunde kundin anrufer anruferin akzeptiert
	bestätigt stimmt möchte will wünscht mag client cliente appelant llamante chiamante accepte
	accepté acepta aceptó accetta confirme confirma conferma veut quiere vuole préfère prefiere
	preferisce klant beller akkoord wil`)

// assent are the words of callers who only agree or refuse, as recall.Terms has them.
var assent = termSet(`yes yeah yep yup uh um uhm hm hmm mhm mm ah oh well so sure ok okay fine good great perfect
	right correct exactly alright agreed agree deal accept please thanks thank you that this it
	is that's it's sounds sound works work let do go ahead course absolutely definitely
	certainly indeed gladly take will i'll no nope not nah cool lovely wonderful ja jawohl genau
	gut gerne klar einverstanden in ordnung passt stimmt richtig bitte danke nein okay oui
	d'accord daccord bien sûr parfait merci non volontiers sí si vale claro perfecto bueno bien
	gracias acuerdo de no correcto sì va bene certo perfetto grazie d'accordo esatto goed prima
	akkoord graag dank nee sim claro certo tudo bem obrigado obrigada não はい いいえ お願いします 好 好的 是
	是的 可以 行 没问题 да хорошо ладно конечно нет tak dobrze oczywiście nie 네 예 좋아요 아니요 हाँ ठीक`)

// agreeing are the words of those that callers agree with.
var agreeing = wordSet(`yes yeah yep yup mhm mm sure ok okay fine good great perfect right alright agreed agree
	deal absolutely definitely certainly gladly super ja jo jawohl genau gut gerne klar einverstanden
	ordnung passt abgemacht oui marche volontiers estupendo venga hecho adelante oui accord d'accord daccord bon bien parfait volontiers sí si vale claro perfecto bueno acuerdo sì va
	certo perfetto goed prima akkoord graag sim да хорошо ладно конечно tak dobrze oczywiście 네 예
	좋아요 हाँ ठीक はい お願いします 好 好的 是 是的 可以 行 没问题`)

// consents reports whether messages of a caller agree to something.
func consents(at []memory.Message) bool {
	return slices.ContainsFunc(at, func(m memory.Message) bool {
		words := strings.FieldsFunc(strings.ToLower(norm.NFC.String(m.Content)), func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsMark(r) && r != '\''
		})
		return slices.ContainsFunc(words, func(w string) bool { return agreeing[w] })
	})
}

func termSet(s string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(s) {
		for _, t := range recall.Terms(w) {
			out[t[0]] = true
		}
	}
	return out
}
