package main

import (
	"strings"
	"testing"
)

// TestReport reads the events of packages that passed, failed, were skipped, panicked and did not
// build.
func TestReport(t *testing.T) {
	t.Parallel()
	const events = `{"Action":"output","Package":"m/a","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"    a_test.go:3: chatter\n"}
{"Action":"pass","Package":"m/a","Test":"TestGood"}
{"Action":"output","Package":"m/a","Test":"TestSkip","Output":"    a_test.go:8: chatter\n"}
{"Action":"output","Package":"m/a","Test":"TestSkip","Output":"    a_test.go:9: no node: install it\n"}
{"Action":"output","Package":"m/a","Test":"TestSkip","Output":"--- SKIP: TestSkip (0.00s)\n"}
{"Action":"skip","Package":"m/a","Test":"TestSkip"}
{"Action":"output","Package":"m/a","Output":"PASS\n"}
{"Action":"output","Package":"m/a","Output":"ok  \tm/a\t0.1s\n"}
{"Action":"pass","Package":"m/a"}
{"Action":"output","Package":"m/none","Output":"?   \tm/none\t[no test files]\n"}
{"Action":"skip","Package":"m/none"}
{"Action":"output","Package":"m/b","Test":"TestBad","Output":"    b_test.go:5: want 1, got 2\n"}
{"Action":"fail","Package":"m/b","Test":"TestBad"}
{"Action":"output","Package":"m/b","Test":"TestEndless","Output":"panic: test timed out\n"}
{"Action":"output","Package":"m/b","Output":"FAIL\tm/b\t0.2s\n"}
{"Action":"fail","Package":"m/b"}
{"Action":"build-output","ImportPath":"m/c","Output":"c.go:1: syntax error\n"}
{"Action":"skip","Package":"m/d","Test":"TestAlso"}
go: no such module
`
	var out strings.Builder
	r := newReport(&out)
	if err := r.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	if err := r.summarize(); err != nil {
		t.Fatal(err)
	}
	const want = `ok  	m/a	0.1s
--- m/b TestBad
    b_test.go:5: want 1, got 2
FAIL	m/b	0.2s
--- m/b TestEndless
panic: test timed out
c.go:1: syntax error
go: no such module

Not run:
  1 in m/a
    no node: install it
  1 in m/d
    no reason given

1 passed, 1 failed, 2 skipped
`
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", &out, want)
	}
}

// TestSplit checks how arguments are divided into runs.
func TestSplit(t *testing.T) {
	t.Parallel()
	got, err := split([]string{".", "./...", "--", "compat", "-count=1"})
	if err != nil || len(got) != 2 || strings.Join(got[0], " ") != ". ./..." || strings.Join(got[1], " ") != "compat -count=1" {
		t.Errorf("%q, %v", got, err)
	}
	for _, args := range [][]string{nil, {"--", "x"}, {"x", "--"}} {
		if _, err := split(args); err == nil || !strings.Contains(err.Error(), "folder") {
			t.Errorf("%q: error %v", args, err)
		}
	}
}
