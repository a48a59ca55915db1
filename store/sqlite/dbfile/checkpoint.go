package dbfile

import (
	"context"
	"errors"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// checkpointPages is how many pages of the write-ahead log, of 4 KiB each, may be missing in the
// database file before they are copied there.
const checkpointPages = 2000

// SQLite makes its own checkpoints inside a commit, and all callers of that commit wait. Here
// another connection copies the log while commits go on, and then takes the writer's turn for what
// came meanwhile. The next commit starts the log from its beginning, so it stays bounded and is
// overwritten in place, which is cheaper to sync than a growing file.

// checkRows is after how many changed rows the length of the log is checked. Asking SQLite for it
// takes a twentieth of the time of a small commit.
const checkRows = 64

// checkLog asks for a checkpoint if the log has grown. Its caller has the turn and has changed some
// rows.
func (d *DB) checkLog(rows int) {
	if d.unchecked += rows; d.unchecked < checkRows {
		return
	}
	d.unchecked = 0
	// An error is met again, and reported, by the checkpoint or by the next commit.
	if left, _ := checkpoint(d.writer.Conn, "NOOP"); left < d.checkpointAt {
		return
	}
	select {
	case d.checkpointDue <- struct{}{}:
	default: // asked for already
	}
}

// checkpointLoop makes checkpoints until checkpointDue is closed. Every second it checks that the
// files are still those that were opened. It reports the first error, and the end of it.
func (d *DB) checkpointLoop() {
	defer close(d.checkpointsEnded)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	failed := false
	for {
		select {
		case _, open := <-d.checkpointDue:
			if !open {
				return
			}
			d.checkpoint()
		case <-tick.C:
			err := d.watch.checkInside()
			if (err != nil) != failed {
				d.o.Report("the database file", err)
			}
			failed = err != nil
			d.purge()
		case <-d.purgeDue:
			d.purge()
		}
	}
}

// holdLog begins to read an old state.
const holdLog = "BEGIN; SELECT 1 FROM sqlite_schema"

// checkpoint moves the log into the file, unless that is no longer the file that was opened.
func (d *DB) checkpoint() {
	d.watch.copying.Lock()
	defer d.watch.copying.Unlock()
	if d.watch.checkFirst() != nil {
		return
	}
	// While hold reads an old state, no commit begins the log again, so all of it is found.
	held := errors.Join(d.hold.Script(holdLog), d.find())
	if len(d.remains.pages) > 0 { // before the first copy, so that the second, in the turn, has nothing to do
		d.writer.turn <- struct{}{}
		held = errors.Join(held, d.wipe(), d.hold.Script("ROLLBACK; "+holdLog))
		<-d.writer.turn
	}
	_, _ = checkpoint(d.helper, "PASSIVE") // errors show in the second one
	d.writer.turn <- struct{}{}
	wiped := d.wipe()
	held = errors.Join(held, d.hold.Script("ROLLBACK"))
	left, err := checkpoint(d.helper, "PASSIVE")
	err = errors.Join(err, wiped, held)
	// A checkpoint that fails, on a full disk for example, may have written the first page already.
	if err = errors.Join(err, d.watch.checkpointed()); err != nil {
		left = d.checkpointAt // tried again when the log has grown by as much; it is safe there
	}
	d.checkpointAt = left + checkpointPages
	select {
	case <-d.checkpointDue: // asked for during the first one
	default:
	}
	<-d.writer.turn
}

// checkpoint copies what can be copied without waiting, or nothing if mode is NOOP, and returns how
// many pages of the log are still needed.
func checkpoint(c *Conn, mode string) (left int, err error) {
	err = c.Each("PRAGMA wal_checkpoint("+mode+")", nil, func(row Row) error {
		// Both are -1 while another connection makes one.
		left = int(row.Int(1) - row.Int(2))
		return nil
	})
	return left, err
}

// purgeWait is how long Purge waits for readers of an old state, purgePause how often it asks.
const (
	purgeWait  = time.Second
	purgePause = 20 * time.Millisecond
)

// Purge removes what was erased from the write-ahead log. While a reader of an old state prevents
// that, such as a backup, Purge gives up after a second, and the store tries again every second.
func (d *DB) Purge(ctx context.Context) error {
	n := d.purgeAsked.Add(1)
	late := time.After(purgeWait)
	for d.purged.Load() < n {
		select {
		case d.purgeDue <- struct{}{}:
		default: // asked for already
		}
		select {
		case <-ctx.Done():
			return fault.Ended(ctx)
		case <-late:
			return nil
		case <-d.checkpointsEnded: // closing the file empties the log
			return nil
		case <-time.After(purgePause):
		}
	}
	return nil
}

// purge empties the log if that was asked for. Only checkpointLoop calls it. An error is met again,
// and reported, by the next checkpoint.
func (d *DB) purge() {
	n := d.purgeAsked.Load()
	if d.purged.Load() >= n {
		return
	}
	d.watch.copying.Lock()
	defer d.watch.copying.Unlock()
	if d.watch.checkFirst() != nil {
		return
	}
	d.writer.turn <- struct{}{}
	done, wiped := false, d.wipe()
	d.watch.whileTruncated(func() {
		_ = d.helper.Script("PRAGMA busy_timeout = 1") // writers wait for this
		busy, err := d.helper.Number("PRAGMA wal_checkpoint(TRUNCATE)")
		done = err == nil && busy == 0 && wiped == nil
		_ = d.helper.Script("PRAGMA busy_timeout = 5000")
	})
	if err := d.watch.checkpointed(); err == nil && done {
		d.purged.Store(n)
		d.checkpointAt = checkpointPages
	}
	<-d.writer.turn
}
