package app

import (
	"runtime"
	"runtime/debug"
	gauges "runtime/metrics"
	"sync/atomic"
)

// heapHeadroom is how many bytes of garbage may pile up between two collections. Go's own rule, as much garbage as there is
// live data, collects a small server dozens of times a second under load, a sixth of its CPU, and lets a large one grow to
// twice what it needs. A fixed headroom does neither.
const heapHeadroom = 24 << 20

// Bounds of the percentage that stands for the headroom: below the first collections would follow each other, above the
// second nothing is left to be won.
const (
	minGCPercent = 30
	maxGCPercent = 800
)

// gcPercent gives the GOGC value that leaves the headroom above so many live bytes, stacks included as the runtime counts them.
func gcPercent(live uint64) int {
	return int(min(max(heapHeadroom*100/max(live, 1), minGCPercent), maxGCPercent))
}

// heapTuner keeps GOGC at the headroom: it looks after each collection.
type heapTuner struct {
	stopped atomic.Bool
	percent atomic.Int64
}

// tuneHeap starts to keep the headroom, until stop is called. An operator who set GOGC or GOMEMLIMIT knows better: then nothing is done.
func tuneHeap() (stop func()) {
	t := &heapTuner{}
	const standard = 100
	if was := debug.SetGCPercent(standard); was != standard || debug.SetMemoryLimit(-1) != noMemoryLimit {
		debug.SetGCPercent(was)
		return func() {}
	}
	t.percent.Store(standard)
	t.adjust()
	t.watch()
	return func() {
		t.stopped.Store(true)
		debug.SetGCPercent(standard)
	}
}

// noMemoryLimit is what debug.SetMemoryLimit gives where no limit is set.
const noMemoryLimit = 1<<63 - 1

// watch makes something that the next collection finds unused, whose end is the sign to look.
func (t *heapTuner) watch() {
	sign := new([64]byte) // too large to share a block with others, which would keep it alive
	runtime.AddCleanup(sign, func(t *heapTuner) {
		if !t.stopped.Load() {
			t.adjust()
			t.watch()
		}
	}, t)
}

// adjust sets the percentage where it is off by an eighth; setting it stops the world for a moment.
func (t *heapTuner) adjust() {
	samples := []gauges.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	gauges.Read(samples)
	live := uint64(0)
	for _, s := range samples {
		if s.Value.Kind() == gauges.KindUint64 { // a runtime to come may not know it
			live += s.Value.Uint64()
		}
	}
	want := int64(gcPercent(live))
	if is := t.percent.Load(); want > is+is/8 || want < is-is/8 {
		t.percent.Store(want)
		debug.SetGCPercent(int(want))
	}
}
