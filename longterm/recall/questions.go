package recall

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Words that show in speech what capitals and punctuation show in writing: who is addressed by
// name, and what is a question.
var (
	// greetings stand right before the name of the one who is spoken to.
	greetings = wordSet(`hey hi hello thanks thank bye goodbye morning afternoon evening dear sorry congrats welcome ok okay wow sure great mr mrs ms miss dr
		hallo guten danke tschüss herr frau liebe lieber morgen tag bonjour salut merci monsieur madame bonsoir cher chère
		hola gracias adiós señor señora querido querida ciao grazie signor signora buongiorno salve caro cara
		olá oi obrigado obrigada senhor senhora hoi dank bedankt dag meneer mevrouw beste привет здравствуйте спасибо
		hej tack hei moi kiitos takk tak szia köszönöm bună mulțumesc merhaba teşekkürler`)
	// askers open a question.
	askers = wordSet(`what when where which who whom whose why how whats wheres whos hows any
		was wann wo welche welcher welches welchen wer wem wen warum wieso wie wieviel wohin woher
		quoi quand où quel quelle quels quelles qui pourquoi comment combien qué cuándo dónde cuál cuáles quién quiénes cómo cuánto cuánta cuántos cuántas
		che cosa quando dove quale quali chi perché quanto quanti quante onde qual quais quem porquê quantos quantas
		wat wanneer waar welke wie waarom hoe hoeveel что когда где какой какая какие кто почему как сколько
		vad när var vilken vem varför hur hva når hvor hvilken hvem hvorfor hvordan hvad hvornår mitä milloin missä kuka miksi miten
		mi mikor hol ki miért hogyan ce când unde cine cum kim ne nerede neden nasıl`)
	// Verbs and the words that stand right behind them in questions, but not in statements.
	inverted = wordSet(`do did does have has had are is was were can could would will should may am got
		haben hast hat sind ist bist können kannst könnten möchten möchtest wollen willst werden wird
		avez as êtes es est pouvez peux voulez veux heeft heb hebt bent kunt kan wilt wil har kan vil er`)
	// lightWords say little of what a question is about.
	lightWords = wordSet(`may might must shall please bring take tell told know knew remember recall say said mention mentioned talk talked ask asked think thought want wanted
		need needed make made go went gone come came use used give gave look looking find found help keep try tried happen happened thing things something anything kind type
		sort way ways time times many much long ever also along really able sure last first new good best different certain recent recently current currently
		discuss discussed conversation conversations session sessions suggest recommend advise explain list show describe summary summarize order aspect aspects total exactly
		still again since already yet even mine plan planning planned get getting start started work working like
		sagen gesagt sagte erzählt erzählen erinnern erinnerst wissen weißt weiß gibt geben machen gemacht brauchen brauche mitbringen bringen nehmen bitte mal eigentlich sagtest
		dire dit rappeler rappelles savoir sais faire fait prendre apporter peux peut puis decir dije dicho recordar recuerdas saber sabes hacer hice llevar traer puedo puede
		dire detto ricordi ricordare sapere sai fare fatto portare posso può dizer disse lembra lembrar saber sabe fazer fiz levar posso
		zeggen gezegd herinner weten weet doen gedaan meenemen brengen mag मैं मुझे मेरा मेरी मेरे क्या है हैं था थी थे का की के को से में पर और कब कहाँ कौन कौनसा किस किसने कैसे बताया`)
	// standingWords tell what the speaker prefers or wants from now on.
	standingWords = wordSet(`prefer preferred preferring preference always never rather favorite favourite hate dislike
		lieber bevorzuge immer nie niemals lieblings hasse préfère préférée préféré toujours jamais plutôt déteste prefiero siempre nunca favorito favorita odio
		preferisco sempre mai preferito preferita prefiro preferido preferida liever altijd nooit предпочитаю всегда никогда föredrar alltid aldrig
		foretrekker foretrækker alltid altid aina koskaan mindig soha prefer întotdeauna niciodată hep asla हमेशा कभी पसंद`)
	// adviceWords ask what to do.
	adviceWords = wordSet(`suggest recommend advise should help show explain could how best tips options
		empfehlen empfiehlst vorschlagen soll sollte sollen hilf helfen wie conseiller recommander dois devrais aider comment recomendar recomiendas sugieres debo debería ayudar cómo
		consigliare consigli dovrei aiutare come recomenda sugere devo deveria ajudar como aanraden moet helpen hoe`)
	// summaryWords ask for what both parties said.
	summaryWords = wordSet(`summary summarize summarise overview zusammenfassung zusammenfassen résumé résumer resumen resumir riassunto riassumere resumo samenvatting samenvatten`)
	// countWords ask for a number, howMany do so behind how.
	countWords = wordSet(`number wieviel wieviele viele combien cuánto cuánta cuántos cuántas quanto quanta quanti quante quantos quantas hoeveel сколько hur kuinka hány câte câți kaç कितने कितना कितनी`)
	howMany    = wordSet(`many much long old often far big tall`)
	invertedBy = wordSet(`you i we they he she it there this that your any sie du ihr es wir das vous tu il elle vous nous u je jij ni du dere`)
)

// lightCharacters of Chinese carry little meaning, nor do pairs of hiragana.
const lightCharacters = "的了吗嗎呢吧是我你您他她们們有在不么麼谁誰哪几幾多少什怎请請可以过過会會要想何"

// light reports whether a word says little of what a question is about.
func light(w word) bool {
	if !w.pair {
		return lightWords[w.text]
	}
	kana := 0
	for _, r := range w.text {
		if strings.ContainsRune(lightCharacters, r) {
			return true
		}
		kana += b2i(unicode.Is(unicode.Hiragana, r))
	}
	return kana == utf8.RuneCountInString(w.text)
}

// Asks reports whether a text has a question, by its marks or its words: transcripts of speech may
// have no marks.
func Asks(s string) bool { return asks(s, wordsOf(s)) }

// asks reports whether a text has a question, by its marks or its first words. A verb before you
// makes one anywhere in a text.
func asks(s string, words []word) bool {
	if strings.ContainsAny(s, "?？؟") {
		return true
	}
	for i, w := range words {
		if i < 2 && askers[w.text] || i > 0 && inverted[words[i-1].text] && invertedBy[w.text] {
			return true
		}
	}
	return false
}

// called reports whether a word stands right behind a greeting or a title at the beginning of a
// text.
func called(words []word, i int) bool {
	return i > 0 && i < 5 && (greetings[words[i-1].text] || i > 1 && words[i-1].text == "you" && words[i-2].text == "thank")
}

func flagsOf(t *Turn, words []word) (flags uint8) {
	if hasTimeWord(words) {
		flags |= timed
	}
	if asks(t.Text, words) {
		flags |= asking
	}
	switch t.Role {
	case roleUser:
		flags |= byUser
	case roleAssistant:
		flags |= byAssistant
	}
	for _, w := range words {
		if w.digits {
			flags |= numbered
		}
		if t.Role == roleUser && standingWords[w.text] {
			flags |= standing
		}
	}
	return flags
}
