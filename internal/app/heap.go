package app

import (
	"runtime"
	"runtime/debug"
	gauges "runtime/metrics"
	"sync/atomic"
	"time"
)

// The headroom is how many bytes of garbage may pile up between two collections. Go's own rule, as much garbage as there is live data, collects
// a small server dozens of times a second under load, a sixth of its CPU, and lets a large one grow to twice what it needs. Here the
// headroom is what is allocated within gcEvery, within bounds: a server that mostly waits, as one with a thousand streams does, is
// small, and a busy one collects no more often than it has to. What collections cost would be the better measure; on a machine that others
// keep busy the runtime's figures of that say more about the others.
const (
	minHeadroom = 8 << 20
	maxHeadroom = 24 << 20
	gcEvery     = 300 * time.Millisecond
)

// Bounds of the percentage that stands for the headroom: below the first collections would follow each other, above the
// second nothing is left to be won.
const (
	minGCPercent = 15
	maxGCPercent = 800
)

// gcPercent gives the GOGC value that leaves a headroom above so many live bytes, stacks included as the runtime counts them.
func gcPercent(headroom, live uint64) int {
	return int(min(max(headroom*100/max(live, 1), minGCPercent), maxGCPercent))
}

// headroomFor gives the headroom of a server that allocated so many bytes in so much time.
func headroomFor(allocated uint64, took time.Duration) uint64 {
	within := float64(allocated) * gcEvery.Seconds() / max(took, time.Millisecond).Seconds()
	return uint64(min(max(within, minHeadroom), maxHeadroom))
}

// heapTuner keeps GOGC at the headroom: it looks after each collection.
type heapTuner struct {
	stopped   atomic.Bool
	percent   atomic.Int64
	allocated uint64    // bytes since the process began
	looked    time.Time // when that was read
}

// tuneHeap starts to keep the headroom, until stop is called. An operator who set GOGC or GOMEMLIMIT knows better: then nothing is done.
func tuneHeap() (stop func()) {
	t := &heapTuner{looked: time.Now()}
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

// adjust looks at what the last collection left and how much was allocated since the one before, and sets the percentage where it is off
// by an eighth; setting it stops the world for a moment. Calls follow one another: each collection's end arms the next.
func (t *heapTuner) adjust() {
	samples := []gauges.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	gauges.Read(samples)
	var bytes [3]uint64
	for i, s := range samples {
		if s.Value.Kind() == gauges.KindUint64 { // a runtime to come may not know it
			bytes[i] = s.Value.Uint64()
		}
	}
	now := time.Now()
	headroom := headroomFor(bytes[2]-t.allocated, now.Sub(t.looked))
	t.allocated, t.looked = bytes[2], now
	want := int64(gcPercent(headroom, bytes[0]+bytes[1]))
	if is := t.percent.Load(); want > is+is/8 || want < is-is/8 {
		t.percent.Store(want)
		debug.SetGCPercent(int(want))
	}
}
