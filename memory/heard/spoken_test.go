package heard_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/heardlog/heardlog/memory/heard"
)

// unspaced are the languages whose words are single characters.
const unspaced = "zh ja th"

// spokenForms are the texts and forms of one language in testdata/spoken.txt.
type spokenForms struct {
	texts []string
	forms [][2]string // written, spoken
}

func readSpoken(t *testing.T) (codes []string, all map[string]*spokenForms) {
	t.Helper()
	data, err := os.ReadFile("testdata/spoken.txt")
	if err != nil {
		t.Fatal(err)
	}
	all = map[string]*spokenForms{}
	for line := range strings.Lines(string(data)) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		code := "pairs"
		switch kind {
		case "text", "form":
			code, rest, _ = strings.Cut(rest, " ")
		case "pair":
		default:
			continue
		}
		f := all[code]
		if f == nil {
			f = &spokenForms{}
			all[code] = f
			if kind != "pair" {
				codes = append(codes, code)
			}
		}
		if kind == "text" {
			f.texts = append(f.texts, rest)
			continue
		}
		written, spoken, ok := strings.Cut(rest, " = ")
		if !ok {
			t.Fatalf("line %q has no =", line)
		}
		f.forms = append(f.forms, [2]string{written, spoken})
	}
	return codes, all
}

// piece is a word, or a form, of a text: as it is written, with the white space and punctuation
// before it, and the words that are said for it.
type piece struct {
	before, written string
	spoken          []string
}

// utterance is an answer in pieces.
type utterance struct {
	pieces []piece
	tail   string
}

func (u *utterance) written(n int) string {
	var b strings.Builder
	for _, p := range u.pieces[:n] {
		b.WriteString(p.before + p.written)
	}
	if n == len(u.pieces) {
		b.WriteString(u.tail)
	}
	return b.String()
}

// utter builds an answer of one to three texts with random forms in them.
func utter(rnd *rand.Rand, code string, f *spokenForms) *utterance {
	u := &utterance{}
	gap := ""
	for range 1 + rnd.IntN(3) {
		text := f.texts[rnd.IntN(len(f.texts))]
		for text != "" {
			at := strings.Index(text, "{}")
			plain := text
			if at >= 0 {
				plain, text = text[:at], text[at+2:]
			} else {
				text = ""
			}
			gap = u.plain(code, gap, plain)
			if at >= 0 {
				form := f.forms[rnd.IntN(len(f.forms))]
				u.pieces = append(u.pieces, piece{gap, form[0], say(code, form[1])})
				gap = ""
			}
		}
		if !strings.Contains(unspaced, code) {
			gap += " "
		}
	}
	u.tail = strings.TrimSpace(gap)
	return u
}

// plain adds the words of a text without forms and returns what follows the last.
func (u *utterance) plain(code, gap, text string) string {
	word := ""
	flush := func() {
		if word != "" {
			u.pieces = append(u.pieces, piece{gap, word, []string{word}})
			gap, word = "", ""
		}
	}
	for _, r := range text {
		switch {
		case strings.ContainsRune(" ,.!?;:¿¡，。？、！।", r):
			flush()
			gap += string(r)
		case strings.Contains(unspaced, code):
			flush()
			word = string(r)
		default:
			word += string(r)
		}
	}
	flush()
	return gap
}

// say divides what is said for a form into words.
func say(code, spoken string) []string {
	if !strings.Contains(unspaced, code) {
		return strings.Fields(spoken)
	}
	return strings.Split(strings.ReplaceAll(spoken, " ", ""), "")
}

// cutAfter returns what is heard after n words, as a platform echoes it, and the least and the most
// of the answer that is; full is all of it. Of a form of several words that is heard in part, the
// first words may be heard, but not the last.
func (u *utterance) cutAfter(rnd *rand.Rand, code string, n int) (said, least, most string) {
	sep := " "
	if strings.Contains(unspaced, code) {
		sep = ""
	}
	var words []string
	for i, p := range u.pieces {
		for k, w := range p.spoken {
			if len(words) == n {
				least = u.written(i)
				most = least
				at := strings.LastIndexByte(p.written, ' ')
				if strings.Contains(unspaced, code) {
					_, last := utf8.DecodeLastRuneInString(p.written)
					at = len(p.written) - last
				}
				if k > 0 && at > 0 {
					most += p.before + p.written[:at]
				}
				return strings.Join(words, sep), least, most
			}
			if strings.HasSuffix(p.before, ", ") && k == 0 && len(words) > 0 && rnd.IntN(2) == 0 {
				words[len(words)-1] += ","
			}
			words = append(words, w)
		}
	}
	whole := u.written(len(u.pieces))
	return strings.Join(words, sep), whole, whole
}

func (u *utterance) words() int {
	n := 0
	for _, p := range u.pieces {
		n += len(p.spoken)
	}
	return n
}

// TestSpoken generates answers with forms that voices say in other words, has them spoken as the
// table of the test says, cuts some at random words, and checks how often Align finds the place.
func TestSpoken(t *testing.T) {
	t.Parallel()
	const perLanguage = 150
	codes, all := readSpoken(t)
	rnd := rand.New(rand.NewPCG(11, 7))
	for _, code := range codes {
		falseCuts, falseFulls, full, cut, near, exact := 0, 0, 0, 0, 0, 0
		var worst []string
		for range perLanguage {
			u := utter(rnd, code, all[code])
			whole := u.written(len(u.pieces))

			said, _, _ := u.cutAfter(rnd, code, u.words())
			full++
			if got, ok := heard.Align(whole, said); !ok || got != whole {
				falseCuts++
				worst = append(worst, fmt.Sprintf("full: %q\n said %q\n  got %q %v", whole, said, got, ok))
			}

			said, least, most := u.cutAfter(rnd, code, 3+rnd.IntN(u.words()-3))
			cut++
			got, ok := heard.Align(whole, said)
			if got == whole {
				falseFulls++
			}
			d := 0
			if len(got) < len(least) {
				d = wordsBetween(code, got, least)
			} else if len(got) > len(most) {
				d = wordsBetween(code, got, most)
			}
			switch {
			case ok && d == 0:
				exact++
				near++
			case ok && d == 1:
				near++
			default:
				worst = append(worst, fmt.Sprintf("cut: %q\n said %q\n  got %q %v\n want %q at most", whole, said, got, ok, most))
			}
		}
		t.Logf("%s: %d of %d full called cut, %d cut called full, within one word %.1f %%, exact %.1f %%",
			code, falseCuts, full, falseFulls, 100*float64(near)/float64(cut), 100*float64(exact)/float64(cut))
		if 500*falseCuts > 2*full || 100*near < 98*cut {
			for _, w := range worst[:min(len(worst), 12)] {
				t.Log(w)
			}
			t.Errorf("%s: more than 2 in 500 full answers called cut, or fewer than 98 %% of the cuts right within one word", code)
		}
	}
}

// TestSpokenPairs aligns answers with how a voice says all of them. Cut before the last five words,
// none may be taken for all of it.
func TestSpokenPairs(t *testing.T) {
	t.Parallel()
	_, all := readSpoken(t)
	for _, pair := range all["pairs"].forms {
		if got, ok := heard.Align(pair[0], pair[1]); !ok || got != pair[0] {
			t.Errorf("Align(%q, %q) = %q, %v; want all of it", pair[0], pair[1], got, ok)
		}
		words := strings.Fields(pair[1])
		for n := range max(1, len(words)-5) {
			said := strings.Join(words[:n], " ")
			got, ok := heard.Align(pair[0], said)
			if got == pair[0] {
				t.Errorf("Align(%q, %q) is all of it", pair[0], said)
			}
			checkAligned(t, pair[0], got, ok)
		}
	}
}

// wordsBetween returns how many words two prefixes of one text differ by.
func wordsBetween(code, a, b string) int {
	if len(a) > len(b) {
		a, b = b, a
	}
	rest := strings.Trim(b[len(a):], " ,.!?;:，。？、！।…-")
	if strings.Contains(unspaced, code) {
		return utf8.RuneCountInString(rest) / 3 // about the characters of a word
	}
	return len(strings.Fields(rest))
}

// TestSpokenForms: what a voice says for a written form is that form, also where no table knows it,
// and other words are not.
func TestSpokenForms(t *testing.T) {
	t.Parallel()
	const all = "\x00all of it"
	for _, tt := range []struct{ generated, heard, want string }{
		{"Your visit is on Tue, Jan 9th at 4:15 p.m. at our office.", "your visit is on tuesday, january ninth at four fifteen pm at our office", all},
		{"Your visit is on Tue, Jan 9th at 4:15 p.m. at our office.", "your visit is on tuesday, january ninth at four fifteen pm at", "Your visit is on Tue, Jan 9th at 4:15 p.m. at"},
		{"Your visit is on Tue, Jan 9th at 4:15 p.m. at our office.", "your visit is on tuesday, january", "Your visit is on Tue, Jan"},
		{"Your visit is on Tue, Jan 9th at 4:15 p.m. at our office.", "your visit is on tuesday, january ninth at four", "Your visit is on Tue, Jan 9th at"},
		{"We use Nginx for the API.", "We use engine x for the A P I", all},
		{"We use Nginx for the API.", "We use engine x", "We use Nginx"},
		{"We use Nginx for the API.", "We use engine x for", "We use Nginx for"},
		{"Siobhan will call you back.", "Shivawn will call you back.", all},
		{"You asked about $2.5M. I can do it.", "you asked about two point five million dollars", "You asked about $2.5M"},
		{"Bei 120 km/h sind es 3,5 kg.", "Bei einhundertzwanzig Kilometern", "Bei 120"},
		{"Write to jo.smith@my-shop.com or see www.shop.io/help.", "Write to j o dot smith at my dash shop dot com or see w w w dot shop dot i o slash help", all},
		// No table has these languages.
		{"Der er 12 km/t og 5,50 kr. til byen.", "Der er tolv kilometer i timen og fem kroner og halvtreds øre til byen.", all},
		{"Det kostar 45 kr och tar 20 min med buss.", "Det kostar fyrtiofem kronor och tar tjugo minuter med", "Det kostar 45 kr och tar 20 min med"},
		{"The train leaves at 9 a.m. from Main St. and stops.", "the train leaves at nine A M", "The train leaves at 9 a.m."},
		{"The train leaves at 9 a.m. from Main St. and stops.", "the train leaves at nine A M from main street", "The train leaves at 9 a.m. from Main St."},
		{"Il negozio è in v.le Roma n. 5, vicino alla stazione.", "il negozio è in viale roma numero", "Il negozio è in v.le Roma n."},
		{"Bei 7 gradi, il 3. is open.", "Bei 7 gradi", "Bei 7 gradi"},
		// Other words.
		{"Hello there friend", "Hello there fiend", notPart},
		{"You have three messages.", "We are closed on Sunday.", notPart},
		{"It costs $5 a month.", "It costs seven hundred dollars", notPart},
		{"You have three new messages. Shall I read them?", "You have two new messages. Shall I read them?", notPart},
		{"You have 3 new messages. Shall I read them?", "You have two new messages. Shall I read them?", notPart},
		{"Your visit to Doctor Brown is on Monday at three. Shall I confirm it?", "Your visit to Doctor Brown is on Tuesday at four. Shall I confirm it?", notPart},
		{"Your visit to Doctor Brown is on May 3 at 4 pm. Shall I confirm it?", "Your visit to Doctor Brown is on May ninth at six PM. Shall I confirm it?", notPart},
		{"Ihr Termin ist am Montag um drei. Passt das?", "Ihr Termin ist am Dienstag um vier. Passt das?", notPart},
		// Notes and thoughts.
		{"Sure, I can help you today with that.", "Sure, I can help you *interrupted by user*", "Sure, I can help you"},
		{"Sure, I can help you today with that.", "Sure, I can help you [interrupted]", "Sure, I can help you"},
		{"Sure, I can help you today with that.", "Sure, I can help you (cut off)", "Sure, I can help you"},
		{"Sure, I can help you today with that.", "Sure, I can help you—", "Sure, I can help you"},
		{"Sure, I can help you today with that.", "Sure, I can help you …", "Sure, I can help you"},
		{"Sure, I can help you today with that.", "Sure, I can help you today with that. [user interrupted]", all},
		{"Sure, I can help you (cut off)", "Sure, I can help you", all},
		{"Sure, I can help you today with that.", "(interrupted)", ""},
		{"<think>The user wants help.</think>Sure, I can help you today.", "Sure, I can", "<think>The user wants help.</think>Sure, I can"},
		{"<think>The user wants help.</think>Sure, I can help you today.", "Sure, I can help you today", all},
		{"Sure, I can help you today.", "<think>hm, ok</think> Sure, I can", "Sure, I can"},
		{"Sure, I can help you today. <think>what else", "Sure, I can help you today", all},
	} {
		want, wantOK := tt.want, true
		switch want {
		case all:
			want = tt.generated
		case notPart:
			want, wantOK = "", false
		}
		got, ok := heard.Align(tt.generated, tt.heard)
		if got != want || ok != wantOK {
			t.Errorf("Align(%q, %q) = %q, %v; want %q, %v", tt.generated, tt.heard, got, ok, want, wantOK)
		}
		checkAligned(t, tt.generated, got, ok)
	}
}

func TestWithoutNote(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "Hello.": "Hello.", "Hello (world)": "Hello (world)", "[interrupted]": "", "Hi — [interrupted].": "Hi",
		"Hi **cut off**": "Hi", "Hallo (vom Nutzer unterbrochen)": "Hallo", "你好【被打断】": "你好", "Hi (by the user": "Hi (by the user",
		"Hi <interrupted>": "Hi", "*interrupted": "*interrupted",
	} {
		if got := heard.WithoutNote(text); got != want {
			t.Errorf("WithoutNote(%q) = %q, want %q", text, got, want)
		}
	}
}
