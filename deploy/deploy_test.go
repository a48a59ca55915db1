// Package deploy_test checks the files of this folder against the program: the metrics exist, each
// alert has an entry in the runbook, and the grace period is long enough.
package deploy_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// TestMetricsExist checks that the program has each metric that an alert, the dashboard or the
// autoscaler names.
func TestMetricsExist(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	name := regexp.MustCompile(`"(heardlog_[a-z_]+)"`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, m := range name.FindAllStringSubmatch(read(t, path), -1) {
			known[m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	used := regexp.MustCompile(`heardlog_[a-z_]+`)
	for _, path := range []string{"prometheus/alerts.yml", "grafana/heardlog.json", "kubernetes/hpa.yaml", "kubernetes/README.md"} {
		names := used.FindAllString(read(t, path), -1)
		if len(names) == 0 {
			t.Errorf("%s names no metric", path)
		}
		for _, n := range names {
			base := n
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, suffix)
			}
			if !known[n] && !known[base] {
				t.Errorf("%s names %s, which the program does not have", path, n)
			}
		}
	}
}

// TestAlerts checks that each alert has a severity, a summary and an entry in the runbook, and that
// the runbook has no entry without an alert.
func TestAlerts(t *testing.T) {
	t.Parallel()
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "prometheus/alerts.yml")), &file); err != nil {
		t.Fatal(err)
	}
	runbook := read(t, "../docs/guides/runbook.md")
	entries := regexp.MustCompile(`(?m)^\| <a id="(\w+)"></a>(\w+) \| [^|]+ \| [^|]+ \|$`).FindAllStringSubmatch(runbook, -1)
	var alerts []string
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			alerts = append(alerts, r.Alert)
			if !slices.Contains([]string{"info", "warning", "critical"}, r.Labels["severity"]) || r.Annotations["summary"] == "" || r.Expr == "" {
				t.Errorf("%s lacks a severity, a summary or an expression", r.Alert)
			}
			if want := "https://github.com/heardlog/heardlog/blob/main/docs/guides/runbook.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
				t.Errorf("%s: runbook_url %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
			}
			if r.For != "" {
				if _, err := time.ParseDuration(r.For); err != nil {
					t.Errorf("%s: %v", r.Alert, err)
				}
			}
			if !slices.ContainsFunc(entries, func(e []string) bool { return e[2] == r.Alert && e[1] == strings.ToLower(r.Alert) }) {
				t.Errorf("docs/guides/runbook.md has no line for %s", r.Alert)
			}
		}
	}
	if len(alerts) == 0 || len(alerts) != len(entries) {
		t.Errorf("%d alerts and %d lines in the runbook", len(alerts), len(entries))
	}
}

// TestGracePeriod: a pod is not killed before its preStop and its shutdown timeout are over.
func TestGracePeriod(t *testing.T) {
	t.Parallel()
	var d struct {
		Spec struct {
			Template struct {
				Spec struct {
					Grace      int `yaml:"terminationGracePeriodSeconds"`
					Containers []struct {
						Env       []struct{ Name, Value string }
						Lifecycle struct {
							PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
						}
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "kubernetes/deployment.yaml")), &d); err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template.Spec
	if len(pod.Containers) != 1 {
		t.Fatalf("%d containers", len(pod.Containers))
	}
	c := pod.Containers[0]
	at := slices.IndexFunc(c.Env, func(e struct{ Name, Value string }) bool { return e.Name == "HEARDLOG_SHUTDOWN_TIMEOUT" })
	if at < 0 {
		t.Fatal("no HEARDLOG_SHUTDOWN_TIMEOUT")
	}
	timeout, err := time.ParseDuration(c.Env[at].Value)
	if err != nil {
		t.Fatal(err)
	}
	sleep := time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	if grace := time.Duration(pod.Grace) * time.Second; sleep == 0 || grace <= timeout+sleep {
		t.Errorf("a grace of %s is not longer than %s and %s", grace, timeout, sleep)
	}
}

// TestDashboard: panels have distinct ids and each query is written down.
func TestDashboard(t *testing.T) {
	t.Parallel()
	var d struct {
		Panels []struct {
			ID      int
			Type    string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "grafana/heardlog.json")), &d); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range d.Panels {
		if seen[p.ID] || p.ID == 0 {
			t.Errorf("panel id %d is used twice or missing", p.ID)
		}
		seen[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %d shows nothing", p.ID)
		}
		for _, q := range p.Targets {
			if strings.Count(q.Expr, "(") != strings.Count(q.Expr, ")") || q.Expr == "" {
				t.Errorf("panel %d: %q", p.ID, q.Expr)
			}
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
