package redact

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Person is the type of the names of people. A word of such a name stands for the whole name.
const Person = "person"

// Withheld is the name that replaces a text that had to be checked by a detector and was not.
const Withheld = "withheld"

// Found is a piece of a text that a detector has found.
type Found struct {
	Start, End int    // in bytes
	Type       string // such as "person"; see TypeName
}

var typeShape = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,23}$`)

// TypeName returns the name that replaces what a detector has found, "" if it cannot be one: the
// detector's own in small letters, with dashes in place of underlines, at most 24 bytes long.
func TypeName(detector string) string {
	name := strings.ReplaceAll(strings.ToLower(detector), "_", "-")
	if !typeShape.MatchString(name) {
		return ""
	}
	return name
}

// Names are the names that were found in a call, as keyed hashes.
type Names struct {
	Key  []byte `json:"key,omitempty"`
	List []Name `json:"list,omitempty"`

	// Lookup is that of the change that is being decided, else nil; see Lookup.Begin.
	Lookup *Lookup `json:"-"`
}

// Name is a name that was found, or a word of one.
type Name struct {
	Hash string `json:"hash"`
	Type string `json:"type"`
	No   int    `json:"no,omitempty"` // of its pseudonym; 0 = none
	// Part is set for a word of a longer name, Alone if that word stands for the name.
	Part  bool `json:"part,omitempty"`
	Alone bool `json:"alone,omitempty"`
}

// Limits of what is kept of the names of a call.
const (
	maxNames     = 512 // with the words of longer names
	maxNameWords = 6
)

// Lookup replaces names in the texts of one change. It knows what a detector has found in them, and
// notes the texts of which it does not know that. It is safe for concurrent use.
type Lookup struct {
	// Cached returns what is known of a text, or false.
	Cached func(text string) ([]Found, bool)
	// Pseudonyms numbers new names.
	Pseudonyms bool
	// Forgets keeps no names: the texts are not those of one call.
	Forgets bool

	mu      sync.Mutex
	here    map[[sha256.Size]byte]answer
	missing []string
	known   Names
	added   bool
	adds    bool // names may be added: a change is being decided
	entries map[string]int
	mac     hash.Hash
}

// answer is what is known of a text.
type answer struct {
	found    []Found
	withheld bool
}

// Begin starts a decision about an agent with these names, and returns the names for it to use:
// redactors that stand on them use the lookup.
func (l *Lookup) Begin(names *Names) *Names {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missing, l.adds = nil, true
	l.set(names)
	return &Names{Lookup: l}
}

// Fixed returns the names as they are now, those that a change adds included. n may be nil.
func (n *Names) Fixed() *Names {
	if n == nil || n.Lookup == nil {
		return n
	}
	n.Lookup.mu.Lock()
	defer n.Lookup.mu.Unlock()
	return &Names{Key: n.Lookup.known.Key, List: n.Lookup.known.List}
}

// set sets the names. The caller holds mu.
func (l *Lookup) set(names *Names) {
	l.known, l.added, l.entries, l.mac = Names{}, false, map[string]int{}, nil
	if names != nil && !l.Forgets {
		l.known.Key, l.known.List = names.Key, slices.Clip(names.List)
	}
	for i, n := range l.known.List {
		l.entries[n.Hash] = i
	}
}

// End ends the decision. It returns the names to store, and whether some are new.
func (l *Lookup) End() (names *Names, added bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.adds = false
	if len(l.known.List) == 0 {
		return nil, false
	}
	return &Names{Key: l.known.Key, List: l.known.List}, l.added
}

// Missing returns the texts that were to be replaced in and of which nothing is known, each once.
func (l *Lookup) Missing() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.missing)
}

// Tell sets what a detector has found in a text.
func (l *Lookup) Tell(text string, found []Found) { l.tell(text, answer{found: found}) }

// Withhold has a text replaced as a whole.
func (l *Lookup) Withhold(text string) { l.tell(text, answer{withheld: true}) }

func (l *Lookup) tell(text string, a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(text, a)
}

// put is tell for callers that hold mu.
func (l *Lookup) put(text string, a answer) {
	if l.here == nil {
		l.here = map[[sha256.Size]byte]answer{}
	}
	l.here[sha256.Sum256([]byte(text))] = a
}

// get returns what is known of a text. The caller holds mu.
func (l *Lookup) get(text string) (answer, bool) {
	if a, ok := l.here[sha256.Sum256([]byte(text))]; ok {
		return a, true
	}
	if l.Cached != nil {
		if found, ok := l.Cached(text); ok {
			return answer{found: found}, true
		}
	}
	return answer{}, false
}

// With returns the redactor with a lookup that also replaces names. upstream is as in Rules. r may
// be nil.
func (r *Redactor) With(l *Lookup, upstream string) *Redactor {
	out := &Redactor{lookup: l, upstream: upstream}
	if r != nil {
		out.types, out.own = r.types, r.own
		if r.upstream == Redacted {
			out.upstream = Redacted
		}
	}
	return out
}

// Read starts with names to which none are added, and returns the lookup.
func (l *Lookup) Read(names *Names) *Lookup {
	names = names.Fixed()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missing = nil
	l.set(names)
	return l
}

// Again returns the redactor for texts that are stored already: names that have become known since
// are replaced, but no detector has to check such a text again.
func (r *Redactor) Again() *Redactor {
	if r == nil || r.lookup == nil {
		return r
	}
	out := *r
	out.again = true
	return &out
}

// Unasked returns the redactor for texts that no detector is asked about: names that are known are
// replaced in them.
func (r *Redactor) Unasked() *Redactor {
	if out := r.Again(); out != r {
		out.unnoted = true
		return out
	}
	return r
}

// Detects reports whether the redactor replaces what a detector has found.
func (r *Redactor) Detects() bool { return r != nil && r.lookup != nil }

// names replaces names in s, in which patterns are replaced, and sets at as Cuts does.
func (r *Redactor) names(s string, at []int) string {
	if r == nil || r.lookup == nil || !hasWords(s) {
		return s
	}
	l := r.lookup
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.get(s)
	switch {
	case r.again && !ok:
		if !r.unnoted {
			l.put(s, answer{})
		}
	case !ok:
		if !slices.Contains(l.missing, s) {
			l.missing = append(l.missing, s)
		}
		a.withheld = true
	}
	if a.withheld && !r.again {
		return replace(s, at, []span{{0, len(s), Withheld}})
	}
	spans := l.spans(s, a.found)
	if len(spans) == 0 {
		return s
	}
	out := replace(s, at, spans)
	l.put(out, answer{}) // replacing twice changes nothing
	return out
}

// hasWords reports whether there is a letter in a text beside what is replaced already.
func hasWords(s string) bool {
	if strings.Contains(s, "[") {
		s = maskShape.ReplaceAllString(s, "")
	}
	return strings.ContainsFunc(s, unicode.IsLetter)
}

// memberName replaces the names of a call in the name of a member, which no detector checks.
func (r *Redactor) memberName(s string) string { return r.Unasked().Text(s) }

// spans returns what is replaced in s: what was found and the names of the call, in order and
// without overlaps. The caller holds mu.
func (l *Lookup) spans(s string, found []Found) []span {
	taken := masks(s)
	var out []span
	if len(found) > 0 {
		found = slices.Clone(found)
		slices.SortStableFunc(found, func(a, b Found) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End)) })
		last := 0
		for _, f := range found {
			if f.Start = max(f.Start, last); f.Start >= f.End {
				continue
			}
			last = f.End
			for _, p := range outside(f, taken) {
				words := wordSpans(s[p.Start:p.End])
				if len(words) == 0 {
					continue
				}
				from, to := p.Start+words[0].start, p.Start+words[len(words)-1].end
				out = append(out, span{from, to, l.pseudonym(p.Type, s[from:to])})
			}
		}
	}
	if len(l.entries) == 0 {
		return out
	}
	taken = append(taken, out...)
	slices.SortFunc(taken, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	words := wordSpans(s)
	for i := 0; i < len(words); {
		for len(taken) > 0 && taken[0].end <= words[i].start {
			taken = taken[1:]
		}
		limit := len(s)
		if len(taken) > 0 {
			limit = taken[0].start
		}
		n, name := l.match(s, words[i:], limit, len(words) == 1)
		if n == 0 {
			i++
			continue
		}
		out = append(out, span{words[i].start, words[i+n-1].end, name})
		i += n
	}
	slices.SortFunc(out, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	return out
}

// outside returns the parts of a piece that are not replaced already.
func outside(f Found, masks []span) (out []Found) {
	from := f.Start
	for _, m := range masks {
		if m.end <= from || m.start >= f.End {
			continue
		}
		if m.start > from {
			out = append(out, Found{from, m.start, f.Type})
		}
		from = m.end
	}
	if from < f.End {
		out = append(out, Found{from, f.End, f.Type})
	}
	return out
}

// isWord reports whether a word may have the character in it.
func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) }

// wordSpans returns the words of a text.
func wordSpans(s string) (out []span) {
	start := -1
	for i, c := range s {
		switch {
		case isWord(c) && start < 0:
			start = i
		case !isWord(c) && start >= 0:
			out, start = append(out, span{start: start, end: i}), -1
		}
	}
	if start >= 0 {
		out = append(out, span{start: start, end: len(s)})
	}
	return out
}

// match returns how many of the words, which begin a part of s that ends at limit, are a name of
// the call, and what replaces it. only is set if s has no other words. The caller holds mu.
func (l *Lookup) match(s string, words []span, limit int, only bool) (n int, name string) {
	var joined string
	for i, w := range words[:min(len(words), maxNameWords)] {
		if w.end > limit || i > 0 && w.start-words[i-1].end > 2 {
			break
		}
		word := strings.ToLower(s[w.start:w.end])
		e, ok := l.entry(word)
		if !ok {
			break
		}
		if i == 0 {
			joined = word
			first, _ := utf8.DecodeRuneInString(s[w.start:])
			if (!e.Part || e.Alone) && (only || !unicode.IsLower(first)) {
				n, name = 1, e.mask()
			}
			continue
		}
		joined += " " + word
		if e, ok := l.entry(joined); ok {
			n, name = i+1, e.mask()
		}
	}
	return n, name
}

// mask returns what replaces the name.
func (n *Name) mask() string {
	if n.No == 0 {
		return n.Type
	}
	return n.Type + "-" + strconv.Itoa(n.No)
}

// entry returns the name of the call that consists of the words. The caller holds mu.
func (l *Lookup) entry(words string) (Name, bool) {
	if len(l.entries) == 0 {
		return Name{}, false
	}
	i, ok := l.entries[l.hash(words)]
	if !ok {
		return Name{}, false
	}
	return l.known.List[i], true
}

// hash returns the keyed hash of words. The caller holds mu.
func (l *Lookup) hash(words string) string {
	if l.mac == nil {
		if len(l.known.Key) == 0 {
			l.known.Key = make([]byte, 16)
			_, _ = rand.Read(l.known.Key) // never fails
		}
		l.mac = hmac.New(sha256.New, l.known.Key)
	}
	l.mac.Reset()
	_, _ = l.mac.Write([]byte(words))
	return hex.EncodeToString(l.mac.Sum(nil)[:8])
}

// pseudonym returns what replaces a name, which becomes known. The caller holds mu.
func (l *Lookup) pseudonym(kind, text string) string {
	if l.Forgets {
		return kind
	}
	words := nameWords(text)
	if len(words) == 0 {
		return kind
	}
	whole := strings.Join(words, " ")
	e, ok := l.entry(whole)
	if ok && (!e.Part || e.Alone) {
		return e.mask()
	}
	if !l.adds || len(words) > maxNameWords || len(l.known.List)+len(words) >= maxNames {
		return kind
	}
	e = Name{Type: kind, No: l.number(kind, words)}
	l.add(whole, e)
	if len(words) > 1 {
		for _, w := range words {
			part := Name{Type: kind, No: e.No, Part: true}
			part.Alone = kind == Person && utf8.RuneCountInString(w) > 2 && !titles[w]
			l.add(w, part)
		}
	}
	return e.mask()
}

// add adds a name, unless its words are one already.
func (l *Lookup) add(words string, n Name) {
	n.Hash = l.hash(words)
	l.added = true
	if i, ok := l.entries[n.Hash]; ok {
		if l.known.List[i].Part && !n.Part {
			l.known.List = slices.Clone(l.known.List) // it is shared
			l.known.List[i] = n
		}
		return
	}
	l.entries[n.Hash] = len(l.known.List)
	l.known.List = append(l.known.List, n)
}

// number returns the number for a new name: that of one of its words, if the call knows it as a
// whole name, else the next. The caller holds mu.
func (l *Lookup) number(kind string, words []string) int {
	if !l.Pseudonyms {
		return 0
	}
	if kind == Person && len(words) > 1 {
		for _, w := range words {
			if e, ok := l.entry(w); ok && !e.Part && e.Type == Person && !l.longer(e.No) {
				return e.No
			}
		}
	}
	no := 0
	for _, n := range l.known.List {
		if n.Type == kind {
			no = max(no, n.No)
		}
	}
	return no + 1
}

// longer reports whether a longer name of a person is known by the number. The caller holds mu.
func (l *Lookup) longer(no int) bool {
	return slices.ContainsFunc(l.known.List, func(n Name) bool { return n.Part && n.Type == Person && n.No == no })
}

// nameWords returns the words of a name in small letters, without the s of a genitive.
func nameWords(s string) []string {
	var out []string
	for _, w := range wordSpans(s) {
		word := strings.ToLower(s[w.start:w.end])
		if word == "s" && (strings.HasSuffix(s[:w.start], "'") || strings.HasSuffix(s[:w.start], "’")) {
			continue
		}
		out = append(out, word)
	}
	return out
}

// titles are words of names that do not stand for a person.
var titles = map[string]bool{
	"mrs": true, "miss": true, "prof": true, "professor": true, "doctor": true, "doktor": true, "sir": true, "madam": true, "lady": true, "lord": true,
	"herr": true, "herrn": true, "frau": true, "monsieur": true, "madame": true, "mademoiselle": true, "señor": true, "señora": true, "signor": true, "signora": true,
	"senhor": true, "senhora": true, "mevrouw": true, "meneer": true, "von": true, "van": true, "der": true, "den": true, "del": true, "della": true, "dos": true, "ten": true,
}
