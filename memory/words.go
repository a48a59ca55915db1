package memory

import "unicode"

// Words counts the words of a text: what stands between spaces, and each letter of scripts that are
// written without spaces.
func Words(s string) (n int64) {
	inside := false
	for _, r := range s {
		switch {
		case r < 0x80:
			switch {
			case r == ' ' || '\t' <= r && r <= '\r':
				inside = false
			case inside:
			case 'a' <= r|0x20 && r|0x20 <= 'z' || '0' <= r && r <= '9':
				n++
				inside = true
			}
		case unicode.IsSpace(r):
			inside = false
		case r >= 0x2e80 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana):
			n++
			inside = false
		case !inside && (unicode.IsLetter(r) || unicode.IsNumber(r)):
			n++
			inside = true
		}
	}
	return n
}

// Words returns how many words an answer has, as it was generated, and how many of them were not
// heard.
func (m *Message) Words() (made, unheard int64) {
	made = Words(m.Original())
	switch m.State {
	case Final, Dropped: // what left the memory was heard all the same
		if m.Generated == "" {
			return made, 0
		}
		return made, max(0, made-Words(m.Content))
	}
	return made, made
}
