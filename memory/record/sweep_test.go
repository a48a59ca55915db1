package record_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/memory/record"
)

// sweeps is a store that notes the times of its sweeps and fails the second.
type sweeps struct {
	record.Store
	before []time.Duration // since the start
	began  time.Time
}

func (s *sweeps) SweepRecords(_ context.Context, beforeMS int64) error {
	s.before = append(s.before, time.UnixMilli(beforeMS).Sub(s.began))
	if len(s.before) == 2 {
		return errors.New("full")
	}
	return nil
}

func TestSweeper(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sweeps{began: time.Now()}
		failed, also := 0, 0
		ctx, stop := context.WithTimeout(t.Context(), 25*time.Minute)
		defer stop()
		sweeper := record.Sweeper{Store: s, Now: time.Now, OnError: func(error) { failed++ }}
		sweeper.Also = func(context.Context) error { also++; return nil }
		if err := sweeper.Run(ctx); err != nil || failed != 1 || also != 3 {
			t.Errorf("%v, %d errors, %d calls", err, failed, also)
		}
		if len(s.before) != 3 || s.before[0] != -record.KeepDeletions || s.before[2] != 20*time.Minute-record.KeepDeletions {
			t.Errorf("swept what was before %v", s.before)
		}
	})
}
