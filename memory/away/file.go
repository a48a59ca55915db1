package away

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/heardlog/heardlog/internal/event"
	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store/codec"
)

// FileBytes is the size of the file. It is written whole when it is made, so that a full disk does
// not keep turns from being kept.
const FileBytes = 8 << 20

// File keeps changes until they are stored: records one after the other, each with its length and
// checksum before it, and a length of 0 behind the last. An append is on disk when it returns.
type File struct {
	f       *os.File
	records []record // that were there when the file was opened

	mu sync.Mutex
	at int64
}

// record is one change, or, with Done, the note that all earlier ones of the agent are stored.
type record struct {
	Project  string `json:"project"`
	ID       string `json:"id"`
	Done     bool   `json:"done,omitempty"`
	NextSeq  int64  `json:"next_seq,omitempty"` // before the change
	Settled  bool   `json:"settled,omitempty"`
	Expected bool   `json:"expected,omitempty"` // the agent may have to be created

	Labels   map[string]string `json:"labels,omitempty"`
	Append   []codec.Message   `json:"append,omitempty"`
	Replace  []codec.Message   `json:"replace,omitempty"`
	Was      []int64           `json:"was,omitempty"` // the stored Rev of each of Replace
	Failures []memory.Event    `json:"failures,omitempty"`
}

// record returns the record of a change.
func (a *agent) record(next int64, c memory.Change, was []int64, settled bool) record {
	form := func(list []memory.Message) []codec.Message {
		out := make([]codec.Message, len(list))
		for i := range list {
			_ = out[i].Set(&list[i]) // what is not JSON is left out
		}
		return out
	}
	return record{
		Project: a.ref.Project, ID: a.ref.ID, NextSeq: next, Settled: settled, Expected: a.expected, Labels: a.labels,
		Append: form(c.Append), Replace: form(c.Replace), Was: was, Failures: failures(c.Events),
	}
}

func (r *record) change() memory.Change {
	value := func(list []codec.Message) (out []memory.Message) {
		for i := range list {
			out = append(out, list[i].Value())
		}
		return out
	}
	return memory.Change{Append: value(r.Append), Replace: value(r.Replace), Events: r.Failures}
}

// failures returns the events that are not made again when messages are stored.
func failures(list []memory.Event) (out []memory.Event) {
	for _, e := range list {
		if e.Type == event.Error {
			out = append(out, e)
		}
	}
	return out
}

// OpenFile opens the file at a path, or makes it, with its folder, and reads what it holds. It
// fails with fault.Unavailable if another process has it.
func OpenFile(path string) (*File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	l := &File{f: f}
	err = lock(f)
	if err != nil {
		err = fault.Wrap(fault.Unavailable, err, path+" is in use by another server")
	}
	if err == nil {
		err = l.read()
	}
	if err == nil {
		err = l.reserve()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return l, nil
}

// Close closes the file.
func (l *File) Close() error { return l.f.Close() }

// head is the length of what stands before a record, and the end behind the last.
const head = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (l *File) read() error {
	all, err := io.ReadAll(io.NewSectionReader(l.f, 0, FileBytes))
	if err != nil {
		return err
	}
	for b := all; len(b) >= head; {
		n := int(binary.LittleEndian.Uint32(b))
		if n == 0 || n > len(b)-head || crc32.Checksum(b[head:head+n], castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
			break // the end, or a record that was not written whole
		}
		var r record
		if err := json.Unmarshal(b[head:head+n], &r); err != nil {
			return fmt.Errorf("%s: the record at byte %d cannot be read: %w", l.f.Name(), l.at, err)
		}
		l.records = append(l.records, r)
		l.at += int64(head + n)
		b = b[head+n:]
	}
	return nil
}

// reserve makes the file as long as it may become.
func (l *File) reserve() error {
	st, err := l.f.Stat()
	if err != nil || st.Size() >= FileBytes {
		return err
	}
	from := max(l.at, st.Size())
	if _, err := io.Copy(io.NewOffsetWriter(l.f, from), io.LimitReader(zeros{}, FileBytes-from)); err != nil {
		return err
	}
	return l.f.Sync()
}

type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// errNoRoom refuses a record for which there is no room.
var errNoRoom = fmt.Errorf("the file for turns that wait for the store is full (%d MiB)", FileBytes>>20)

func (l *File) append(r record) error {
	var b bytes.Buffer
	b.Write(make([]byte, head))
	if err := json.NewEncoder(&b).Encode(r); err != nil {
		return err
	}
	n := b.Len() - head
	binary.LittleEndian.PutUint32(b.Bytes(), uint32(n))
	binary.LittleEndian.PutUint32(b.Bytes()[4:], crc32.Checksum(b.Bytes()[head:], castagnoli))
	b.Write(make([]byte, head)) // the end
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at+int64(b.Len()) > FileBytes {
		return errNoRoom
	}
	if _, err := l.f.WriteAt(b.Bytes(), l.at); err != nil {
		return err
	}
	if err := l.f.Sync(); err != nil {
		return err
	}
	l.at += int64(head + n)
	return nil
}

// reset empties the file. What a failure leaves is recognized as stored.
func (l *File) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.f.WriteAt(make([]byte, head), 0); err == nil {
		l.at = 0
		_ = l.f.Sync()
	}
}
