package compat_test

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// browse opens a page in headless Chromium and returns the DOM after its scripts have run, and what
// the browser logged. Without Chromium it skips the test.
func browse(t *testing.T, url string) (dom, log string) {
	t.Helper()
	browser := needChromium(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, errOut bytes.Buffer
	c := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--user-data-dir="+t.TempDir(),
		"--enable-logging=stderr", "--virtual-time-budget=30000", "--dump-dom", url)
	c.Stdout, c.Stderr, c.WaitDelay = &out, &errOut, 5*time.Second
	if err := c.Run(); err != nil {
		t.Fatalf("chromium: %v\n%s", err, errOut.String())
	}
	return out.String(), errOut.String()
}

// TestDocsInBrowser checks that the viewer shows the description, and requests nothing that the
// page's policy forbids, such as other hosts.
func TestDocsInBrowser(t *testing.T) {
	t.Parallel()
	s := start(t)
	dom, log := browse(t, s.url+"/docs")
	for _, want := range []string{"Start an agent", "/v1/agents/{id}/leave", "Ten calls that you need", "Guides", "Search"} {
		if !strings.Contains(dom, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	for line := range strings.Lines(log) {
		if strings.Contains(line, "CONSOLE") && !strings.Contains(line, `"@scalar/api-reference@`) {
			t.Errorf("the browser's console: %s", line)
		}
	}
}
