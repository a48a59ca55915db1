package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestRecord: a test that one run skips and another runs is no gap, one that all skip is.
func TestRecord(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "record")
	run := func(lines ...string) {
		t.Helper()
		r := newReport(&strings.Builder{})
		if err := r.read(strings.NewReader(strings.Join(lines, "\n"))); err != nil {
			t.Fatal(err)
		}
		if err := r.record(file); err != nil {
			t.Fatal(err)
		}
	}
	pass := func(test string) string { return `{"Action":"pass","Package":"m","Test":"` + test + `"}` }
	skip := func(test, why string) string {
		return `{"Action":"output","Package":"m","Test":"` + test + `","Output":"    a_test.go:9: ` + why + `\n"}` + "\n" +
			`{"Action":"skip","Package":"m","Test":"` + test + `"}`
	}
	run(skip("TestPostgres", "left out"), pass("TestFile"), skip("FuzzX/seed", "not a request at all"))
	run(pass("TestPostgres"), skip("TestFile", "looks into a file"))
	var out strings.Builder
	if err := checkRecord(file, &out); err != nil || out.String() != "2 tests ran\n" {
		t.Errorf("%v\n%s", err, &out)
	}
	run(skip("TestBrowser/a page", "no chromium"))
	out.Reset()
	if err := checkRecord(file, &out); err == nil || !strings.Contains(out.String(), "skipped in every run: m TestBrowser/a page: no chromium\n") {
		t.Errorf("%v\n%s", err, &out)
	}
	run(`{"Action":"fail","Package":"m","Test":"TestBrowser/a page"}`)
	if err := checkRecord(file, &out); err != nil {
		t.Error(err) // it ran, and its own run has failed
	}
	if err := checkRecord(filepath.Join(t.TempDir(), "none"), &out); err == nil {
		t.Error("a missing record is no error")
	}
}
