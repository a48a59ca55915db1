package heard_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/heardlog/heardlog/memory/heard"
)

const notPart = "\x00not part" // want of a case whose heard text is no part of the generated one

func TestAlign(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, generated, heard, want string }{
		// Nothing, everything, beginnings.
		{"nothing heard", "Hello there.", "", ""},
		{"white space heard", "Hello there.", " \n", ""},
		{"only an emoji heard", "Hello there.", "🙂", ""},
		{"both without words", "🙂 ...", "🙂", "🙂 ..."},
		{"both empty", "", "", ""},
		{"heard of nothing", "", "hello", notPart},
		{"the same", "Hello there.", "Hello there.", "Hello there."},
		{"the whole without its point", "Hello there.", "Hello there", "Hello there."},
		{"the whole without its emoji", "Bye now! 👋🏽 ", "bye now", "Bye now! 👋🏽 "},
		{"the first word", "Hello there, friend.", "Hello", "Hello"},
		{"two words", "Hello there, friend.", "hello there", "Hello there"},
		{"half a last word", "Hello there, friend.", "Hello th", "Hello th"},
		{"half the first word", "Hello there", "Hel", "Hel"},
		{"leading white space is kept", "  Hello there", "hello", "  Hello"},
		{"more than was said", "Hello there.", "Hello there my friend", notPart},
		{"another text", "Hello there.", "Good bye", notPart},
		{"another last word", "Hello there friend", "Hello there fiend", notPart},
		{"words in another order", "Hello there friend", "there Hello", notPart},
		{"a hole in the middle", "one fine day in May", "one day in May", notPart},

		// Case, white space, punctuation.
		{"case", "The QUICK brown Fox", "the quick BROWN", "The QUICK brown"},
		{"white space", "a  b\n\n c\td", "a b c", "a  b\n\n c"},
		{"no white space", "ice cream for all", "icecream", "ice cream"},
		{"hyphens", "A state-of-the-art e-mail client", "a state of the art email", "A state-of-the-art e-mail"},
		{"commas left out", "Well, yes, of course, sir.", "well yes of course", "Well, yes, of course"},
		{"commas put in", "Well yes of course sir", "Well, yes, of course,", "Well yes of course"},
		{"point heard", "First. Second.", "first.", "First."},
		{"point not heard", "First. Second.", "first", "First"},
		{"other point heard", "First! Second.", "first.", "First"},
		{"point after space", "First. Second.", "first .", "First."},
		{"two marks", "Really?! Yes.", "really?!", "Really?!"},
		{"one of two marks", "Really?! Yes.", "really?", "Really?"},
		{"ellipsis as one rune", "Wait... no", "Wait…", "Wait..."},
		{"ellipsis as three", "Wait… no", "wait...", "Wait…"},
		{"typographic quotes", "“Don’t go,” she said.", "\"Don't go,\"", "“Don’t go,”"},
		{"closing quote not heard", "“Don’t go,” she said.", "dont go", "“Don’t go"},
		{"apostrophe and nothing", "It's John's book.", "its johns", "It's John's"},
		{"dashes", "Yes — or no – or", "yes - or no", "Yes — or no"},
		{"point is not taken from the next word", "See example.com now", "See example.", "See example"},

		// Markup.
		{"bold", "**Hello** world, friend", "hello world", "**Hello** world"},
		{"bold, cut inside", "**Hello big** world", "hello", "**Hello"},
		{"emphasis inside a word", "un*frigging*believable stuff", "unfriggingbelievable", "un*frigging*believable"},
		{"heading", "# The plan\n\nFirst we go.", "the plan first we", "# The plan\n\nFirst we"},
		{"bullets", "- apples\n- pears\n* plums\n", "apples pears", "- apples\n- pears"},
		{"numbered list read", "1. Apples\n2. Pears\n3. Plums", "one apples two pears", "1. Apples\n2. Pears"},
		{"numbered list not read", "1. Apples\n2. Pears\n3. Plums", "apples pears", "1. Apples\n2. Pears"},
		{"link", "See [our site](https://x.example/a_b) for more", "see our site for", "See [our site](https://x.example/a_b) for"},
		{"link with brackets in it", "On [Go](https://e.example/Go_(language)) there is", "on go there", "On [Go](https://e.example/Go_(language)) there"},
		{"cut before a link's end", "See [our site](https://x.example) for", "see our site", "See [our site"},
		{"code span", "Run `go test` now please", "run go test now", "Run `go test` now"},
		{"code block read", "So:\n```go\nx := y\n```\nThat is all, folks.", "so x y that is all", "So:\n```go\nx := y\n```\nThat is all"},
		{"code block left out", "So:\n```go\nx := y\n```\nThat is all, folks.", "so that is all", "So:\n```go\nx := y\n```\nThat is all"},
		{"table", "| a | b |\n|---|---|\n| c | d |", "a b c", "| a | b |\n|---|---|\n| c"},
		{"quote and strike", "> ~~old~~ new price today", "old new price", "> ~~old~~ new price"},
		{"task", "- [x] done\n- [ ] open task", "done open", "- [x] done\n- [ ] open"},
		{"break tag", "One <break time=\"1s\"/> moment please.", "one moment", "One <break time=\"1s\"/> moment"},
		{"ssml", "<speak>Hello <emphasis>big</emphasis> world</speak>", "hello big", "<speak>Hello <emphasis>big"},
		{"ssml whole", "<speak>Hello <b>world</b></speak>", "hello world", "<speak>Hello <b>world</b></speak>"},
		{"heart is no tag", "I <3 you a lot", "I 3 you", "I <3 you"},
		{"comparison is no tag", "if a < b and c > d then", "if a b and c d", "if a < b and c > d"},
		{"comment", "A<!-- b --> c d", "a c", "A<!-- b --> c"},
		{"entity", "Salt &amp; pepper, sir", "salt and pepper", "Salt &amp; pepper"},
		{"stage direction acted", "[laughs] That is funny, sir", "that is funny", "[laughs] That is funny"},
		{"stage direction read", "[laughs] That is funny, sir", "laughs that is", "[laughs] That is"},
		{"stage direction at the end", "That is funny! [laughs]", "that is funny", "That is funny! [laughs]"},
		{"emoji", "Great 🎉🎉 news 👩‍👩‍👧 today, all", "great news today", "Great 🎉🎉 news 👩‍👩‍👧 today"},
		{"emoji heard", "Great 🎉 news", "Great 🎉", "Great"},
		{"keycap", "Press 1️⃣ now please", "press one now", "Press 1️⃣ now"},
		{"address", "Write to jo@example.com today, ok", "write to jo at example dot com today", "Write to jo@example.com today"},
		{"web address", "Go to https://www.example.com now, ok", "go to example dot com now", "Go to https://www.example.com now"},
		{"initials", "The U.S. economy is big", "the US economy", "The U.S. economy"},
		{"title", "Mr. Smith and Dr. Jones came", "mister smith and doctor jones", "Mr. Smith and Dr. Jones"},

		// Numbers.
		{"21", "I am 21 years old", "I am twenty-one years", "I am 21 years"},
		{"twenty-one", "I am twenty-one years old", "I am 21 years", "I am twenty-one years"},
		{"21 by digits", "Room 21 is free", "room two one is", "Room 21 is"},
		{"number at the end of heard", "I am 21 years old", "I am twenty one", "I am 21"},
		{"number heard in part", "I am 21 years old", "I am twenty", "I am"},
		{"digits heard in part", "I am 21 years old", "I am 2", "I am 2"},
		{"another number", "I am 21 years old", "I am twenty two", notPart},
		{"decimal", "Pi is 3.14 or so", "pi is three point one four or", "Pi is 3.14 or"},
		{"3.5", "It is 3.5 miles off", "it is three point five miles", "It is 3.5 miles"},
		{"three and a half", "It is 3.5 miles off", "it is three and a half miles", "It is 3.5 miles"},
		{"decimal is not its digits", "It is 3.5 miles off", "it is 35 miles", notPart},
		{"thousands", "It has 1,000 seats in all", "it has one thousand seats", "It has 1,000 seats"},
		{"a thousand", "It has 1,000 seats in all", "it has a thousand seats", "It has 1,000 seats"},
		{"thousands with and without comma", "It has 12,500 seats in all", "it has 12500 seats", "It has 12,500 seats"},
		{"millions", "All 2,300,045 of them came", "all two million three hundred thousand forty-five of", "All 2,300,045 of"},
		{"and in number", "Take 105 of them now", "take one hundred and five of", "Take 105 of"},
		{"and in words", "Take one hundred and five of them", "take one hundred five of", "Take one hundred and five of"},
		{"dollars", "That is $5 please, sir", "that is five dollars please", "That is $5 please"},
		{"dollars written after", "That is $5 please, sir", "that is 5 dollars please", "That is $5 please"},
		{"dollars to sign", "That is five dollars please, sir", "that is $5 please", "That is five dollars please"},
		{"dollar", "Only $1 each, sir", "only one dollar each", "Only $1 each"},
		{"dollars and cents", "It costs $5.50 a piece", "it costs five dollars and fifty cents a", "It costs $5.50 a"},
		{"five fifty", "It costs $5.50 a piece", "it costs five fifty a", "It costs $5.50 a"},
		{"millions of dollars", "We won $2.5 million last year", "we won two point five million dollars last", "We won $2.5 million last"},
		{"euros after", "Das kostet 5€ or so", "das kostet five euros or", "Das kostet 5€ or"},
		{"dollar sign left out", "That is $5 please, sir", "that is 5 please", "That is $5 please"},
		{"ordinal", "On the 1st of May we go", "on the first of may", "On the 1st of May"},
		{"ordinal to digits", "The twenty-third floor, sir", "the 23rd floor", "The twenty-third floor"},
		{"day read as ordinal", "On May 5 we go", "on may fifth we", "On May 5 we"},
		{"year", "In 1999 we met there", "in nineteen ninety-nine we met", "In 1999 we met"},
		{"year in words", "In nineteen ninety-nine we met there", "in 1999 we met", "In nineteen ninety-nine we met"},
		{"year with oh", "In 1905 it began here", "in nineteen oh five it", "In 1905 it"},
		{"2024", "In 2024 it ended here", "in twenty twenty-four it", "In 2024 it"},
		{"two thousand and twenty-four", "In 2024 it ended here", "in two thousand and twenty four it", "In 2024 it"},
		{"decade", "The 1990s were fun, yes", "the nineteen nineties were", "The 1990s were"},
		{"time", "Come at 9:30 am sharp", "come at nine thirty a.m.", "Come at 9:30 am"},
		{"full hour", "Come at 9:00 sharp, ok", "come at nine o'clock sharp", "Come at 9:00 sharp"},
		{"half past", "Come at 9:30 sharp, ok", "come at half past nine sharp", "Come at 9:30 sharp"},
		{"oh five", "Come at 9:05 sharp, ok", "come at nine oh five sharp", "Come at 9:05 sharp"},
		{"afternoon", "Come at 14:30 sharp, ok", "come at two thirty sharp", "Come at 14:30 sharp"},
		{"percent", "Some 50% of them", "some fifty percent of", "Some 50% of"},
		{"percent in words", "Some fifty percent of them", "some 50% of", "Some fifty percent of"},
		{"per cent in two words", "Some 50% of them", "some fifty per cent of", "Some 50% of"},
		{"range", "It takes 5-10 days, sir", "it takes five to ten days", "It takes 5-10 days"},
		{"minus", "It is -5 degrees out", "it is minus five degrees", "It is -5 degrees"},
		{"degrees", "It is 21°C out there", "it is twenty-one degrees celsius out", "It is 21°C out"},
		{"fraction", "Add 3/4 cup of milk", "add three quarters cup", "Add 3/4 cup"},
		{"phone", "Call 555-0134 now, ok", "call five five five zero one three four now", "Call 555-0134 now"},
		{"phone with oh", "Call 555-0134 now, ok", "call five five five oh one three four now", "Call 555-0134 now"},
		{"phone grouped otherwise", "Call 555-0134 now, ok", "call 5550134 now", "Call 555-0134 now"},
		{"24/7", "We are open 24/7 for you", "we are open twenty-four seven for", "We are open 24/7 for"},
		{"hash", "You are #1 in line", "you are number one in", "You are #1 in"},
		{"suffix joined", "Be there by 10am or so", "be there by ten am or", "Be there by 10am or"},
		{"many numbers", "1 2 3 4 5 6 7 8 9 10 11 12", "one two three four five six seven eight nine ten", "1 2 3 4 5 6 7 8 9 10"},
		{"ampersand", "R&D is here, sir", "r and d is", "R&D is"},
		{"ampersand left out", "Salt & pepper, sir", "salt pepper", "Salt & pepper"},

		// Other languages.
		{"german", "Schöne Grüße aus Köln, mein Freund", "schone grüsse aus köln", "Schöne Grüße aus Köln"},
		{"german cut before sharp s", "Die Straße ist lang", "die stras", "Die Stra"},
		{"composed and decomposed", "Un café crème, merci", "un cafe\u0301 cre\u0300me", "Un café crème"},
		{"decomposed and composed", "Un cafe\u0301 cre\u0300me, merci", "un café crème", "Un cafe\u0301 cre\u0300me"},
		{"cut after an accent", "cafe\u0301 noir", "café", "cafe\u0301"},
		{"vietnamese", "Xin chào, tôi là trợ lý ảo", "xin chào tôi là trợ lý", "Xin chào, tôi là trợ lý"},
		{"spanish", "¿Qué tal? ¡Muy bien, señor!", "qué tal? muy bien", "¿Qué tal? ¡Muy bien"},
		{"turkish", "İSTANBUL'DA ışık var", "istanbul'da ışık", "İSTANBUL'DA ışık"},
		{"russian", "Ещё раз, мой друг", "еще раз мой", "Ещё раз, мой"},
		{"greek", "Καλημέρα, φίλος μου", "καλημερα φίλοσ", "Καλημέρα, φίλος"},
		{"chinese", "你好，我是你的助手。有什么可以帮你？", "你好我是你的助手", "你好，我是你的助手"},
		{"chinese with point", "你好，我是你的助手。有什么可以帮你？", "你好 我是 你的 助手。", "你好，我是你的助手。"},
		{"chinese by character", "今天天气很好", "今天天", "今天天"},
		{"japanese", "こんにちは、カフェです。どうぞ", "こんにちは カフェ", "こんにちは、カフェ"},
		{"japanese decomposed", "がんばって、ください", "か\u3099んは\u3099って", "がんばって"},
		{"korean", "안녕하세요, 반갑습니다 여러분", "안녕하세요 반갑습니다", "안녕하세요, 반갑습니다"},
		{"korean decomposed", "한국 사람, 여러분", "\u1112\u1161\u11ab\u1100\u116e\u11a8 사람", "한국 사람"},
		{"thai", "สวัสดีครับ ยินดีต้อนรับ", "สวัสดีครับยินดี", "สวัสดีครับ ยินดี"},
		{"hindi", "नमस्ते, आप कैसे हैं?", "नमस्ते आप कैसे", "नमस्ते, आप कैसे"},
		{"arabic", "مرحبًا، كيف حالك اليوم؟", "مرحبا كيف حالك", "مرحبًا، كيف حالك"},
		{"hebrew", "שָׁלוֹם, מה שלומך?", "שלום מה", "שָׁלוֹם, מה"},
		{"arabic digits", "لدي ٢١ كتابا هنا", "لدي 21 كتابا", "لدي ٢١ كتابا"},
		{"full width", "ＡＢＣ　１２３ です", "abc 123", "ＡＢＣ　１２３"},
		{"mixed", "我有 3 个 apples，好吗", "我有3个apples", "我有 3 个 apples"},

		// Runs further on.
		{"last utterance", "Hello there. How can I help you today?", "how can I help", "Hello there. How can I help"},
		{"last utterance to the end", "Hello there. How can I help?", "How can I help", "Hello there. How can I help?"},
		{"last utterance with a mark", "Hello. Can I help? I can.", "can I help?", "Hello. Can I help?"},
		{"first of two runs", "a b. We go home. We go home. End", "we go home", "a b. We go home"},
		{"a stray word", "Put the cat in the box by the door", "the", notPart},
		{"a word that is there once", "Put the cat in the box", "cat", "Put the cat"},
		{"half a word further on", "Put the cat in the box", "ca", notPart},
		{"run from inside a word", "another day is here", "other day", notPart},
		{"run that ends inside a word", "Hello. We shall meet tomorrow", "shall meet tom", "Hello. We shall meet tom"},
		{"run with a number", "Hello. It is 21 miles off", "it is twenty-one miles", "Hello. It is 21 miles"},
		{"run beginning with a number", "Hello. There, 21 miles off", "twenty-one miles", "Hello. There, 21 miles"},
		{"first run is spelled", "So: call 21 now. Or call twenty-one now. End", "call twenty-one now", "So: call 21 now"},
		{"number there once", "We need 12 eggs and 6 pears", "six", "We need 12 eggs and 6"},
		{"number there twice", "We need 12 eggs and twelve pears", "twelve", notPart},
		{"whole number further on", "100 tips, of which number one is", "one", "100 tips, of which number one"},
		{"chinese run", "你好。我是助手，请说。", "我是助手", "你好。我是助手"},

		// Text that is broken.
		{"invalid bytes", "Hello \xff\xfe there\xc3", "hello there", "Hello \xff\xfe there\xc3"},
		{"invalid bytes heard", "Hello there friend", "hello\xff there\xed\xa0", "Hello there"},
		{"repaired and not", "caf\xe9 au lait", "caf\ufffd au", "caf\xe9 au"},
		{"zero bytes", "a\x00b c", "a b", "a\x00b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, ok := heard.Align(tt.generated, tt.heard)
			want, wantOK := tt.want, true
			if want == notPart {
				want, wantOK = "", false
			}
			if got != want || ok != wantOK {
				t.Fatalf("Align(%q, %q) = %q, %v; want %q, %v", tt.generated, tt.heard, got, ok, want, wantOK)
			}
			checkAligned(t, tt.generated, got, ok)
		})
	}
}

// checkAligned checks what holds for every result.
func checkAligned(t *testing.T, generated, got string, ok bool) {
	t.Helper()
	if !strings.HasPrefix(generated, got) {
		t.Fatalf("%q is no prefix of %q", got, generated)
	}
	if !ok {
		if got != "" {
			t.Fatalf("not ok, but %q", got)
		}
		return
	}
	if again, ok := heard.Align(generated, got); !ok || again != got {
		t.Fatalf("aligned again in %q: %q, %v; want %q", generated, again, ok, got)
	}
	if utf8.ValidString(generated) && !utf8.ValidString(got) {
		t.Fatalf("%q is cut inside a rune", got)
	}
}

// texts are whole answers as models write them.
func texts() []string {
	return []string{
		"Sure! I can help you with that. Your appointment is on Tuesday, at half past nine, with Doctor Brown. Shall I confirm it?",
		"**Great question!** Here's what I'd suggest:\n\n- Take the *early* train.\n- Bring a coat — it's cold.\n- Don't forget [your ticket](https://example.com/t?a=1).\n",
		"# Menu\n\nWe've pasta, pizza & salad today. “Everything’s fresh,” says the chef… 🍕 Would you like to order?",
		"你好！我可以帮你查询订单。请告诉我你的订单号码，好吗？谢谢。",
		"Bien sûr, je peux vous aider. Votre réservation à l’hôtel est confirmée ; à bientôt !",
		"<speak>Please hold on. <break time=\"500ms\"/> I am checking <emphasis level=\"strong\">your</emphasis> account now.</speak>",
		"Привет! Чем я могу помочь? Ещё что-нибудь? مرحبا بك في متجرنا اليوم",
	}
}

// wordEnds gives the offsets right after each word of a text: after the last letter before anything
// that is no letter.
func wordEnds(text string) []int {
	var out []int
	inTag, in := false, false
	for i, r := range text {
		switch {
		case r == '<':
			inTag = true
		case r == '>':
			inTag = false
		}
		letter := unicode.IsLetter(r) || r == '\'' || r == '’'
		if in && !letter && !inTag {
			out = append(out, i)
		}
		in = letter && !inTag
	}
	return out
}

func TestAlignPerturbed(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, text := range texts() {
		linkFrom, linkTo := strings.Index(text, "]("), strings.LastIndexByte(text, ')')
		for _, end := range wordEnds(text) {
			if linkFrom >= 0 && end > linkFrom && end < linkTo {
				continue // inside a link's target
			}
			for range 8 {
				said := perturb(rnd, text[:end])
				want := text[:end]
				got, ok := heard.Align(text, said)
				if !ok || got != want && got != text {
					t.Fatalf("Align(%q, %q) = %q, %v; want %q", text, said, got, ok, want)
				}
				if got == text && strings.ContainsFunc(unspoken(text[end:]), unicode.IsLetter) {
					t.Fatalf("Align(%q, %q): whole, but words are left", text, said)
				}
				checkAligned(t, text, got, ok)
			}
		}
	}
}

// unspoken takes tags and the target of a link off.
func unspoken(s string) string {
	for _, pair := range [...][2]string{{"<", ">"}, {"](", ")"}} {
		for {
			from := strings.Index(s, pair[0])
			to := strings.Index(s, pair[1])
			if from < 0 || to < from {
				break
			}
			s = s[:from] + s[to+1:]
		}
	}
	return s
}

// perturb changes what does not count: case, white space, punctuation between words.
func perturb(rnd *rand.Rand, text string) string {
	var b strings.Builder
	inTag := false
	for _, r := range text {
		if inTag || r == '<' {
			inTag = r != '>'
			b.WriteRune(r)
			continue
		}
		switch {
		case unicode.IsSpace(r) && r != '\n':
			b.WriteString([]string{" ", "  ", ", ", " - ", " … ", "\t", " **"}[rnd.IntN(7)])
		case unicode.IsLetter(r) && rnd.IntN(3) == 0:
			if upper := unicode.ToUpper(r); unicode.ToLower(upper) == r {
				r = upper
			}
			b.WriteRune(r)
		case strings.ContainsRune(",.!?;’", r) && rnd.IntN(2) == 0:
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// TestAlignBounded runs texts that a careless search would need quadratic time or worse for. The
// limit is generous: a quadratic search of 256 KiB takes minutes.
func TestAlignBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("long texts")
	}
	for name, tt := range hardTexts() {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			got, ok := heard.Align(tt.generated, tt.said)
			if took := time.Since(began); took > time.Minute {
				t.Errorf("took %v", took)
			}
			if ok != tt.ok {
				t.Errorf("ok = %v, want %v (%d bytes)", ok, tt.ok, len(got))
			}
		})
	}
}

type hardText struct {
	generated, said string
	ok              bool
}

func hardTexts() map[string]hardText {
	fill := func(s string) string { return strings.Repeat(s, (256<<10)/len(s)) }
	long := fill("Sure, I can help you with that today. ")
	half := func(s string) string { return s[:len(s)/2] }
	return map[string]hardText{
		"whole":             {long, strings.ToUpper(long), true},
		"half":              {long, strings.ReplaceAll(half(long), ",", ""), true},
		"wrong at the end":  {long, long[:len(long)-6] + " xx", false},
		"run of one letter": {fill("a ") + "b", half(fill("a ")) + "c", false},
		"one long word":     {fill("a"), half(fill("a")) + "b", false},
		"word starts":       {fill("a"), "b " + half(fill("a")), false},
		"numbers":           {fill("21 "), fill("21 "), true},
		"numbers spelled":   {fill("21 "), strings.Repeat("twenty one ", 9000), true},
		"numbers, no":       {fill("22 "), half(fill("22 ")) + "x", false},
		"numbers, far no":   {fill("9:00 0 0 "), half(fill("9:00 0 0 ")) + "x", false},
		"zeros":             {fill("0:00 "), half(fill("0:00 ")) + "x", false},
		"symbols":           {fill("& % "), half(fill("& % ")) + "x", false},
		"points":            {fill("a.b."), half(fill("a.b.")) + "x", false},
		"directions":        {fill("[a] "), half(fill("[a] ")) + "x", false},
		"open brackets":     {fill("["), "x", false},
		"open links":        {fill("[]("), "x", false},
		"open tags":         {fill("<a "), "x", false},
		"open comments":     {fill("<!--"), "x", false},
		"fences":            {fill("```\na\n"), strings.Repeat("```\na\n", 20000) + "x", false},
		"many half words":   {fill("0:00 ") + fill("ab "), "0:00 0:0x a", false},
		"half words, no":    {fill("1 & ab "), "a", false},
		"long number":       {fill("1"), half(fill("1")) + "x", false},
		"chinese":           {fill("你好我是"), half(fill("你好我是")) + "x", false},
		"accents":           {"a" + fill("\u0301"), "a", true},
		"invalid":           {fill("\xff"), "x", false},
		"hundred and":       {fill("hundred and "), half(fill("hundred and ")) + "x", false},
	}
}

func FuzzAlign(f *testing.F) {
	for _, text := range texts() {
		f.Add(text, text[:len(text)/2])
	}
	for _, s := range [][2]string{
		{"$5.50 at 9:30, 1,000 of 3/4", "five fifty at nine thirty one thousand"},
		{"```go\nx\n``` [a](b) <c/> &amp; d", "x a and"},
		{"1. a\n2. b", "a b"}, {"a.b-1#2 -3 .5", "a dot b one"}, {"か\u3099ㄱ\u1100\u1161", "が"}, {"\xed\xa0\x80", "\xff"},
		{"```0\nAAAAAA[AAAA <A0>B", "```0\nA"}, {">°,%ß's\"", ">°,%ß"}, {"…dot$", "$"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, generated, said string) {
		got, ok := heard.Align(generated, said)
		checkAligned(t, generated, got, ok)
		if whole, ok := heard.Align(generated, generated); generated != "" && (!ok || whole != generated) {
			t.Fatalf("Align of %q and itself = %q, %v", generated, whole, ok)
		}
		for cut := range 8 { // whatever stands before a cut is said, up to the last whole part
			p := generated[:len(generated)*cut/8]
			if got, ok := heard.Align(generated, p); ok {
				checkAligned(t, generated, got, ok)
			}
		}
	})
}

func BenchmarkAlign(b *testing.B) {
	answer := strings.Join(texts(), "\n\n")
	b.Run("answer", func(b *testing.B) {
		said := strings.ToLower(answer[:len(answer)/2])
		b.SetBytes(int64(len(answer)))
		b.ReportAllocs()
		for b.Loop() {
			heard.Align(answer, said)
		}
	})
	for name, tt := range hardTexts() {
		b.Run(strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			for b.Loop() {
				heard.Align(tt.generated, tt.said)
			}
		})
	}
}

// TestAlignPieces puts together texts of what alignment treats in ways of its own, at random, and
// checks what holds for every result, whatever was heard.
func TestAlignPieces(t *testing.T) {
	t.Parallel()
	pieces := []string{
		"```", "```\n", "~~~", "[", "]", "](x)", "](", "[a]", "(", ")", "<b>", "</b>", "<", ">", "<!--", "-->", "1.", "1)", "1,000", "10", "5", "05", "st", "s", "k",
		".", "..", "…", "-", "–", "$", "€", "&", "&amp;", "%", "@", "+", "°", "c", ":", "/", "#", "*", "_", "`", "'", "’", "\"", ",", "!", "?",
		" ", " ", " ", "\n", "\n", "\t", "a", "b", "half", "and", "hundred", "one", "five", "dollars", "point", "percent", "mr", "dot", "minus",
		"é", "e\u0301", "\u0301", "ß", "æ", "你", "か\u3099", "\u1100", "\u1161", "ก", "ี", "م", "½", "②", "٣", "🙂", "\u200d", "\ufe0f", "\xff", "\xe4\xbd", "\x00", "https://www.",
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	text := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		return b.String()
	}
	for range 30_000 {
		generated := text(rnd.IntN(14))
		said := text(rnd.IntN(5))
		switch rnd.IntN(3) {
		case 0: // a beginning
			said = generated[:rnd.IntN(len(generated)+1)]
		case 1: // a beginning, spelled otherwise
			said = strings.NewReplacer("$5", "five dollars", "5", "five", "10", "ten", "%", " percent", "&", "and", ".", " dot ", "-", "minus ").
				Replace(generated[:rnd.IntN(len(generated)+1)])
		}
		got, ok := heard.Align(generated, said)
		checkAligned(t, generated, got, ok)
	}
}
