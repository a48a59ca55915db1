package responses

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

// conversationPrefix begins the IDs of conversations. The agent's ID follows.
const conversationPrefix = "conv_"

// ConversationID returns the ID of the conversation that an agent is.
func ConversationID(agent string) string { return conversationPrefix + agent }

// ConversationAgent returns the agent of a conversation, and whether the ID can be of one.
func ConversationAgent(id string) (agent string, ok bool) {
	agent, ok = strings.CutPrefix(id, conversationPrefix)
	return agent, ok && agent != ""
}

// Entry is a message of the ledger.
type Entry struct {
	Ref    Ref
	Role   string
	Parts  []byte // of its content, as chat completions have them; nil if it is a text
	CallID string // of a tool's result
	Answer Answer // what it says; the rest is set for an answer only
}

// Items returns the items that the message is: an answer may be several.
func (e Entry) Items() []*Item {
	switch e.Role {
	case "assistant":
		return Stored(e.Ref, e.Answer).Output
	case "tool":
		return []*Item{{ID: e.Ref.id("fco"), Type: "function_call_output", Status: completed, CallID: e.CallID, Output: &e.Answer.Text}}
	}
	return []*Item{{ID: e.Ref.id("msg"), Type: message, Status: completed, Role: e.Role, Content: e.parts()}}
}

// parts returns the content of a message that is not an answer: its texts and pictures.
func (e Entry) parts() []*Part {
	var in []struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		ImageURL struct {
			URL    string `json:"url"`
			Detail string `json:"detail"`
		} `json:"image_url"`
	}
	var out []*Part
	_ = json.Unmarshal(e.Parts, &in) // parts of another form are left out
	for _, p := range in {
		switch p.Type {
		case "text":
			out = append(out, &Part{Type: "input_text", Text: &p.Text})
		case "image_url":
			out = append(out, &Part{Type: "input_image", ImageURL: p.ImageURL.URL, Detail: cmp.Or(p.ImageURL.Detail, "auto")})
		}
	}
	if out == nil {
		out = []*Part{{Type: "input_text", Text: &e.Answer.Text}}
	}
	return out
}

// List is a page of items, as OpenAI's lists are.
type List struct {
	Object  string  `json:"object"`
	Data    []*Item `json:"data"`
	FirstID string  `json:"first_id"`
	LastID  string  `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

// NewList returns a page of at most limit of the items, of which there may be more.
func NewList(items []*Item, limit int) List {
	out := List{Object: "list", Data: items, HasMore: len(items) > limit}
	if out.HasMore {
		out.Data = items[:limit]
	}
	if len(out.Data) == 0 {
		out.Data = []*Item{}
		return out
	}
	out.FirstID, out.LastID = out.Data[0].ID, out.Data[len(out.Data)-1].ID
	return out
}

// Behind returns the items that come after the one with an ID, or all if it is not among them.
func Behind(items []*Item, id string) []*Item {
	return items[1+slices.IndexFunc(items, func(it *Item) bool { return it.ID == id }):]
}

// Conversation is a conversation.
type Conversation struct {
	ID        string            `json:"id"`
	Object    string            `json:"object"`     // conversation
	CreatedAt int64             `json:"created_at"` // Unix seconds
	Metadata  map[string]string `json:"metadata"`
}
