package memory

import (
	"context"
	"errors"
)

// Cold is the place of a call's messages in an archive: the object into which their rows have moved
// out of the store. The bodies of the call's events are there too. Everything else about the call
// stays in the store.
type Cold struct {
	// Object is the name of the object. It holds the SHA-256 of its bytes.
	Object string `json:"object"`
	// Key decrypts the object. No other copy of it exists: without it, the object is unreadable.
	Key []byte `json:"key"`
	// Bytes is the length of the object, Messages how many messages are in it.
	Bytes    int64 `json:"bytes"`
	Messages int   `json:"messages"`
}

// Move takes the rows of a call that has ended out of the store, or brings them back.
type Move struct {
	Ref
	Version // that the agent must have
	// Private is the encoding of the agent's settings after the move (package codec), with or
	// without Cold. The store seals it.
	Private []byte
	// Object is the name of the object that the rows are in.
	Object string
	// Messages is how many the call has. Append and Bodies are these messages and their encoded
	// bodies, if they come back.
	Messages int
	Append   []Message
	Bodies   []string
	// User is the caller of the agent, "" if it is not known.
	User string
	// Events are the events whose bodies are in the object, with ID, and with Body if they come
	// back.
	Events []Event
}

// EndedCall is a call that has ended, as an archive looks for calls.
type EndedCall struct {
	Ref
	No     int64
	StopMS int64
	Cold   bool // its rows are in an object
	Waits  bool // deliveries about it are pending
}

// ColdObject is an object of an archive, and the number of the agent for which it was made.
type ColdObject struct {
	No   int64
	Name string
}

// ColdStore is the part of a Store by which calls move into objects of an archive. The store notes
// the name of each object before it is written, so that no object is ever forgotten: it belongs to
// a call, or Unneeded returns it.
type ColdStore interface {
	// EndedCalls returns calls that ended before a time, in the order of StopMS and No after the
	// given ones, at most limit. It returns none while an import is unfinished: agents are there
	// before their messages.
	EndedCalls(ctx context.Context, beforeMS, afterMS, afterNo int64, limit int) ([]EndedCall, error)
	// NoteObject notes that an object is about to be written. nowMS is above 0.
	NoteObject(ctx context.Context, o ColdObject, nowMS int64) error
	// Freeze deletes the messages of a call and the bodies of m.Events, in one transaction. From
	// then on the call has the settings of the move. It returns ErrStale, and changes nothing, if
	// the agent does not have the version or has another number of messages, or if the object is
	// not noted or unneeded. After any error the transaction may have been committed all the same.
	Freeze(ctx context.Context, m Move) error
	// Thaw is the reverse of Freeze: afterwards the object is unneeded. It returns ErrStale, and
	// changes nothing, if the agent does not have the version.
	Thaw(ctx context.Context, m Move) error
	// Unneeded returns objects that no call can use any more: of calls that came back or were
	// erased, and those noted before a time that no call has taken. At most limit.
	Unneeded(ctx context.Context, beforeMS int64, limit int) ([]ColdObject, error)
	// ForgetObject forgets an object that Unneeded has returned and that has been deleted.
	ForgetObject(ctx context.Context, o ColdObject) error
}

// ErrArchive is part of every error of an archive that cannot be read. The store itself works.
var ErrArchive = errors.New("an archive cannot be read")
