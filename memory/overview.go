package memory

import (
	"context"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
)

// maxOverview is the longest time of an overview.
const maxOverview = 30 * 24 * time.Hour

// MaxOverviewCalls is how many calls an overview counts at most, since it reads a row for each.
const MaxOverviewCalls = 200_000

// maxBuckets is how many buckets an overview has at most.
const maxBuckets = 120

// Overview is what the calls of a project did that started in a time.
type Overview struct {
	FromMS, ToMS int64         // FromMS is the start of the first bucket
	Width        time.Duration // of a bucket
	Total        Bucket
	Buckets      []Bucket // in order, those without calls too
}

// Bucket is the calls that started in a part of the time.
type Bucket struct {
	StartMS int64
	Calls   int64
	Tally
}

// widths are the widths of buckets.
var widths = []time.Duration{
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 6 * time.Hour, 8 * time.Hour,
}

// ReadOverview counts the calls of a project that started from fromMS to toMS, at most maxOverview
// apart. fromMS is rounded down to a bucket's start. Everything in a call counts at its start.
// Calls that retention or an erasure has deleted are not counted. It fails with fault.Invalid if
// the time is too long, or has more than MaxOverviewCalls calls.
func ReadOverview(ctx context.Context, ledger Ledger, project string, fromMS, toMS int64) (Overview, error) {
	if toMS < fromMS || toMS-fromMS > maxOverview.Milliseconds() {
		return Overview{}, fault.At(fault.Invalid, "since", "must be at most 30 days before until")
	}
	var out Overview
	for _, w := range widths {
		ms := w.Milliseconds()
		out = Overview{FromMS: fromMS - fromMS%ms, ToMS: toMS, Width: w}
		if n := int((toMS-out.FromMS)/ms) + 1; n <= maxBuckets {
			out.Buckets = make([]Bucket, n)
			break
		}
	}
	out.Total.StartMS = out.FromMS
	for i := range out.Buckets {
		out.Buckets[i].StartMS = out.FromMS + int64(i)*out.Width.Milliseconds()
	}
	calls := 0
	err := ledger.Tallies(ctx, project, out.FromMS, toMS, func(startMS int64, tally []byte) error {
		if calls++; calls > MaxOverviewCalls {
			return fault.At(fault.Invalid, "since", "has more than %d calls until then; take a shorter time, or GET /v1/reports, which has sums", MaxOverviewCalls)
		}
		b := &out.Buckets[(startMS-out.FromMS)/out.Width.Milliseconds()]
		b.Calls++
		return b.MergeEncoded(tally)
	})
	for i := range out.Buckets {
		out.Total.Calls += out.Buckets[i].Calls
		out.Total.Merge(&out.Buckets[i].Tally)
	}
	return out, err
}
