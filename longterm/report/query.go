package report

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/record"
)

// Limits of a report.
const (
	MaxSpan     = 400 * 24 * time.Hour
	MaxHours    = 31 * 24 * time.Hour // by hours
	MaxGroups   = MaxValues + 1
	maxPoints   = 20_000 // of all groups together
	hour        = int64(time.Hour / time.Millisecond)
	day         = 24 * hour
	readAtOnce  = 400 // stored figures
	knownMonths = 14  // that MaxSpan can touch
	// groupsAtOnce is how many groups are read at the same time.
	groupsAtOnce = 4
)

// Span is a time in Unix ms, without its end.
type Span struct{ FromMS, ToMS int64 }

// Query asks for a report of the calls of a project that started in a time.
type Query struct {
	Project string
	// Span is widened to whole hours, or to whole days (UTC) if Interval is a day.
	Span
	Interval time.Duration // of the points: an hour, a day, or 0 for none
	// Filter has what calls must have. GroupBy is a dimension whose values are reported one by one,
	// "" for none. Both together have at most two dimensions, each once.
	Filter  []Value
	GroupBy string
	// BeforeMS is when an earlier time of the same length begins, for comparison: Unix ms, Previous
	// for the time just before, or 0 for none.
	BeforeMS int64
}

// Previous is a Query.BeforeMS.
const Previous = -1

// Report is the answer to a Query.
type Report struct {
	Span
	Total  Figures
	Points []Point // with calls, in order
	Groups []Group // with calls in one of the two times, those with the most first
	// BeforeSpan and Before are the earlier time and its sums; zero without a comparison.
	BeforeSpan Span
	Before     Figures
	// Pending is how many calls have ended and are not counted yet, or have changed since; of more
	// than 1,000 it is 1,000.
	Pending int
}

// Point is a part of the time.
type Point struct {
	StartMS int64
	Figures
}

// Group is the calls of one value.
type Group struct {
	Value         string
	Total, Before Figures
	Points        []Point
	// FirstMS is the start of the hour of the first call of the value that was ever counted, Unix
	// ms, whatever the filter; 0 for Other.
	FirstMS int64
}

// Report makes a report. It counts calls that ended just now first, up to a few hundred. It fails
// with fault.Invalid, which names the parameter.
func (s *Service) Report(ctx context.Context, q Query) (out Report, err error) {
	if err := q.check(); err != nil {
		return out, err
	}
	// A store that cannot be written to, or a call that cannot be read, still leaves a report of
	// what was counted.
	if _, err := s.Count(ctx, q.Project, ofReport); err != nil && ctx.Err() != nil {
		return out, fault.Ended(ctx)
	}
	due, err := s.Calls.Due(ctx, q.Project, 0, 1000)
	if err != nil {
		return out, err
	}
	out.Pending, out.Span = len(due), q.Span
	key := keyOf(sorted(slices.Clone(q.Filter)...)...)
	if out.Total, out.Points, err = s.sums(ctx, &q, key, q.Span, true); err != nil {
		return out, err
	}
	if q.BeforeMS != 0 {
		out.BeforeSpan = Span{q.BeforeMS, q.BeforeMS + q.ToMS - q.FromMS}
		if out.Before, _, err = s.sums(ctx, &q, key, out.BeforeSpan, false); err != nil {
			return out, err
		}
	}
	if q.GroupBy != "" {
		err = s.groups(ctx, &q, &out)
	}
	return out, err
}

// check widens the times and returns an error if the query cannot be answered.
func (q *Query) check() error {
	width := hour
	if q.Interval == 24*time.Hour {
		width = day
	}
	was := q.FromMS
	q.FromMS -= q.FromMS % width
	q.ToMS += (width - q.ToMS%width) % width
	if q.BeforeMS == Previous {
		q.BeforeMS = 2*q.FromMS - q.ToMS
	}
	q.BeforeMS -= q.BeforeMS % width
	switch span := time.Duration(q.ToMS-q.FromMS) * time.Millisecond; {
	case q.ToMS <= was:
		return fault.At(fault.Invalid, "until", "must be after since")
	case span > MaxSpan:
		return fault.At(fault.Invalid, "since", "must be at most %d days before until", int(MaxSpan.Hours()/24))
	case q.Interval == time.Hour && span > MaxHours:
		return fault.At(fault.Invalid, "interval", "must be day for more than %d days", int(MaxHours.Hours()/24))
	}
	dims := []string{}
	for _, v := range q.Filter {
		dims = append(dims, v.Dim)
	}
	if q.GroupBy != "" {
		if slices.Contains(dims, q.GroupBy) {
			return fault.At(fault.Invalid, "group_by", "must not be %s, which the calls are filtered by", q.GroupBy)
		}
		dims = append(dims, q.GroupBy)
	}
	if len(dims) > 2 {
		return fault.At(fault.Invalid, dims[2], "is one too many: a report has at most two of filters and group_by, and these are %s", strings.Join(dims, ", "))
	}
	return nil
}

// groups sets the groups of a report.
func (s *Service) groups(ctx context.Context, q *Query, out *Report) error {
	values := map[string]bool{}
	for _, span := range []Span{out.Span, out.BeforeSpan} {
		if err := s.values(ctx, q, span, values); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	points := 0
	var all errgroup.Group
	all.SetLimit(groupsAtOnce)
	for value := range values {
		all.Go(func() error {
			g, err := s.group(ctx, q, out, value)
			if err != nil || g.Total.Calls == 0 && g.Before.Calls == 0 {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if points += len(g.Points); points > maxPoints {
				return fault.At(fault.Invalid, "interval", "makes more than %d points of all groups; take a longer interval, none, or a shorter time", maxPoints)
			}
			out.Groups = append(out.Groups, g)
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	slices.SortFunc(out.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Total.Calls, a.Total.Calls), cmp.Compare(a.Value, b.Value))
	})
	return nil
}

// group returns the group of a value.
func (s *Service) group(ctx context.Context, q *Query, out *Report, value string) (g Group, err error) {
	key := keyOf(sorted(append(slices.Clone(q.Filter), Value{q.GroupBy, value})...)...)
	g.Value = value
	if g.Total, g.Points, err = s.sums(ctx, q, key, out.Span, true); err == nil && q.BeforeMS != 0 {
		g.Before, _, err = s.sums(ctx, q, key, out.BeforeSpan, false)
	}
	if err == nil && value != Other && (g.Total.Calls > 0 || g.Before.Calls > 0) {
		g.FirstMS, err = s.first(ctx, q.Project, keyOf(Value{q.GroupBy, value}))
	}
	return g, err
}

// first returns the start of the first hour with calls under a key, Unix ms.
func (s *Service) first(ctx context.Context, project, key string) (int64, error) {
	for after := hourKey + key; ; {
		list, _, err := s.Records.Records(ctx, spaceOf(project), record.Query{AfterID: after, Limit: 1})
		if err != nil || len(list) == 0 {
			return 0, err
		}
		at, own := strings.CutPrefix(list[0].ID, hourKey+key)
		if !own {
			return 0, nil
		}
		f, err := decodeFigures(list[0].Body)
		if err != nil {
			return 0, fault.Wrap(fault.Internal, err, "the figures of a report cannot be read")
		}
		if after = list[0].ID; f.Calls == 0 {
			continue
		}
		t, err := time.Parse(layouts[hourKey], at)
		if err != nil {
			return 0, fault.Wrap(fault.Internal, err, "the figures of a report have no time")
		}
		return t.UnixMilli(), nil
	}
}

// values adds the values that calls of a time were counted by.
func (s *Service) values(ctx context.Context, q *Query, span Span, into map[string]bool) error {
	last := ""
	for ms := span.FromMS; ms < span.ToMS; ms += day {
		for _, at := range []int64{ms, min(ms+day, span.ToMS) - 1} {
			month := monthOf(at)
			if month == last {
				continue
			}
			last = month
			r, err := s.Records.Record(ctx, spaceOf(q.Project), "v"+sep+month+sep+q.GroupBy)
			if fault.Is(err, fault.NotFound) {
				continue
			}
			if err != nil {
				return err
			}
			var list []string
			if err := json.Unmarshal(r.Body, &list); err != nil {
				return fault.Wrap(fault.Internal, err, "the values of a report cannot be read")
			}
			for _, v := range append(list, Other) {
				into[v] = true
			}
		}
	}
	return nil
}

// sums returns what is stored under a key in a time, and its points if they are wanted.
func (s *Service) sums(ctx context.Context, q *Query, key string, span Span, points bool) (total Figures, list []Point, err error) {
	points = points && q.Interval > 0
	var f Figures
	each := func(atMS int64, body []byte) error {
		if points {
			f = Figures{} // the point keeps it
		}
		if err := f.decode(body); err != nil {
			return fault.Wrap(fault.Internal, err, "the figures of a report cannot be read")
		}
		total.Add(&f, 1)
		if points && f.Calls > 0 {
			list = append(list, Point{atMS, f})
		}
		return nil
	}
	widths := []string{monthKey, dayKey, hourKey}
	switch {
	case points && q.Interval == time.Hour:
		widths = widths[2:]
	case points:
		widths = widths[1:]
	}
	return total, list, s.widest(ctx, q.Project, key, span, widths, each)
}

// widest calls each with the figures of a time, of as few parts as there are: the first width
// where it fits, the others before and after that.
func (s *Service) widest(ctx context.Context, project, key string, span Span, widths []string, each func(atMS int64, body []byte) error) error {
	width, rest := widths[0], widths[1:]
	from, to := ceiling(width, span.FromMS), floor(width, span.ToMS)
	switch {
	case span.FromMS >= span.ToMS:
		return nil
	case from >= to:
		return s.widest(ctx, project, key, span, rest, each)
	}
	if len(rest) > 0 {
		if err := s.widest(ctx, project, key, Span{span.FromMS, from}, rest, each); err != nil {
			return err
		}
	}
	if err := s.scan(ctx, project, width, key, from, to, each); err != nil || len(rest) == 0 {
		return err
	}
	return s.widest(ctx, project, key, Span{to, span.ToMS}, rest, each)
}

// floor returns the start of the part of a width that has a time.
func floor(width string, ms int64) int64 {
	t := time.UnixMilli(ms).UTC()
	switch width {
	case monthKey:
		return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	case dayKey:
		return ms - ms%day
	}
	return ms - ms%hour
}

// ceiling returns the first start of a part of a width from a time on.
func ceiling(width string, ms int64) int64 {
	at := floor(width, ms)
	if at == ms {
		return at
	}
	t := time.UnixMilli(at).UTC()
	switch width {
	case monthKey:
		t = t.AddDate(0, 1, 0)
	case dayKey:
		t = t.AddDate(0, 0, 1)
	default:
		t = t.Add(time.Hour)
	}
	return t.UnixMilli()
}

// scan calls each with the figures stored under a key in a time, in order.
func (s *Service) scan(ctx context.Context, project, width, key string, from, to int64, each func(atMS int64, body []byte) error) error {
	id := func(ms int64) string { return width + key + time.UnixMilli(ms).UTC().Format(layouts[width]) }
	limit := int(min((to-from)/hour, readAtOnce))
	switch width {
	case monthKey:
		limit = knownMonths
	case dayKey:
		limit = int(min((to-from)/day, readAtOnce))
	}
	for after, end := id(from-1), id(to); ; {
		list, _, err := s.Records.Records(ctx, spaceOf(project), record.Query{AfterID: after, Limit: limit})
		if err != nil {
			return err
		}
		for i := range list {
			r := &list[i]
			if r.ID >= end {
				return nil
			}
			at, err := time.Parse(layouts[width], strings.TrimPrefix(r.ID, width+key))
			if err != nil {
				return fault.Wrap(fault.Internal, err, "the figures of a report have no time")
			}
			if err := each(at.UnixMilli(), r.Body); err != nil {
				return err
			}
			after = r.ID
		}
		if len(list) < limit {
			return nil
		}
	}
}
