package agents

import "github.com/heardlog/heardlog/memory"

// Quota limits what a project may store. Its methods must not block.
type Quota interface {
	// Room fails with fault.Quota if the project may not store that much more.
	Room(project string, messages int, bytes int64) error
	// Stored counts messages that were stored.
	Stored(project string, messages int, bytes int64)
}

type noQuota struct{}

func (noQuota) Room(string, int, int64) error { return nil }

func (noQuota) Stored(string, int, int64) {}

// encodedExtra is about how much the encoding of a message adds to its texts, in bytes.
const encodedExtra = 100

// bytesOf returns about how much the encodings of messages take.
func bytesOf(list []memory.Message) (n int64) {
	for i := range list {
		m := &list[i]
		n += int64(encodedExtra + len(m.Content) + len(m.Parts) + len(m.ToolCalls) + len(m.Made().Members))
	}
	return n
}
