package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"filippo.io/age"

	"github.com/heardlog/heardlog/internal/blob"
	"github.com/heardlog/heardlog/store/export"
)

// Source is an open store.
type Source interface {
	export.Source
	io.Closer
}

// Schedule makes backups at intervals. The names of those that exist say when the next is due, so
// it survives restarts, and a failed one is due again at once. Look must be called regularly.
type Schedule struct {
	Place  string // as blob.Open takes it
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
	// Done is called after each backup that was made.
	Done func(name string, size int64)
}

// Kept is a backup that is kept now.
type Kept struct {
	Name string
	Made time.Time // when it was begun
	// Until is about when it is removed to make room for newer ones.
	Until time.Time
}

// Kept returns the backups that are kept now, oldest first.
func (s *Schedule) Kept(ctx context.Context) (list []Kept, err error) {
	where, err := blob.Open(s.Place, s.Getenv)
	if err != nil {
		return nil, err
	}
	names, err := List(ctx, where, Label)
	for _, n := range names {
		made, err := time.Parse(nameTime, name.FindStringSubmatch(n)[2])
		if err != nil {
			return nil, err
		}
		list = append(list, Kept{Name: n, Made: made})
	}
	for i := range list {
		newer := len(list) - 1 - i
		list[i].Until = list[len(list)-1].Made.Add(time.Duration(max(1, s.Keep-newer)) * s.Every)
	}
	return list, err
}

// Look makes a backup if one is due. It gives up when ctx ends: an unfinished backup has no name.
func (s *Schedule) Look(ctx context.Context) error {
	return s.Alone(ctx, func() error { return s.look(ctx) })
}

func (s *Schedule) look(ctx context.Context) error {
	where, err := blob.Open(s.Place, s.Getenv)
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
	s.Done(made, size)
	return err
}

func (s *Schedule) write(ctx context.Context, where blob.Store, now time.Time) (made string, size int64, err error) {
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
