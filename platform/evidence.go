// Package platform knows voice platforms: how each identifies its calls (Profile, Key), which
// fields it adds to a request that no LLM may see, and what its events say about what the caller
// heard (Evidence). It keeps no state and calls nothing.
package platform

import (
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/peek"
)

// MaxRows is how many rows of one event are read; of a longer transcript the newest.
const MaxRows = 1000

// MaxWords is how many word times of one event are read.
const MaxWords = 2000

// Evidence is what one event says about one answer, independent of the platform's wording. A zero
// field says nothing.
type Evidence struct {
	// The answer it is about, best first: the platform's ID of it, the whole generated text, the
	// turn. Without any of them it is the last answer that contains the heard text.
	ItemID    string
	Generated string
	Turn      *int64 // as the platform counts, from 0 or 1
	// Named means that ItemID is Heardlog's own ID of the answer, which no other answer has.
	Named bool
	// Item is the platform's own ID of it, which its other events have too.
	Item string
	// Said means that the platform had it said by itself: it is not an answer of Heardlog's.
	Said bool
	// MadeMS is when the platform had the answer ready to be spoken, Unix ms. It had asked for it
	// before, and asks for the next one later.
	MadeMS int64
	// Ordinal means that Turn may count from another number than Heardlog's.
	Ordinal bool

	Heard   *string // the heard text or, with Playing, the text known to have been played so far
	HeardMS *int64  // how much audio was played, ms
	WholeMS int64   // how long the audio of the whole answer is, ms
	// Rough means that Heard and Generated only identify the answer, if HeardMS is there.
	Rough bool
	Words []Word // times within the audio, or within the stretch of audio that began at StartMS
	// Confidence is how good the platform's own text is known to be, in percent; 0 is not known.
	Confidence int64
	Full       bool // heard to its end
	Cut        bool // the caller cut it
	Playing    bool // it is being played: what is told may still grow
	// With Playing: Heard is from the platform's account of the conversation, not from its speech
	// events.
	Account bool
	// Echo means that Heard is from the list of messages that the platform keeps for its LLM.
	Echo    bool
	Over    bool   // with Playing: the call is over, so nothing more will be played
	StartMS int64  // Unix ms at which the stretch of audio began; with Playing
	AtMS    int64  // Unix ms that the evidence speaks of
	By      string // end.metadata.caused_by of Agora's turn table, where the platform says it
	// Estimated means that the times of Words are not the voice's: the words were spread over its
	// audio.
	Estimated bool
}

// Word is a word's place in the audio, ms.
type Word struct {
	Text           string
	StartMS, EndMS int64
}

// Event is what was read of one event's body. Nothing of the body is kept but what stands here.
type Event struct {
	Type     string // as the platform names it; one of ours, so that it may be shown
	Keys     []Key  // that the body brings to find the call by, best first
	Evidence []Evidence
	Ends     bool  // the call is over
	AtMS     int64 // when List's newest message was made, Unix ms; 0 is unknown
	// List is the platform's own history: all of it if Ends, else its newest messages; nil if the
	// event has none.
	List []Listed
}

// source is how one platform's events are read.
type source struct {
	name string
	// Paths of the event's type, the first that exists; "" = the platform has one type.
	kind   string
	events map[string]rule
	// list reads the platform's own history from an event; nil if none has it.
	list func(root peek.Value) []Listed
}

// noRows as a rule's rows means that the event says nothing about what was heard.
const noRows = "-"

// rule maps one event by paths into it. A path may name alternatives separated by "|": the
// first that exists counts.
type rule struct {
	rows string // path of the list of rows; "" = the event itself is the one row; or noRows
	role string // path of a row's role; rows of others than role's owner are passed over
	is   []string

	item, turn, generated, heard, heardMS, words, cut, at string
	ordinal                                               bool
	// settles means that a row which does not say it was interrupted was heard in full.
	settles bool
	// ends, if not nil, reports whether the event means that the call is over.
	ends func(root peek.Value) bool
	// more is for what paths cannot say; false drops the row.
	more func(row peek.Value, rows []peek.Value, i int, e *Evidence) bool
}

// Names lists the platforms whose events are understood, in order.
func Names() []string {
	var names []string
	for _, s := range sources() {
		names = append(names, s.name)
	}
	slices.Sort(names)
	return names
}

// Read decodes the body of one event of a platform. It fails with fault.NotFound for an unknown
// platform, fault.BadRequest for a body that is not a JSON object, and fault.Missing for an event
// without a type. Events that say nothing about what was heard
// yield no evidence.
func Read(name string, body []byte) (Event, error) {
	all := sources()
	at := slices.IndexFunc(all, func(s source) bool { return s.name == name })
	if at < 0 {
		return Event{}, fault.At(fault.NotFound, "platform", "%q is not known; known are %s", clip(name, 40), strings.Join(Names(), ", "))
	}
	if !peek.Valid(body) {
		return Event{}, fault.New(fault.BadRequest, "the body is not valid JSON")
	}
	root := peek.Parse(body)
	if !root.IsObject() {
		return Event{}, fault.New(fault.BadRequest, "the body is not a JSON object")
	}
	s := all[at]
	kind := first(root, s.kind)
	if s.kind != "" && !kind.Exists() {
		return Event{}, fault.At(fault.Missing, strings.ReplaceAll(s.kind, "|", " or "), "is required: it says which event this is")
	}
	out := Event{Keys: bodyKeys(name, root)}
	r, ok := s.events[kind.Text()]
	if !ok {
		return out, nil // an event that says nothing about what was heard
	}
	out.Evidence = r.read(root)
	if s.list != nil {
		out.List, out.AtMS = s.list(root), millis(first(root, "item.created_at|item.createdAt"))
	}
	if out.Ends = r.ends != nil && r.ends(root); out.Ends {
		atTheEnd(out.Evidence)
	}
	if r.rows != noRows || out.Ends || out.List != nil {
		out.Type = kind.Text()
	}
	return out, nil
}

// atTheEnd changes evidence that was read of the last event of a call: what is not told as played
// was not played, and the last answer may have been broken off by the end although its row does not
// say that it was interrupted.
func atTheEnd(list []Evidence) {
	for i := range list {
		list[i].Over = list[i].Playing
	}
	if n := len(list); n > 0 && list[n-1].Full && list[n-1].Generated != "" {
		last := &list[n-1]
		text := last.Generated
		last.Full, last.Generated, last.Heard = false, "", &text
	}
}

// Types lists the events of a platform that say what was heard or that the call is over, in order.
func Types(name string) []string {
	var out []string
	for _, s := range sources() {
		if s.name == name {
			for t := range s.events {
				out = append(out, t)
			}
		}
	}
	slices.Sort(out)
	return out
}

// read maps one event.
func (r rule) read(root peek.Value) []Evidence {
	rows := []peek.Value{root}
	switch {
	case r.rows == noRows:
		return nil
	case r.rows != "":
		rows = first(root, r.rows).List()
		rows = rows[max(0, len(rows)-MaxRows):]
	}
	var out []Evidence
	for i, row := range rows {
		if r.role != "" && !slices.Contains(r.is, first(row, r.role).Text()) {
			continue
		}
		e := r.row(row)
		if r.more != nil && !r.more(row, rows, i, &e) {
			continue
		}
		out = append(out, e)
	}
	return out
}

// row reads what paths can say.
func (r rule) row(row peek.Value) Evidence {
	e := Evidence{ItemID: first(row, r.item).Str(), Generated: first(row, r.generated).Str(), Ordinal: r.ordinal, AtMS: millis(first(row, r.at))}
	if v := first(row, r.turn); number(v) {
		n := v.Int()
		e.Turn = &n
	}
	if v := first(row, r.heard); v.IsString() {
		heard := v.Str()
		e.Heard = &heard
	}
	if v := first(row, r.heardMS); number(v) && v.Float() >= 0 {
		n := v.Int()
		e.HeardMS = &n
	}
	e.Words = words(first(row, r.words))
	e.Cut = first(row, r.cut).Bool()
	if r.settles && !e.Cut && e.Heard != nil {
		e.Full, e.Generated, e.Heard = true, *e.Heard, nil
	}
	return e
}

// first returns the value at the first path that exists; the zero value for "".
func first(v peek.Value, paths string) peek.Value {
	if paths == "" {
		return nil
	}
	for p := range strings.SplitSeq(paths, "|") {
		if f := v.Path(p); !f.IsNull() {
			return f
		}
	}
	return nil
}

// number reports whether a value is a number or a text that holds one: Twilio writes "460" where
// Telnyx writes 460.
func number(v peek.Value) bool {
	if v.IsNumber() {
		return true
	}
	s := v.Str()
	return s != "" && strings.Trim(s, "0123456789.") == "" && strings.Count(s, ".") <= 1
}

// millis reads a time: Unix ms, or Unix seconds (of ten digits, perhaps with a fraction). It
// returns 0 for anything else.
func millis(v peek.Value) int64 {
	if !number(v) {
		return 0
	}
	f := v.Float()
	switch {
	case f < 1e9 || f > 1e14:
		return 0
	case f < 1e11:
		return int64(f * 1000)
	}
	return int64(f)
}

// words reads a list of words with their times, ms: word or text; start_ms, startMs or start
// (seconds); the same with end.
func words(list peek.Value) []Word {
	if !list.IsArray() {
		return nil
	}
	var out []Word
	for _, w := range list.List() {
		word := Word{Text: first(w, "word|text").Str()}
		word.StartMS, _ = offset(w, "start_ms|startMs", "start")
		end, ok := offset(w, "end_ms|endMs", "end")
		if !ok {
			continue
		}
		word.EndMS = end
		if out = append(out, word); len(out) == MaxWords {
			break
		}
	}
	return out
}

func offset(w peek.Value, ms, seconds string) (int64, bool) {
	if v := first(w, ms); number(v) {
		return v.Int(), true
	}
	if v := first(w, seconds); number(v) {
		return int64(v.Float() * 1000), true
	}
	return 0, false
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
