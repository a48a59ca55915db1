package llmadapter_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/llmadapter"
)

// events feeds pieces and returns the events.
func events(pieces ...string) []string {
	var p llmadapter.Events
	var out []string
	add := func(list []llmadapter.Event) {
		for _, e := range list {
			if e.Data != nil {
				out = append(out, string(e.Data))
			}
		}
	}
	for _, s := range pieces {
		add(p.Feed([]byte(s)))
	}
	add(p.End())
	return out
}

func streams() map[string][]string {
	return map[string][]string{
		"data: a\n\ndata: b\n\n":                        {"a", "b"},
		"data:a\r\n\r\ndata: b\r\n\r\n":                 {"a", "b"},
		"data: a\r\rdata: b\r\r":                        {"a", "b"},
		"\xef\xbb\xbfdata: a\n\n":                       {"a"},
		": c\n\nevent: x\nid: 1\nretry: 3\ndata: a\n\n": {"a"},
		"data: a\ndata: b\ndata\n\n":                    {"a\nb\n"},
		"data:  a\n\n":                                  {" a"},
		"data: a":                                       {"a"},
		"data: a\n":                                     {"a"},
		"data: a\r":                                     {"a"},
		"database: a\n\ndat: b\n\n":                     nil,
		"\n\n\r\n\r\r: x\n":                             nil,
		"data: 你\n\nevent: y\n\ndata: 🙂\r\n\r\n":        {"你", "🙂"},
		"data\n\n":                                      {""},
		"data: a\r\n\ndata: b\n\r\n":                    {"a", "b"},
	}
}

// Split anywhere, the events are the same.
func TestEventsSplitAnywhere(t *testing.T) {
	t.Parallel()
	for in, want := range streams() {
		if diff := cmp.Diff(want, events(in)); diff != "" {
			t.Errorf("%q: %s", in, diff)
		}
		for i := range len(in) + 1 {
			for j := i; j <= len(in); j++ {
				if got := events(in[:i], in[i:j], in[j:]); !slices.Equal(got, want) {
					t.Errorf("%q split at %d and %d: %q, want %q", in, i, j, got, want)
				}
			}
		}
	}
}

// TestEventsRaw checks what is passed on at once: whole events, and comments between them.
func TestEventsRaw(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"data: a\n\n": "data: a\n\n", "data: a\n": "", "data: a\n\nda": "data: a\n\n", ": c\n": ": c\n", ": c": "", "event: x\n": "",
		"event: x\ndata: a\n": "", "data: a\r\rx": "data: a\r\r", ": c\n\ndata: a\n": ": c\n\n",
	} {
		var p llmadapter.Events
		got := ""
		for _, e := range p.Feed([]byte(in)) {
			got += string(e.Raw)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestEventsPeek checks that what is read ahead is returned again, and stays as it was.
func TestEventsPeek(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 7, 1 << 10} {
		in := strings.Repeat("data: "+strings.Repeat("x", 700)+"\n\n", 40) + "data: end"
		p := llmadapter.NewEvents(&pieces{strings.NewReader(in), size})
		for n := 0; n < 20; {
			list, err := p.Peek()
			if err != nil {
				t.Fatal(err)
			}
			n = len(list)
		}
		got := ""
		for err := error(nil); err == nil; {
			var list []llmadapter.Event
			list, err = p.Next()
			for _, e := range list {
				got += string(e.Raw)
			}
		}
		if got != in {
			t.Errorf("by %d bytes: got %d of %d bytes", size, len(got), len(in))
		}
	}
}

// endless is an event without end.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

// TestEventsTooLarge checks that an event without end ends the stream.
func TestEventsTooLarge(t *testing.T) {
	t.Parallel()
	p := llmadapter.NewEvents(io.MultiReader(strings.NewReader("data: a\n\ndata: "), endless{}))
	n := 0
	var err error
	for err == nil {
		var list []llmadapter.Event
		list, err = p.Next()
		n += len(list)
	}
	if n != 1 || !fault.Is(err, fault.Upstream) {
		t.Errorf("%d events, %v", n, err)
	}
}

// out is a client that records its writes.
type out struct {
	strings.Builder
	writes  []string
	pending strings.Builder
	fail    int // the write that fails, from 1; 0 = none
}

func (o *out) Write(b []byte) (int, error) {
	if o.fail > 0 && len(o.writes)+1 == o.fail {
		return 0, errors.New("gone")
	}
	o.pending.Write(b)
	return o.Builder.Write(b)
}

func (o *out) Flush() error {
	o.writes = append(o.writes, o.pending.String())
	o.pending.Reset()
	return nil
}

const (
	one  = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"One. \"}}]}\n\n"
	two  = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Zwölf 🙂\"},\"finish_reason\":\"stop\"}]}\n\n"
	done = "data: [DONE]\n\n"
)

// run relays a stream.
func run(r *llmadapter.Relay, src io.Reader) error { return r.Run(llmadapter.NewEvents(src)) }

// The relay writes what it reads, however that is split. It writes an event when it is complete,
// and [DONE] when the answer is stored.
func TestRelay(t *testing.T) {
	t.Parallel()
	in := ": hi\n\n" + one + two + done
	for i := range len(in) + 1 {
		o := &out{}
		stored := ""
		r := llmadapter.Relay{Out: o, Now: time.Now}
		r.Ending = func() error { stored = o.String(); return nil }
		err := run(&r, io.MultiReader(strings.NewReader(in[:i]), strings.NewReader(in[i:])))
		if err != nil || o.String() != in {
			t.Fatalf("split at %d: %v %q", i, err, o.String())
		}
		if stored != strings.TrimSuffix(in, done) {
			t.Fatalf("split at %d: when the answer was stored the client had %q", i, stored)
		}
		for _, w := range o.writes {
			if !strings.HasSuffix(w, "\n") {
				t.Fatalf("split at %d: an event was cut: %q", i, w)
			}
		}
		rec := &r.Record
		if rec.Generated() != "One. Zwölf 🙂" || rec.Sent() != rec.Generated() || rec.Finish != "stop" || rec.ID != "c" || !rec.Complete() || rec.FirstTokenAt.IsZero() || rec.FirstSentenceAt.IsZero() {
			t.Fatalf("split at %d: %+v", i, rec)
		}
	}
}

// Sent is cut at the last delta that left.
func TestRelayWriteFails(t *testing.T) {
	t.Parallel()
	o := &out{fail: 2}
	r := llmadapter.Relay{Out: o, Now: time.Now}
	err := run(&r, io.MultiReader(strings.NewReader(one), strings.NewReader(two+done)))
	if _, ok := errors.AsType[*llmadapter.WriteError](err); !ok {
		t.Fatalf("%v", err)
	}
	if r.Record.Sent() != "One. " || r.Record.Generated() != "One. Zwölf 🙂" {
		t.Errorf("sent %q of %q", r.Record.Sent(), r.Record.Generated())
	}
}

// leaver is a client that is gone before the write that made it go has come back.
type leaver struct {
	out
	leave func()
}

func (l *leaver) Flush() error {
	l.leave()
	return l.out.Flush()
}

// A write in progress when the client leaves counts as sent, and is waited for. Nothing is written
// after it.
func TestRelayMute(t *testing.T) {
	t.Parallel()
	var noted <-chan struct{}
	r := llmadapter.Relay{Now: time.Now}
	o := &leaver{leave: func() {
		noted = r.Mute()
		select {
		case <-noted:
			t.Error("noted before the write came back")
		default:
		}
	}}
	r.Out = o
	if err := run(&r, io.MultiReader(strings.NewReader(one), strings.NewReader(two+done))); err != nil {
		t.Fatal(err)
	}
	<-noted
	if o.String() != one || r.Record.Sent() != "One. " || r.Record.Generated() != "One. Zwölf 🙂" {
		t.Errorf("wrote %q, sent %q of %q", o.String(), r.Record.Sent(), r.Record.Generated())
	}
	r = llmadapter.Relay{Out: &out{}, Now: time.Now}
	<-r.Mute() // between two writes there is nothing to wait for
}

// An upstream that breaks: what came went on, and the error comes back.
func TestRelayReadFails(t *testing.T) {
	t.Parallel()
	o := &out{}
	r := llmadapter.Relay{Out: o, Now: time.Now, Ending: func() error { t.Error("stored as complete"); return nil }}
	err := run(&r, io.MultiReader(strings.NewReader(one+"data: {\"cho"), iotest.ErrReader(io.ErrUnexpectedEOF)))
	if !errors.Is(err, io.ErrUnexpectedEOF) || o.String() != one || r.Record.Complete() {
		t.Errorf("%v %q", err, o.String())
	}
}

// A large event is passed on once it is whole.
func TestRelayHugeEvent(t *testing.T) {
	t.Parallel()
	huge := "data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("a", 300<<10) + "\"}}]}"
	o := &out{}
	r := llmadapter.Relay{Out: o, Now: time.Now}
	err := run(&r, io.MultiReader(strings.NewReader(huge), iotest.ErrReader(io.ErrUnexpectedEOF)))
	if err == nil || o.String() != "" || r.Record.Generated() != "" {
		t.Errorf("%v, %d bytes", err, len(o.String()))
	}
	o = &out{}
	r = llmadapter.Relay{Out: o, Now: time.Now}
	if err := run(&r, strings.NewReader(huge+"\n\n"+done)); err != nil || o.String() != huge+"\n\n"+done || len(r.Record.Sent()) != 300<<10 {
		t.Errorf("%v, %d bytes, sent %d", err, len(o.String()), len(r.Record.Sent()))
	}
}

// A stream that ends without an end mark: the client gets the whole events, and not the rest.
func TestRelayTruncated(t *testing.T) {
	t.Parallel()
	for i := range len(two) {
		o := &out{}
		r := llmadapter.Relay{Out: o, Now: time.Now, Ending: func() error { return nil }}
		err := run(&r, strings.NewReader(one+two[:i]))
		ended := i >= len(two)-2 // but for its blank line the event is whole
		if errors.Is(err, llmadapter.ErrTruncated) == ended || r.Record.Complete() != ended || !ended && o.String() != one {
			t.Fatalf("cut at %d: %v %q %+v", i, err, o.String(), &r.Record)
		}
	}
}

// FuzzRelay: the bytes are the same and nothing panics, however they are cut.
func FuzzRelay(f *testing.F) {
	for in := range streams() {
		f.Add([]byte(in), 3)
	}
	f.Add([]byte(one+two+done), 7)
	f.Fuzz(func(t *testing.T, in []byte, n int) {
		o := &out{}
		r := llmadapter.Relay{Out: o, Now: time.Now}
		var src io.Reader = strings.NewReader(string(in))
		if n = n % 50; n > 0 {
			src = &pieces{src, n}
		}
		// What a truncated stream ends with is not passed on.
		err := run(&r, src)
		if cut := errors.Is(err, llmadapter.ErrTruncated); err != nil && !cut || cut && !strings.HasPrefix(string(in), o.String()) || !cut && o.String() != string(in) {
			t.Fatalf("%v %q, want %q", err, o.String(), in)
		}
		var whole llmadapter.Relay
		whole.Now = time.Now
		if again := run(&whole, strings.NewReader(string(in))); !errors.Is(again, err) || whole.Record.Generated() != r.Record.Generated() {
			t.Fatalf("%v: in one piece %q, in many %q", again, whole.Record.Generated(), r.Record.Generated())
		}
	})
}

type pieces struct {
	r io.Reader
	n int
}

func (p *pieces) Read(b []byte) (int, error) { return p.r.Read(b[:min(len(b), p.n)]) }
