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
// headroom is what keeps the collector's share of the processors, what they idle away apart, at gcShare, within bounds: a server that mostly waits, as one with
// a thousand streams does, is small, and a busy one collects seldom.
const (
	minHeadroom = 8 << 20
	maxHeadroom = 24 << 20
	gcShare     = 0.015
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

// nextHeadroom gives the headroom after one with which the collector took a share of the processors. The two are in inverse
// proportion; one step changes it to the half or the double at most, since one collection tells little.
func nextHeadroom(headroom uint64, share float64) uint64 {
	factor := min(max(share/gcShare, 0.5), 2)
	return min(max(uint64(float64(headroom)*factor), minHeadroom), maxHeadroom)
}

// heapTuner keeps GOGC at the headroom: it looks after each collection.
type heapTuner struct {
	stopped  atomic.Bool
	percent  atomic.Int64
	headroom uint64
	spent    float64   // seconds of the processors that collections have taken from others
	looked   time.Time // when that was read
}

// tuneHeap starts to keep the headroom, until stop is called. An operator who set GOGC or GOMEMLIMIT knows better: then nothing is done.
func tuneHeap() (stop func()) {
	t := &heapTuner{headroom: minHeadroom, looked: time.Now()}
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

// adjust looks at what the last collection left and took, and sets the percentage where it is off by an eighth; setting it stops the
// world for a moment. Calls follow one another: each collection's end arms the next.
func (t *heapTuner) adjust() {
	samples := []gauges.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"},
		{Name: "/cpu/classes/gc/total:cpu-seconds"}, {Name: "/cpu/classes/gc/mark/idle:cpu-seconds"},
	}
	gauges.Read(samples)
	live := uint64(0)
	for _, s := range samples[:2] {
		if s.Value.Kind() == gauges.KindUint64 { // a runtime to come may not know it
			live += s.Value.Uint64()
		}
	}
	if all, idle := samples[2].Value, samples[3].Value; all.Kind() == gauges.KindFloat64 && idle.Kind() == gauges.KindFloat64 {
		spent, now := all.Float64()-idle.Float64(), time.Now()
		if took := now.Sub(t.looked).Seconds() * float64(runtime.GOMAXPROCS(0)); took > 0 {
			t.headroom = nextHeadroom(t.headroom, (spent-t.spent)/took)
		}
		t.spent, t.looked = spent, now
	}
	want := int64(gcPercent(t.headroom, live))
	if is := t.percent.Load(); want > is+is/8 || want < is-is/8 {
		t.percent.Store(want)
		debug.SetGCPercent(int(want))
	}
}
