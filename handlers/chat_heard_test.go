package handlers_test

import (
	"bufio"
	"io"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// TestHeardSparesAnotherAnswer checks that a text that cannot be part of the answer in progress
// does not interrupt it. It belongs to the answer before, or to none.
func TestHeardSparesAnotherAnswer(t *testing.T) {
	t.Parallel()
	const before = "Fine, see you then."
	turn := int64(1)
	for name, tt := range map[string]struct {
		heard string
		turn  *int64
		fails bool
		of    string // the answer that was cut
	}{
		"the one before":             {"Fine, see", nil, false, before},
		"one word of the one before": {"Fine,", nil, false, before},
		"none":                       {"Good morning to you", nil, true, ""},
		"none of the named turn":     {"Fine, see", &turn, true, ""},
		"its own":                    {"Twelve", nil, false, "Twelve euros. "},
		"its own, by turn":           {"twelve euros", &turn, false, "Twelve euros. "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, nil)
			agent := p.join(script(map[string]any{"chunks": []string{"Twelve euros. ", "Each."}, "hang_after": 1}))
			if _, err := p.mem.Messages.Append(t.Context(), "p1", agent, []memory.Message{{Role: memory.User, Content: "Ten?"}, {Role: memory.Assistant, Content: before}}); err != nil {
				t.Fatal(err)
			}
			res := p.post(t.Context(), agent, say("How much?", `,"stream":true`))
			r := bufio.NewReader(res.Body)
			until(t, r, "Twelve")
			_, err := p.mem.Turns.Interrupt(t.Context(), "p1", agent, agents.InterruptRequest{TurnID: tt.turn, Heard: &tt.heard})
			if fault.Is(err, fault.Invalid) != tt.fails || err != nil && !tt.fails {
				t.Fatalf("interrupt: %v", err)
			}
			flying := !strings.HasPrefix(tt.of, "Twelve")
			if _, busy := p.mem.Turns.Busy(t.Context(), "p1", agent); busy != flying {
				t.Errorf("the answer is still sent: %v, want %v", busy, flying)
			}
			if flying {
				p.mem.Turns.Cut(t.Context(), "p1", agent, agents.ErrLeave)
			}
			if _, err := io.ReadAll(r); err != nil {
				t.Errorf("the stream was aborted: %v", err)
			}
			for _, m := range p.ledger(agent) {
				if cut := m.Method == memory.VendorText; cut != (m.Role == memory.Assistant && m.Original() == tt.of) {
					t.Errorf("stored %+v", m)
				}
			}
		})
	}
}
