package heard

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What alignment does with a rune of the text.
type runeKind uint8

const (
	kindGap    runeKind = iota // ends a word and is not compared: white space, punctuation, emoji
	kindIgnore                 // is not there at all: accents, joiners, variation selectors
	kindLetter                 // part of a word
	kindDigit                  // folded to ASCII
	kindAlone                  // a word of its own: scripts that put no space between words
	kindMark                   // a vowel sign that belongs to the letter before it
	kindSymbol                 // may be spoken: & % @ + ° and currency
)

// Latin letters without their accents, by code point from U+00C0 and from U+1E00; a dot keeps the
// letter. Accents are not compared: texts are precomposed or decomposed, and transcripts often drop
// them.
const (
	foldLatin = "aaaaaa.ceeeeiiii.nooooo..uuuuy..aaaaaa.ceeeeiiii.nooooo..uuuuy.y" +
		"aaaaaaccccccccdd..eeeeeeeeeegggggggghh..iiiiiiii....jjkk.llllll." +
		"...nnnnnn...oooooo..rrrrrrsssssssstttt..uuuuuuuuuuuuwwyyyzzzzzz." +
		"................................oo.............uu..............." +
		".............aaiioouuuuuuuuuu.aaaa....ggkkoooo..j...gg..nnaa...." +
		"aaaaeeeeiiiioooorrrruuuusstt..hh......aaeeooooooooyy............"
	foldLatinMore = "aabbbbbbccddddddddddeeeeeeeeeeffgghhhhhhhhhhiiiikkkkkkllllllllmm" +
		"mmmmnnnnnnnnoooooooopppprrrrrrrrssssssssssttttttttuuuuuuuuuuvvvv" +
		"wwwwwwwwwwxxxxyyzzzzzzhtwy......aaaaaaaaaaaaaaaaaaaaaaaaeeeeeeee" +
		"eeeeeeeeiiiioooooooooooooooooooooooouuuuuuuuuuuuuuyyyyyyyy......"
)

// foldRune returns the form in which a rune is compared, and its kind. A few runes fold to two.
func foldRune(r rune) (a, b rune, kind runeKind) {
	if r < utf8.RuneSelf {
		switch {
		case 'a' <= r && r <= 'z':
			return r, 0, kindLetter
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A', 0, kindLetter
		case '0' <= r && r <= '9':
			return r, 0, kindDigit
		case r == '&', r == '%', r == '@', r == '+', r == '$':
			return r, 0, kindSymbol
		}
		return r, 0, kindGap
	}
	if 0xFF01 <= r && r <= 0xFF5E { // full-width ASCII
		return foldRune(r - 0xFEE0)
	}
	switch r {
	case '°', '€', '£', '¥', '₹', '₽', '₺', '₩', '₫', '₴', '₪', '฿', '§', '℃', '℉':
		return r, 0, kindSymbol
	case '№':
		return '#', 0, kindSymbol
	case 'ß', 'ẞ':
		return 's', 's', kindLetter
	case 'æ', 'Æ', 'ǣ', 'ǽ', 'Ǣ', 'Ǽ':
		return 'a', 'e', kindLetter
	case 'œ', 'Œ':
		return 'o', 'e', kindLetter
	case 'ĳ', 'Ĳ':
		return 'i', 'j', kindLetter
	case 'ﬀ':
		return 'f', 'f', kindLetter
	case 'ﬁ':
		return 'f', 'i', kindLetter
	case 'ﬂ':
		return 'f', 'l', kindLetter
	}
	if ignoredRune(r) {
		return 0, 0, kindIgnore
	}
	switch {
	case aloneRune(r):
		return r, 0, kindAlone
	case unicode.IsLetter(r), unicode.Is(unicode.Nl, r):
		return foldLetter(unicode.ToLower(r)), 0, kindLetter
	case unicode.Is(unicode.Nd, r):
		return '0' + digitValue(r), 0, kindDigit
	case unicode.IsMark(r):
		return r, 0, kindMark
	case unicode.Is(unicode.No, r):
		return r, 0, kindSymbol
	}
	return r, 0, kindGap
}

// foldLetter takes the accent off a lower-case letter and joins letters that texts use for one
// another.
func foldLetter(r rune) rune {
	if i := int(r - 0xC0); 0 <= i && i < len(foldLatin) {
		if foldLatin[i] != '.' {
			return rune(foldLatin[i])
		}
	} else if i := int(r - 0x1E00); 0 <= i && i < len(foldLatinMore) {
		if foldLatinMore[i] != '.' {
			return rune(foldLatinMore[i])
		}
	}
	switch r {
	case 'ø', 'ǿ':
		return 'o'
	case 'ł':
		return 'l'
	case 'đ':
		return 'd'
	case 'ħ':
		return 'h'
	case 'ŧ':
		return 't'
	case 'ı':
		return 'i'
	case 'ſ', 'ẛ':
		return 's'
	}
	switch {
	case 0x370 <= r && r <= 0x3FF, 0x1F00 <= r && r <= 0x1FFF:
		return foldGreek(r)
	case 0x400 <= r && r <= 0x4FF:
		return foldCyrillic(r)
	case 0x620 <= r && r <= 0x64A:
		return foldArabic(r)
	}
	return r
}

func foldGreek(r rune) rune {
	switch {
	case r == 'ς':
		return 'σ'
	case strings.ContainsRune("άἀἁἂἃἄἅἆἇὰάᾀᾁᾂᾃᾄᾅᾆᾇᾰᾱᾲᾳᾴᾶᾷ", r):
		return 'α'
	case strings.ContainsRune("έἐἑἒἓἔἕὲέ", r):
		return 'ε'
	case strings.ContainsRune("ήἠἡἢἣἤἥἦἧὴήᾐᾑᾒᾓᾔᾕᾖᾗῂῃῄῆῇ", r):
		return 'η'
	case strings.ContainsRune("ΐίϊἰἱἲἳἴἵἶἷὶίῐῑῒΐῖῗ", r):
		return 'ι'
	case strings.ContainsRune("όὀὁὂὃὄὅὸό", r):
		return 'ο'
	case strings.ContainsRune("ΰϋύὐὑὒὓὔὕὖὗὺύῠῡῢΰῦῧ", r):
		return 'υ'
	case strings.ContainsRune("ώὠὡὢὣὤὥὦὧὼώᾠᾡᾢᾣᾤᾥᾦᾧῲῳῴῶῷ", r):
		return 'ω'
	case r == 'ῤ' || r == 'ῥ':
		return 'ρ'
	}
	return r
}

func foldCyrillic(r rune) rune {
	switch r {
	case 'й', 'ѝ', 'ӣ', 'ӥ':
		return 'и'
	case 'ё', 'ѐ', 'ӗ':
		return 'е'
	case 'ї':
		return 'і'
	case 'ѓ':
		return 'г'
	case 'ќ':
		return 'к'
	case 'ў', 'ӯ', 'ӱ', 'ӳ':
		return 'у'
	case 'ѷ':
		return 'ѵ'
	case 'ӂ', 'ӝ':
		return 'ж'
	case 'ӑ', 'ӓ':
		return 'а'
	case 'ӛ':
		return 'ә'
	case 'ӟ':
		return 'з'
	case 'ӧ':
		return 'о'
	case 'ӫ':
		return 'ө'
	case 'ӭ':
		return 'э'
	case 'ӵ':
		return 'ч'
	case 'ӹ':
		return 'ы'
	}
	return r
}

func foldArabic(r rune) rune {
	switch r {
	case 'أ', 'إ', 'آ':
		return 'ا'
	case 'ؤ':
		return 'و'
	case 'ئ', 'ى':
		return 'ي'
	}
	return r
}

// ignoredRune reports accents, optional vowel marks (Arabic, Hebrew), the tatweel, and invisible
// format characters. Vowel signs that are part of the word (Thai, Indic) are not ignored.
func ignoredRune(r rune) bool {
	switch {
	case 0x300 <= r && r <= 0x36F, 0x1AB0 <= r && r <= 0x1AFF, 0x1DC0 <= r && r <= 0x1DFF,
		0x20D0 <= r && r <= 0x20FF, 0xFE00 <= r && r <= 0xFE0F, 0xFE20 <= r && r <= 0xFE2F,
		0x483 <= r && r <= 0x489, 0xE0100 <= r && r <= 0xE01EF:
		return true
	case 0x591 <= r && r <= 0x5BD, r == 0x5BF, r == 0x5C1, r == 0x5C2, r == 0x5C4, r == 0x5C5, r == 0x5C7:
		return true
	case 0x610 <= r && r <= 0x61A, r == 0x640, 0x64B <= r && r <= 0x65F, r == 0x670, 0x6D6 <= r && r <= 0x6DC,
		0x6DF <= r && r <= 0x6E8 && r != 0x6E5 && r != 0x6E6, 0x6EA <= r && r <= 0x6ED:
		return true
	}
	return unicode.Is(unicode.Cf, r)
}

// aloneRune reports the letters of scripts without spaces: each is a word of its own.
func aloneRune(r rune) bool {
	if r < 0xE00 {
		return false
	}
	switch {
	case 0x3041 <= r && r <= 0x3096, 0x309D <= r && r <= 0x309F, 0x30A1 <= r && r <= 0x30FA, 0x30FC <= r && r <= 0x30FF,
		0x3400 <= r && r <= 0x4DBF, 0x4E00 <= r && r <= 0x9FFF, r == '々', r == '〇', 0xFF66 <= r && r <= 0xFF9D,
		0xF900 <= r && r <= 0xFAFF, 0x20000 <= r && r <= 0x3FFFF:
		return true
	case r <= 0xE4E: // Thai
		return unicode.IsLetter(r)
	// Lao, Myanmar, Khmer.
	case 0xE80 <= r && r <= 0xEFF, 0x1000 <= r && r <= 0x109F, 0x1780 <= r && r <= 0x17FF:
		return unicode.IsLetter(r)
	}
	return false
}

// digitValue returns the value of a decimal digit of any script. In Unicode the ten digits of a
// script are consecutive.
func digitValue(r rune) rune {
	if r < 0x10000 {
		t := unicode.Nd.R16
		if i := sort.Search(len(t), func(i int) bool { return rune(t[i].Hi) >= r }); i < len(t) {
			return (r - rune(t[i].Lo)) % 10
		}
		return 0
	}
	t := unicode.Nd.R32
	if i := sort.Search(len(t), func(i int) bool { return rune(t[i].Hi) >= r }); i < len(t) {
		return (r - rune(t[i].Lo)) % 10
	}
	return 0
}

// composeRunes joins a letter and what follows it if both together have a code point of their own,
// for Hangul and kana. There the second part is not an accent but part of the sound.
func composeRunes(prev, r rune) (rune, bool) {
	const (
		hangul, lead, vowel, tail = 0xAC00, 0x1100, 0x1161, 0x11A7
		vowels, tails             = 21, 28
	)
	switch {
	case lead <= prev && prev < lead+19 && vowel <= r && r < vowel+vowels:
		return hangul + ((prev-lead)*vowels+(r-vowel))*tails, true
	case hangul <= prev && prev <= 0xD7A3 && (prev-hangul)%tails == 0 && tail < r && r < tail+tails:
		return prev + (r - tail), true
	case r == 0x3099 && (prev == 'う' || prev == 'ウ'):
		return prev + 0x4E, true
	case r == 0x3099 && strings.ContainsRune("かきくけこさしすせそたちつてとはひふへほカキクケコサシスセソタチツテトハヒフヘホ", prev):
		return prev + 1, true
	case r == 0x309A && strings.ContainsRune("はひふへほハヒフヘホ", prev):
		return prev + 2, true
	}
	return 0, false
}
