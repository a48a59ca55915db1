package export

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// reader reads the lines of an export.
type reader struct {
	in    *bufio.Reader
	hash  hash.Hash
	n     int64  // lines so far
	raw   []byte // the last line, with its end
	agent *Agent
	last  int64 // the highest ID that a delivery may have
}

func newReader(r io.Reader) (*reader, Header, error) {
	in := &reader{in: bufio.NewReaderSize(r, 1<<20), hash: sha256.New()}
	b, err := in.line()
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
	in.last = h.LastDelivery
	return in, h, nil
}

// line reads a line with its end. The caller adds it to the hash.
func (r *reader) line() ([]byte, error) {
	var out []byte
	for {
		b, err := r.in.ReadSlice('\n')
		if len(out)+len(b) > MaxLine {
			return nil, fault.New(fault.TooLarge, "line %d is longer than %d bytes", r.n+1, MaxLine)
		}
		out = append(out, b...)
		switch {
		case err == nil:
			r.n++
			return out, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil, fault.New(fault.Invalid, "the export ends in the middle, behind line %d: its last line is missing", r.n)
		default:
			return nil, err
		}
	}
}

// next reads a record. At the last line it checks that line and sets end.
func (r *reader) next() (rec Record, size int, end *End, err error) {
	before := r.n
	b, err := r.line()
	if err != nil {
		return rec, 0, nil, err
	}
	r.raw = b
	rec, end, err = decode(b, r.agent)
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
	if _, err := r.in.ReadByte(); !errors.Is(err, io.EOF) {
		return rec, 0, nil, fault.New(fault.Invalid, "something follows the last line")
	}
	return rec, 0, end, nil
}

// Check reads an export to its end and returns its first and last line. It fails if a line cannot
// be read or the checksum is wrong.
func Check(ctx context.Context, r io.Reader) (Header, End, error) {
	in, h, err := newReader(r)
	if err != nil {
		return h, End{}, err
	}
	for {
		_, _, end, err := in.next()
		switch {
		case err != nil:
			return h, End{}, err
		case end != nil:
			return h, *end, nil
		case ctx.Err() != nil:
			return h, End{}, ctx.Err()
		}
	}
}

// ErrMoved is the error of Import if another import has changed the mark.
func ErrMoved() error {
	return fault.New(fault.Conflict, "another import stores into the same store: let it end, then run this one again")
}

// mark is the progress of an import.
type mark struct {
	Lines  int64  `json:"lines"` // stored so far
	SHA256 string `json:"sha256"`
	Shift  int64  `json:"shift"` // added to the IDs of deliveries; -1 = not known yet
	// Recount is set if the sums of reports are left out; see Recount.
	Recount bool `json:"recount,omitempty"`
}

// Limits of what is stored in one transaction.
const (
	batchRecords = 500
	batchBytes   = 4 << 20
)

// Forget removes the mark of an unfinished import and leaves what it has stored.
func Forget(ctx context.Context, to Target) error {
	had, err := to.Mark(ctx)
	if err != nil || had == nil {
		return err
	}
	return to.Import(ctx, nil, had, nil)
}

// Read imports an export into a store. An interrupted import continues where it stopped and skips
// what is stored. Read fails with fault.Conflict if an import of another export is unfinished, or
// another import is running. progress, if not nil, is called with all that is stored so far.
func Read(ctx context.Context, r io.Reader, to Target, progress func(Counts)) (end End, resumed bool, err error) {
	return ReadInBatches(ctx, r, to, progress, batchRecords)
}

// ReadInBatches is Read with at most that many records in one transaction.
func ReadInBatches(ctx context.Context, r io.Reader, to Target, progress func(Counts), most int) (end End, resumed bool, err error) {
	in, h, err := newReader(r)
	if err != nil {
		return end, false, err
	}
	im := intake{in: in, to: to, progress: progress}
	if im.mine, err = to.Mark(ctx); err != nil {
		return end, false, err
	}
	if resumed = im.mine != nil; resumed {
		im.at, im.done, err = in.skip(im.mine)
	} else {
		_, recount := to.(recounted)
		im.at = mark{Shift: -1, Recount: recount}
		err = im.flush(ctx) // only the import that sets the mark goes on
	}
	if err != nil {
		return end, resumed, err
	}
	defer func() {
		if err != nil && im.at.Lines == 1 { // nothing was stored: no mark is needed
			_ = to.Import(context.WithoutCancel(ctx), nil, im.mine, nil)
		}
	}()
	if im.at.Shift < 0 {
		if im.at.Shift, err = to.Reserve(ctx, h.LastDelivery); err != nil {
			return end, resumed, err
		}
	}
	end, err = im.rest(ctx, most)
	return end, resumed, err
}

// recounted is a target of Recount.
type recounted struct{ Target }

// Recount returns a target into which Read puts no reports, since the store has its own: a server
// counts the calls that come in. Of calls that were erased before the export nothing is counted.
func Recount(to Target) Target { return recounted{to} }

// isSum reports whether a record is part of the reports.
func isSum(r *Record) bool { return r.Value != nil && r.Value.Name == memory.ReportSpace }

// intake is an import under way.
type intake struct {
	in       *reader
	to       Target
	progress func(Counts) // or nil
	at       mark
	mine     []byte // the stored mark, which no other import may change
	done     Counts
	batch    []Record
}

// flush stores the batch, which ends at the last line read.
func (im *intake) flush(ctx context.Context) error {
	at := im.at
	at.Lines, at.SHA256 = im.in.n, hex.EncodeToString(im.in.hash.Sum(nil))
	b, err := json.Marshal(at)
	if err == nil {
		err = im.to.Import(ctx, im.batch, im.mine, b)
	}
	if err != nil {
		return err
	}
	if im.progress != nil && len(im.batch) > 0 {
		im.progress(im.done)
	}
	im.at, im.mine, im.batch = at, b, im.batch[:0]
	return nil
}

// rest imports everything after the mark.
func (im *intake) rest(ctx context.Context, most int) (End, error) {
	size := 0
	for {
		rec, n, last, err := im.in.next()
		if err != nil {
			return End{}, err
		}
		if last != nil {
			if len(im.batch) > 0 {
				im.in.n-- // the last line is not a record
				if err := im.flush(ctx); err != nil {
					return End{}, err
				}
			}
			return *last, im.to.Import(ctx, nil, im.mine, nil)
		}
		if d := rec.Delivery; d != nil {
			d.ID += im.at.Shift
			if d.ReplayOf != 0 {
				d.ReplayOf += im.at.Shift
			}
		}
		im.done.Add(rec)
		if im.at.Recount && isSum(&rec) {
			continue
		}
		im.batch, size = append(im.batch, rec), size+n
		if len(im.batch) >= most || size >= batchBytes {
			if err := im.flush(ctx); err != nil {
				return End{}, err
			}
			size = 0
		}
	}
}

// skip reads past what an earlier import of the same export has stored.
func (r *reader) skip(had []byte) (at mark, done Counts, err error) {
	if err := json.Unmarshal(bytes.TrimSpace(had), &at); err != nil || at.Lines < 1 {
		return at, done, fault.New(fault.Conflict, "the store holds the mark of an import that this program cannot read")
	}
	other := fault.New(fault.Conflict, "an import of another export was not finished here: run that one again first, or with -forget leave it as it is")
	for r.n < at.Lines {
		rec, _, end, err := r.next()
		if err != nil {
			return at, done, err
		}
		if end != nil {
			return at, done, other
		}
		done.Add(rec)
	}
	if hex.EncodeToString(r.hash.Sum(nil)) != at.SHA256 {
		return at, done, other
	}
	return at, done, nil
}

// Records calls each with every record of an export. It fails if a line cannot be read or the
// checksum is wrong.
func Records(ctx context.Context, r io.Reader, each func(Record) error) error {
	in, _, err := newReader(r)
	for err == nil {
		rec, _, end, failed := in.next()
		switch err = failed; {
		case err != nil:
		case end != nil:
			return nil
		case ctx.Err() != nil:
			err = ctx.Err()
		default:
			err = each(rec)
		}
	}
	return err
}
