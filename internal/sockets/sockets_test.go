package sockets_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/sockets"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	a := sockets.New(3, 2)
	enter := func(project string, want fault.Code) func() {
		t.Helper()
		leave, err := a.Enter(project)
		if want == "" && err != nil || want != "" && !fault.Is(err, want) {
			t.Fatalf("a socket of %s: %v, want %q", project, err, want)
		}
		return leave
	}
	leave := enter("shop", "")
	enter("shop", "")
	enter("shop", fault.RateLimited)
	enter("bank", "")
	enter("bank", fault.Unavailable)
	leave()
	enter("shop", "")
}

func TestClose(t *testing.T) {
	t.Parallel()
	for name, stays := range map[string]bool{"it ends": false, "it is cut": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // fake time
				a := sockets.New(0, 0)
				leave, err := a.Enter("shop")
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					defer leave()
					<-a.Stopping()
					if stays {
						<-a.Cut().Done()
					}
				}()
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				if err := a.Close(ctx); stays != errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Close: %v", err)
				}
				if cause := context.Cause(a.Cut()); stays != errors.Is(cause, sockets.ErrCut) {
					t.Errorf("cut: %v", cause)
				}
				if _, err := a.Enter("shop"); !fault.Is(err, fault.Unavailable) {
					t.Errorf("a socket after the end: %v", err)
				}
			})
		})
	}
}
