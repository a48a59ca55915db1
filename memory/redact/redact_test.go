package redact_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heardlog/heardlog/memory/redact"
)

func all() *redact.Redactor { return redact.New(redact.Rules{Types: redact.Types()}) }

// TestText: numbers of several countries, written, grouped and spoken, and what only looks like
// one.
func TestText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		// Secrets.
		"My pin is four seven one one.": "My pin is [secret].", "Der PIN lautet 4711": "Der PIN lautet [secret]", "the code is double oh seven nine, thanks": "the code is [secret], thanks",
		"my pass word hunter2 works": "my pass word [secret] works", "Password: abc!": "Password: [secret]!", "482 913 is the login code": "[secret] is the login code",
		"482913 is my pin, my zip code is 53113": "[secret] is my pin, my zip code is 53113", "My PIN is 4711, order 88213": "My PIN is [secret], order 88213",
		"My PIN is 4711, 0171 2345678 is the mobile": "My PIN is [secret], [phone] is the mobile", "SMS at ten thirty": "SMS at ten thirty", "Bought tan shoes for 1,200 euros": "Bought tan shoes for 1,200 euros",
		"I changed my PIN in 2024": "I changed my PIN in 2024", "I forgot my PIN. My zip code is 53113": "I forgot my PIN. My zip code is 53113", "The password is still hunter2": "The password is still [secret]",
		"我的密码是hunter2": "我的密码是[secret]", "验证码 482913": "验证码 [secret]", "The TAN is 99 88 77": "The TAN is [secret]",
		"The password is wrong": "The password is wrong", "my zip code is 53113": "my zip code is 53113", "discount code 1234": "discount code 1234", "a code review of 1234 lines": "a code review of 1234 lines",
		"My password is «Rose» now": "My password is «[secret]» now", "I have one dog and two cats": "I have one dog and two cats", "the dress code is casual": "the dress code is casual",
		"the password's hunter2": "the password's [secret]", "My password used to be rosebud": "My password used to be [secret]", "Mi clave es cuatro siete uno uno.": "Mi clave es [secret].",
		"the security code on the back is three one two": "the security code on the back is [secret]", "my social security number is 123-45-6789": "my social security number is [secret]",
		"The secret word is bluebird.": "The secret word is [secret].", "Mein Geheimwort ist Blaubeere": "Mein Geheimwort ist [secret]", "use hunter2 as the password": "use [secret] as the password",
		"it is hunter2, my password": "it is [secret], my password", "the answer to my security question is Fluffy": "the answer to my security question is [secret]", "gate code 2580": "gate code [secret]",
		"the key is sk-abcdefghij1234": "the key is [secret]", "La clave es que vengas en 2024": "La clave es que vengas en 2024", "I have 2 accounts and forgot my password": "I have 2 accounts and forgot my password",
		"My security question is what was my first pet": "My security question is what was my first pet", "I am 42, my password works": "I am 42, my password works", "The password's expired": "The password's expired",
		"I lost 2 of the passwords": "I lost 2 of the passwords", "On the 3rd, my new password came": "On the 3rd, my new password came", "the code, one of three": "the code, one of three",
		// Cards.
		"my card is 4111 1111 1111 1111, ok":    "my card is [card], ok",
		"4111111111111111":                      "[card]",
		"4111-1111-1111-1111.":                  "[card].",
		"4111.1111.1111.1111":                   "[card]",
		"5500 0000 0000 0004 12/27 123":         "[card] 12/27 123",
		"2223 0031 2200 3222":                   "[card]",
		"Amex 3782 822463 10005":                "Amex [card]",
		"6011111111111117 and 3530111333300000": "[card] and [card]",
		"3056 930902 5904":                      "[card]",
		"6200 0000 0000 0005":                   "[card]",
		"2200 0000 0000 0004":                   "[card]",
		"4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1":       "[card]",
		"41 11, 11 11, 11 11, 11 11":            "[card]",
		"four one one one one one one one one one one one one one one one":                   "[card]",
		"it is four triple one, four ones":                                                   "it is four triple one, four ones",
		"four triple one double one double one double one double one one one one one":        "[card]",
		"vier eins eins eins, eins eins eins eins, eins eins eins eins, eins eins eins eins": "[card]",
		"forty one eleven eleven eleven eleven eleven eleven eleven":                         "[card]",
		"٤١١١ ١١١١ ١١١١ ١١١١":                                                                "[card]",
		"4111\u00a01111\u00a01111\u00a01111":                                                 "[card]",
		"4111 1111 1111 1112":                                                                "4111 1111 1111 1112",
		"1234567890123456":                                                                   "1234567890123456",
		"id A4111111111111111":                                                               "id A4111111111111111",
		"0.4111111111111111":                                                                 "0.4111111111111111",
		// IBANs.
		"DE89 3704 0044 0532 0130 00":                  "[iban]",
		"iban de89370400440532013000, please":          "iban [iban], please",
		"GB29 NWBK 6016 1331 9268 19":                  "[iban]",
		"FR14 2004 1010 0505 0001 3M02 606":            "[iban]",
		"NL91-ABNA-0417-1643-00":                       "[iban]",
		"NO93 8601 1117 947 and CH9300762011623852957": "[iban] and [iban]",
		"D E 8 9 3 7 0 4 0 0 4 4 0 5 3 2 0 1 3 0 0 0":  "[iban]",
		"GB28 NWBK 6016 1331 9268 19":                  "GB28 NWBK 6016 1331 9268 19",
		"XDE89370400440532013000":                      "XDE89370400440532013000",
		// Telephones: Germany, USA, UK, France, Italy, Australia, India.
		"call +49 30 1234567 now":    "call [phone] now",
		"+49 (0)171 123 45 67":       "[phone]",
		"0049 30 1234567":            "[phone]",
		"0171/1234567":               "[phone]",
		"030 1234567":                "[phone]",
		"(415) 555-0132":             "[phone]",
		"+1 (415) 555-0132":          "[phone]",
		"415-555-0132, 415.555.0132": "[phone], [phone]",
		"1-800-555-0199":             "[phone]",
		"020 7946 0958":              "[phone]",
		"07700 900123":               "[phone]",
		"07700900123":                "[phone]",
		"06 12 34 56 78":             "[phone]",
		"+39 06 698 12345":           "[phone]",
		"0412 345 678":               "[phone]",
		"+91 98765 43210":            "[phone]",
		"oh seven seven double oh nine double oh one two three": "[phone]",
		"plus four nine three zero one two three four five six": "[phone]",
		"null eins sieben eins eins zwei drei vier fünf sechs":  "[phone]",
		// E-mail.
		"write to jane.doe+x@mail.example.co.uk.": "write to [email].",
		"j@exämple.de": "[email]",
		"it's jane dot doe at example dot com, thanks": "it's [email], thanks",
		"juan punto perez arroba ejemplo punto es":     "[email]",
		"a@b":                      "a@b",
		"look at example pictures": "look at example pictures",
		// What must not match.
		"in 2026 or 1999-2004":                 "in 2026 or 1999-2004",
		"on 01.02.2026 at 12:30":               "on 01.02.2026 at 12:30",
		"01.02.2026 100 Euro":                  "01.02.2026 100 Euro",
		"2026-11-23 04:15:30":                  "2026-11-23 04:15:30",
		"order 4711-0815, order 10023456789":   "order 4711-0815, order 10023456789",
		"1,234,567.89 or 1.234.567,89 €":       "1,234,567.89 or 1.234.567,89 €",
		"$4,111.11":                            "$4,111.11",
		"0.123456789 and 3.0123456789":         "0.123456789 and 3.0123456789",
		"one two three four":                   "one two three four",
		"room 101, 102, 103, 104, 105":         "room 101, 102, 103, 104, 105",
		"1780000000123":                        "1780000000123",
		"01a206aa-7015-7193-b210-947ed6a0848a": "01a206aa-7015-7193-b210-947ed6a0848a",
		"":                                     "",
	} {
		r := all()
		got := r.Text(in)
		if got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
		if again := r.Text(got); again != got {
			t.Errorf("%q: the second time it became %q", got, again)
		}
	}
}

func TestOwn(t *testing.T) {
	t.Parallel()
	r := redact.New(redact.Rules{Types: []string{redact.Card}, Own: map[string]string{"ticket": `\bTK-\d{4}\b`, "word": `card|ticket`, "wide": `pin \d.*`}})
	for in, want := range map[string]string{
		"TK-1234 and the card":                "[ticket] and the [word]",
		"[card] [ticket]":                     "[card] [ticket]",
		"pin 4111 1111 1111 1111 x":           "[wide]",
		"pay 4111 1111 1111 1111 pin 1":       "pay [card] [wide]",
		"call +49 30 1234567, a@mail.example": "call +49 30 1234567, a@mail.example",
	} {
		if got := r.Text(in); got != want || r.Text(got) != got {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	var none *redact.Redactor
	if none.Text("4111 1111 1111 1111") != "4111 1111 1111 1111" || none.HidesFromUpstream() || redact.New(redact.Rules{}) != nil {
		t.Error("no rules replace something")
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range redact.MaxOwn + 1 {
		many[strings.Repeat("a", i+1)] = "x"
	}
	heavy := map[string]string{}
	for i := range 5 {
		heavy[strings.Repeat("a", i+1)] = "x{550}"
	}
	for _, tt := range []struct {
		rules redact.Rules
		want  string // "" = valid
	}{
		{redact.Rules{}, ""},
		{redact.Rules{Types: redact.Types(), Own: map[string]string{"a-1": "x+"}, Upstream: redact.Redacted}, ""},
		{redact.Rules{Types: []string{"ssn"}}, "r.types"},
		{redact.Rules{Upstream: "no"}, "r.upstream"},
		{redact.Rules{Own: many}, "r.own"},
		{redact.Rules{Own: map[string]string{"card": "x"}}, "r.own.card"},
		{redact.Rules{Own: map[string]string{"A b": "x"}}, "r.own.A b"},
		{redact.Rules{Own: map[string]string{"a": "("}}, "r.own.a"},
		{redact.Rules{Own: map[string]string{"a": "x*"}}, "must not match the empty text"},
		{redact.Rules{Own: map[string]string{"a": strings.Repeat("x", redact.MaxPattern+1)}}, "256 bytes"},
		{redact.Rules{Own: map[string]string{"a": "((x{100}){100}){100}"}}, "r.own.a"},
		{redact.Rules{Own: map[string]string{"a": "x{999}"}}, "simpler"},
		{redact.Rules{Own: heavy}, "together"},
	} {
		err := tt.rules.Check("r")
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.rules, err, tt.want)
		}
	}
}

func TestWith(t *testing.T) {
	t.Parallel()
	both := redact.Rules{Types: []string{redact.Phone, redact.Card}, Own: map[string]string{"a": "x", "b": "y"}}.
		With(redact.Rules{Types: []string{redact.Card}, Own: map[string]string{"a": "z", "c": "w"}, Upstream: redact.Redacted})
	if got := redact.New(both).Text("x y z w"); got != "[a] [b] [a] [c]" || len(both.Types) != 2 || both.Upstream != redact.Redacted {
		t.Errorf("%q %+v", got, both)
	}
}

// TestPrefix: the redacted beginning of a text is the beginning of its redacted form, and shows no
// part of what is replaced.
func TestPrefix(t *testing.T) {
	t.Parallel()
	const s = "It is 4111 1111 1111 1111, right?"
	r := all()
	for n, want := range map[int]string{
		0: "", 3: "It ", 6: "It is ", 7: "It is ", 15: "It is ", 24: "It is ", 25: "It is [card]", 26: "It is [card],", len(s): "It is [card], right?",
	} {
		if got := r.Prefix(s, n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

// TestCuts: many beginnings of a text are found in one pass.
func TestCuts(t *testing.T) {
	t.Parallel()
	r := all()
	s := "It is 4111 1111 1111 1111, right? " + strings.Repeat("call +49 30 1234567 or a@mail.example now ", 3)
	var at, want []int
	for n := range len(s) + 1 {
		at, want = append(at, n), append(want, len(r.Prefix(s, n)))
	}
	if got := r.Cuts(s, at); got != r.Text(s) || !slices.Equal(at, want) {
		t.Errorf("%q %v, want %v", got, at, want)
	}
	// A search of the whole text for each of the words would take minutes.
	long := strings.Repeat("a@mail.example word ", 5000)
	at = at[:0]
	for n := 0; n <= len(long); n += 2 {
		at = append(at, n)
	}
	start := time.Now()
	r.Cuts(long, at)
	if took := time.Since(start); took > time.Minute {
		t.Errorf("it takes %v", took)
	}
}

// TestPart: what was heard of an answer may end within a number.
func TestPart(t *testing.T) {
	t.Parallel()
	r := all()
	const whole = "It is [card], right?"
	for in, want := range map[string]string{
		"It is 4111 1111": "It is ", "It is 4111 1111, 1111...": "It is ", "It is four one one": "It is ", "It is 4111 1111 1111 1111": "It is [card]", "It is": "It is",
		"It was 4111": "It was 4111", "It is nice, isn't it?": "It is nice, isn't it?",
	} {
		if got := r.Part(in, slices.Values([]string{whole})); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// TestPartAnywhere: wherever a text is cut, nothing is left of what its redacted form has replaced.
func TestPartAnywhere(t *testing.T) {
	t.Parallel()
	r := all()
	for _, whole := range []string{
		"Your number is 0176 1234 5678, right?", "It is +49 176 12345678, right?", "Your card is 4111 1111 1111 1111, right?", "Your IBAN is DE89 3704 0044 0532 0130 00, ok?",
		"Your card is four one one one one one one one one one one one one one one one, ok?", "The pin is 4711, ok?", "Your pin is four seven one one.", "Write to anna.berg@example.com now.",
		"Call 0176-1234-5678 or write to a@mail.example.", "4111 1111 1111 1111 is your card.",
		"Your card is four triple one one one one one one one one one one one one one, ok?", "It is plus four nine one seven six one two three four five six seven eight, right?",
	} {
		red := r.Text(whole)
		for i := range whole {
			got := r.Part(whole[:i], slices.Values([]string{"Hello.", red}))
			if !strings.HasPrefix(red, got) {
				t.Errorf("%q of %q became %q", whole[:i], red, got)
			}
		}
	}
}

// TestPartOwn: what an own expression has replaced is left out wherever it is cut, and brackets
// that no rule made are words.
func TestPartOwn(t *testing.T) {
	t.Parallel()
	r := redact.New(redact.Rules{Own: map[string]string{"name": "Anna Maria Berg"}})
	const whole = "I write to Anna Maria Berg now."
	for i := range whole {
		if got := r.Part(whole[:i], slices.Values([]string{r.Text(whole)})); !strings.HasPrefix(r.Text(whole), got) {
			t.Errorf("%q became %q", whole[:i], got)
		}
	}
	if got := r.Part("Call Anna and Bert", slices.Values([]string{"Call [laughs] now"})); got != "Call Anna and Bert" {
		t.Errorf("beside brackets of the text: %q", got)
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	r := all()
	for in, want := range map[string]string{
		`{ "a": [1, 2.50] }`:                             `{ "a": [1, 2.50] }`,
		`[{"type":"text","text":"4111 1111 1111 1111"}]`: `[{"text":"[card]","type":"text"}]`,
		`{"n":4111111111111111,"m":1.50}`:                `{"m":1.50,"n":"[card]"}`,
		`{"id":"4111 1111 1111 1111","data":"a@mail.example","detail":{"url":"a@mail.example"}}`: `{"data":"[email]","detail":{"url":"[email]"},"id":"[card]"}`,
		`{"a":"{\"id\":\"a@mail.example\"}"}`:                                                    `{"a":"{\"id\":\"[email]\"}"}`,
		`{"a@mail.example":1,"b@mail.example":2}`:                                                `{"[email]":1,"[email]-2":2}`,
		`{"[email]":1,"[email]-2":2,"b@mail.example":3}`:                                         `{"[email]":1,"[email]-2":2,"[email]-3":3}`,
		`{"a":1}} 4111 1111 1111 1111`:                                                           `{"a":1}} [card]`,
		`{"a":"4111 1111 1111 1111","a":""}`:                                                     `{"a":""}`,
		`["{\"a\":4111111111111111,\"a\":1}"]`:                                                   `["{\"a\":1}"]`,
		`not JSON 4111 1111 1111 1111`:                                                           `not JSON [card]`,
		`"a <b> & 4111111111111111"`:                                                             `"a <b> & [card]"`,
	} {
		if got := string(r.JSON([]byte(in))); got != want || string(r.JSON([]byte(got))) != got {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}

// TestShapes: what links and types things stays, but only where the protocol has it.
func TestShapes(t *testing.T) {
	t.Parallel()
	r := redact.New(redact.Rules{Types: redact.Types(), Own: map[string]string{"word": `user|id`}})
	for _, tt := range []struct {
		by       func([]byte) []byte
		in, want string
	}{
		{
			r.Calls, `[{"id":"4111111111111111","function":{"name":"pay","arguments":"{\"id\":4111111111111111,\"n\":1}"}}]`,
			`[{"function":{"arguments":"{\"[word]\":\"[card]\",\"n\":1}","name":"pay"},"id":"card_9bbef"}]`,
		},
		{r.Calls, `[{"id":"c","function":{"arguments":{"data":"a@mail.example"}}}]`, `[{"function":{"arguments":{"data":"[email]"}},"id":"c"}]`},
		{
			r.Parts, `[{"type":"image_url","image_url":{"url":"data:image/png;base64,4111111111111111","detail":"low"}},{"type":"text","text":"a@mail.example"}]`,
			`[{"image_url":{"detail":"low","url":"data:image/png;base64,4111111111111111"},"type":"image_url"},{"text":"[email]","type":"text"}]`,
		},
		{r.Parts, `[{"type":"text","text":"{\"url\":\"a@mail.example\"}"}]`, `[{"text":"{\"url\":\"[email]\"}","type":"text"}]`},
		{
			r.Message, `{"role":"user","url":"a@mail.example","content":[{"type":"file","file":{"data":"4111111111111111","format":"wav"}}],"tool_calls":[{"id":"id"}]}`,
			`{"content":[{"file":{"data":"4111111111111111","format":"wav"},"type":"file"}],"role":"user","tool_calls":[{"id":"id"}],"url":"[email]"}`,
		},
		{r.Message, `{"role":"tool","content":"{\"data\":\"a@mail.example\"}"}`, `{"content":"{\"data\":\"[email]\"}","role":"tool"}`},
	} {
		if got := string(tt.by([]byte(tt.in))); got != tt.want || string(tt.by([]byte(got))) != got {
			t.Errorf("%s became %s, want %s", tt.in, got, tt.want)
		}
	}
}

// FuzzText: nothing panics, the second time changes nothing, and every prefix fits.
func FuzzText(f *testing.F) {
	for _, s := range []string{"4111 1111 1111 1111", "DE89 3704 0044 0532 0130 00", "+49 30 1234567", "a@mail.example", "[card]4111111111111111", "four double one", "٤١", "\xff1 2", "[4111111111111111]"} {
		f.Add(s, 3)
	}
	r := redact.New(redact.Rules{Types: redact.Types(), Own: map[string]string{"own": `[a-c]+\d`}})
	f.Fuzz(func(t *testing.T, s string, n int) {
		out := r.Text(s)
		if again := r.Text(out); again != out {
			t.Errorf("%q became %q, then %q", s, out, again)
		}
		if n >= 0 && n <= len(s) && !strings.HasPrefix(out, r.Prefix(s, n)) {
			t.Errorf("%q: the first %d bytes became %q, all %q", s, n, r.Prefix(s, n), out)
		}
		if doc, err := json.Marshal(s); err == nil && !json.Valid(r.JSON(doc)) {
			t.Errorf("%s became %s", doc, r.JSON(doc))
		}
	})
}

// TestLong: the time is linear in the length, whatever the text.
func TestLong(t *testing.T) {
	t.Parallel()
	r := redact.New(redact.Rules{Types: redact.Types(), Own: map[string]string{"own": `(a|b){1,40}c`}})
	for _, piece := range []string{"4111 ", "+49 30 1234567 ", "[x]1", "a@", "a.", "at ", "٤", "4", "DE89 ", "plus four ", "a at b dot ", "(", "ab", "1234 is pin ", "pin 12 ", "code is ", "password is x "} {
		start := time.Now()
		r.Text(strings.Repeat(piece, (256<<10)/len(piece)))
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%q takes %v", piece, took)
		}
	}
}

func BenchmarkText(b *testing.B) {
	r := all()
	s := strings.Repeat("Yes, I would like to book two seats for the 14th of May, please. ", 16)
	b.SetBytes(int64(len(s)))
	for b.Loop() {
		r.Text(s)
	}
}
