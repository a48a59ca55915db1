package simulate

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of a transcript, far above any call that a person writes.
const (
	MaxTranscript = 1 << 20  // bytes of a transcript
	MaxSteps      = 1000     // steps of a call
	MaxLine       = 64 << 10 // bytes of a line, and so of any text in it
	MaxWindow     = 1024     // messages that a platform re-sends
)

// msPerWord is how long a voice takes for a word, at about 170 words a minute. It turns cut_ms into
// words, and sets the pace of a call that is played in real time.
const msPerWord = 350

// Transcript is a scripted call. A file has one JSON object a line, first the call and then its
// steps. Empty lines and lines that begin with # are skipped. See docs/guides/simulate.md.
type Transcript struct {
	Name  string // of a built-in transcript, or of the file
	Call  Call
	Steps []Step
	Text  []byte // as it was read
}

// Call holds the settings of a whole call.
type Call struct {
	Platform string `json:"platform"`         // one of Platforms
	About    string `json:"about,omitempty"`  // printed above the result
	System   string `json:"system,omitempty"` // the system message that the platform puts in front
	// What the platform says first; also the join's llm.greeting_message.
	Greeting string `json:"greeting,omitempty"`
	// How many of the newest messages are sent again; 0 = all.
	Window int  `json:"window,omitempty"`
	Whole  bool `json:"whole,omitempty"` // answers in one piece, not streamed
	// New sends only new messages, as a client does that leaves the memory to the server.
	New bool `json:"new,omitempty"`
	// Address is how a request names the agent: key (the default) is the platform's own id of the
	// call, header is X-Agent-Id, path is the URL.
	Address string `json:"address,omitempty"`
	// Properties are further properties of the join, such as heardlog.mode.
	Properties map[string]json.RawMessage `json:"properties,omitempty"`
}

// The values of Call.Address.
const (
	byKey    = "key"
	byHeader = "header"
	byPath   = "path"
)

// Step is one thing that happens in a call. Exactly one of Ask, Result, Say, Event and Interrupt is
// set.
type Step struct {
	Line int `json:"-"` // in the transcript, from 1

	// Ask is what the caller says, as the platform's speech recognition transcribes it. The model
	// is asked for an answer.
	Ask string `json:"ask,omitempty"`
	// Result is what the tool returned that the last answer called. The model is asked for an
	// answer without new words of the caller.
	Result string `json:"result,omitempty"`
	// Say is what the platform says by itself and adds to its list, such as a reminder.
	Say string `json:"say,omitempty"`
	// Event is an event of the platform, posted as evidence. In it, $CALL stands for the call's id
	// and "$NOW" for the time in Unix ms.
	Event json.RawMessage `json:"event,omitempty"`
	// The platform of the event; by default the call's.
	From string `json:"from,omitempty"`
	// Interrupt is what was heard of the last answer, sent to the server's own interrupt route.
	Interrupt *string `json:"interrupt,omitempty"`

	Answer string `json:"answer,omitempty"` // what the model answers to Ask or Result
	// The tool that the model calls, with or without an answer.
	Tool  *Tool `json:"tool,omitempty"`
	Cut   *int  `json:"cut,omitempty"`    // the platform closes the request after so many words
	CutMS int   `json:"cut_ms,omitempty"` // the same, as a time of speech
	// Overlap keeps a cut request open until the next one has started, as platforms do that notice
	// a barge-in only with the new request.
	Overlap bool `json:"overlap,omitempty"`
	// Heard is what the platform keeps of the answer; by default all of it, or up to the cut. An
	// empty text is an answer that was never played.
	Heard *string `json:"heard,omitempty"`
	// Echo is the answer in the platform's list, if it is not what was heard: the text as the voice
	// spelled it, or the whole answer of an application that ignores barge-ins.
	Echo *string `json:"echo,omitempty"`
	// Discard removes question and answer from the platform's list: a speculation, or the first of
	// two tries. The next question takes their place.
	Discard bool `json:"discard,omitempty"`
	// Forget removes the tool call and its result from the platform's list, as some platforms do
	// after a barge-in.
	Forget bool `json:"forget,omitempty"`
	// Shown and Hidden are texts that the model's messages must contain, or must not.
	Shown  []string `json:"shown,omitempty"`
	Hidden []string `json:"hidden,omitempty"`

	Want *Want `json:"want,omitempty"`
}

// Tool is a function that the model calls.
type Tool struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"` // an object; {} by default
}

// Want is what the server should have recorded of a step's answer when the call is over. Fields
// that are left out follow from the step. Method and Source are compared only if they are set.
type Want struct {
	Caller      *string `json:"caller,omitempty"`
	Generated   *string `json:"generated,omitempty"`
	Heard       *string `json:"heard,omitempty"`
	Interrupted *bool   `json:"interrupted,omitempty"`
	Ghosts      *int    `json:"ghosts,omitempty"`
	Method      string  `json:"method,omitempty"`
	Source      string  `json:"source,omitempty"`
	None        bool    `json:"none,omitempty"` // the record has no such answer
}

// Parse reads a transcript. Its errors name the line and the member.
func Parse(name string, text []byte) (Transcript, error) {
	t := Transcript{Name: name, Text: text}
	if len(text) > MaxTranscript {
		return t, fmt.Errorf("%s: is %d bytes long; at most %d are allowed", name, len(text), MaxTranscript)
	}
	first, n := true, 0
	for line := range bytes.Lines(text) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if err := t.line(line, n, first); err != nil {
			return t, fmt.Errorf("%s: line %d: %w", name, n, err)
		}
		first = false
	}
	switch {
	case first:
		return t, fmt.Errorf("%s: is empty; its first line must be the call", name)
	case len(t.Steps) == 0:
		return t, fmt.Errorf("%s: has no steps", name)
	}
	return t, nil
}

func (t *Transcript) line(line []byte, n int, first bool) error {
	switch {
	case len(line) > MaxLine:
		return fmt.Errorf("is %d bytes long; at most %d are allowed", len(line), MaxLine)
	case !utf8.Valid(line):
		return errors.New("is not UTF-8")
	case first:
		if err := decode(line, &t.Call); err != nil {
			return err
		}
		return t.Call.check()
	case len(t.Steps) == MaxSteps:
		return fmt.Errorf("is step %d; at most %d are allowed", MaxSteps+1, MaxSteps)
	}
	s := Step{Line: n}
	if err := decode(line, &s); err != nil {
		return err
	}
	if err := s.check(t.Steps); err != nil {
		return err
	}
	if t.Call.Whole && s.cut() > 0 {
		return errors.New("cut: only 0 is possible for an answer that is not streamed")
	}
	t.Steps = append(t.Steps, s)
	return nil
}

func decode(line []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("holds more than one JSON object")
	}
	return nil
}

func (c *Call) check() error {
	if !slices.Contains(Platforms(), c.Platform) {
		return fmt.Errorf("platform: must be one of %s, not %q", strings.Join(Platforms(), ", "), c.Platform)
	}
	if _, ok := c.Properties["llm"]; ok {
		return errors.New("properties.llm: is the simulated LLM's; it cannot be set")
	}
	if !slices.Contains([]string{"", byKey, byHeader, byPath}, c.Address) {
		return fmt.Errorf("address: must be one of key, header, path, not %q", c.Address)
	}
	if h, ok := c.Properties["heardlog"]; ok && json.Unmarshal(h, &map[string]json.RawMessage{}) != nil {
		return errors.New("properties.heardlog: is not an object")
	}
	if c.New && c.Window > 0 {
		return errors.New("window: cannot be combined with new")
	}
	if c.Window < 0 || c.Window > MaxWindow {
		return fmt.Errorf("window: %d is not from 0 to %d", c.Window, MaxWindow)
	}
	return nil
}

func (s *Step) check(before []Step) error {
	kinds := 0
	for _, is := range []bool{s.Ask != "", s.Result != "", s.Say != "", len(s.Event) > 0, s.Interrupt != nil} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		return fmt.Errorf("has %d of ask, result, say, event and interrupt; exactly one is allowed", kinds)
	}
	if !s.asks() {
		return s.checkOther()
	}
	if s.From != "" {
		return errors.New("from: belongs to event")
	}
	return s.checkAnswer(before)
}

// checkOther checks a step that asks for no answer.
func (s *Step) checkOther() error {
	switch {
	case s.Answer != "" || s.Tool != nil || s.Cut != nil || s.CutMS != 0 || s.Heard != nil || s.Echo != nil || s.Discard || s.Forget || s.Overlap || s.Shown != nil || s.Hidden != nil:
		return errors.New("say, event and interrupt have no answer; say may be combined with want only")
	case s.Say == "" && s.Want != nil:
		return errors.New("want: belongs to the step of the answer")
	case len(s.Event) > 0 && s.Event[0] != '{':
		return errors.New("event: is not an object")
	case len(s.Event) == 0 && s.From != "":
		return errors.New("from: belongs to event")
	}
	return nil
}

func (s *Step) checkAnswer(before []Step) error {
	words := len(split(s.Answer))
	switch {
	case s.Answer == "" && s.Tool == nil:
		return errors.New("answer: is required, or tool")
	case s.Cut != nil && s.CutMS != 0:
		return errors.New("cut_ms: cannot be combined with cut")
	case s.CutMS < 0:
		return fmt.Errorf("cut_ms: %d is below 0", s.CutMS)
	case s.Cut != nil && (*s.Cut < 0 || *s.Cut > words):
		return fmt.Errorf("cut: %d is not from 0 to the %d words of the answer", *s.Cut, words)
	case s.Tool != nil && (s.Cut != nil || s.CutMS > 0):
		return errors.New("tool: cannot be combined with cut")
	case s.Tool != nil && s.Tool.Name == "":
		return errors.New("tool.name: is required")
	case s.Overlap && s.Cut == nil && s.CutMS == 0:
		return errors.New("overlap: needs cut or cut_ms")
	case s.Discard && s.Want != nil:
		return errors.New("want: a discarded answer is a ghost; count it in the want of the answer that is kept")
	case s.Result != "" && (len(before) == 0 || !called(before)):
		return errors.New("result: no tool was called before")
	}
	if s.Tool != nil && len(s.Tool.Arguments) > 0 && s.Tool.Arguments[0] != '{' {
		return errors.New("tool.arguments: is not an object")
	}
	return nil
}

// called reports whether the newest answer that was kept called a tool.
func called(before []Step) bool {
	for _, s := range slices.Backward(before) {
		if s.asks() && !s.Discard {
			return s.Tool != nil
		}
	}
	return false
}

// asks reports whether the step asks for an answer.
func (s *Step) asks() bool { return s.Ask != "" || s.Result != "" }

// cut returns after how many words the request is closed; -1 is never.
func (s *Step) cut() int {
	switch {
	case s.Cut != nil:
		return *s.Cut
	case s.CutMS > 0:
		return min(s.CutMS/msPerWord, len(split(s.Answer)))
	}
	return -1
}

// sent returns what the model said before the request was closed.
func (s *Step) sent() string {
	if n := s.cut(); n >= 0 {
		return strings.Join(split(s.Answer)[:n], "")
	}
	return s.Answer
}

// heard returns what the platform keeps of the answer.
func (s *Step) heard() string {
	if s.Heard != nil {
		return *s.Heard
	}
	return strings.TrimRight(s.sent(), " ")
}

// echo returns the answer as it is in the platform's list.
func (s *Step) echo() string {
	if s.Echo != nil {
		return *s.Echo
	}
	return s.heard()
}

// split returns the words of a text, each with the space behind it.
func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.SplitAfter(text, " ")
}

//go:embed transcripts/*.jsonl
var files embed.FS

// Builtin returns built-in transcripts: those of a platform, the one with a name, or all with
// "all".
func Builtin(name string) ([]Transcript, error) {
	entries, err := files.ReadDir("transcripts")
	if err != nil {
		return nil, err
	}
	var out []Transcript
	for _, e := range entries {
		text, err := files.ReadFile(path.Join("transcripts", e.Name()))
		if err != nil {
			return nil, err
		}
		t, err := Parse(strings.TrimSuffix(e.Name(), ".jsonl"), text)
		if err != nil {
			return nil, err
		}
		if name == "all" || name == t.Name || name == t.Call.Platform {
			out = append(out, t)
		}
	}
	return out, nil
}
