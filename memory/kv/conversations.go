package kv

import (
	"bytes"
	"context"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
)

// MaxConversationID is how long the ID of a conversation may be, in characters.
const MaxConversationID = 256

// Conversations holds the rules of saved conversations over a store. A conversation is kept until
// it is deleted: no agent's end and no retention touches it.
type Conversations struct {
	Store Store
	// Max is how many a project may hold; 0 = no limit.
	Max int
	Now func() time.Time
}

// Save stores a conversation and replaces an earlier one of that ID. The body is an object with
// messages and a summary, which is kept byte for byte, or a plain list, which becomes
// {"messages":list,"summary":null} so that every load has one form. Only these two members of the
// object are checked; either may be missing, and other members stay. Anything else is refused.
func (c Conversations) Save(ctx context.Context, project, id string, body []byte) error {
	if err := validKey("id", id, MaxConversationID); err != nil {
		return err
	}
	whole, err := conversationBody(body)
	if err != nil {
		return err
	}
	return Put(ctx, c.Store, Space{Project: project}, Entry{Key: id, Value: whole, UpdatedMS: c.Now().UnixMilli(), ExpiresMS: Never}, Limit{Keys: c.Max}, 0)
}

// Load returns a conversation as it was saved. It returns fault.NotFound if there is none.
func (c Conversations) Load(ctx context.Context, project, id string) ([]byte, error) {
	if err := validKey("id", id, MaxConversationID); err != nil {
		return nil, err
	}
	e, err := Get(ctx, c.Store, Space{Project: project}, id, 0)
	if fault.Is(err, fault.NotFound) {
		return nil, fault.At(fault.NotFound, "id", "there is no conversation %q", id)
	}
	return e.Value, err
}

// Delete deletes a conversation. It is not an error if there is none.
func (c Conversations) Delete(ctx context.Context, project, id string) error {
	if err := validKey("id", id, MaxConversationID); err != nil {
		return err
	}
	_, err := c.Store.DeleteKey(ctx, Space{Project: project}, id, 0)
	return err
}

// List returns the IDs after the given one by code point, and how many there are in all.
func (c Conversations) List(ctx context.Context, project, after string, limit int) (ids []string, total int, err error) {
	page, err := c.Store.ListKeys(ctx, Space{Project: project}, after, limit, 0)
	for _, k := range page.Keys {
		ids = append(ids, k.Key)
	}
	return ids, page.Total, err
}

// Clear deletes all conversations of a project and returns how many there were.
func (c Conversations) Clear(ctx context.Context, project string) (int, error) {
	return c.Store.ClearKeys(ctx, Space{Project: project}, 0)
}

// conversationBody returns what is stored of a body.
func conversationBody(body []byte) ([]byte, error) {
	trimmed := bytes.Trim(body, " \t\r\n")
	switch {
	case len(trimmed) == 0:
		return nil, fault.New(fault.BadRequest, "the body must be an object with messages and summary, or a list of messages, not empty")
	case !utf8.Valid(body):
		return nil, fault.New(fault.BadRequest, "the body is not valid UTF-8, so that it could not be given back as it came")
	case !json.Valid(body):
		var v any
		return nil, fault.Wrap(fault.BadRequest, json.Unmarshal(body, &v), "the body is not valid JSON")
	}
	switch trimmed[0] {
	case '[':
		out := make([]byte, 0, len(trimmed)+32)
		out = append(append(out, `{"messages":`...), trimmed...)
		return append(out, `,"summary":null}`...), nil
	case '{':
	default:
		return nil, fault.New(fault.BadRequest, "the body must be an object with messages and summary, or a list of messages")
	}
	// By their exact names: encoding/json would match "Messages" too.
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, fault.Wrap(fault.BadRequest, err, "the body is not valid JSON")
	}
	if m, ok := members["messages"]; ok && m[0] != '[' {
		return nil, fault.At(fault.Invalid, "messages", "must be a list")
	}
	if m, ok := members["summary"]; ok && m[0] != '"' && string(m) != "null" {
		return nil, fault.At(fault.Invalid, "summary", "is neither a text nor null")
	}
	return body, nil
}
