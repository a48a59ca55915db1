package ingest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/hosted"
)

// latencyKey is the member of a message's metadata that has what the platform measured of its turn,
// in ms by stage.
const latencyKey = "latency_ms"

// FileCall adds a call that ran at a hosted platform to the record of its agent, as File does with
// a notice. Reports of one call may come in any order and more than once.
//
// It returns fault.Conflict if the call ran through this server, whose own record is better, and
// fault.Stopped if the call is past the retention.
func (s Service) FileCall(ctx context.Context, project string, c hosted.Call) (changed bool, err error) {
	if c.Key != "" {
		a, err := s.Memory.Agents.ByKey(ctx, project, c.Key)
		switch {
		case err == nil && !a.Archived():
			return false, fault.At(fault.Conflict, "call", "%q ran through this server as agent %s, whose record is its own", c.ID, a.ID)
		case err != nil && !fault.Is(err, fault.NotFound):
			return false, err
		}
	}
	return s.File(ctx, project, noticeOf(&c))
}

// noticeOf returns a call as a notice, whose ID is a hash of all that the call says.
func noticeOf(c *hosted.Call) Notice {
	body, _ := json.Marshal(c) // texts and numbers always encode
	sum := sha256.Sum256(body)
	n := Notice{
		ID: hex.EncodeToString(sum[:16]), AgentID: c.AgentID(), Name: c.Name, Labels: c.Labels, StartMS: cmp.Or(c.StartMS, c.EndMS), StopMS: c.EndMS, ToldMS: c.EndMS,
		User: c.Caller, Key: c.Key,
		Hosted: &memory.HostedCall{Platform: c.Platform, CallID: c.ID, EndReason: c.EndReason, RecordingURL: c.RecordingURL, CostUSD: c.CostUSD},
		Left:   &memory.ArchiveEnd{Status: memory.Stopped, Message: c.EndReason},
	}
	if c.Failed {
		n.Left.Status = memory.Failed
	}
	n.History = historyOf(c, n.StartMS)
	return n
}

// messageOf returns what is stored of a message. Answers have the evidence that their platform
// gives.
func messageOf(in *hosted.Message) memory.Message {
	out := memory.Message{Role: in.Role, Content: in.Text, Timestamp: in.StartMS, ToolCallID: in.ToolCallID, ToolName: in.ToolName}
	if in.Role == memory.User && in.EndMS != 0 {
		out.Timestamp = in.EndMS // when a caller's words are known is when they end
	}
	if len(in.ToolCalls) > 0 {
		out.ToolCalls = toolCalls(in.ToolCalls)
	}
	switch in.Role {
	case memory.User:
		out.Source = memory.SourceASR
	case memory.Assistant:
		out.Source = memory.SourceLLM
		answer(&out, in)
	}
	set := func(name string, v any) {
		if out.Metadata == nil {
			out.Metadata = map[string]json.RawMessage{}
		}
		out.Metadata[name], _ = json.Marshal(v)
	}
	if len(in.Latency) > 0 {
		set(latencyKey, in.Latency)
	}
	if in.StartMS != 0 && in.EndMS != 0 {
		set("speech_start_ms", in.StartMS)
		set("speech_end_ms", in.EndMS)
	}
	if in.Failed {
		set("is_error", true)
	}
	return out
}

// answer sets what is known of an answer beside its text.
func answer(out *memory.Message, in *hosted.Message) {
	if in.Model != "" {
		out.Amend(func(d *memory.Details) { d.Model = in.Model })
	}
	if out.Content == "" && in.Original == "" { // calls of tools only
		return
	}
	whole := cmp.Or(in.Original, in.Text)
	e := memory.Evidence{Method: in.Method, Heard: in.Text, Full: !in.Interrupted && in.Original == "", Cut: in.Interrupted, AtMS: 0}
	if in.Interrupted {
		if e.AtMS = in.EndMS; in.Text == "" {
			e.State = memory.Unplayed
		}
	}
	out.Content = whole
	out.CutGenerated = in.Interrupted && in.Original == ""
	got, _, err := out.WithEvidence(e, max(in.EndMS, in.StartMS))
	if err != nil { // what was heard differs from what was written; both are kept as they are
		got = *out
		got.Generated, got.Content, got.Method, got.Interrupted = whole, in.Text, in.Method, in.Interrupted
		got.InterruptMS, got.InterruptBy = max(in.EndMS, in.StartMS), memory.ByStartOfSpeech
	}
	*out = got
}

// toolCalls returns calls in the form of OpenAI's chat completions.
func toolCalls(list []hosted.ToolCall) json.RawMessage {
	type function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	type call struct {
		ID       string   `json:"id"`
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	var out []call
	for _, c := range list {
		out = append(out, call{c.ID, "function", function{c.Name, c.Arguments}})
	}
	raw, _ := json.Marshal(out) // texts always encode
	return raw
}

// historyOf returns the messages of a call. Times that its platform does not tell are those of the
// message before, or the start of the call.
func historyOf(c *hosted.Call, startMS int64) []memory.Message {
	out := make([]memory.Message, len(c.Messages))
	last, asked := startMS, int64(0)
	turn, answered := int64(0), false
	for i := range c.Messages {
		in := &c.Messages[i]
		m := messageOf(in)
		if m.Role == memory.User && answered {
			turn, answered = turn+1, false
		}
		answered = answered || m.Role == memory.Assistant && m.Original() != ""
		m.TurnID, m.GivenTurn = turn, true
		if m.Timestamp == 0 {
			m.Timestamp = last
		}
		if last = m.Timestamp; m.Role == memory.User {
			asked = last
		}
		if m.Interrupted && m.InterruptMS == 0 {
			m.InterruptMS = m.Timestamp
		}
		if ms := in.Latency[hosted.StageLLM]; ms > 0 && m.Role == memory.Assistant {
			t := memory.Timings{StartMS: cmp.Or(asked, m.Timestamp), FirstTokenMS: ms}
			t.StartMS += max(0, in.Latency[hosted.StageE2E]-ms) // the turn table adds the two
			if in.EndMS > t.StartMS {
				t.TotalMS = in.EndMS - t.StartMS
			}
			m.Timings = &t
		}
		out[i] = m
	}
	return out
}
