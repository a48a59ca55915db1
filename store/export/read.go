package export

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
)

// Check reads an export to its end and returns its first and last line. It fails if a line cannot
// be read or the checksum is wrong.
func Check(ctx context.Context, r io.Reader) (Header, End, error) {
	in, h, err := newReader(r, nil)
	if err != nil {
		return h, End{}, err
	}
	defer in.close()
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
	batchRecords = 2000
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
	in, h, err := newReader(r, nil)
	if err != nil {
		return end, false, err
	}
	defer in.close()
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

// Records calls each with every record of a short export, whose bytes are known to be those that
// were written: it does not compare the checksum. Messages come without their agent.
func Records(lines []byte, each func(Record) error) error {
	_, rest, _ := bytes.Cut(lines, []byte("\n")) // the header
	for n := 2; len(rest) > 0; n++ {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\n"))
		r, end, err := decode(line)
		if err == nil && end == nil {
			err = each(r)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if end != nil {
			return nil
		}
	}
	return fault.New(fault.Invalid, "the last line is missing")
}
