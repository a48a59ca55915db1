package archive

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/store/export"
)

// Call is what is moved of a call: all its messages, by Seq, and the bodies of its events.
type Call struct {
	Agent    memory.Agent
	Messages []memory.Message
	Events   []memory.Event
	bytes    int64 // of the export
}

// Export implements export.Source: the call as an export of its own.
func (c *Call) Export(_ context.Context, _ export.Scope, each func(export.Record) error) error {
	a := export.Agent{Agent: c.Agent, NextSeq: 1, LastTurn: -1}
	for i := range c.Messages {
		m := &c.Messages[i]
		a.HeadRev, a.NextSeq, a.LastTurn = max(a.HeadRev, m.Rev), max(a.NextSeq, m.Seq+1, m.AnswerSeq+1), max(a.LastTurn, m.TurnID)
	}
	list := []export.Record{{Start: &export.Start{}}, {Agent: &a}}
	for i := range c.Messages {
		list = append(list, export.Record{Message: &export.Message{Project: a.Project, AgentID: a.ID, Message: c.Messages[i]}})
	}
	for _, e := range c.Events {
		list = append(list, export.Record{Event: &export.Event{ID: e.ID, Project: a.Project, AgentID: a.ID, Type: e.Type, CreatedMS: e.CreatedMS, Body: e.Body}})
	}
	for _, r := range list {
		if err := each(r); err != nil {
			return err
		}
	}
	return nil
}

// magic begins every object. The rest is an export of one call, compressed with zstd and then
// sealed with AES-256-GCM. The key is used for this object alone, so its nonce is zero.
const magic = "heardlog call 1\n"

// MaxCall is how many bytes an unpacked object may have.
const MaxCall = 64 << 20

// maxObject is how many bytes an object may have: little more than what is in it.
const maxObject = MaxCall + 1<<20

var errNoCall = errors.New("it is not a call")

var errDamaged = errors.New("its bytes are not those that were written")

var (
	packer = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	})
	unpacker = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(MaxCall))
	})
)

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// owner is authenticated with an object, so that it cannot stand in for that of another call.
func owner(ref memory.Ref) []byte { return []byte("call " + ref.Project + "\x00" + ref.ID) }

// encode returns the object of a call, and where it is to be found.
func encode(ctx context.Context, no int64, c *Call) ([]byte, memory.Cold, error) {
	var cold memory.Cold
	var plain bytes.Buffer
	if _, err := export.Write(ctx, &plain, c, export.Scope{Project: c.Agent.Project, Agent: c.Agent.ID}, false, nil); err != nil {
		return nil, cold, err
	}
	if plain.Len() > MaxCall {
		return nil, cold, errTooLarge
	}
	enc, err := packer()
	if err != nil {
		return nil, cold, err
	}
	packed := enc.EncodeAll(plain.Bytes(), nil)
	cold.Key = make([]byte, 32)
	rand.Read(cold.Key) // never fails
	seal, err := newAEAD(cold.Key)
	if err != nil {
		return nil, cold, err
	}
	object := seal.Seal([]byte(magic), make([]byte, seal.NonceSize()), packed, owner(c.Agent.Ref()))
	cold.Object, cold.Bytes, cold.Messages = nameOf(no, c.Agent.StopMS, object), int64(len(object)), len(c.Messages)
	return object, cold, nil
}

// nameOf returns the name of an object: the day on which the call ended, the number of the agent,
// and the first half of the SHA-256 of its bytes.
func nameOf(no, stopMS int64, object []byte) string {
	return fmt.Sprintf("%s/%d-%s", time.UnixMilli(stopMS).UTC().Format(time.DateOnly), no, digest(object))
}

func digest(object []byte) string {
	sum := sha256.Sum256(object)
	return hex.EncodeToString(sum[:16])
}

// check returns an error if an object has other bytes than its name says.
func check(name string, object []byte) error {
	if _, want, ok := strings.Cut(name, "-"); !ok || !strings.HasSuffix(want, digest(object)) {
		return errDamaged
	}
	return nil
}

// decode returns the call in an object that encode made.
func decode(ref memory.Ref, cold *memory.Cold, object []byte) (*Call, error) {
	if err := check(cold.Object, object); err != nil {
		return nil, err
	}
	sealed, ok := bytes.CutPrefix(object, []byte(magic))
	if !ok {
		return nil, errNoCall
	}
	open, err := newAEAD(cold.Key)
	if err != nil {
		return nil, err
	}
	packed, err := open.Open(nil, make([]byte, open.NonceSize()), sealed, owner(ref))
	if err != nil {
		return nil, errors.New("it cannot be decrypted with the key of the call")
	}
	dec, err := unpacker()
	if err != nil {
		return nil, err
	}
	plain, err := dec.DecodeAll(packed, nil)
	if err != nil {
		return nil, err
	}
	c := &Call{bytes: int64(len(plain))}
	err = export.Records(plain, func(r export.Record) error {
		switch {
		case r.Agent != nil:
			c.Agent = r.Agent.Agent
		case r.Message != nil:
			c.Messages = append(c.Messages, r.Message.Message)
		case r.Event != nil:
			e := r.Event
			c.Events = append(c.Events, memory.Event{ID: e.ID, Type: e.Type, CreatedMS: e.CreatedMS, Body: e.Body})
		}
		return nil
	})
	if err == nil && len(c.Messages) != cold.Messages {
		err = fmt.Errorf("it has %d messages, and the call has %d", len(c.Messages), cold.Messages)
	}
	return c, err
}

// same returns an error unless both calls would be stored as the same rows.
func same(a, b *Call) error {
	if len(a.Messages) != len(b.Messages) || len(a.Events) != len(b.Events) {
		return errDamaged
	}
	for i := range a.Messages {
		m, n := &a.Messages[i], &b.Messages[i]
		one, err := codec.EncodeMessage(m)
		if err != nil {
			return err
		}
		other, err := codec.EncodeMessage(n)
		if err != nil {
			return err
		}
		if one != other || m.Seq != n.Seq || m.Rev != n.Rev || m.TurnID != n.TurnID || m.ID != n.ID {
			return fmt.Errorf("message %d would come back changed", m.Seq)
		}
	}
	for i := range a.Events {
		if e, f := &a.Events[i], &b.Events[i]; e.ID != f.ID || !bytes.Equal(e.Body, f.Body) {
			return fmt.Errorf("event %s would come back changed", e.ID)
		}
	}
	return nil
}

// page returns what Store.Page returns of the messages.
func (c *Call) page(q memory.MessageQuery) (out []memory.Message) {
	ids := make(map[string]bool, len(q.IDs))
	for _, id := range q.IDs {
		ids[id] = true
	}
	from, size := 0, int64(0)
	if len(ids) == 0 && q.Turn == nil {
		from = sort.Search(len(c.Messages), func(i int) bool { return c.Messages[i].Seq > q.AfterSeq })
	}
	for i := from; i < len(c.Messages); i++ {
		m := &c.Messages[i]
		switch {
		case len(ids) > 0:
			if !ids[m.ID] {
				continue
			}
		case q.Turn != nil:
			if m.TurnID != *q.Turn {
				continue
			}
		case m.Rev <= q.AfterRev || q.HistoryOnly && !m.InHistory():
			continue
		}
		out = append(out, *m)
		if len(ids) == 0 && q.Turn == nil {
			size += m.Bytes()
			if len(out) == max(q.Limit, 1) || q.Bytes > 0 && size >= q.Bytes {
				break
			}
		}
	}
	return out
}

// body returns the body of an event.
func (c *Call) body(id string) ([]byte, bool) {
	for i := range c.Events {
		if c.Events[i].ID == id {
			return c.Events[i].Body, true
		}
	}
	return nil, false
}
