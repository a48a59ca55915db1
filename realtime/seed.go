package realtime

import (
	"cmp"
	"context"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/heardlog/heardlog/internal/peek"
	"github.com/heardlog/heardlog/memory"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/memory/window"
)

// What a conversation begins with is limited beside the agent's policy: a realtime model remembers
// less than others, and audio takes most of it.
const (
	seedChars   = 24_000 // about 6,000 tokens
	seedItems   = 200
	seedTimeout = 3 * time.Second
	maxItemID   = 32 // characters that OpenAI takes
)

// content is one part of an item's content.
type content struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// seedItem is an item that is put into a conversation.
type seedItem struct {
	ID        string    `json:"id"`
	Type      string    `json:"type"`
	Role      string    `json:"role,omitempty"`
	Content   []content `json:"content,omitempty"`
	CallID    string    `json:"call_id,omitempty"`
	Name      string    `json:"name,omitempty"`
	Arguments string    `json:"arguments,omitempty"`
	Output    *string   `json:"output,omitempty"`
}

// begin puts the memory in front of the first thing that a client sends, unless it brings the
// conversation itself.
func (x *session) begin(ctx context.Context, first *event) {
	x.mu.Lock()
	done := x.seeded || x.rec.textOnly || x.rec.connection > 0
	x.seeded = true
	x.mu.Unlock()
	if done {
		return
	}
	up, err := x.upstream(ctx)
	if err != nil {
		return
	}
	for _, it := range x.memory(ctx, !x.resends(ctx, first)) {
		x.mu.Lock()
		x.hidden[it.ID] = ""
		x.mu.Unlock()
		if x.write(up, it.frame()) != nil {
			x.broken(up) // the next connection has it
			return
		}
	}
}

// seed is begin for a client that may send nothing.
func (x *session) seed(ctx context.Context) { x.begin(ctx, &event{}) }

// resends reports whether the first item of a client is one that the ledger has, or an answer: the
// client repeats a conversation.
func (x *session) resends(ctx context.Context, e *event) bool {
	if e.kind != itemCreate {
		return false
	}
	if e.item.At("role").Str() == string(memory.Assistant) {
		return true
	}
	if e.itemID == "" {
		return false
	}
	_, recent, err := x.cfg.Memory.Messages.Recent(ctx, x.call.Project, x.call.Agent, seedItems)
	if err != nil {
		return false
	}
	for i := range recent {
		if recent[i].ID == e.itemID {
			return true
		}
	}
	return false
}

// memory returns what the model is to know: of the caller, and of the call so far if said is set.
func (x *session) memory(ctx context.Context, said bool) (out []seedItem) {
	ctx, stop := context.WithTimeout(ctx, seedTimeout)
	defer stop()
	agent, err := x.cfg.Memory.Agents.Agent(ctx, x.call.Project, x.call.Agent)
	if err != nil {
		return nil
	}
	if x.cfg.Remember != nil {
		if b := x.cfg.Remember.Introduce(ctx, &agent); b.Text != "" {
			out = append(out, x.said("", memory.System, b.Text))
		}
	}
	if s := agent.Settings.Memory.Summary; s != "" {
		out = append(out, x.said("", memory.System, window.WithSummary("", s)))
	}
	if !said {
		return out
	}
	mem, err := x.cfg.Context.Context(ctx, x.call.Project, x.call.Agent, memctx.Request{WithoutSummary: true})
	if err != nil {
		x.cfg.Log.Warn().Err(err).Str("agent", x.call.Agent).Msg("a realtime call begins without its memory")
		return out
	}
	var items []seedItem
	for i := range mem.Messages {
		if m := &mem.Messages[i]; m.Stored != nil { // instructions are the client's
			items = append(items, x.items(m)...)
		}
	}
	return append(out, withinBudget(items)...)
}

// withinBudget returns the newest items that fit. Results of calls whose calls do not are left out.
func withinBudget(items []seedItem) []seedItem {
	chars, from := 0, len(items)
	for from > 0 && len(items)-from < seedItems {
		it := &items[from-1]
		for _, c := range it.Content {
			chars += utf8.RuneCountInString(c.Text)
		}
		if chars += len(it.Arguments); it.Output != nil {
			chars += len(*it.Output)
		}
		if chars > seedChars {
			break
		}
		from--
	}
	for from < len(items) && items[from].Type == "function_call_output" {
		from++
	}
	return items[from:]
}

// items returns a message as items.
func (x *session) items(m *memctx.Message) (out []seedItem) {
	id := m.Stored.ID
	if m.Role == memory.Tool {
		text := m.Text
		return []seedItem{{ID: x.itemID(id), Type: "function_call_output", CallID: m.ToolCallID, Output: &text}}
	}
	if m.Text != "" && (m.Role == memory.User || m.Role == memory.Assistant || m.Role.Instructs()) {
		out = append(out, x.said(id, m.Role, m.Text))
		id = ""
	}
	var calls []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	}
	if len(m.ToolCalls) > 0 && json.Unmarshal(m.ToolCalls, &calls) == nil {
		for _, c := range calls {
			out = append(out, seedItem{ID: x.itemID(id), Type: "function_call", CallID: c.ID, Name: c.Function.Name, Arguments: cmp.Or(c.Function.Arguments, "{}")})
			id = ""
		}
	}
	return out
}

// said returns an item with words.
func (x *session) said(id string, role memory.Role, text string) seedItem {
	kind := "input_text"
	switch {
	case role == memory.Developer:
		role = memory.System
	case role == memory.Assistant && x.call.Upstream.Beta:
		kind = "text"
	case role == memory.Assistant:
		kind = "output_text"
	}
	return seedItem{ID: x.itemID(id), Type: "message", Role: string(role), Content: []content{{kind, text}}}
}

// itemID returns the ID for an item: the one by which the client knows it, or a new one.
func (x *session) itemID(id string) string {
	if id == "" || len(id) > maxItemID {
		return newID()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.rec.older[id] == nil || x.rec.gone[id] {
		return newID()
	}
	return id
}

// frame returns the event that creates the item.
func (i seedItem) frame() []byte {
	raw, err := json.Marshal(struct {
		Type    string   `json:"type"`
		EventID string   `json:"event_id"`
		Item    seedItem `json:"item"`
	}{itemCreate, newID(), i})
	if err != nil {
		return nil
	}
	return raw
}

// write sends a frame of ours to the model's server, or nothing for nil.
func (x *session) write(up *websocket.Conn, frame []byte) error {
	if frame == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(x.io, writeTimeout)
	defer stop()
	return up.Write(ctx, websocket.MessageText, frame)
}

// keep adds to the settings that every connection begins with.
func (x *session) keep(sessionObject []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.settings.merge(peek.Parse(sessionObject))
	e := event{session: peek.Parse(sessionObject)}
	x.rec.session(e.session)
}
