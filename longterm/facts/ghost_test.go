package facts_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/longterm/facts"
	"github.com/heardlog/heardlog/memory/agents"
)

// tongue has what is said in calls of one language.
type tongue struct {
	hello, greeting, other, confirm string
	offers                          []string    // what is heard of an offer
	terms                           []string    // what is not
	literal, reworded               []string    // claims that hold a term, by term
	consents                        []string    // that may follow
	truths                          [][3]string // what the caller says, a fact, and its quote
}

var tongues = map[string]tongue{
	"en": {
		"Hello.", "Hello, how can I help you?", "Is there anything else?", "Shall I do that for you?",
		[]string{"I can offer you the yearly plan", "You could have the large room", "We would put you on the list"},
		[]string{" but only if you pay a cancellation fee of 80 euros", ", which binds you for two years", ", and you pay 480 euros in advance", " if your old contract is given up"},
		[]string{"The caller agreed to pay a cancellation fee", "Is bound for two years", "Pays in advance", "Gives up the old contract"},
		[]string{"Owes a penalty when leaving early", "Cannot leave before the end of the term", "Settles everything upfront", "Quits the previous provider"},
		[]string{"Yes, that is fine.", "Okay.", "Yes please, do that.", "Sure, sounds good, go ahead.", "Yes, and please send it to my office.", "All right, I take it. I am in a hurry.", "Sounds like a plan to me.", "Works for me, thanks a lot.", "Count me in.", "Mhm, why not, my wife will be happy."},
		[][3]string{{"I live in Bonn now.", "Lives in Bonn", "live in Bonn"}, {"I am allergic to peanuts.", "Has an allergy to peanuts", "allergic to peanuts"}, {"My daughter is called Mia.", "Daughter is named Mia", "daughter is called Mia"}, {"I work as a nurse.", "Is a nurse", "work as a nurse"}, {"We keep two dogs at home.", "Has two dogs", "two dogs"}, {"I never drink coffee.", "Does not drink coffee", "never drink coffee"}, {"Please call me in the mornings only.", "Wants calls in the morning", "call me in the mornings only"}},
	},
	"de": {
		"Hallo.", "Guten Tag, wie kann ich helfen?", "Kann ich sonst noch etwas tun?", "Soll ich das so machen?",
		[]string{"Ich kann Ihnen den Jahresvertrag anbieten", "Sie könnten das große Zimmer haben", "Wir würden Sie auf die Liste setzen"},
		[]string{", aber nur wenn Sie eine Stornogebühr von 80 Euro zahlen", ", das bindet Sie zwei Jahre", ", und Sie zahlen 480 Euro im Voraus", ", wenn Ihr alter Vertrag gekündigt wird"},
		[]string{"Zahlt eine Stornogebühr", "Ist zwei Jahre gebunden", "Zahlt im Voraus", "Kündigt den alten Vertrag"},
		[]string{"Schuldet eine Strafe bei vorzeitigem Ausstieg", "Darf vor dem Ende der Laufzeit nicht gehen", "Begleicht alles sofort", "Verlässt den bisherigen Anbieter"},
		[]string{"Ja, das passt.", "Okay.", "Ja bitte, machen Sie das.", "Gerne, einverstanden.", "Ja, und schicken Sie es bitte in mein Büro.", "In Ordnung, ich nehme es. Ich habe es eilig.", "Machen wir so.", "Abgemacht.", "Klingt super, mein Mann freut sich.", "Von mir aus."},
		[][3]string{{"Ich wohne jetzt in Ulm.", "Wohnt in Ulm", "wohne jetzt in Ulm"}, {"Ich bin gegen Erdnüsse allergisch.", "Ist allergisch gegen Erdnüsse", "gegen Erdnüsse allergisch"}, {"Meine Tochter heißt Mia.", "Hat eine Tochter namens Mia", "Tochter heißt Mia"}, {"Ich arbeite als Krankenpfleger.", "Arbeitet als Krankenpfleger", "arbeite als Krankenpfleger"}, {"Wir haben zwei Hunde zu Hause.", "Hat zwei Hunde", "zwei Hunde"}, {"Ich trinke nie Kaffee.", "Trinkt keinen Kaffee", "trinke nie Kaffee"}, {"Rufen Sie mich nur vormittags an.", "Möchte vormittags angerufen werden", "nur vormittags an"}},
	},
	"es": {
		"Hola.", "Buenos días, ¿en qué puedo ayudarle?", "¿Necesita algo más?", "¿Lo hago así?",
		[]string{"Le puedo ofrecer el plan anual", "Podría tener la habitación grande", "Le pondríamos en la lista"},
		[]string{", pero solo si paga una tasa de cancelación de 80 euros", ", que le compromete dos años", ", y paga 480 euros por adelantado", " si se anula su contrato anterior"},
		[]string{"Paga una tasa de cancelación", "Está comprometido dos años", "Paga por adelantado", "Anula el contrato anterior"},
		[]string{"Debe una multa si se marcha pronto", "No puede irse antes del final", "Liquida todo al principio", "Deja a su proveedor de siempre"},
		[]string{"Sí, está bien.", "Vale.", "Sí, por favor, hágalo.", "Claro, de acuerdo.", "Sí, y mándelo a mi oficina, por favor.", "De acuerdo, me lo quedo. Tengo prisa.", "Trato hecho.", "Me parece bien.", "Hagámoslo así.", "Estupendo, mi mujer se alegrará."},
		[][3]string{{"Ahora vivo en Bonn.", "Vive en Bonn", "vivo en Bonn"}, {"Soy alérgica a los cacahuetes.", "Es alérgica a los cacahuetes", "alérgica a los cacahuetes"}, {"Mi hija se llama Mia.", "Tiene una hija llamada Mia", "hija se llama Mia"}, {"Trabajo como enfermera.", "Trabaja como enfermera", "Trabajo como enfermera"}, {"Tenemos dos perros en casa.", "Tiene dos perros", "dos perros"}, {"Nunca bebo café.", "No bebe café", "Nunca bebo café"}},
	},
	"fr": {
		"Bonjour.", "Bonjour, comment puis-je vous aider ?", "Autre chose ?", "Je le fais pour vous ?",
		[]string{"Je peux vous proposer le forfait annuel", "Vous pourriez avoir la grande chambre", "Nous vous mettrions sur la liste"},
		[]string{", mais seulement si vous payez des frais de résiliation de 80 euros", ", ce qui vous engage pour deux ans", ", et vous payez 480 euros d'avance", " si votre ancien contrat est annulé"},
		[]string{"Paie des frais de résiliation", "Est engagé pour deux ans", "Paie d'avance", "Annule son ancien contrat"},
		[]string{"Doit une pénalité en cas de départ", "Ne peut pas partir avant la fin", "Règle tout immédiatement", "Quitte son fournisseur habituel"},
		[]string{"Oui, c'est bien.", "D'accord.", "Oui, faites-le s'il vous plaît.", "Bien sûr, parfait.", "Oui, et envoyez-le à mon bureau.", "C'est bon, je le prends. Je suis pressé.", "Ça marche.", "Va pour ça.", "Allons-y.", "Super, ma femme sera contente."},
		[][3]string{{"J'habite maintenant à Bonn.", "Habite à Bonn", "habite maintenant à Bonn"}, {"Je suis allergique aux arachides.", "Est allergique aux arachides", "allergique aux arachides"}, {"Ma fille s'appelle Mia.", "A une fille qui s'appelle Mia", "fille s'appelle Mia"}, {"Je travaille comme infirmière.", "Travaille comme infirmière", "travaille comme infirmière"}, {"Nous avons deux chiens à la maison.", "A deux chiens", "deux chiens"}, {"Je ne bois jamais de café.", "Ne boit pas de café", "bois jamais de café"}},
	},
}

// ghost is a call whose offer has terms that were not heard.
type ghost struct {
	id, user       string
	offer, consent int64 // where they are
	said           string
	heard, all     string
	cut            bool // by evidence
	turn           int64
	claims         []string
	truth          [3]string
	truthAt        int64
}

// TestGhosts: in 200 calls of four languages the terms of an offer come after the barge-in, and
// every claim that holds them is made of them, literally and in other words: by extraction of the
// whole call and of parts of it, by a client with proof and as the tool adds them, before and after
// the evidence comes, in random order. None is ever active once the cut is known, and what the
// callers said themselves is.
func TestGhosts(t *testing.T) {
	t.Parallel()
	const calls = 200
	rnd := rand.New(rand.NewPCG(5, 7))
	k := newKit(t, nil)
	names := []string{"en", "de", "es", "fr"}
	kinds := facts.Kinds()
	drafts, lost := 0, 0
	for i := range calls {
		lang := names[i%len(names)]
		l := tongues[lang]
		g := &ghost{user: fmt.Sprint("caller ", i), truth: l.truths[rnd.IntN(len(l.truths))]}
		offer, term := rnd.IntN(len(l.offers)), rnd.IntN(len(l.terms))
		g.heard, g.all = l.offers[offer], l.offers[offer]+l.terms[term]
		g.claims = []string{l.literal[term], l.reworded[term], g.heard + ": " + l.reworded[term], l.offers[offer] + l.terms[term]}
		g.id = k.call(g.user, "user: "+l.hello, "assistant: "+l.greeting)
		seq, turn := int64(2), int64(0)
		user := func(text string) int64 { k.say(g.id, "user", text); seq++; turn++; return seq }
		agent := func(text string) int64 { k.say(g.id, "assistant", text); seq++; return seq }
		before := rnd.IntN(2) == 0
		if before {
			g.truthAt = user(g.truth[0])
			agent(l.other)
			user(l.hello)
		} else {
			user(l.hello)
		}
		g.turn = turn
		g.offer = agent("?" + g.all) // assumed to be heard, with a mark that say needs
		g.all, g.heard = "?"+g.all, "?"+g.heard
		cut := func(heard string) {
			if _, err := k.calls.Turns.Interrupt(k.ctx, project, g.id, agents.InterruptRequest{TurnID: &g.turn, Heard: &heard}); err != nil {
				t.Fatal(err)
			}
			g.cut = true
		}
		early := rnd.IntN(2) == 0
		if early {
			cut(g.heard)
		}
		asked := g.offer
		if rnd.IntN(3) == 0 { // it is not the last answer before the consent
			user([]string{"Hm.", l.consents[0], l.truths[1][0]}[rnd.IntN(3)])
			asked = agent(l.confirm)
		}
		g.said = l.consents[rnd.IntN(len(l.consents))]
		g.consent = user(g.said)
		if !before {
			agent(l.other)
			g.truthAt = user(g.truth[0])
			agent(l.other)
		}
		claim := func() {
			content, kind := g.claims[rnd.IntN(len(g.claims))], kinds[rnd.IntN(len(kinds))]
			if rnd.IntN(3) == 0 {
				content = "So: " + content
			}
			quote, speaker, from := g.said, "user", []int64{1, g.offer, asked, g.consent}[rnd.IntN(4)]
			if rnd.IntN(2) == 0 {
				quote, _, _ = strings.Cut(g.said, ",")
			}
			if kind == facts.Agreement && rnd.IntN(2) == 0 {
				quote, speaker, from = strings.TrimPrefix(g.heard, "?"), "assistant", g.offer
				if asked > g.offer && rnd.IntN(2) == 0 {
					quote, from = l.confirm, asked
				}
			}
			src := &facts.Source{AgentID: g.id, FromSeq: from, ToSeq: g.consent, Quote: quote, Speaker: speaker}
			entry := fmt.Sprintf(`[{"kind":%q,"content":%q,"speaker":%q,"from_seq":%d,"to_seq":%d,"quote":%q}]`, kind, content, speaker, from, g.consent, quote)
			switch rnd.IntN(3) {
			case 0: // refused or stored, as the proof allows
				_, _, _ = k.Add(k.ctx, project, g.user, facts.New{Content: content, Kind: kind, Source: src, By: facts.ByTool})
			case 1:
				_, _ = k.Extract(k.ctx, project, g.user, g.id, entry)
			case 2:
				_, _ = k.ExtractPart(k.ctx, project, g.user, g.id, entry, facts.Read{}, facts.Read{UpTo: seq})
			}
		}
		check := func(when string) {
			list, err := k.List(k.ctx, project, g.user, facts.Query{States: facts.States()})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range list {
				switch {
				case f.State == facts.Draft:
					drafts++
				case f.State == facts.Active && f.Content != g.truth[1] && g.cut:
					t.Errorf("%s, %s: %s %q by %s is active: heard %q of %q, then %q at %d, quote %q from %d", lang, when, f.Kind, f.Content, f.By, g.heard, g.all, g.said, g.consent, f.Source.Quote, f.Source.FromSeq)
				}
			}
		}
		for range 6 {
			claim()
		}
		if _, _, err := k.Add(k.ctx, project, g.user, facts.New{Content: g.truth[1], Source: &facts.Source{AgentID: g.id, FromSeq: g.truthAt, ToSeq: g.truthAt, Quote: g.truth[2], Speaker: "user"}, By: facts.ByTool}); err != nil {
			t.Errorf("%s: %q: %v", lang, g.truth[1], err)
		}
		check("before")
		words := strings.Fields(g.heard)
		less := strings.Join(words[:len(words)-1-rnd.IntN(2)], " ")
		for _, heard := range [][]string{{g.heard, less}, {less}, {g.heard, g.heard, less}}[rnd.IntN(3)] {
			cut(heard)
			check("after")
			claim()
			check("after a claim")
		}
		got := k.searchOf(g.user)
		if !slices.Contains(got, g.truth[1]) {
			lost++
			t.Logf("%s: %q was lost", lang, g.truth[1])
		}
		// A server that has checked nothing yet agrees.
		k.Service = facts.NewService(k.config)
		if again := k.searchOf(g.user); !slices.Equal(got, again) {
			t.Errorf("%s: %q, and %q to a fresh server", lang, got, again)
		}
	}
	if lost > calls/20 || drafts == 0 {
		t.Errorf("%d of %d true facts were lost; %d drafts", lost, calls, drafts)
	}
}

func (k *kit) searchOf(user string) []string {
	k.t.Helper()
	list, err := k.Search(k.ctx, project, user, facts.Query{})
	if err != nil {
		k.t.Fatal(err)
	}
	return contents(list)
}
