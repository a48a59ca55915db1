package detect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"unicode/utf8"

	"github.com/heardlog/heardlog/memory/redact"
)

// piece is a part of a text.
type piece struct {
	text int // which
	at   int // byte at which it begins
	part string
}

// batchesOf returns texts in pieces, as calls have them.
func batchesOf(texts []string) (out [][]piece, err error) {
	size, all := 0, 0
	for i, text := range texts {
		if all += len(text); all > maxText {
			return nil, fmt.Errorf("the texts have more than %d bytes together, the most that a detector is asked about at once", maxText)
		}
		for at := 0; ; {
			end := cut(text, at+maxPiece)
			p := piece{i, at, text[at:end]}
			if n := len(out); n == 0 || len(out[n-1]) == batchPieces || size+len(p.part) > batchBytes {
				out, size = append(out, nil), 0
			}
			out[len(out)-1] = append(out[len(out)-1], p)
			size += len(p.part)
			if end == len(text) {
				break
			}
			at = cut(text, end-overlap)
		}
	}
	return out, nil
}

// cut returns the last place up to n at which a text may be cut: behind a blank, if there is one
// not far before, else between two characters.
func cut(text string, n int) int {
	if n >= len(text) {
		return len(text)
	}
	for i := n; i > n-overlap/2; i-- {
		if text[i-1] == ' ' || text[i-1] == '\n' {
			return i
		}
	}
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return n
}

// presidioRequest is a request of POST /analyze. Presidio answers a list with a list of lists.
type presidioRequest struct {
	Text     []string `json:"text"`
	Language string   `json:"language"`
	Entities []string `json:"entities,omitempty"`
	Score    float64  `json:"score_threshold"`
}

type plainRequest struct {
	Texts    []string `json:"texts"`
	Language string   `json:"language,omitempty"`
	Entities []string `json:"entities,omitempty"`
}

// finding is a finding in either form. Offsets count code points.
type finding struct {
	Start  *int     `json:"start"`
	End    *int     `json:"end"`
	Entity string   `json:"entity_type"` // of Presidio
	Type   string   `json:"type"`
	Score  *float64 `json:"score"`
}

// ask has pieces checked. No error shows a text, the URL or the answer.
func (d *Detector) ask(ctx context.Context, s *Settings, b []piece) ([][]redact.Found, error) {
	texts := make([]string, len(b))
	for i, p := range b {
		texts[i] = p.part
	}
	var in any = plainRequest{texts, s.Language, s.Entities}
	if s.Form == Presidio {
		in = presidioRequest{texts, s.Language, s.Entities, s.MinScore}
	}
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(in); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, &body)
	if err != nil {
		return nil, errors.New("the detector's url cannot be called")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if s.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.Token.Reveal())
	}
	resp, err := d.client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL
		}
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the detector answered with status %d", resp.StatusCode)
	case len(answer) > maxAnswer:
		return nil, fmt.Errorf("%w: it has more than %d bytes", errBad, maxAnswer)
	}
	return s.read(answer, texts)
}

// read returns the findings of an answer for texts.
func (s *Settings) read(answer []byte, texts []string) ([][]redact.Found, error) {
	var lists [][]finding
	var plain struct {
		Spans *[][]finding `json:"spans"`
	}
	into, want := any(&lists), "a list for each text"
	if s.Form == Plain {
		plain.Spans, into, want = &lists, &plain, "spans, with a list for each text"
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return nil, fmt.Errorf("%w: it must be JSON: %s", errBad, want)
	}
	if plain.Spans != nil {
		lists = *plain.Spans
	}
	if len(lists) != len(texts) {
		return nil, fmt.Errorf("%w: it must have %s, which are %d, not %d", errBad, want, len(texts), len(lists))
	}
	out := make([][]redact.Found, len(texts))
	for i, list := range lists {
		if len(list) > maxFindings {
			return nil, fmt.Errorf("%w: it has %d findings in a text; at most %d are allowed", errBad, len(list), maxFindings)
		}
		if len(list) == 0 {
			continue
		}
		at := offsets(texts[i])
		for _, f := range list {
			if f.Score != nil && *f.Score < s.MinScore {
				continue
			}
			name := redact.TypeName(f.Type + f.Entity)
			if name == "" {
				return nil, fmt.Errorf("%w: a type must have 1 to 24 letters, digits, dashes and underlines", errBad)
			}
			if f.Start == nil || f.End == nil || *f.Start < 0 || *f.Start >= *f.End || *f.End >= len(at) {
				return nil, fmt.Errorf("%w: start and end must be a range of code points of the text", errBad)
			}
			out[i] = append(out[i], redact.Found{Start: at[*f.Start], End: at[*f.End], Type: name})
		}
	}
	return out, nil
}

// offsets returns the byte at which each code point of a text begins, and its length.
func offsets(text string) []int {
	out := make([]int, 0, len(text)+1)
	for i := range text {
		out = append(out, i)
	}
	return append(out, len(text))
}
