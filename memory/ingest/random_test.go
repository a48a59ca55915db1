package ingest_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/ingest"
	"github.com/heardlog/heardlog/memory/turns"
)

// pick gives one of the values, the first (which tells nothing) most often.
func pick[T any](r *rand.Rand, values ...T) T {
	if r.IntN(2) == 0 {
		return values[0]
	}
	return values[r.IntN(len(values))]
}

// anyNotice makes up a notice. Its facts contradict those of others: a sender may be wrong, or
// speak of the same thing in two ways.
func anyNotice(r *rand.Rand, n int) ingest.Notice {
	out := ingest.Notice{
		ID: fmt.Sprint("n", n), AgentID: "a", Name: pick(r, "", "x", "y"), Channel: pick(r, "", "c", "d"), StartMS: archiveStart + pick[int64](r, 0, 5, 1000),
		StopMS: pick[int64](r, 0, archiveStart+60_000, archiveStart+60_001),
	}
	if r.IntN(3) == 0 {
		out.Labels = map[string]string{pick(r, "k", "l"): pick(r, "1", "2")}
	}
	if r.IntN(4) == 0 {
		out.Left = &memory.ArchiveEnd{Status: pick(r, memory.Stopped, memory.Failed), Message: pick(r, "", memory.EndOK, memory.EndIdle)}
	}
	for range r.IntN(3) {
		out.Errors = append(out.Errors, memory.ArchiveError{TurnID: r.Int64N(5), Module: pick(r, "llm", "tts"), Code: r.IntN(3), Message: pick(r, "", "m")})
	}
	for range pick(r, 0, 3, 5) {
		out.Turns = append(out.Turns, memory.ArchiveTurn{
			TurnID: r.Int64N(5), StartMS: archiveStart + r.Int64N(9), StartType: pick(r, turns.StartVoice, turns.StartGreeting, turns.StartSpeak, ""), EndMS: pick(r, 0, archiveStart+r.Int64N(99)),
			EndType: pick(r, turns.EndOK, turns.EndInterrupted, turns.EndError, "ignored", ""), CausedBy: pick(r, "", memory.ByAPISpeak), E2EMS: r.Int64N(3), TokenMS: r.Int64N(3),
		})
	}
	numbered := r.IntN(2) == 0
	for i := range pick(r, 0, 4, 6) {
		m := memory.Message{Role: pick(r, memory.User, memory.Assistant), Content: pick(r, "hello", "", "and more"), Timestamp: pick[int64](r, 0, archiveStart+7)}
		if m.GivenTurn = numbered || r.IntN(9) == 0; m.GivenTurn {
			m.TurnID = int64(i / 2)
		}
		if m.Role == memory.Assistant {
			m.Source = pick(r, "", memory.SourceLLM, memory.SourceGreeting, memory.SourceCommand)
			if m.Interrupted = r.IntN(3) == 0; m.Interrupted {
				m.InterruptMS, m.Generated = pick[int64](r, 0, archiveStart+8), pick(r, "", m.Content, m.Content+" of it")
			}
		}
		out.History = append(out.History, m)
	}
	return out
}

// TestFileRandom: whatever notices tell, also against each other, their order and repeats make no
// difference.
func TestFileRandom(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 2))
		notices := make([]ingest.Notice, 2+r.IntN(5))
		for i := range notices {
			notices[i] = anyNotice(r, i)
		}
		want := onlyRecord(t, s, notices...)
		for range 8 {
			some := append(append([]ingest.Notice{}, notices...), notices[r.IntN(len(notices))])
			r.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
			sameRecord(t, want, onlyRecord(t, s, some...))
			if t.Failed() {
				t.Fatalf("seed %d: %+v", seed, some)
			}
		}
	}
}

// onlyRecord files notices and returns the record that they make, which it erases.
func onlyRecord(t *testing.T, s service, notices ...ingest.Notice) archived {
	t.Helper()
	file(t, s, notices...)
	return takeRecord(t, s, "a")
}
