package export

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	"github.com/heardlog/heardlog/internal/fault"
)

// reader reads the records of an export. Lines are read and decoded ahead, on all processors, and
// come in their order. Its user calls close.
type reader struct {
	in    *bufio.Reader
	wants func(line []byte) bool // which lines are decoded; nil = all. Others are empty records.
	hash  hash.Hash
	n     int64  // lines so far
	raw   []byte // the last line, with its end
	agent *Agent
	last  int64 // the highest ID that a delivery may have

	block  *block // that is being returned
	blocks chan *block
	stop   chan struct{}
	ahead  sync.WaitGroup
}

// block is some lines, decoded when done is closed.
type block struct {
	lines   [][]byte
	records []decoded
	err     error // behind the last line
	over    bool  // whether err is that nothing follows
	done    chan struct{}
}

type decoded struct {
	Record
	end *End
	err error
}

// Limits of a block, and how many are read ahead.
const (
	blockLines  = 256
	blockBytes  = 256 << 10
	blocksAhead = 16
)

// newReader reads the first line. wants may be nil.
func newReader(r io.Reader, wants func(line []byte) bool) (*reader, Header, error) {
	in := &reader{in: bufio.NewReaderSize(r, 1<<20), wants: wants, hash: sha256.New()}
	b, err := in.line(0)
	if err != nil {
		return nil, Header{}, err
	}
	var h Header
	if err := json.Unmarshal(b, &h); err != nil || h.Version == 0 {
		return nil, h, fault.New(fault.Invalid, "line 1 is not the first of an export, which begins with {\"heardlog_export\":%d", Version)
	}
	if h.Version > Version {
		return nil, h, fault.New(fault.Invalid, "the export has version %d and this program reads up to %d: it was written by a newer one", h.Version, Version)
	}
	if h.LastDelivery < 0 {
		return nil, h, fault.New(fault.Invalid, "line 1: last_delivery is negative")
	}
	in.hash.Write(b)
	in.n, in.last = 1, h.LastDelivery
	in.block, in.blocks, in.stop = &block{}, make(chan *block, blocksAhead), make(chan struct{})
	in.ahead.Go(in.readAhead)
	return in, h, nil
}

// close ends the reading ahead.
func (r *reader) close() {
	close(r.stop)
	r.ahead.Wait()
}

// line reads the line behind n others, with its end. If the export ends before that, it returns
// what there is of the line.
func (r *reader) line(n int64) ([]byte, error) {
	var out []byte
	for {
		b, err := r.in.ReadSlice('\n')
		if len(out)+len(b) > MaxLine {
			return nil, fault.New(fault.TooLarge, "line %d is longer than %d bytes", n+1, MaxLine)
		}
		out = append(out, b...)
		switch {
		case err == nil:
			return out, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return out, fault.New(fault.Invalid, "the export ends in the middle, behind line %d: its last line is missing", n)
		default:
			return nil, err
		}
	}
}

// readAhead reads blocks until one has an error behind it.
func (r *reader) readAhead() {
	for n, more := r.n, true; more; {
		b := &block{done: make(chan struct{})}
		for size := 0; more && len(b.lines) < blockLines && size < blockBytes; n++ {
			var one []byte
			one, b.err = r.line(n)
			if more = b.err == nil; more {
				b.lines, size = append(b.lines, one), size+len(one)
			} else {
				_, err := r.in.Peek(1)
				b.over = len(one) == 0 && errors.Is(err, io.EOF)
			}
		}
		r.ahead.Go(func() { b.decode(r.wants) })
		select {
		case r.blocks <- b:
		case <-r.stop:
			return
		}
	}
}

func (b *block) decode(wants func(line []byte) bool) {
	defer close(b.done)
	b.records = make([]decoded, len(b.lines))
	for i, line := range b.lines {
		if d := &b.records[i]; wants == nil || wants(line) {
			d.Record, d.end, d.err = decode(line)
		}
	}
}

// fill waits for the next record, unless there is one in the block, or an error behind it.
func (r *reader) fill() {
	for len(r.block.records) == 0 && r.block.err == nil {
		r.block = <-r.blocks
		<-r.block.done
	}
}

// next reads a record. At the last line it checks that line and sets end.
func (r *reader) next() (rec Record, size int, end *End, err error) {
	if r.fill(); len(r.block.records) == 0 {
		return rec, 0, nil, r.block.err
	}
	before := r.n
	d, b := r.block.records[0], r.block.lines[0]
	r.block.records, r.block.lines = r.block.records[1:], r.block.lines[1:]
	r.n, r.raw = r.n+1, b
	rec, end, err = d.Record, d.end, d.err
	if m := rec.Message; m != nil && err == nil {
		if r.agent == nil {
			err = errors.New("is a message in front of every agent")
		} else {
			m.Project, m.AgentID = r.agent.Project, r.agent.ID
		}
	}
	if err != nil {
		return rec, 0, nil, fault.Wrap(fault.Invalid, err, fmt.Sprintf("line %d cannot be read", r.n))
	}
	if d := rec.Delivery; d != nil && (d.ID < 1 || d.ID > r.last || d.ReplayOf < 0 || d.ReplayOf > r.last) {
		return rec, 0, nil, fault.New(fault.Invalid, "line %d: the delivery's id or replay_of is not from 1 to last_delivery, %d", r.n, r.last)
	}
	if end == nil {
		r.hash.Write(b)
		if rec.Agent != nil {
			r.agent = rec.Agent
		}
		return rec, len(b), nil, nil
	}
	if sum := hex.EncodeToString(r.hash.Sum(nil)); end.Lines != before || end.SHA256 != sum {
		return rec, 0, nil, fault.New(fault.Invalid, "the checksum does not fit: the export was changed or damaged (%d lines were written and %d read)", end.Lines, before)
	}
	if r.fill(); len(r.block.records) > 0 || !r.block.over {
		return rec, 0, nil, fault.New(fault.Invalid, "something follows the last line")
	}
	return rec, 0, end, nil
}
