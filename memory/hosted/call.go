package hosted

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/input"
)

// Call is one call that is over, as its platform describes it. Zero values are not known.
type Call struct {
	Platform string
	ID       string // the platform's own
	Key      string // by which a call is found that ran through this server; "" = none
	Name     string // of the assistant
	// StartMS and EndMS are Unix ms.
	StartMS, EndMS int64
	EndReason      string // in the platform's words
	Failed         bool   // the platform says that the call ended with an error
	// Caller is the name of the caller: a number in E.164, or the ID that the platform was given.
	// It is empty for callers who withhold their number.
	Caller       string
	RecordingURL string
	// CostUSD is what the platform charged, in US dollars; nil if it does not say.
	CostUSD  *float64
	Labels   map[string]string
	Messages []Message
	// Omitted are the fields that could not be read.
	Omitted input.Omitted
}

// Message is one thing that was said or done in a Call.
type Message struct {
	Role memory.Role
	// Text is what was said: of an answer, what the caller heard. Original is what the model wrote
	// of an answer that was cut, if the platform keeps that.
	Text, Original string
	Interrupted    bool
	// StartMS and EndMS are when it was spoken, Unix ms.
	StartMS, EndMS int64
	Method         memory.Method // of an answer: how it is known what was heard
	ToolCalls      []ToolCall
	ToolCallID     string // of a tool's result
	ToolName       string
	Failed         bool   // the result is an error
	Model          string // that wrote an answer
	// Latency is what the platform measured, in ms by stage: one of the Stage constants.
	Latency map[string]int64
}

// ToolCall is a call of a tool. Arguments is JSON.
type ToolCall struct{ ID, Name, Arguments string }

// The stages of a turn's latency.
const (
	StageSTT         = "stt"         // until the caller's words are known
	StageEndpointing = "endpointing" // until the caller's turn is taken as over
	StageLLM         = "llm"         // until the model's first token
	StageTTS         = "tts"         // until the voice's first byte
	StageE2E         = "e2e"         // from the caller's last word to the answer's first sound
)

// Limits of what is kept of a call, in bytes or entries.
const (
	maxMessages = 10_000
	maxField    = 1024
	maxURL      = 4096
	maxTools    = 128 // of one message
)

// readers are the platforms' readers. Each reports false for a body that is not about a finished
// call.
var readers = map[string]func(*reader) bool{
	"vapi": (*reader).vapi, "retell": (*reader).retell, "elevenlabs": (*reader).elevenLabs, "livekit": (*reader).liveKit,
	"twilio": (*reader).twilio, "pipecat": (*reader).pipecat, "openai": (*reader).openAI,
}

// Platforms returns the names of the platforms whose calls can be read, in order.
func Platforms() []string {
	var names []string
	for name := range readers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Known reports whether calls of a platform can be read.
func Known(name string) bool { return readers[name] != nil }

// Read reads what a platform says of one call. finished is false if that is not about a call that
// is over, such as a webhook of another kind; the Call then has only what identifies it.
//
// It returns fault.NotFound for an unknown platform, fault.BadRequest for a body that is not a JSON
// object, and fault.Missing if a finished call has no ID. Anything else that is wrong is left out
// and counted in Call.Omitted.
func Read(name string, body []byte) (c Call, finished bool, err error) {
	read := readers[name]
	if read == nil {
		return c, false, fault.At(fault.NotFound, "platform", "%q is not known; known are %s", text.Clip(name, 40), strings.Join(Platforms(), ", "))
	}
	if !peek.Valid(body) {
		return c, false, fault.New(fault.BadRequest, "the body is not valid JSON")
	}
	root := peek.Parse(body)
	if !root.IsObject() {
		return c, false, fault.New(fault.BadRequest, "the body is not a JSON object")
	}
	r := &reader{root: value{v: root}, Call: Call{Platform: name}}
	r.root.o = &r.Omitted
	finished = read(r)
	if !finished {
		return r.Call, false, nil
	}
	if r.ID == "" {
		return r.Call, false, fault.At(fault.Missing, "id", "the ID of the call is required, and none of the places where %s has it holds one", name)
	}
	if n := len(r.Messages); n > maxMessages {
		r.Omitted.Add("messages", "are %d; the last %d are kept", n, maxMessages)
		r.Messages = r.Messages[n-maxMessages:]
	}
	if r.EndMS == 0 || r.EndMS < r.StartMS {
		r.EndMS = max(r.StartMS, r.lastMS())
	}
	return r.Call, true, nil
}

// AgentID returns the ID under which the call is filed: the platform's own if it may be an agent's
// ID, else a hash of it.
func (c *Call) AgentID() string {
	if input.AgentID(c.ID) {
		return c.ID
	}
	sum := sha256.Sum256([]byte(c.ID))
	return c.Platform + "-" + hex.EncodeToString(sum[:16])
}

// lastMS returns the time of what was said last, 0 if that is not known.
func (c *Call) lastMS() (last int64) {
	for i := range c.Messages {
		last = max(last, c.Messages[i].EndMS, c.Messages[i].StartMS)
	}
	return last
}

// label adds a label unless it is empty.
func (c *Call) label(name, value string) {
	if value == "" || len(c.Labels) == input.MaxMetadata {
		return
	}
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	c.Labels[name] = value
}
