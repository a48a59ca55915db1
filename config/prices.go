package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/heardlog/heardlog/memory"
)

// Limits of HEARDLOG_LLM_PRICES.
const (
	maxPrices = 1000
	maxPrice  = 10_000 // US dollars per million tokens
)

// parsePrices reads model=input:output[:cached] entries, or a file with one per line. The last "="
// ends the name.
func parsePrices(v string) (memory.Prices, error) {
	const form = "model=input:output or model=input:output:cached"
	entries, err := readEntries(v, form)
	if err != nil {
		return nil, err
	}
	out := memory.Prices{}
	for _, e := range entries {
		at := strings.LastIndex(e.text, "=")
		name := strings.TrimSpace(e.text[:max(at, 0)])
		price, err := parsePrice(e.text[at+1:])
		switch {
		case name == "" || len(name) > memory.MaxModel:
			return nil, fmt.Errorf("entry %d must be %s, with a name of at most %d bytes, not %q", e.number, form, memory.MaxModel, e.text)
		case err != nil:
			return nil, fmt.Errorf("entry %d (%s): %w", e.number, name, err)
		case len(out) == maxPrices:
			return nil, fmt.Errorf("must have at most %d entries", maxPrices)
		}
		if _, ok := out[name]; ok {
			return nil, fmt.Errorf("entry %d: %s has a price already", e.number, name)
		}
		out[name] = price
	}
	if len(out) == 0 {
		return nil, errors.New("has no entry; leave it unset for no prices")
	}
	return out, nil
}

// parsePrice reads input:output[:cached].
func parsePrice(v string) (memory.Price, error) {
	var n []float64
	for s := range strings.SplitSeq(v, ":") {
		f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		if err != nil || !(f >= 0 && f <= maxPrice) {
			return memory.Price{}, fmt.Errorf("prices must be numbers from 0 to %d, in US dollars per million tokens, not %q", maxPrice, s)
		}
		n = append(n, f)
	}
	switch len(n) {
	case 2:
		return memory.Price{In: n[0], Out: n[1], Cached: n[0]}, nil
	case 3:
		return memory.Price{In: n[0], Out: n[1], Cached: n[2]}, nil
	}
	return memory.Price{}, fmt.Errorf("must have two prices, input:output, or three, input:output:cached, not %q", v)
}
