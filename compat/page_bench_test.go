package compat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// watchFor records in window.drawn when an expression became true, in ms since the navigation.
func watchFor(expression string) step {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
			new MutationObserver(() => { if (!window.drawn && ` + expression + `) requestAnimationFrame(() => { window.drawn = performance.now(); }); })
				.observe(document, {childList: true, subtree: true});`})
		return err
	})
}

// drawn reports how long a page takes to load until something is painted, and until an expression
// is true.
func drawn(b *testing.B, url, expression string) {
	tab := openTab(b, url, watchFor(expression))
	var times, paints []float64
	for b.Loop() {
		tab.do(chromedp.Reload())
		tab.waits(`window.drawn > 0 && performance.getEntriesByName("first-contentful-paint").length > 0`)
		times = append(times, value[float64](tab, `window.drawn`))
		paints = append(paints, value[float64](tab, `performance.getEntriesByName("first-contentful-paint")[0].startTime`))
	}
	report(b, times)
	slices.Sort(paints)
	b.ReportMetric(paints[len(paints)/2], "paint-ms-p50")
	b.ReportMetric(paints[len(paints)-1], "paint-ms-max")
}

// report reports the median and the maximum of times in ms.
func report(b *testing.B, times []float64) {
	slices.Sort(times)
	b.ReportMetric(times[len(times)/2], "ms-p50")
	b.ReportMetric(times[len(times)-1], "ms-max")
}

// BenchmarkPageCall measures a call with 500 turns, from the navigation to the drawn transcript.
func BenchmarkPageCall(b *testing.B) {
	s := start(b)
	id := s.join(b, "desk", nil)
	for range 2 {
		var list []object
		for i := range 500 {
			role := []string{"user", "assistant"}[i%2]
			list = append(list, object{"role": role, "content": fmt.Sprintf("These are the words of message %d of the call, about as long as usual.", i)})
		}
		s.call(b, http.StatusOK, "POST", "/v1/agents/"+id+"/messages", list, nil)
	}
	drawn(b, s.url+"/calls/"+id, `document.querySelectorAll(".transcript li").length >= 1000`)
}

// BenchmarkPageList measures the list of 100,000 ended calls: from the click on More calls until
// the next 50 are drawn.
func BenchmarkPageList(b *testing.B) {
	s := start(b)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	post := func(path, body string, answer any) error {
		resp, err := client.Post(s.url+path, "application/json", strings.NewReader(body))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		out, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", resp.Status, out)
		}
		if err == nil && answer != nil {
			err = json.Unmarshal(out, answer)
		}
		return err
	}
	const calls, workers = 100_000, 64
	var wait sync.WaitGroup
	for worker := range workers {
		wait.Go(func() {
			for range calls / workers {
				var a struct {
					ID string `json:"agent_id"`
				}
				err := post("/v1/agents", fmt.Sprintf(`{"name":"desk-%d","properties":{"labels":{"line":"sales"}}}`, worker), &a)
				if err == nil {
					err = post("/v1/agents/"+a.ID+"/leave", "{}", nil)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	if wait.Wait(); b.Failed() {
		return
	}
	b.ResetTimer()
	tab := openTab(b, s.url+"/")
	tab.waits(`document.querySelector("[data-more]")`)
	var times []float64
	for b.Loop() {
		times = append(times, value[float64](tab, `new Promise(done => {
			const rows = () => document.querySelectorAll(".calls tbody tr").length, before = rows(), from = performance.now();
			const look = () => rows() > before ? done(performance.now() - from) : requestAnimationFrame(look);
			document.querySelector("[data-more]").click();
			look();
		})`))
	}
	report(b, times)
}
