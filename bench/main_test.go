package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The tests are inside the package because a command exports nothing.

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" { // a process that the run below started
		if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestQuick runs every part once, with little load. Each part must produce its rows, whatever the
// figures. Parts wait more than they work, so they run in parallel.
func TestQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	server, err := build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i, rows := range []int{2, 5, 11, 3, 21, 2, 5, 6, 4, 6, 12, 3, 6, 5, 14, 6, 3} {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			t.Parallel()
			quickly(t, i+1, rows, server)
		})
	}
}

// quickly runs one part and wants that many rows of it.
func quickly(t *testing.T, part, want int, server string) {
	t.Helper()
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-quick", "-rounds", "1", "-streams", "50", "-only", strconv.Itoa(part), "-server", server, "-dir", t.TempDir()}, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	// There is no database server, or no Redis; the tests of their drivers fail then in CI.
	if strings.Contains(out.String(), "SKIPPED") {
		t.Skip(out.String())
	}
	_, table, ok := strings.Cut(out.String(), "figures behind it\n")
	if !ok {
		t.Fatalf("no table in\n%s", &out)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	rows := 0
	for line := range strings.Lines(table) {
		rows++
		if got, _, _ := strings.Cut(line, " "); got != strconv.Itoa(part) {
			t.Errorf("a row of part %s: %s", got, line)
		}
	}
	if rows != want || strings.Contains(table, "NaN") || strings.Contains(table, "Inf") {
		t.Errorf("%d rows, want %d:\n%s", rows, want, table)
	}
	if part == 6 && !strings.Contains(table, "streams lost of 50, 50 at once") {
		t.Errorf("rows:\n%s", table)
	}
}

// TestAgainst measures one server as two: each row has both figures.
func TestAgainst(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a few seconds")
	}
	t.Parallel()
	server, err := build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-quick", "-rounds", "2", "-only", "12", "-server", server, "-against", server, "-dir", t.TempDir()}, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	_, table, ok := strings.Cut(out.String(), "measured / against")
	if !ok || strings.Count(table, "(against: ") != 3 || strings.Count(table, " × ") < 3 {
		t.Errorf("no figures of both servers in\n%s", &out)
	}
}

// TestMedianRow: the round in the middle keeps the note that belongs to its figure.
func TestMedianRow(t *testing.T) {
	t.Parallel()
	rounds := [][]check{{{value: 9, note: "nine"}}, {{value: 1, note: "one"}}, {{value: 5, note: "five"}}, {{value: 7, note: "seven"}}}
	for _, tt := range []struct {
		rounds int
		want   string
	}{{1, "nine"}, {2, "one"}, {3, "five"}, {4, "five"}} {
		if got, err := medianRow(rounds[:tt.rounds], 0); err != nil || got.note != tt.want {
			t.Errorf("of %d rounds %q, want %q: %v", tt.rounds, got.note, tt.want, err)
		}
	}
	if _, err := medianRow(rounds, 1); err == nil {
		t.Error("a row that no round has was found")
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-only", "17"}, {"-only", "x"}, {"-role", "nobody"}} {
		args = append(args, "-server", "/nothing", "-dir", t.TempDir())
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}

func TestStatistics(t *testing.T) {
	t.Parallel()
	s := samples{4, 1, 3, 2, 5, 6, 7, 8, 9, 10}
	got := []any{s.at(0), s.at(.5), s.at(.99), samples(nil).at(.5), median([]float64{9, 1, 5}), median([]float64{4, 1, 2, 3}),
		ratio([]float64{2, 9, 4}, []float64{1, 1, 1}), added([]float64{3, 5, 9}, []float64{1, 1, 1})}
	want := []any{time.Duration(1), time.Duration(6), time.Duration(10), time.Duration(0), 5.0, 2.5, 4.0, 4.0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := report{out: &out}
	r.atLeast(1, "rate", 0.5, "x", 0.5, "%d", 7)
	r.atMost(2, "time", 5.01, "ms", 5, "")
	r.atMost(2, "lost", 0, "", 0, "")
	missed, err := r.table()
	if err != nil || missed != 1 {
		t.Errorf("%d missed, want 1: %v", missed, err)
	}
	for _, want := range []string{"rate  0.50 ×    ≥ 0.50 ×  pass  7", "time  5.01 ms   ≤ 5 ms    MISS", "lost  0         ≤ 0       pass", "2 of 3 targets met"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
}

// TestConn reads what net/http writes: a length, chunks, and a stream that breaks.
func TestConn(t *testing.T) {
	t.Parallel()
	addr := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/length":
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			answer(w, body)
		case "/chunks":
			for range 3 {
				if _, err := io.WriteString(w, strings.Repeat("x", 5000)); err != nil {
					t.Error(err)
				}
				w.(http.Flusher).Flush()
			}
		case "/broken":
			_, _ = io.WriteString(w, upstreamChunk)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	c := connect(t, addr)
	for _, tt := range []struct {
		path, want string
		status     int
	}{{"/length", "hello", 200}, {"/chunks", strings.Repeat("x", 15000), 200}, {"/none", "", 404}, {"/length", "again", 200}} {
		status, err := c.do(request("POST", tt.path, addr, []byte(tt.want), ""))
		if err != nil || status != tt.status || string(c.body) != tt.want {
			t.Errorf("%s: status %d, %d bytes, %v", tt.path, status, len(c.body), err)
		}
	}
	if _, err := wantStream(c, request("POST", "/broken", addr, []byte("{}"), ""), 1); err == nil {
		t.Error("a stream that broke was taken for a whole one")
	}
}

// TestStream reads the fake upstream, directly and through the ReverseProxy.
func TestStream(t *testing.T) {
	t.Parallel()
	up := serve(t, newUpstream())
	proxy, err := newReverseProxy(up)
	if err != nil {
		t.Fatal(err)
	}
	for name, addr := range map[string]string{"upstream": up, "reverseproxy": serve(t, proxy)} {
		c := connect(t, addr)
		req := request("POST", "/v1/chat/completions?chunks=4&gap_us=100", addr, chatBody(true), "")
		if first, err := wantStream(c, req, 4); err != nil || first.IsZero() {
			t.Errorf("%s: first event at %v, %v", name, first, err)
		}
		if _, err := wantStream(c, req, 5); err == nil {
			t.Errorf("%s: a stream with a chunk too few was taken for a whole one", name)
		}
		c = connect(t, addr)
		if err := wantOK(c, request("POST", "/v1/chat/completions", addr, chatBody(false), "")); err != nil || !bytes.Equal(c.body, upstreamWhole()) {
			t.Errorf("%s: %d bytes, %v", name, len(c.body), err)
		}
	}
}

// TestSingle checks that the store of one transaction an append stores what it counts.
func TestSingle(t *testing.T) {
	t.Parallel()
	s, err := openSingle(t.Context(), t.TempDir()+"/one/single.db")
	if err != nil {
		t.Fatal(err)
	}
	defer s.db.Close()
	for round := range 2 {
		if rate, err := s.run(t.Context(), round, 4, 20, "{}"); err != nil || rate <= 0 {
			t.Fatalf("rate %v, %v", rate, err)
		}
	}
	n := 0
	if err := s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM message").Scan(&n); err != nil || n != 40 {
		t.Errorf("%d rows, want 40: %v", n, err)
	}
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	return ln.Addr().String()
}

func connect(t *testing.T, addr string) *conn {
	t.Helper()
	c, err := dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
