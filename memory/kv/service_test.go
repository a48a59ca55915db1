package kv_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/job"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/kv"
	"github.com/heardlog/heardlog/store/storetest"
)

// TestWorkingMemoryExpires: a value is absent from its end on, whether anything has swept it or
// not, and expired values are erased without being asked for.
//
// Rules: 004-6
func TestWorkingMemoryExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := storetest.New(t)
		w := &kv.Service{Store: store, Agents: store, Now: time.Now}
		a := memory.Agent{ID: "a", Project: "p", Status: memory.Running, StartMS: 1, Rev: 1}
		a.Settings.Memory.Working.TTL = 90
		if _, _, err := store.Create(t.Context(), a, 0, memory.Change{}); err != nil {
			t.Fatal(err)
		}
		put := func(key string, ttl int) {
			t.Helper()
			if _, err := w.Set(t.Context(), "p", "agent:"+a.ID, kv.Value{Key: key, JSON: []byte("1"), TTL: ttl}); err != nil {
				t.Fatal(err)
			}
		}
		want := func(keys int, there map[string]bool) {
			t.Helper()
			page, _, _, err := w.List(t.Context(), "p", "agent:"+a.ID, "", "", 10)
			if err != nil || page.Total != keys || len(page.Keys) != keys {
				t.Errorf("%+v, %v; want %d keys", page, err, keys)
			}
			for key, want := range there {
				if _, err := w.Get(t.Context(), "p", "agent:"+a.ID, key); (err == nil) != want || err != nil && !fault.Is(err, fault.NotFound) {
					t.Errorf("%s: %v, want it there: %v", key, err, want)
				}
			}
		}
		put("minute", 60)
		put("own", 0)
		time.Sleep(59 * time.Second)
		want(2, map[string]bool{"minute": true, "own": true})
		time.Sleep(time.Second)
		want(1, map[string]bool{"minute": false, "own": true})
		put("own", 0) // its time begins anew
		time.Sleep(60 * time.Second)
		want(1, map[string]bool{"own": true})
		put("swept", 60)
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- sweep(ctx, w) }()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		// Asked for as of a time at which it was there: nothing is left to be found.
		page, err := store.ListKeys(t.Context(), kv.Space{Project: "p", Agent: a.ID}, "", 10, 0)
		if err != nil || page.Total != 0 {
			t.Errorf("nothing has swept: %+v, %v", page, err)
		}
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}

// sweep sweeps every minute until ctx is done, as the server does.
func sweep(ctx context.Context, s *kv.Service) error {
	r := job.New(job.Config{Now: time.Now})
	var failed atomic.Pointer[error]
	r.Every("expired_keys", time.Minute, func(ctx context.Context) error {
		err := s.Sweep(ctx)
		if err != nil && ctx.Err() == nil {
			failed.Store(&err)
		}
		return err
	})
	err := r.Run(ctx)
	if f := failed.Load(); f != nil {
		return *f
	}
	return err
}
