package prompt

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/llmadapter"
	"github.com/heardlog/heardlog/longterm/remember"
	"github.com/heardlog/heardlog/memory"
)

// bytesPerToken is the assumed length of a token where a window has a limit of tokens.
const bytesPerToken = 4

// Remember finds what the prompt is given of the caller and of earlier calls, if the agent wants
// any. It returns what was recalled and the IDs of all that was found. called gets the name of each
// tool of the memory that the model calls, and hide returns its result as the model may see it.
func (p *Prompt) Remember(ctx context.Context, from *remember.Service, called func(tool string), hide func(ctx context.Context, result string) string) (recalled remember.Block, ids []string, ok bool) {
	t := p.turn
	if from == nil || !t.Agent.Settings.Memory.Remember.Prompts() || t.Window != nil && !*t.Window.Policy.Enabled {
		return recalled, nil, false
	}
	known := from.Introduce(ctx, &t.Agent)
	p.known = known.Text
	asked := p.asked()
	asked.Used, asked.Known = known.Tokens, known.IDs
	if r := &t.Agent.Settings.Memory.Remember; r.Inject && r.Tools && from.Allowed(ctx, t.Agent.Project, t.Agent.Settings.Scope.UserID) {
		now := remember.Turn{Agent: &t.Agent, ID: t.TurnID, Answer: t.AnswerSeq, Asked: !t.Unsolicited && asked.Words != "", Shown: asked.Shown}
		p.tools = func(ctx context.Context, name string, arguments []byte) string {
			called(name)
			result := from.Call(ctx, now, name, arguments)
			return hide(ctx, result)
		}
	}
	if recalled, ok = from.Recall(ctx, &t.Agent, asked); ok {
		p.recalled = recalled.Text
	}
	return recalled, slices.Concat(known.IDs, recalled.IDs), ok
}

// asked returns what is known of the prompt before it is made.
func (p *Prompt) asked() remember.Asked {
	t := p.turn
	out := remember.Asked{Shown: remember.NewShown(t.Agent.ID, p.reconciles()), Room: -1}
	size := 0
	add := func(role string, seq int64, said string, own bool) {
		out.Shown.Add(seq, said)
		size += len(said)
		if role == string(memory.User) {
			out.Words = ""
			if own {
				out.Words = said
			}
		}
	}
	if p.reconciles() {
		for i := range p.plan.req.Messages {
			in := &p.plan.req.Messages[i]
			add(in.Role, 0, in.Text(), true)
		}
	} else {
		for _, m := range t.Context {
			add(string(m.Role), m.Seq, m.Content, m.Source != memory.SourceCommand && m.Source != memory.SourceSilence)
		}
	}
	if t.Window != nil && *t.Window.Policy.MaxTokens > 0 {
		out.Room = max(0, *t.Window.Policy.MaxTokens-size/bytesPerToken)
	}
	return out
}

// withMemory puts what was known of the caller when the call began behind the system messages, and
// what was recalled right before the newest user message. Nothing before that differs from the
// prompt of the turn before, so that upstreams can reuse their prompt caches.
func (p *Prompt) withMemory(list []llmadapter.Message, custom bool) []llmadapter.Message {
	if p.recalled != "" {
		for i, m := range slices.Backward(list) {
			if m.Role == string(memory.User) {
				list = slices.Insert(list, i, p.block(p.recalled, &m, custom, p.turn.TurnID, p.arrivedMS))
				break
			}
		}
	}
	if p.known == "" {
		return list
	}
	at := slices.IndexFunc(list, func(m llmadapter.Message) bool { return !memory.Role(m.Role).Instructs() })
	if at < 0 {
		at = len(list)
	}
	next := &llmadapter.Message{}
	if at < len(list) {
		next = &list[at]
	}
	return slices.Insert(list, at, p.block(p.known, next, custom, 0, p.turn.Agent.StartMS))
}

// block returns a block as a message before another.
func (p *Prompt) block(text string, next *llmadapter.Message, custom bool, turn, ms int64) llmadapter.Message {
	m := llmadapter.Message{Role: p.turn.Agent.Settings.Memory.Remember.Position, Text: text}
	if m.Role == next.Role {
		m.Name = next.Name // so that both become one message
	}
	if custom {
		m.Entry = &llmadapter.Entry{TurnID: turn, Timestamp: ms, Source: memorySource}
	}
	return m
}

// memorySource is the source of a block in the form with every field.
const memorySource = "memory"

// removeRecalled removes blocks that a platform sends back, and the messages that have nothing
// else.
func (p *Plan) removeRecalled() {
	for i := len(p.req.Messages) - 1; i >= 0; i-- {
		in := &p.req.Messages[i]
		if !bytes.Contains(in.Content, []byte("memory id=")) { // as each block does
			continue
		}
		switch in.Content = withoutBlocks(in.Content); {
		case in.Content != nil:
		case in.ToolCalls != nil:
			in.Content = []byte("null")
		default:
			p.req.Messages = slices.Delete(p.req.Messages, i, i+1)
		}
	}
}

// withoutBlocks returns the content of a message, JSON, without blocks, or nil if nothing is left.
func withoutBlocks(content []byte) []byte {
	if content[0] != '[' {
		said := llmadapter.ContentText(content)
		switch left := remember.Strip(said); left {
		case said:
			return content
		case "":
			return nil
		default:
			return text.AppendJSON(nil, left)
		}
	}
	var parts []json.RawMessage
	if json.Unmarshal(content, &parts) != nil {
		return content
	}
	out, changed := parts[:0], false
	for _, part := range parts {
		said := peek.At(part, "text").Text()
		left := remember.Strip(said)
		if left != said {
			changed = true
			if left == "" {
				continue
			}
			part = append(text.AppendJSON([]byte(`{"type":"text","text":`), left), '}')
		}
		out = append(out, part)
	}
	switch {
	case !changed:
		return content
	case len(out) == 0:
		return nil
	}
	all, err := json.Marshal(out)
	if err != nil { // never: they were JSON before
		return content
	}
	return all
}
