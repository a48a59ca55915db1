package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"filippo.io/age"

	"github.com/heardlog/heardlog/internal/depot"
	"github.com/heardlog/heardlog/memory/export"
)

// lookEvery is how often a Schedule looks whether a backup is due, and so when a failed one is
// tried again.
const lookEvery = 10 * time.Minute

// Source is an open store.
type Source interface {
	export.Source
	io.Closer
}

// Schedule makes backups at intervals. The names of those that exist say when the next is due, so
// it survives restarts, and a failed one is due again at once.
type Schedule struct {
	Place  string // as depot.Open takes it
	Getenv func(string) string
	Every  time.Duration
	Keep   int // older ones are removed after a new one was made
	// Encrypt encrypts with Key; without a Key, no backup is made.
	Encrypt bool
	Key     string
	Open    func(ctx context.Context) (Source, error)
	// Alone runs f unless another server is running it.
	Alone func(ctx context.Context, f func() error) error
	Now   func() time.Time
	// Done is called after each backup that was made or has failed.
	Done func(name string, size int64, err error)
}

// Run makes the backups that are due, at once and then periodically, until ctx is done, and returns
// nil. It gives up what has begun then: an unfinished backup has no name.
func (s *Schedule) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		s.Look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Look makes a backup if one is due.
func (s *Schedule) Look(ctx context.Context) {
	err := s.Alone(ctx, func() error { return s.look(ctx) })
	if err != nil && ctx.Err() == nil {
		s.Done("", 0, err)
	}
}

func (s *Schedule) look(ctx context.Context) error {
	where, err := depot.Open(s.Place, s.Getenv)
	if err != nil {
		return err
	}
	names, err := List(ctx, where, Label)
	if err != nil {
		return err
	}
	now := s.Now()
	if n := len(names); n > 0 {
		last, err := time.Parse(nameTime, name.FindStringSubmatch(names[n-1])[2])
		if err != nil {
			return err
		}
		if now.Before(last.Add(s.Every)) {
			return nil
		}
	}
	made, size, err := s.write(ctx, where, now)
	if err != nil {
		return fmt.Errorf("%s: %w; no backup was made", where, err)
	}
	_, _, err = RemoveOld(ctx, where, Label, made, s.Keep)
	if err != nil {
		err = fmt.Errorf("the backup %s was made, but older ones could not be removed: %w", made, err)
	}
	s.Done(made, size, nil)
	return err
}

func (s *Schedule) write(ctx context.Context, where depot.Depot, now time.Time) (made string, size int64, err error) {
	w := Writer{Where: where, Secrets: true, Show: func(export.Counts) {}}
	if s.Encrypt {
		if s.Key == "" {
			return "", 0, errors.New("encryption: true needs HEARDLOG_SECRET_KEY")
		}
		to, _, err := ForKey(s.Key)
		if err != nil {
			return "", 0, err
		}
		w.To = []age.Recipient{to}
	}
	from, err := s.Open(ctx)
	if err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	w.From, made = from, Name(Label, now, s.Encrypt)
	_, size, err = w.Write(ctx, made)
	return made, size, err
}
