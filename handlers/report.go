package handlers

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/text"
	"github.com/heardlog/heardlog/longterm/report"
)

// reportAPI shows reports about many calls.
type reportAPI struct {
	reports *report.Service
	now     func() time.Time
}

// figuresJSON is what some calls did.
type figuresJSON struct {
	Calls            int64 `json:"calls"`
	Turns            int64 `json:"turns"`
	Answers          int64 `json:"answers"`
	Interruptions    int64 `json:"interruptions"`
	Ghosts           int64 `json:"ghosts"`
	Failures         int64 `json:"failures"`
	Words            int64 `json:"words"`
	UnheardWords     int64 `json:"unheard_words"`
	GeneratedTokens  int64 `json:"generated_tokens"`
	UnheardTokens    int64 `json:"unheard_tokens"`
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	CachedTokens     int64 `json:"cached_tokens"`
	ToolCalls        int64 `json:"tool_calls"`
	// Evident and ToolsOpen are nil if some calls were counted by an earlier version.
	Evident          *int64            `json:"answers_with_evidence,omitempty"`
	ToolsOpen        *int64            `json:"tool_calls_without_result,omitempty"`
	RecallHits       int64             `json:"recall_hits"`
	SilenceMS        int64             `json:"silence_ms"`
	LengthMS         int64             `json:"length_ms"`
	Cost             *costJSON         `json:"cost,omitempty"` // nil if nothing had a price
	FirstToken       *timesJSON        `json:"first_token_ms,omitempty"`
	FirstSentence    *timesJSON        `json:"first_sentence_ms,omitempty"`
	LongestSilence   *timesJSON        `json:"longest_silence_ms,omitempty"`
	CallLength       *timesJSON        `json:"call_length_ms,omitempty"`
	InterruptedShare *float64          `json:"interrupted_share,omitempty"` // of the answers
	UnheardShare     *float64          `json:"unheard_share,omitempty"`     // of the words
	FailedAt         map[string]int64  `json:"failures_by_upstream,omitempty"`
	Scores           []scoreFigureJSON `json:"scores,omitempty"`
	Checks           map[string]int64  `json:"checks,omitempty"`
}

// timesJSON is how times are spread, in ms.
type timesJSON struct {
	Count int64 `json:"count"`
	P50   int64 `json:"p50"`
	P95   int64 `json:"p95"`
	P99   int64 `json:"p99"`
}

// scoreFigureJSON is the scores of one name. Mean is nil for texts, Value "" for the others.
type scoreFigureJSON struct {
	Name  string   `json:"name"`
	Value string   `json:"value,omitempty"`
	Count int64    `json:"count"`
	Mean  *float64 `json:"mean,omitempty"`
}

func newTimesJSON(s report.Sketch) *timesJSON {
	if len(s) == 0 {
		return nil
	}
	return &timesJSON{s.Count(), s.Percentile(0.5), s.Percentile(0.95), s.Percentile(0.99)}
}

// shareOf returns a part of a whole, nil of nothing.
func shareOf(part, of int64) *float64 {
	if of <= 0 {
		return nil
	}
	return new(float64(part) / float64(of))
}

func newFiguresJSON(f *report.Figures) figuresJSON {
	out := figuresJSON{
		Calls: f.Calls, Turns: f.Turns, Answers: f.Answers, Interruptions: f.Interruptions, Ghosts: f.Ghosts, Failures: f.Failures,
		Words: f.Words, UnheardWords: f.UnheardWords, GeneratedTokens: f.Generated, UnheardTokens: f.Unheard,
		PromptTokens: f.Prompt, CompletionTokens: f.Completion, CachedTokens: f.Cached, ToolCalls: f.ToolCalls, RecallHits: f.Recalled,
		SilenceMS: f.SilenceMS, LengthMS: f.LengthMS, FirstToken: newTimesJSON(f.FirstToken), FirstSentence: newTimesJSON(f.FirstSentence),
		LongestSilence: newTimesJSON(f.Longest), CallLength: newTimesJSON(f.Length),
		InterruptedShare: shareOf(f.Interruptions, f.Answers), UnheardShare: shareOf(f.UnheardWords, f.Words), FailedAt: failedAt(f.Tally.FailedAt),
	}
	if f.Whole() {
		out.Evident, out.ToolsOpen = &f.Evident, new(f.ToolsOpen())
		if f.Evident == 0 && f.UnheardWords == 0 {
			out.UnheardShare = nil
		}
	}
	if f.Cost > 0 {
		out.Cost = newCost(f.Cost, f.UnheardCost, f.EstimatedCost, f.Saved)
	}
	scores, checks := f.Checks()
	out.Checks = checks
	for _, s := range scores {
		score := scoreFigureJSON{Name: s.Name, Value: s.Text, Count: s.N}
		if s.Text == "" {
			score.Mean = new(float64(s.Milli) / 1000 / float64(s.N))
		}
		out.Scores = append(out.Scores, score)
	}
	return out
}

// pointJSON is figures of a part of the time.
type pointJSON struct {
	StartAt string `json:"start_at"`
	figuresJSON
}

func newPointJSON(p *report.Point) pointJSON {
	return pointJSON{shownTime(p.StartMS), newFiguresJSON(&p.Figures)}
}

// beforeJSON is the time that a report is compared with.
type beforeJSON struct {
	Since  string      `json:"since"`
	Until  string      `json:"until"`
	Totals figuresJSON `json:"totals"`
}

type groupJSON struct {
	Value string `json:"value"`
	// FirstAt is the start of the hour of the first call with the value that was ever counted.
	FirstAt string       `json:"first_at,omitempty"`
	Totals  figuresJSON  `json:"totals"`
	Before  *figuresJSON `json:"before,omitempty"`
	Points  []pointJSON  `json:"points,omitempty"`
}

type reportJSON struct {
	Since    string      `json:"since"`
	Until    string      `json:"until"`
	Interval string      `json:"interval,omitempty"`
	GroupBy  string      `json:"group_by,omitempty"`
	Pending  int         `json:"pending_calls"`
	Totals   figuresJSON `json:"totals"`
	Before   *beforeJSON `json:"before,omitempty"`
	Points   []pointJSON `json:"points,omitempty"`
	Groups   []groupJSON `json:"groups,omitempty"`
}

// get serves GET /v1/reports.
func (a reportAPI) get(w http.ResponseWriter, r *http.Request) error {
	v := r.URL.Query()
	q, err := a.query(v)
	if err != nil {
		return err
	}
	format := v.Get("format")
	if format != "" && format != "json" && format != "csv" {
		return fault.At(fault.Invalid, "format", "must be json or csv, not %q", text.Clip(format, 20))
	}
	q.Project = projectOf(r)
	got, err := a.reports.Report(r.Context(), q)
	if err != nil {
		return err
	}
	if format == "csv" {
		return writeReport(w, v.Get("group_by"), &got)
	}
	return encode(w, http.StatusOK, newReportJSON(v, &q, &got))
}

func newReportJSON(v url.Values, q *report.Query, got *report.Report) reportJSON {
	out := reportJSON{
		Since: shownTime(got.FromMS), Until: shownTime(got.ToMS), Interval: v.Get("interval"), GroupBy: q.GroupBy, Pending: got.Pending,
		Totals: newFiguresJSON(&got.Total), Points: each(got.Points, newPointJSON),
	}
	compared := got.BeforeSpan != (report.Span{})
	if compared {
		out.Before = &beforeJSON{shownTime(got.BeforeSpan.FromMS), shownTime(got.BeforeSpan.ToMS), newFiguresJSON(&got.Before)}
	}
	for i := range got.Groups {
		g := &got.Groups[i]
		one := groupJSON{Value: g.Value, FirstAt: shownTime(g.FirstMS), Totals: newFiguresJSON(&g.Total), Points: each(g.Points, newPointJSON)}
		if compared {
			one.Before = new(newFiguresJSON(&g.Before))
		}
		out.Groups = append(out.Groups, one)
	}
	return out
}

// query reads the parameters of a report.
func (a reportAPI) query(v url.Values) (q report.Query, err error) {
	now := a.now()
	if q.FromMS, q.ToMS, err = spanParams(v, now); err != nil {
		return q, err
	}
	if q.ToMS == 0 {
		q.ToMS = now.UnixMilli()
	}
	if q.FromMS == 0 {
		q.FromMS = q.ToMS - (7 * 24 * time.Hour).Milliseconds()
	}
	switch interval := v.Get("interval"); interval {
	case "":
	case "hour":
		q.Interval = time.Hour
	case "day":
		q.Interval = 24 * time.Hour
	default:
		return q, fault.At(fault.Invalid, "interval", "must be hour or day, or left out, not %q", text.Clip(interval, 20))
	}
	switch compare := v.Get("compare"); compare {
	case "":
	case "previous":
		q.BeforeMS = report.Previous
	default:
		if q.BeforeMS, err = pastTime("compare", compare, now); err != nil {
			return q, fault.At(fault.Invalid, "compare", "must be previous, or when the earlier time begins: a time such as 2026-11-23T09:00:00Z, or how long ago, such as 14d")
		}
	}
	own := []string{report.ByPlatform, report.ByModel, report.ByUpstream, report.ByName, report.ByLanguage}
	for _, dim := range own {
		if value := v.Get(dim); value != "" {
			q.Filter = append(q.Filter, report.Value{Dim: dim, Value: value})
		}
	}
	labels, err := labelParams(v)
	if err != nil {
		return q, err
	}
	for name, value := range labels {
		q.Filter = append(q.Filter, report.Value{Dim: report.ByLabel + name, Value: value})
	}
	slices.SortFunc(q.Filter, func(a, b report.Value) int { return strings.Compare(a.Dim, b.Dim) })
	q.GroupBy = v.Get("group_by")
	name, label := strings.CutPrefix(q.GroupBy, labelParam)
	if q.GroupBy != "" && !slices.Contains(own, q.GroupBy) && (!label || name == "") {
		return q, fault.At(fault.Invalid, "group_by", "must be %s or label.NAME, not %q", strings.Join(own, ", "), text.Clip(q.GroupBy, 40))
	}
	for _, f := range q.Filter {
		if len(f.Dim)+len(f.Value) > report.MaxValue {
			return q, fault.At(fault.Invalid, text.Clip(f.Dim, 80), "must have at most %d bytes, name and value together; longer ones are not counted", report.MaxValue)
		}
	}
	return q, nil
}
