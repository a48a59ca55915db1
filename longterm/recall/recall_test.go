package recall_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/longterm/recall"
)

// now is when the queries of these tests are asked: a Monday.
var now = time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)

// calls are conversations of one caller: the days that passed since, and what was said, the caller
// first.
var calls = []struct {
	daysAgo int
	turns   []string
}{
	{200, []string{
		"Good morning, this is Anna Berger. I'd like to book a table for my daughter's birthday.",
		"Happy to help, Anna! For how many people?",
		"Seven, and two of us are allergic to shellfish.",
		"Noted: no mussels, shrimps or crabs. Which evening suits you, Anna?",
		"Saturday at half past six. Our address is 12A Harbour Street.",
	}},
	{96, []string{
		"Hello, the dishwasher that you delivered is leaking.",
		"I am sorry about that, Anna. Is the water coming from the door?",
		"Yes, from the lower left corner, and the kitchen floor is wet.",
		"A technician can come on Thursday between eight and ten.",
		"My neighbour Tom has the spare key, I will be travelling to Lisbon.",
	}},
	{61, []string{
		"Wir möchten im Sommer mit den Kindern ans Meer fahren.",
		"Gern! Suchen Sie eine Ferienwohnung oder ein Hotel?",
		"Lieber eine Ferienwohnung, der Hund kommt auch mit. Er heißt Bruno.",
		"Ich habe drei Wohnungen auf Rügen gefunden.",
	}},
	{35, []string{
		"Bonjour, je voudrais résilier mon abonnement de téléphone.",
		"Bien sûr. Puis-je vous demander pourquoi ?",
		"Le réseau ne marche pas dans ma nouvelle maison à la campagne.",
	}},
	{30, []string{
		"Quiero cambiar la fecha de mi vuelo a Sevilla.",
		"¿Para qué día lo necesita?",
		"Para el doce de diciembre, con una maleta facturada.",
	}},
	{20, []string{
		"アレルギーがあるので、卵は食べられません。",
		"かしこまりました。卵なしの朝食をご用意します。",
		"駐車場はありますか。",
	}},
	{12, []string{
		"Мне нужно перенести запись к зубному врачу.",
		"На какой день вам удобно, Анна?",
		"На пятницу, после работы. И у меня аллергия на пенициллин.",
	}},
	{7, []string{
		"I paid the invoice twice, number 40817. Could you return 129 euros to me?",
		"I see both payments, Anna. The refund takes five days.",
		"Thanks. " + strings.Repeat("While we are at it, let me tell the whole story of that order from the beginning, because so many people were involved. ", 40) +
			"In the end the parcel was left with the pharmacy on the corner.",
		"I understand. " + strings.Repeat("We are sorry for all the trouble with this order, and we take every single one of these complaints seriously. ", 40),
	}},
	{4, []string{
		"Ik wil graag een afspraak bij de fysiotherapeut verzetten.",
		"Natuurlijk. Wat is uw klantnummer?",
		"Vier nul negen zeven. En ik neem vijfentwintig foto's mee.",
		"Wat is er met uw knie gebeurd?",
		"Tijdens het schaatsen in Heerenveen gevallen.",
	}},
	{3, []string{
		"Please send twenty-three boxes of tiles to the building site.",
		"Which colour?",
		"Sand. The gate code is seven two oh nine.",
		"Wie viele Gäste kommen zur Feier?",
		"Einundvierzig, und davon 12 Kinder.",
	}},
	{0, []string{"Hi, it's me again.", "Hello Anna, what can I do for you today?"}},
}

func filled() *recall.Index {
	x := recall.NewIndex()
	for c, call := range calls {
		at := now.AddDate(0, 0, -call.daysAgo).UnixMilli()
		for i, text := range call.turns {
			x.Put(recall.Turn{Call: fmt.Sprint("call", c), Seq: int64(i + 1), Role: []string{"user", "assistant"}[i%2], At: at + int64(i)*5000, Text: text})
		}
	}
	return x
}

// TestSearch asks for what was said in short and long turns of several languages. The wanted turn
// must be the best, or among the best n.
func TestSearch(t *testing.T) {
	t.Parallel()
	x := filled()
	for _, tt := range []struct {
		query, want string
		among       int
	}{
		{"What am I allergic to?", "shellfish", 2},
		{"Which address did I give?", "12A Harbour", 1},
		{"12 a harbour street", "12A Harbour", 1},
		{"Who has the key of my flat?", "neighbour Tom", 1},
		{"Is the dish washer leaking?", "dishwasher", 2},
		{"Where was the package left, at the pharmacy?", "pharmacy on the corner", 4},
		{"How much did the customer want back for invoice 40817?", "129 euros", 1},
		{"when does the technician come", "Thursday between eight", 1},
		{"What did we speak about last week?", "invoice twice", 4},
		{"Wie heißt der Hund?", "Bruno", 1},
		{"Wohin wollten die Kinder fahren?", "Kindern ans Meer", 1},
		{"Pourquoi ai-je résilié l'abonnement ?", "résilier mon abonnement", 1},
		{"¿Cuándo vuelo a Sevilla?", "fecha de mi vuelo", 1},
		{"cuando vuela, que maletas", "maleta facturada", 2},
		{"卵アレルギー", "アレルギーがある", 1},
		{"駐車場", "駐車場", 1},
		{"На что у меня аллергия?", "пенициллин", 1},
		{"запись к врачу", "зубному врачу", 1},
		{"23 boxes", "twenty-three boxes", 1},
		{"gate code 7209", "seven two oh nine", 1},
		{"41 Gäste", "Einundvierzig", 2},
		{"zwölf Kinder", "12 Kinder", 2},
		{"klantnummer 4097", "Vier nul negen zeven", 2},
		{"25 foto's", "vijfentwintig", 1},
		{"What happened to the knee? knie gebeurd", "schaatsen", 2},
		{"Which colour are the tiles?", "Sand.", 3},
	} {
		hits, strength := x.Search(recall.Query{Text: tt.query, K: 10, Now: now})
		at := slices.IndexFunc(hits, func(h recall.Hit) bool { return strings.Contains(h.Text, tt.want) })
		if at < 0 || at >= tt.among {
			t.Errorf("%q: %q is hit %d of %d, want among the first %d", tt.query, tt.want, at+1, len(hits), tt.among)
		}
		if strength == recall.None {
			t.Errorf("%q: strength %s", tt.query, strength)
		}
	}
}

// TestYesterday: the days of a query are those of the turns, wherever the server stands.
func TestYesterday(t *testing.T) {
	t.Parallel()
	x := recall.NewIndex()
	for day, text := range []string{"The garden needs water.", "The roof leaks badly.", "My kitchen smells odd."} {
		at := time.Date(2026, 11, 22+day, 12, 0, 0, 0, time.UTC).UnixMilli()
		x.Put(recall.Turn{Call: fmt.Sprint(22 + day), Seq: 1, Role: "user", At: at, Text: text})
	}
	for _, zone := range []*time.Location{time.UTC, time.FixedZone("", -9*3600), time.FixedZone("", 9*3600)} {
		hits, _ := x.Search(recall.Query{Text: "What did we speak of yesterday?", K: 1, Now: time.Date(2026, 11, 24, 5, 0, 0, 0, time.UTC).In(zone)})
		if len(hits) != 1 || hits[0].Call != "23" {
			t.Errorf("in %s: %+v", zone, hits)
		}
	}
}

// TestRelativeDates: spans of time before the query find what was said then.
func TestRelativeDates(t *testing.T) {
	t.Parallel()
	x := recall.NewIndex()
	days := []string{"2025-11-20", "2026-01-15", "2026-04-14", "2026-07-15", "2026-10-20", "2026-11-09", "2026-11-20", "2026-11-22"}
	topics := []string{"roof", "parcel", "garden hose", "piano", "lease", "bathroom tiles", "ladder", "concert"}
	for i, day := range days {
		at, _ := time.Parse(time.DateOnly, day)
		x.Put(recall.Turn{Call: day, Seq: 1, Role: "user", At: at.UnixMilli(), Text: "Hello, it is about the " + topics[i]})
	}
	for query, want := range map[string]string{
		"What did I say last spring?": "2026-04-14", "what was it last autumn": "2025-11-20", "What was the problem last winter?": "2026-01-15",
		"what did we speak of two weeks ago": "2026-11-09", "What was it three days ago?": "2026-11-20", "Was war letzten Sommer?": "2026-07-15",
		"Worum ging es vor zwei Wochen?": "2026-11-09", "¿De qué hablamos el mes pasado?": "2026-10-20", "Qu'ai-je dit il y a trois jours ?": "2026-11-20",
		"¿Qué dije hace dos semanas?": "2026-11-09", "Que s'est-il passé l'été dernier ?": "2026-07-15", "what happened yesterday": "2026-11-22",
	} {
		if hits, _ := x.Search(recall.Query{Text: query, K: 1, Now: now}); len(hits) != 1 || hits[0].Call != want {
			t.Errorf("%q: %+v, want %s", query, hits, want)
		}
	}
	for _, query := range []string{"Can I come in a few days?", "was it a two week trip", "I need it in a couple weeks"} {
		for _, h := range hitsOf(x.Search(recall.Query{Text: query, K: 5, Now: now})) {
			if h.Parts.Date > 0 {
				t.Errorf("%q names no time that has passed: %+v", query, h)
			}
		}
	}
}

func hitsOf(hits []recall.Hit, _ string) []recall.Hit { return hits }

// TestNumbers: a number is found however it was spoken.
func TestNumbers(t *testing.T) {
	t.Parallel()
	for spoken, digits := range map[string]string{
		"I want the two red lamps":                                   "2 lamps",
		"there are thirty lamps and some of them are broken":         "30 lamps",
		"it was one hundred and five for all of them":                "105",
		"it was in two thousand twenty six":                          "2026",
		"my code is four oh two":                                     "402",
		"ich habe hundert Lampen und die sind alle rot":              "100 Lampen",
		"es sind zweiundneunzig Lampen und ein Tisch":                "92 Lampen",
		"nous avons vingt-trois lampes dans la maison":               "23 lampes",
		"tengo treinta y tres lámparas en la casa":                   "33 lámparas",
		"hay veintidós lámparas en la casa y una mesa":               "22 lámparas",
		"ci sono ventuno lampade nella casa e un tavolo":             "21 lampade",
		"we hebben drieëntwintig lampen in het huis maar geen tafel": "23 lampen",
	} {
		x := recall.NewIndex()
		x.Put(recall.Turn{Call: "c", Seq: 1, Role: "user", Text: spoken})
		for i := range 9 {
			x.Put(recall.Turn{Call: fmt.Sprint(i), Seq: 1, Role: "user", Text: "something else"})
		}
		hits, strength := x.Search(recall.Query{Text: digits, K: 1, Now: now})
		if len(hits) != 1 || hits[0].Call != "c" || strength != recall.Strong {
			t.Errorf("%q does not find %q: %s", digits, spoken, strength)
		}
	}
}

// TestStrength: the strength follows from the words that are found, not from the best score.
func TestStrength(t *testing.T) {
	t.Parallel()
	x := filled()
	for query, want := range map[string]string{
		"invoice 40817 paid twice":                                  recall.Strong,
		"Does the submarine have an invoice?":                       recall.Weak,
		"Which submarine is parked beside the volcano observatory?": recall.None,
		"":        recall.None,
		"is the ": recall.None,
	} {
		if _, got := x.Search(recall.Query{Text: query, K: 10, Now: now}); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
}

// TestOneTurn: a caller of whom one sentence is known is asked for it in other words.
func TestOneTurn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ said, query, want string }{
		{"I own a canoe.", "May I bring my canoe along?", recall.Strong},
		{"Is allergic to peanuts", "Which allergies do I have?", recall.Strong},
		{"Is allergic to peanuts", "Am I allergic to peanuts?", recall.Strong},
		{"Is allergic to peanuts", "What is my shoe size?", recall.None},
		{"My favourite colour is green", "what's my favorite color", recall.Strong},
		{"We bought two kayaks", "What did I buy?", recall.Strong},
		{"Ich habe eine Ferienwohnung gemietet", "Welche Wohnung habe ich?", recall.Strong},
		{"Ich habe eine Ferienwohnung gemietet", "Wann kommt der Klempner?", recall.None},
		{"ik ben allergisch voor noten", "welke allergie heb ik", recall.Strong},
		{"My parents live in Rome", "What is my rent?", recall.None},
		{"It is important to me", "Which port did we choose?", recall.None},
		{"The order was 12345", "Is order 12346 paid?", recall.None},
		{"My sister lives in Rome", "What did I order yesterday?", recall.None},
	} {
		x := recall.NewIndex()
		x.Put(recall.Turn{Call: "c", Seq: 1, Role: "user", Text: tt.said, At: 1})
		if _, got := x.Search(recall.Query{Text: tt.query, K: 5, Now: now}); got != tt.want {
			t.Errorf("%q after %q: %s, want %s", tt.query, tt.said, got, tt.want)
		}
	}
}

// TestSpeech: capitals and punctuation change nothing in who is meant and what asks.
func TestSpeech(t *testing.T) {
	t.Parallel()
	x := recall.NewIndex()
	for i, text := range []string{
		"hi olivia how was the trip to the lake", "hey marco it was lovely we rented a kayak", "thanks olivia my own trip was a disaster with the kayak",
		"hello marco what did you do then", "hi olivia i sold the kayak", "hey marco that is a pity",
	} {
		x.Put(recall.Turn{Call: "c", Seq: int64(i + 1), Role: []string{"user", "assistant"}[i%2], At: int64(i), Text: text})
	}
	for query, want := range map[string]string{"did olivia like the kayak": "assistant", "did marco like the kayak": "user"} {
		hits, _ := x.Search(recall.Query{Text: query, K: 10, Now: now})
		for _, h := range hits {
			if (h.Parts.Party > 0) != (h.Role == want) {
				t.Errorf("%q: %s said %q, party %v", query, h.Role, h.Text, h.Parts.Party)
			}
		}
		if len(hits) < 4 {
			t.Errorf("%q: %d hits", query, len(hits))
		}
	}
}

// TestIndexChanges: an index to which turns were added, changed and removed in any order finds
// exactly what a new one with the same turns finds.
func TestIndexChanges(t *testing.T) {
	t.Parallel()
	x := filled()
	x.Put(recall.Turn{Call: "call1", Seq: 3, Role: "user", Text: "changed for now: an octopus", At: 1})
	x.Put(recall.Turn{Call: "gone", Seq: 1, Role: "user", Text: "an octopus in the garden", At: 1})
	x.Put(recall.Turn{Call: "call2", Seq: 9, Role: "user", Text: "an octopus at the end", At: 1})
	x.Remove("call2", 9)
	x.Remove("call2", 8)
	x.RemoveCall("gone")
	x.RemoveBefore("call0", 3)
	fresh := filled()
	for _, i := range []int64{1, 2} {
		fresh.Remove("call0", i)
	}
	want := fresh
	for i, text := range calls[1].turns { // undoes the change
		at := now.AddDate(0, 0, -calls[1].daysAgo).UnixMilli()
		x.Put(recall.Turn{Call: "call1", Seq: int64(i + 1), Role: []string{"user", "assistant"}[i%2], At: at + int64(i)*5000, Text: text})
	}
	if hits, _ := x.Search(recall.Query{Text: "octopus", K: 10, Now: now}); len(hits) > 0 {
		t.Errorf("removed words are found: %q", hits[0].Text)
	}
	for _, q := range []string{"key", "Anna's address", "Ferienwohnung mit Hund", "refund of the invoice", "卵", "birthday table"} {
		got, _ := x.Search(recall.Query{Text: q, K: 10, Now: now})
		exp, _ := want.Search(recall.Query{Text: q, K: 10, Now: now})
		if len(got) != len(exp) {
			t.Errorf("%q: %d hits, want %d", q, len(got), len(exp))
			continue
		}
		for i := range got {
			if diff := got[i].Score - exp[i].Score; got[i].Turn != exp[i].Turn || diff > 1e-9 || diff < -1e-9 {
				t.Errorf("%q: hit %d is %q with %f, want %q with %f", q, i, got[i].Text, got[i].Score, exp[i].Text, exp[i].Score)
			}
		}
	}
	for i := range calls {
		x.RemoveCall(fmt.Sprint("call", i))
	}
	if n := x.Bytes(); n != 0 {
		t.Errorf("an empty index takes %d bytes", n)
	}
}

// TestGrowing: an index that is searched while calls take turns to grow and change finds exactly
// what a new one with the same turns finds.
func TestGrowing(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("key door garden parcel ladder did you see when I what octopus Tuesday seven never")
	x, stored := recall.NewIndex(), map[string]recall.Turn{}
	for i := range 800 {
		call := fmt.Sprint("call", random.IntN(1+i/100))
		seq := int64(i + 1)
		if i%5 == 4 {
			seq = 1 + random.Int64N(seq)
		}
		turn := recall.Turn{Call: call, Seq: seq, Role: []string{"user", "assistant"}[i%2], At: now.UnixMilli() - int64(i), Text: "This was with the "}
		for range 3 + random.IntN(9) {
			turn.Text += words[random.IntN(len(words))] + " "
		}
		x.Put(turn)
		stored[fmt.Sprint(call, seq)] = turn
		if i%200 == 150 {
			x.Remove(call, seq)
			delete(stored, fmt.Sprint(call, seq))
		}
		if i%10 > 0 {
			continue
		}
		fresh := recall.NewIndex()
		for _, turn := range stored {
			fresh.Put(turn)
		}
		q := recall.Query{Text: "When did you see the " + turn.Text, K: 20, Now: now, Budget: 1000}
		got, _ := x.Search(q)
		want, _ := fresh.Search(q)
		if len(got) != len(want) {
			t.Fatalf("after %d turns: %d hits, want %d", i+1, len(got), len(want))
		}
		for n := range got {
			g, w := &got[n], &want[n]
			if g.Turn != w.Turn || math.Abs(g.Score-w.Score) > 1e-5 || !slices.Equal(g.Context, w.Context) {
				t.Fatalf("after %d turns: hit %d is %v of %+v, want %v of %+v", i+1, n, g.Turn, g.Parts, w.Turn, w.Parts)
			}
		}
	}
}

// TestLate: a search whose time is up at any moment ends soon, with what it has found.
func TestLate(t *testing.T) {
	t.Parallel()
	x := recall.NewIndex()
	for i := range int64(20_000) {
		x.Put(recall.Turn{Call: fmt.Sprint(i / 100), Seq: i, Role: "user", Text: fmt.Sprintf("The key %d of the garden door is under the ladder", i), At: i})
	}
	most := 0
	for up := 0; ; up++ {
		asked, after := 0, 0
		hits, _ := x.Search(recall.Query{Text: "Where is the key 77 for the door of the garden?", K: 10, Now: now, Late: func() bool {
			asked++
			after += b2i(asked > up)
			return asked > up
		}})
		if len(hits) > 0 && most == 0 {
			most = up + 1
		}
		if after > 3 || most > 0 && len(hits) != 10 {
			t.Errorf("late at the look %d at the clock: %d more, %d hits", up, after, len(hits))
		}
		if after == 0 {
			break
		}
	}
	if most == 0 || most > 5 {
		t.Errorf("nothing is found before the look %d at the clock", most)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestRemoveLong: to remove a long call takes about as long as to add it.
func TestRemoveLong(t *testing.T) {
	t.Parallel()
	x := recall.NewIndex()
	for try := 1; ; try++ { // the machine does other things too
		begin := time.Now()
		for i := range int64(20_000) {
			x.Put(recall.Turn{Call: "c", Seq: i + 1, Role: "user", Text: "the parcel and the ladder", At: i})
		}
		added := time.Since(begin)
		begin = time.Now()
		x.RemoveBefore("c", 10_000)
		x.RemoveCall("c")
		took := time.Since(begin)
		if n := x.Bytes(); n != 0 {
			t.Fatalf("an empty index takes %d bytes", n)
		}
		if took < 10*added {
			return
		}
		if try == 20 {
			t.Fatalf("adding took %v, removing %v", added, took)
		}
	}
}

// TestBytes: terms that are new take more memory than known ones.
func TestBytes(t *testing.T) {
	t.Parallel()
	x := recall.NewIndex()
	const text = "abcdefghijklmnopqrstuvwxyz"
	x.Put(recall.Turn{Call: "c", Seq: 1, Role: "user", Text: text})
	first := x.Bytes()
	x.Put(recall.Turn{Call: "c", Seq: 2, Role: "user", Text: text})
	if more := 2*first - x.Bytes(); more < 20*64 {
		t.Errorf("some 24 new grams and a word are counted as %d bytes", more)
	}
}

// TestCollapse: turns that say the same are one hit, unless numbers or a negation differ.
func TestCollapse(t *testing.T) {
	t.Parallel()
	x := recall.NewIndex()
	for i, text := range []string{
		"The delivery comes on Monday at 9.", "The delivery comes on Monday at 9!", "The delivery comes on Monday at 10.", "The delivery comes on Tuesday at 9.",
		"The delivery does not come on Monday at 9.",
	} {
		x.Put(recall.Turn{Call: fmt.Sprint(i), Seq: 1, Role: "assistant", At: int64(i), Text: text})
	}
	hits, _ := x.Search(recall.Query{Text: "delivery on Monday at 9", K: 10, Now: now})
	if len(hits) != 4 {
		t.Errorf("%d hits, want 4", len(hits))
	}
	for _, h := range hits {
		if h.Call == "0" || h.Call == "1" != (len(h.Also) == 1) {
			t.Errorf("%s stands for %d more", h.Call, len(h.Also))
		}
	}
}

// TestNoise: texts of any form can be indexed and asked for.
func TestNoise(t *testing.T) {
	t.Parallel()
	x := recall.NewIndex()
	odd := []string{"", " ", "...", "\xff\xfe", strings.Repeat("x", 10_000), strings.Repeat("é́", 100), "¿?", "١٢٣", "a\x00b", "Ⅷ ﬁne", strings.Repeat("ก", 300), "ago", "last", "2026"}
	for i, text := range odd {
		x.Put(recall.Turn{Call: "c", Seq: int64(i + 1), Role: "user", Text: text, At: int64(i)})
	}
	for _, text := range odd {
		x.Search(recall.Query{Text: text, K: 3, Now: now, Budget: 10})
	}
	if hits, _ := x.Search(recall.Query{Text: "viii fine", K: 1, Now: now}); len(hits) != 1 || hits[0].Text != "Ⅷ ﬁne" {
		t.Errorf("%+v", hits)
	}
}
