package fake

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// Script is how one call is answered. Each field can be set by a flag of the server (Options), by a
// request header (X-Fake-Delay-First: 200ms) and by a member of the object "fake" in the request
// body ({"fake":{"delay_first":"200ms"}}), which is what llm.params becomes. The later of these
// wins.
type Script struct {
	Answer     string   `json:"answer"`      // X-Fake-Answer: what to say
	Chunks     []string `json:"chunks"`      // the answer in these pieces instead of word by word
	DelayFirst Duration `json:"delay_first"` // X-Fake-Delay-First: wait before the headers
	// X-Fake-Delay-Body: wait between the headers and the first event.
	DelayBody  Duration `json:"delay_body"`
	DelayChunk Duration `json:"delay_chunk"` // X-Fake-Delay-Chunk: wait between events
	Status     int      `json:"status"`      // X-Fake-Status: an error with this status
	Body       string   `json:"body"`        // X-Fake-Body: the body of that error, or of a whole answer
	RetryAfter string   `json:"retry_after"` // X-Fake-Retry-After: sent with an error
	// X-Fake-Cut-After: reset the connection after so many events.
	CutAfter int `json:"cut_after"`
	// X-Fake-Close-After: end cleanly, without [DONE], after so many events.
	CloseAfter int  `json:"close_after"`
	Hang       bool `json:"hang"`       // X-Fake-Hang: never answer
	HangAfter  int  `json:"hang_after"` // X-Fake-Hang-After: fall silent after so many events
	// X-Fake-Raw: these bytes are the stream (in the header as a JSON string).
	Raw string `json:"raw"`
	// These bytes are the stream, each piece written and flushed by itself.
	RawPieces []string `json:"raw_pieces"`
	// X-Fake-Error-After: send an error object inside the stream after so many events.
	ErrorAfter int  `json:"error_after"`
	NoDone     bool `json:"no_done"` // X-Fake-No-Done: leave [DONE] out
	// X-Fake-Usage: send a usage chunk at the end, as with stream_options.include_usage.
	Usage bool `json:"usage"`
	// X-Fake-Tool-Name: call this tool instead of saying anything.
	ToolName  string   `json:"tool_name"`
	ToolArgs  string   `json:"tool_args"` // X-Fake-Tool-Args: with these arguments
	Type      string   `json:"type"`      // X-Fake-Type: the Content-Type
	Heartbeat Duration `json:"heartbeat"` // X-Fake-Heartbeat: send comments so often while hanging
}

// Duration is a time.Duration that JSON writes as "200ms".
type Duration time.Duration

// UnmarshalJSON reads "200ms", or a number of milliseconds.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		var ms int64
		if err := json.Unmarshal(b, &ms); err != nil {
			return err
		}
		*d = Duration(time.Duration(ms) * time.Millisecond)
		return nil
	}
	v, err := time.ParseDuration(s)
	*d = Duration(v)
	return err
}

// MarshalJSON writes "200ms".
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// fromHeaders reads the request's headers over s.
func (s *Script) fromHeaders(h http.Header) error {
	for name, into := range map[string]*string{
		"Answer": &s.Answer, "Body": &s.Body, "Retry-After": &s.RetryAfter, "Tool-Name": &s.ToolName, "Tool-Args": &s.ToolArgs, "Type": &s.Type,
	} {
		if v := h.Get("X-Fake-" + name); v != "" {
			*into = v
		}
	}
	for name, into := range map[string]*Duration{
		"Delay-First": &s.DelayFirst, "Delay-Body": &s.DelayBody, "Delay-Chunk": &s.DelayChunk, "Heartbeat": &s.Heartbeat,
	} {
		if v := h.Get("X-Fake-" + name); v != "" {
			d, err := time.ParseDuration(v)
			if err != nil {
				return err
			}
			*into = Duration(d)
		}
	}
	for name, into := range map[string]*int{
		"Status": &s.Status, "Cut-After": &s.CutAfter, "Close-After": &s.CloseAfter, "Hang-After": &s.HangAfter, "Error-After": &s.ErrorAfter,
	} {
		if v := h.Get("X-Fake-" + name); v != "" {
			n, err := strconv.Atoi(v)
			if err != nil {
				return err
			}
			*into = n
		}
	}
	for name, into := range map[string]*bool{"Hang": &s.Hang, "No-Done": &s.NoDone, "Usage": &s.Usage} {
		if v := h.Get("X-Fake-" + name); v != "" {
			on, err := strconv.ParseBool(v)
			if err != nil {
				return err
			}
			*into = on
		}
	}
	if v := h.Get("X-Fake-Raw"); v != "" {
		if err := json.Unmarshal([]byte(v), &s.Raw); err != nil {
			s.Raw = v
		}
	}
	return nil
}
