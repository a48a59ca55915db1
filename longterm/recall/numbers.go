package recall

import (
	"strconv"
	"strings"
)

// numerals are the number words of a language.
type numerals struct {
	values   map[string]int  // 0 to 99, of one word
	hundred  map[string]bool // multiply what stands before them by 100
	thousand map[string]bool
	and      map[string]bool // may stand inside a number
}

// newNumerals reads number words in order: 0 to 19, then 20, 30 to 90. Variants are separated by a
// slash. Joint, if not nil, returns the word for a number of two digits that are both not zero.
func newNumerals(words, hundred, thousand, and string, joint func(unit, ten string) string) *numerals {
	n := &numerals{values: map[string]int{}, hundred: wordSet(hundred), thousand: wordSet(thousand), and: wordSet(and)}
	all := strings.Fields(words)
	for i, variants := range all {
		v := i
		if i >= 20 {
			v = (i - 18) * 10
		}
		for word := range strings.SplitSeq(variants, "/") {
			n.values[word] = v
		}
		if i >= 20 && joint != nil {
			for u := 1; u < 10; u++ {
				for unit := range strings.SplitSeq(all[u], "/") {
					n.values[joint(unit, variants)] = v + u
				}
			}
		}
	}
	return n
}

// numeralsOf are the number words by the name of their language.
var numeralsOf = map[string]*numerals{
	"english": newNumerals(`zero/oh one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
		eighteen nineteen twenty thirty forty/fourty fifty sixty seventy eighty ninety`, "hundred", "thousand", "and", nil),
	"german": newNumerals(`null ein/eins/eine zwei/zwo drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn
		achtzehn neunzehn zwanzig dreißig/dreissig vierzig fünfzig sechzig siebzig achtzig neunzig`, "hundert", "tausend", "und",
		func(unit, ten string) string { return unit + "und" + ten }),
	"dutch": newNumerals(`nul een/één twee drie vier vijf zes zeven acht negen tien elf twaalf dertien veertien vijftien zestien zeventien
		achttien negentien twintig dertig veertig vijftig zestig zeventig tachtig negentig`, "honderd", "duizend", "en",
		func(unit, ten string) string {
			if strings.HasSuffix(unit, "e") {
				return unit + "ën" + ten
			}
			return unit + "en" + ten
		}),
	"french": newNumerals(`zéro un/une deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept dix-huit
		dix-neuf vingt trente quarante cinquante soixante septante huitante/octante nonante`, "cent cents", "mille", "et", nil),
	"spanish": newNumerals(`cero un/uno/una dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis diecisiete
		dieciocho diecinueve veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa`, "cien ciento", "mil", "y",
		func(unit, ten string) string {
			if ten == "veinte" {
				return "veinti" + strings.NewReplacer("dos", "dós", "tres", "trés", "seis", "séis").Replace(unit)
			}
			return ""
		}),
	"italian": newNumerals(`zero un/uno/una due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici sedici
		diciassette diciotto diciannove venti trenta quaranta cinquanta sessanta settanta ottanta novanta`, "cento", "mila mille", "e",
		func(unit, ten string) string {
			if strings.HasPrefix(unit, "u") || strings.HasPrefix(unit, "o") {
				ten = ten[:len(ten)-1]
			}
			return ten + strings.TrimSuffix(unit, "/")
		}),
}

// digitsInARow is how many single digits that are spoken one after the other make one number.
const digitsInARow = 3

// numbers replaces the spoken numbers of a text by digits: "twenty three" by 23, and "four oh two"
// by 402. A one that stands alone stays, since it is a pronoun or an article as well.
func (l *language) numbers(words []word) []word {
	n := numeralsOf[l.name]
	if n == nil {
		return words
	}
	var out []word
	for i := 0; i < len(words); {
		text, used := n.read(words[i:])
		if used == 0 {
			if out != nil {
				out = append(out, words[i])
			}
			i++
			continue
		}
		if out == nil {
			out = append(make([]word, 0, len(words)), words[:i]...)
		}
		out = append(out, word{text: text, digits: true})
		i += used
	}
	if out == nil {
		return words
	}
	return out
}

// read returns the number that words begin with, and how many of them it takes.
func (n *numerals) read(words []word) (digits string, used int) {
	if v, ok := n.values[words[0].text]; !ok && !n.hundred[words[0].text] && !n.thousand[words[0].text] || ok && v == 1 && len(words) == 1 {
		return "", 0
	}
	for used < len(words) {
		v, ok := n.values[words[used].text]
		if !ok || v > 9 {
			break
		}
		digits += strconv.Itoa(v)
		used++
	}
	if used >= digitsInARow {
		return digits, used
	}
	total, part, room := 0, 0, 100 // room is what the next value must be below
	used = 0
	for i := 0; i < len(words); i++ {
		text := words[i].text
		v, ok := n.values[text]
		switch {
		case ok && v > 0 && v < room:
			part += v
			room = 1
			if v >= 20 && v%10 == 0 {
				room = 10
			}
		case n.hundred[text] && part < 100:
			part, room = max(part, 1)*100, 100
		case n.thousand[text] && total == 0:
			total, part, room = max(part, 1)*1000, 0, 100
		case n.and[text] && used == i && i > 0 && room > 1:
			continue
		case ok && i == 0: // zero
			return strconv.Itoa(v), 1
		default:
			i = len(words)
			continue
		}
		used = i + 1
	}
	if used == 1 && part == 1 {
		return "", 0
	}
	return strconv.Itoa(total + part), used
}
