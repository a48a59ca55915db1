package ingest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/heardlog/heardlog/memory"
)

// Notice is what one notification reports about an agent. A zero field reports nothing.
type Notice struct {
	ID              string // noticeId
	AgentID         string
	Name, Channel   string
	Labels          map[string]string
	StartMS, StopMS int64 // Unix ms
	// ToldMS is when the notification was first sent, Unix ms.
	ToldMS int64
	Left   *memory.ArchiveEnd
	// History is the agent's memory, oldest message first. Role, Content, Parts, Metadata and the
	// tool fields are always set; TurnID (with GivenTurn), Timestamp, Source, Interrupted,
	// InterruptMS and Generated only if the notification has them. Generated of an interrupted
	// message is the whole generated text, also if that equals Content.
	History []memory.Message
	Turns   []memory.ArchiveTurn
	Errors  []memory.ArchiveError
	// Hosted is set if the notice is the report of a call that is over, by a hosted platform. Its
	// History is complete: nothing is derived for it. User is the caller, and Key finds the call.
	Hosted    *memory.HostedCall
	User, Key string
}

// Fields that a message of a history may have; the bits of memory.Archive.Told.
const (
	hasTime = 1 << iota
	hasSource
	hasCut
	hasCutTime
	hasGenerated
	hasTurn
)

// fieldsOf returns which fields a message of a notice has.
func fieldsOf(m *memory.Message) (bits byte) {
	for bit, has := range map[byte]bool{
		hasTime: m.Timestamp != 0, hasSource: m.Source != "", hasCut: m.Interrupted, hasCutTime: m.InterruptMS != 0,
		hasGenerated: m.Interrupted && m.Generated != "", hasTurn: m.GivenTurn,
	} {
		if has {
			bits |= bit
		}
	}
	return bits
}

// digestOf returns a hash of a history.
func digestOf(msgs []memory.Message) string {
	h := sha256.New()
	enc := json.NewEncoder(h)
	for i := range msgs {
		_ = enc.Encode(msgs[i]) // texts and raw JSON that was decoded before always encode
		h.Write([]byte{fieldsOf(&msgs[i])})
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
