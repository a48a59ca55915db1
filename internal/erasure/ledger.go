package erasure

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heardlog/heardlog/internal/blob"
	"github.com/heardlog/heardlog/internal/fault"
)

// Kind is what an erasure erases.
type Kind string

// The kinds.
const (
	OfAgent   Kind = "agent"
	OfUser    Kind = "user"
	OfProject Kind = "project"
)

// State is how far an erasure is in the ledger.
type State string

// The states. An erasure that is asked for becomes done, or leaves the ledger if it is refused.
const (
	Asked State = "asked"
	Done  State = "done"
)

// Entry is an erasure as the ledger has it. It holds IDs and numbers, and no name of a caller.
type Entry struct {
	ID      string   `json:"id"` // UUIDv7
	Project string   `json:"project"`
	Kind    Kind     `json:"kind"`
	State   State    `json:"state"`
	AskedMS int64    `json:"asked_ms"`           // Unix ms
	DoneMS  int64    `json:"done_ms,omitempty"`  // 0 until it is done
	By      string   `json:"by,omitempty"`       // the name or ID of the API key; "" without one
	AgentID string   `json:"agent_id,omitempty"` // of an agent
	Key     string   `json:"key,omitempty"`      // of a user: the ID of the ledger's key that made Names
	Names   []Hash   `json:"names,omitempty"`    // of a user: its name and aliases
	Erased  Counts   `json:"erased"`             // by the first run
	Shared  []string `json:"shared,omitempty"`   // agents that were kept, since others spoke there
	SharedN int      `json:"shared_n,omitempty"`
	// Offline is set if a command erased, which does not reach the provider of keys and values.
	Offline bool `json:"offline,omitempty"`
	// Unfinished is set if the server stopped during the erasure and finished it at its next start:
	// Erased lacks what was erased before.
	Unfinished bool `json:"unfinished,omitempty"`
}

// Hash stands for a name: its HMAC-SHA-256, of which 16 bytes are kept, in hex.
type Hash string

// Counts are numbers of what was erased. Those that a kind does not have are nil.
type Counts struct {
	Agents        int  `json:"agents"`
	Memories      int  `json:"memories"`
	Records       int  `json:"records"`
	Aliases       *int `json:"aliases,omitempty"` // of a user
	Conversations *int `json:"conversations,omitempty"`
	Keys          *int `json:"keys,omitempty"` // of namespaces
	Endpoints     *int `json:"endpoints,omitempty"`
}

// any reports whether something was erased.
func (c *Counts) any() bool {
	n := c.Agents + c.Memories + c.Records
	for _, more := range []*int{c.Aliases, c.Conversations, c.Keys, c.Endpoints} {
		if more != nil {
			n += *more
		}
	}
	return n > 0
}

// untilMS returns the time up to which what began or was stored is meant: the end of an erasure
// that went through, which takes what comes meanwhile, or the start of one that Apply has to do.
func (e *Entry) untilMS() int64 {
	if e.State == Done && !e.Unfinished {
		return e.DoneMS
	}
	return e.AskedMS
}

// name returns the name of the entry's object.
func (e *Entry) name() string { return e.Project + "/" + e.ID }

// Ledger keeps the erasures of all projects outside of the database, one object each, in a folder
// or a bucket. Its methods are safe for concurrent use, on several servers too.
type Ledger struct {
	place blob.Store

	mu   sync.Mutex // guards keys and current
	keys map[string][]byte
	// current is the ID of the key of new entries.
	current string
}

// NewLedger returns the ledger in a place.
func NewLedger(place blob.Store) *Ledger { return &Ledger{place: place, keys: map[string][]byte{}} }

// String returns the place, without secrets.
func (l *Ledger) String() string { return l.place.String() }

const (
	// keyPrefix begins the names of objects with keys. They stand beside the projects.
	keyPrefix = "key-"
	keyBytes  = 32
	idLen     = 36 // of a UUID
	// maxObject is how many bytes an object may have.
	maxObject = 1 << 20
	// objectTime is how long one object may take.
	objectTime = 30 * time.Second
)

// ErrLedger is in the chain of the error of a ledger that cannot be used.
var ErrLedger = errors.New("the ledger cannot be used")

// fail returns such an error.
func (l *Ledger) fail(err error, what string) error {
	return fault.Wrap(fault.Unavailable, ledgerError{fmt.Errorf("%s in the ledger of erasures %s: %w", what, l, err)}, "the ledger of erasures cannot be used; see HEARDLOG_ERASURES")
}

type ledgerError struct{ error }

// Unwrap returns the cause and ErrLedger.
func (e ledgerError) Unwrap() []error { return []error{e.error, ErrLedger} }

// put writes an entry, durably. It replaces an earlier state.
func (l *Ledger) put(ctx context.Context, e *Entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, objectTime)
	defer cancel()
	if err := l.place.PutBytes(ctx, e.name(), b); err != nil {
		return l.fail(err, "write "+e.ID)
	}
	return nil
}

// remove takes an entry away.
func (l *Ledger) remove(ctx context.Context, e *Entry) error {
	ctx, cancel := context.WithTimeout(ctx, objectTime)
	defer cancel()
	if err := l.place.Remove(ctx, e.name()); err != nil {
		return l.fail(err, "remove "+e.ID)
	}
	return nil
}

// get reads the entry of an object, or returns fault.NotFound.
func (l *Ledger) get(ctx context.Context, name string) (e Entry, err error) {
	b, err := l.read(ctx, name)
	if errors.Is(err, blob.ErrNone) {
		return e, fault.New(fault.NotFound, "there is no erasure %q", name)
	}
	if err == nil {
		if err = json.Unmarshal(b, &e); err == nil && e.name() != name && !strings.EqualFold(e.name(), name) {
			err = fmt.Errorf("it is the entry of %s", e.name())
		}
	}
	if err != nil {
		return e, l.fail(err, "read "+name)
	}
	return e, nil
}

func (l *Ledger) read(ctx context.Context, name string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, objectTime)
	defer cancel()
	r, err := l.place.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, maxObject+1))
	if err = errors.Join(err, r.Close()); err == nil && len(b) > maxObject {
		err = fmt.Errorf("it has more than %d bytes", maxObject)
	}
	return b, err
}

// names returns the names of the objects of all entries.
func (l *Ledger) names(ctx context.Context) (names []string, err error) {
	err = l.place.Each(ctx, func(name string) error {
		if _, id, _ := strings.Cut(name, "/"); len(id) == idLen { // others are not ours
			names = append(names, name)
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a folder is made with its first entry
		return nil, l.fail(err, "list the entries")
	}
	slices.Sort(names)
	return names, nil
}

// Empty reports whether the ledger has no entry.
func (l *Ledger) Empty(ctx context.Context) (bool, error) {
	names, err := l.names(ctx)
	return len(names) == 0, err
}

// hash returns the hashes of names, and the ID of the key that made them.
func (l *Ledger) hash(ctx context.Context, names []string) (key string, out []Hash, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == "" {
		if err := l.load(ctx); err != nil {
			return "", nil, err
		}
	}
	if l.current == "" {
		// Another server may do the same: then there are two keys, and both are good.
		id, value := rand.Text(), make([]byte, keyBytes)
		_, _ = rand.Read(value) // never fails
		if err := l.place.PutBytes(ctx, keyPrefix+id, []byte(hex.EncodeToString(value))); err != nil {
			return "", nil, l.fail(err, "write a key")
		}
		l.keys[id], l.current = value, id
	}
	for _, n := range names {
		out = append(out, hash(l.keys[l.current], n))
	}
	return l.current, out, nil
}

// load reads the keys.
func (l *Ledger) load(ctx context.Context) error {
	list, err := l.place.List(ctx, keyPrefix)
	if err != nil {
		return l.fail(err, "list the keys")
	}
	for _, name := range list {
		id := strings.TrimPrefix(name, keyPrefix)
		if l.keys[id] != nil {
			continue
		}
		b, err := l.read(ctx, name)
		if err == nil {
			b, err = hex.DecodeString(strings.TrimSpace(string(b)))
		}
		if err == nil && len(b) != keyBytes {
			err = fmt.Errorf("it has %d bytes and not %d", len(b), keyBytes)
		}
		if err != nil {
			return l.fail(err, "read "+name)
		}
		l.keys[id] = b
		if l.current == "" {
			l.current = id
		}
	}
	return nil
}

// allKeys returns the keys by their IDs.
func (l *Ledger) allKeys(ctx context.Context) (map[string][]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.load(ctx); err != nil {
		return nil, err
	}
	out := make(map[string][]byte, len(l.keys))
	for id, key := range l.keys {
		out[id] = key
	}
	return out, nil
}

func hash(key []byte, name string) Hash {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(name))
	return Hash(hex.EncodeToString(h.Sum(nil)[:16]))
}

// Copy copies what another ledger has and this one lacks.
func (l *Ledger) Copy(ctx context.Context, from *Ledger) (entries int, err error) {
	if l.String() == from.String() {
		return 0, nil
	}
	keys, err := from.place.List(ctx, keyPrefix)
	if err != nil {
		return 0, from.fail(err, "list the keys")
	}
	names, err := from.names(ctx)
	if err != nil {
		return 0, err
	}
	there, err := l.names(ctx)
	if err != nil {
		return 0, err
	}
	for _, name := range append(keys, names...) { // an entry needs its key
		if _, has := slices.BinarySearch(there, name); has {
			continue
		}
		b, err := from.read(ctx, name)
		if err != nil {
			return entries, from.fail(err, "read "+name)
		}
		if err := l.place.PutBytes(ctx, name, b); err != nil {
			return entries, l.fail(err, "write "+name)
		}
		if strings.Contains(name, "/") {
			entries++
		}
	}
	return entries, nil
}

// Check writes a small object, reads it back and deletes it.
func (l *Ledger) Check(ctx context.Context) error {
	name, text := "check-"+rand.Text(), rand.Text()
	if err := l.place.PutBytes(ctx, name, []byte(text)); err != nil {
		return l.fail(err, "write")
	}
	b, err := l.read(ctx, name)
	if err == nil && string(b) != text {
		err = errors.New("what was read back is not what was written")
	}
	if err != nil {
		return l.fail(err, "read")
	}
	return l.place.Remove(ctx, name)
}
