package facts

import (
	"slices"
	"strings"

	"github.com/heardlog/heardlog/longterm/recall"
	"github.com/heardlog/heardlog/memory"
)

// heard checks a fact other than an agreement. Its quote is the caller's own words. If those carry
// what the fact says, they prove it. A fact that rests on what the agent said before them, as one
// that is quoted from "yes, please" does, is proved by the heard words of these answers alone:
//
//   - It is refused if a word of it stands only in the part of an answer that was not heard.
//   - It is a draft if it is not certain how much of an answer was heard, or if an answer was cut
//     and the heard words do not cover all that the fact says.
func heard(f *Fact, msgs, at []memory.Message) verdict {
	w := newWords(f, msgs, at)
	if w.unheard() {
		return verdict{reason: ReasonUnheard}
	}
	cut := slices.ContainsFunc(w.answers, func(m *memory.Message) bool { return cutShort(m) })
	switch own := w.covered(w.own); {
	case own == len(w.claim), !bare(at) && (!cut || 2*own >= len(w.claim)):
		return verdict{}
	case cut && w.covered(slices.Concat(w.own, w.heard)) == len(w.claim):
		cut = false
	}
	for _, m := range w.answers {
		if uncertain(m) || cut && cutShort(m) {
			return verdict{weak: true, reason: ReasonWeak, method: string(m.Method)}
		}
	}
	return verdict{}
}

// uncertain reports whether how much of an answer was heard is a guess.
func uncertain(m *memory.Message) bool { return m.Method.Rank() <= memory.DisconnectOnly.Rank() }

// cutShort reports whether some of an answer was not heard.
func cutShort(m *memory.Message) bool {
	return m.Role == memory.Assistant && (m.CutGenerated || fold(m.Original()).text != fold(m.Content).text)
}

// words are the words of a fact beside those of its proof.
type words struct {
	claim   []recall.Term     // of the fact, without those that only frame it
	own     []recall.Term     // the caller's
	heard   []recall.Term     // of answers, as far as they were heard before the quote ended
	lost    []recall.Term     // of answers, heard or not, that were not heard to their end
	answers []*memory.Message // that the caller's words may answer
}

// newWords returns the words of a fact and its proof. at are the messages of its quote.
func newWords(f *Fact, msgs, at []memory.Message) *words {
	w := &words{}
	for _, t := range recall.Terms(strings.Join([]string{f.Content, f.Attribute}, " ")) {
		if !framing[t[0]] {
			w.claim = append(w.claim, t)
		}
	}
	for i := range msgs {
		m := &msgs[i]
		switch {
		case m.Role == memory.User && (m.Seq <= f.Source.ToSeq || f.Source.Speaker == speakerAssistant):
			w.own = append(w.own, recall.Terms(m.Content)...)
		case m.Role == memory.Assistant:
			if m.Seq <= at[len(at)-1].Seq {
				w.heard = append(w.heard, recall.Terms(m.Content)...)
				w.answers = append(w.answers, m)
			}
			if cutShort(m) {
				w.lost = append(w.lost, recall.Terms(m.Original())...)
			}
		}
	}
	return w
}

// unheard reports whether the fact has a word that stands only in what was not heard.
func (w *words) unheard() bool {
	return slices.ContainsFunc(w.claim, func(t recall.Term) bool { return among(t, w.lost) && !among(t, w.heard) && !among(t, w.own) })
}

// covered returns how many words of the fact are among others.
func (w *words) covered(by []recall.Term) (n int) {
	for _, t := range w.claim {
		if among(t, by) {
			n++
		}
	}
	return n
}

// bare reports whether the caller's words only agree or refuse.
func bare(at []memory.Message) bool {
	for i := range at {
		if slices.ContainsFunc(recall.Terms(at[i].Content), func(t recall.Term) bool { return !assent[t[0]] }) {
			return false
		}
	}
	return true
}

func among(t recall.Term, list []recall.Term) bool {
	return slices.ContainsFunc(list, func(o recall.Term) bool { return akin(t, o) })
}

// akin reports whether two words have the same stem, or one begins with the other, as payment does
// with pay.
func akin(a, b recall.Term) bool {
	short, long := a[0], b[0]
	if len(short) > len(long) {
		short, long = long, short
	}
	return len(short) >= 3 && strings.HasPrefix(long, short) || slices.ContainsFunc(a, func(form string) bool { return slices.Contains(b, form) })
}

// framing are words that say whose fact it is and how it came about, not what it says.
var framing = wordSet(`caller customer client user guest patient person speaker agree agrees agreed agreement accept accepts accepted confirm confirms
	confirmed say says said state states stated mention mentions mentioned want wants wanted wish wishes prefer prefers preference like likes
	kunde kundin anrufer anruferin akzeptiert bestätigt stimmt möchte will wünscht mag
	client cliente appelant llamante chiamante accepte accepté acepta aceptó accetta confirme confirma conferma veut quiere vuole préfère prefiere preferisce
	klant beller akkoord wil`)

// assent are the words of callers who only agree or refuse.
var assent = wordSet(`yes yeah yep yup sure ok okay fine good great perfect right correct exactly alright agreed agree deal accept please thanks thank you
	that this it is that's it's sounds sound works work let do go ahead course absolutely definitely no nope not nah cool lovely wonderful
	ja jawohl genau gut gerne klar einverstanden in ordnung passt stimmt richtig bitte danke nein okay
	oui d'accord daccord bien sûr parfait merci non volontiers
	sí si vale claro perfecto bueno bien gracias acuerdo de no correcto
	sì va bene certo perfetto grazie d'accordo esatto
	goed prima akkoord graag dank nee sim claro certo tudo bem obrigado obrigada não はい いいえ 好 好的 是 是的 可以 行`)
