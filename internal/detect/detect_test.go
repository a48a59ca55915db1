package detect_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/heardlog/heardlog/internal/detect"
)

// TestFind: texts of any length are checked in pieces and few calls, and what is found stands at
// its place in the text, wherever that was cut.
func TestFind(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	calls, most := 0, 0
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Texts []string `json:"texts"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		mu.Lock()
		calls++
		mu.Unlock()
		size := 0
		spans := make([][]map[string]any, len(in.Texts))
		for i, text := range in.Texts {
			size += len(text)
			for at := 0; ; {
				j := strings.Index(text[at:], "Zoë Müller")
				if j < 0 {
					break
				}
				from := utf8.RuneCountInString(text[:at+j])
				spans[i] = append(spans[i], map[string]any{"start": from, "end": from + 10, "type": "PERSON"})
				at += j + 1
			}
		}
		mu.Lock()
		most = max(most, size)
		mu.Unlock()
		_ = json.NewEncoder(w).Encode(map[string]any{"spans": spans})
	}))
	t.Cleanup(up.Close)
	settings := &detect.Settings{URL: up.URL, Form: detect.Plain, Timeout: 10 * time.Second}
	d := detect.New(detect.Config{
		Of:        func(string) *detect.Settings { return settings },
		Transport: http.DefaultTransport, Now: time.Now, Log: zerolog.Nop(), Metrics: prometheus.NewRegistry(),
	})
	var texts []string
	for shift := range 40 { // a name at each place around the cuts
		texts = append(texts, strings.Repeat("😀", 900+shift)+strings.Repeat(" Zoë Müller", 50)+strings.Repeat("ö", 3000))
	}
	texts = append(texts, "", "Zoë Müller", strings.Repeat("x", 100_000), "\xff\xfe Zoë Müller")
	found, err := d.Find(t.Context(), "p", texts)
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		places := map[int]bool{}
		for _, f := range found[i] {
			if got := text[f.Start:f.End]; got != "Zoë Müller" || f.Type != "person" {
				t.Fatalf("text %d: %q at %d", i, got, f.Start)
			}
			places[f.Start] = true
		}
		if want := strings.Count(text, "Zoë Müller"); len(places) != want {
			t.Errorf("text %d: %d names, want %d", i, len(places), want)
		}
	}
	if calls > 80 || most > 8200 {
		t.Errorf("%d calls, of at most %d bytes", calls, most)
	}
	if _, err := d.Find(t.Context(), "p", []string{strings.Repeat("x", 9<<20)}); err == nil || !strings.Contains(err.Error(), fmt.Sprint(8<<20)) {
		t.Errorf("a text of 9 MB: %v", err)
	}
}
