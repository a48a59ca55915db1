package memory

import (
	"bytes"
	"context"
	"encoding/json"
	"unicode/utf8"

	"github.com/heardlog/heardlog/internal/fault"
)

// ConversationStore keeps conversations: snapshots under names that their owner chose, apart from agents. memorytest.RunConversations is its full
// contract; methods are safe for concurrent use, and what one acknowledges is on disk, except in drivers that say otherwise. Every method fails with
// fault.Unavailable when the store is full, closed or failing, and with the context's cause when ctx ends first.
type ConversationStore interface {
	// SaveConversation stores body under the id, in the place of what stood there. A new one fails with fault.Quota when limit > 0 and the project
	// holds that many.
	SaveConversation(ctx context.Context, project, id string, body []byte, limit int) error
	// LoadConversation gives what was saved last, byte for byte; fault.NotFound if there is nothing.
	LoadConversation(ctx context.Context, project, id string) ([]byte, error)
	// DeleteConversation takes one away; one that is not there is no error.
	DeleteConversation(ctx context.Context, project, id string) error
	// ListConversations gives the first limit ids after the given one ("" = from the beginning) by code point, and how many the project holds in all.
	ListConversations(ctx context.Context, project, after string, limit int) (ids []string, total int, err error)
	// ClearConversations takes all of the project's away and gives their number. It does not make writers wait longer than for a few ms at a time;
	// one that is saved meanwhile may go or stay.
	ClearConversations(ctx context.Context, project string) (int, error)
}

// MaxConversationID is how long a conversation's id may be, in characters.
const MaxConversationID = 256

// Conversations is the rules of saved conversations (reference/memory-semantics.md, 001-30 to 001-35) over a store. They are kept until they are
// deleted: no agent's end and no retention touches them.
type Conversations struct {
	Store ConversationStore
	// Max is how many a project may hold; 0 = no limit.
	Max int
}

// Save stores a conversation, in the place of an earlier one of that id: an object with messages and a summary as it is, byte for byte, or a plain list, which
// becomes {"messages":list,"summary":null} so that every load has one form (001-31). Of the object only these two members are looked at; either may be
// missing, and what else it holds stays. Anything else is refused (001-34).
func (c Conversations) Save(ctx context.Context, project, id string, body []byte) error {
	if err := validConversationID(id); err != nil {
		return err
	}
	whole, err := conversationBody(body)
	if err != nil {
		return err
	}
	return c.Store.SaveConversation(ctx, project, id, whole, c.Max)
}

// Load gives a conversation as it was saved; an empty list where there is none (001-30).
func (c Conversations) Load(ctx context.Context, project, id string) ([]byte, error) {
	if err := validConversationID(id); err != nil {
		return nil, err
	}
	body, err := c.Store.LoadConversation(ctx, project, id)
	if fault.Is(err, fault.NotFound) {
		return []byte("[]"), nil
	}
	return body, err
}

// Delete takes a conversation away; one that is not there is no error (001-33).
func (c Conversations) Delete(ctx context.Context, project, id string) error {
	if err := validConversationID(id); err != nil {
		return err
	}
	return c.Store.DeleteConversation(ctx, project, id)
}

// List gives the ids after the given one by code point (001-33), and how many there are in all.
func (c Conversations) List(ctx context.Context, project, after string, limit int) (ids []string, total int, err error) {
	return c.Store.ListConversations(ctx, project, after, limit)
}

// Clear takes all conversations of a project away and gives their number.
func (c Conversations) Clear(ctx context.Context, project string) (int, error) {
	return c.Store.ClearConversations(ctx, project)
}

// TooManyConversations is the refusal of one more.
func TooManyConversations(limit int) error {
	return fault.New(fault.Quota, "the project holds %d conversations already, which is its limit; delete some, or save in the place of one", limit)
}

func validConversationID(id string) error { return validPathName("id", id, MaxConversationID) }

// validPathName refuses the names that no path can carry, and those that nobody could read.
func validPathName(field, name string, maxChars int) error {
	if name == "." || name == ".." {
		return fault.At(fault.Invalid, field, "%q is no %s, since paths lose it on their way", name, field)
	}
	return ValidName(field, name, maxChars)
}

// conversationBody gives what is stored of a body.
func conversationBody(body []byte) ([]byte, error) {
	trimmed := bytes.Trim(body, " \t\r\n")
	switch {
	case len(trimmed) == 0:
		return nil, fault.New(fault.BadRequest, "the body is empty; an object with messages and summary, or a list of messages, is wanted")
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
		return nil, fault.New(fault.BadRequest, "the body is neither an object nor a list; an object with messages and summary, or a list of messages, is wanted")
	}
	// By their exact names: encoding/json would take "Messages" for them too.
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, fault.Wrap(fault.BadRequest, err, "the body is not valid JSON")
	}
	if m, ok := members["messages"]; ok && m[0] != '[' {
		return nil, fault.At(fault.Invalid, "messages", "is not a list")
	}
	if m, ok := members["summary"]; ok && m[0] != '"' && string(m) != "null" {
		return nil, fault.At(fault.Invalid, "summary", "is neither a text nor null")
	}
	return body, nil
}
