package tail_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/tail"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

func jsonOf(r io.Reader, v any) error { return json.NewDecoder(r).Decode(v) }

// order makes IDs comparable: the revision, then the place in it; a plain revision comes last.
func order(t *testing.T, id string) [3]int64 {
	t.Helper()
	parts := strings.Split(id, ".")
	out := [3]int64{0, 1 << 60, 1 << 60}
	for i, p := range parts {
		n, err := strconv.ParseInt(p, 10, 64)
		if err != nil || len(parts) == 2 {
			t.Fatalf("id %q", id)
		}
		if i != 1 || n != 0 {
			out[i] = n
		}
	}
	return out
}

// TestTailThroughCuts runs random writers, and readers whose connections break after any byte. Each
// reader gets everything once and in order: all events that a reader of the final ledger gets, and
// those in between in the order of the ledger.
func TestTailThroughCuts(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := newTails(t, tail.Limits{})
			id := s.join()
			var readers, writers sync.WaitGroup
			got := make([][]received, 4)
			for i := range got {
				readers.Go(func() { got[i] = readThroughCuts(s, id, i > 0, rand.New(rand.NewPCG(seed, uint64(i)))) })
			}
			for i := range 3 {
				writers.Go(func() { writeAtRandom(s, id, rand.New(rand.NewPCG(seed, uint64(100+i)))) })
			}
			writers.Wait()
			if err := s.mem.Agents.Leave(t.Context(), "p", id, ""); err != nil {
				t.Error(err)
			}
			readers.Wait()
			c := s.source(id, "?after=0")
			c.connect()
			final := inLedger(c.rest())
			checkLedger(t, s, id, final)
			for i, list := range got {
				list = inLedger(list)
				t.Logf("reader %d: %d events, of which %d are final", i, len(list), len(final))
				checkOrder(t, list)
				checkHolds(t, list, final)
			}
		})
	}
}

// readThroughCuts reads from the start to the agent's end, over connections that break if cut is
// set.
func readThroughCuts(s *tailServer, id string, cut bool, rnd *rand.Rand) (out []received) {
	c := s.source(id, "")
	c.lastID = "0"
	for c.connect() {
		if cut {
			c.cutAfter(int64(rnd.IntN(3000)))
		}
		out = append(out, c.rest()...)
	}
	if c.status != http.StatusNoContent {
		s.t.Errorf("the last answer was %d", c.status)
	}
	return out
}

func writeAtRandom(s *tailServer, id string, rnd *rand.Rand) {
	ctx := s.t.Context()
	for i := range 60 {
		var err error
		switch rnd.IntN(6) {
		case 0:
			_, err = s.mem.Turns.Speak(ctx, "p", id, fmt.Sprint("one moment ", i), agents.SpeakAppend, "")
		case 1, 2:
			heard := "good"
			_, err = s.mem.Turns.Interrupt(ctx, "p", id, agents.InterruptRequest{Heard: &heard})
		case 3:
			_, err = s.mem.Agents.Update(ctx, "p", id, agents.UpdateRequest{Params: json.RawMessage(`{}`)})
		case 4:
			var batch []memory.Message
			for range 1 + rnd.IntN(4) {
				batch = append(batch, says(memory.User, fmt.Sprint("what ", i)), says(memory.Assistant, "good morning"))
			}
			_, err = s.mem.Messages.Append(ctx, "p", id, batch)
		default:
			_, err = s.mem.Messages.Append(ctx, "p", id, []memory.Message{says(memory.User, "hello"), says(memory.Assistant, "good day to you")})
		}
		// Nothing said yet, or nothing like it.
		if err != nil && !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.Invalid) {
			s.t.Error(err)
		}
	}
}

// checkLedger checks that the messages in final are the ledger.
func checkLedger(t *testing.T, s *tailServer, id string, final []received) {
	t.Helper()
	resp, err := http.Get(s.url + "/v1/agents/" + id + "/messages?limit=1000")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var page struct{ Messages []json.RawMessage }
	if err := jsonOf(resp.Body, &page); err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, m := range page.Messages {
		want = append(want, string(m))
	}
	for _, e := range final {
		if e.Name == "message" {
			got = append(got, e.Data)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" || len(want) == 0 {
		t.Errorf("the tail sends another ledger (-ledger +tail):\n%s", d)
	}
}

// checkOrder checks that IDs increase, so that nothing came twice.
func checkOrder(t *testing.T, list []received) {
	t.Helper()
	var last [3]int64
	for _, e := range list {
		at := order(t, e.ID)
		if slices.Compare(at[:], last[:]) <= 0 {
			t.Fatalf("%s %s came behind %v", e.ID, e.Name, last)
		}
		last = at
	}
}

// checkHolds checks that list holds all of final, in its order.
func checkHolds(t *testing.T, list, final []received) {
	t.Helper()
	i := 0
	for _, want := range final {
		rev, _, _ := strings.Cut(want.ID, ".")
		for i < len(list) {
			got, _, _ := strings.Cut(list[i].ID, ".")
			if i++; got == rev && list[i-1].Name == want.Name && list[i-1].Data == want.Data {
				want.Name = ""
				break
			}
		}
		if want.Name != "" {
			t.Fatalf("%s %s was not sent: %.200s", want.ID, want.Name, want.Data)
		}
	}
}
