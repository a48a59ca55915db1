//go:build unix

package report_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/heardlog/heardlog/longterm/report"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/record"
	"github.com/heardlog/heardlog/store/sqlite"
)

// figuresOf returns the figures of a day or an hour with so many calls: 10 answers in each.
func figuresOf(r *rand.Rand, calls int64) report.Figures {
	f := report.Figures{
		Calls: calls, Tally: memory.Tally{Turns: 10 * calls, Answers: 10 * calls, Interruptions: 2 * calls, Failures: calls / 100, Generated: 300 * calls, Unheard: 60 * calls, Cost: 5_000_000 * calls, UnheardCost: 1_000_000 * calls},
		Words: 250 * calls, UnheardWords: 50 * calls, LengthMS: 120_000 * calls,
	}
	for _, s := range []struct {
		to     *report.Sketch
		median float64
		n      int64
	}{{&f.FirstToken, 6, 10 * calls}, {&f.FirstSentence, 6.5, 10 * calls}, {&f.Longest, 8, calls / 2}, {&f.Length, 11.5, calls}} {
		for range min(s.n, 3000) { // as many buckets as of all
			s.to.Add(int64(math.Exp(0.5*r.NormFloat64() + s.median)))
		}
	}
	return f
}

// cpu returns the CPU time of the process so far, which other processes do not change.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkYear makes reports of 12 months at a million calls a day, of two labels with 10 values
// and of every hour, day and pair of these.
func BenchmarkYear(b *testing.B) {
	ctx, r := b.Context(), rand.New(rand.NewPCG(1, 2))
	s, err := store.OpenSQLite(ctx, sqlite.Options{Path: filepath.Join(b.TempDir(), "year.db"), SealKey: []byte("a key that is long enough")}, engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	from := time.Date(2025, 12, 1, 0, 0, 0, 0, time.UTC)
	now := from.AddDate(0, 0, 365)
	space := record.Space{Project: "p", Name: report.Space}
	var changes []record.Change
	size, rows := 0, 0
	flush := func() {
		if _, err := s.ChangeRecords(ctx, space, changes, record.Limit{}, nil, 1); err != nil {
			b.Fatal(err)
		}
		changes, size = changes[:0], 0
	}
	put := func(id string, body []byte) {
		if changes = append(changes, record.Change{ID: id, Body: body, If: record.Any}); len(changes) == 512 || size > 1<<20 {
			flush()
		}
		size, rows = size+len(body), rows+1
	}
	keys := map[string]int64{"\x1f\x1f\x1f": 1}
	for i := range 10 {
		keys[fmt.Sprintf("\x1flabel.campaign\x1fv%d\x1f", i)] = 10
		keys[fmt.Sprintf("\x1fplatform\x1fp%d\x1f", i)] = 10
		for j := range 10 {
			keys[fmt.Sprintf("\x1flabel.campaign\x1eplatform\x1fv%d\x1ep%d\x1f", i, j)] = 100
		}
	}
	bodies := map[int64][]byte{} // by calls: the same for all, which costs a report the same
	bodyOf := func(calls int64) []byte {
		if bodies[calls] == nil {
			f := figuresOf(r, calls)
			bodies[calls] = f.Encode()
		}
		return bodies[calls]
	}
	for day := range 365 {
		at := from.AddDate(0, 0, day)
		for key, part := range keys {
			put("d"+key+at.Format("20060102"), bodyOf(1_000_000/part))
			if at.Day() == 1 {
				put("m"+key+at.Format("200601"), bodyOf(30_000_000/part))
			}
			if part == 100 && day < 358 {
				continue // hours of pairs are not read by these reports
			}
			for h := range 24 {
				put("h"+key+at.Add(time.Duration(h)*time.Hour).Format("2006010215"), bodyOf(40_000/part))
			}
		}
		if day%28 == 0 {
			put("v\x1f"+at.Format("200601")+"\x1flabel.campaign", []byte(`["v0","v1","v2","v3","v4","v5","v6","v7","v8","v9"]`))
		}
	}
	flush()
	b.Logf("%d rows; of a day %d bytes", rows, len(bodyOf(1_000_000)))
	service := &report.Service{Records: s, Calls: s, Ledger: s, Now: func() time.Time { return now }}
	span := report.Span{FromMS: from.UnixMilli(), ToMS: now.UnixMilli()}
	week := report.Span{FromMS: now.AddDate(0, 0, -7).UnixMilli(), ToMS: now.UnixMilli()}
	for name, q := range map[string]report.Query{
		"Days":             {Span: span, Interval: 24 * time.Hour},
		"Label":            {Span: span, GroupBy: "label.campaign"},
		"LabelDays":        {Span: span, GroupBy: "label.campaign", Interval: 24 * time.Hour},
		"LabelOfPlatform":  {Span: span, GroupBy: "label.campaign", Filter: []report.Value{{Dim: "platform", Value: "p3"}}},
		"WeekHoursCompare": {Span: week, Interval: time.Hour, BeforeMS: report.Previous, GroupBy: "label.campaign"},
	} {
		b.Run(name, func(b *testing.B) {
			q.Project = "p"
			began := cpu()
			defer func() { b.ReportMetric(float64((cpu()-began).Milliseconds())/float64(b.N), "cpu-ms/op") }()
			for b.Loop() {
				got, err := service.Report(ctx, q)
				if err != nil || got.Total.Calls == 0 {
					b.Fatal(got.Total.Calls, err)
				}
			}
		})
	}
}
