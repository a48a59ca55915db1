package handlers_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/internal/turn"
	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/agents"
)

// forgetful is a memory whose store fails to store an answer.
type forgetful struct{ turn.Turns }

func (f forgetful) Settle(ctx context.Context, t *agents.Turn, a agents.Answer) (memory.Message, error) {
	a.Err = agents.ErrClientGone
	if _, err := f.Turns.Settle(ctx, t, a); err != nil {
		return memory.Message{}, err
	}
	return memory.Message{}, fault.New(fault.Unavailable, "the disk is full")
}

// TestChatAnswerNotStored checks that an answer that was not stored ends neither with a clean
// [DONE] nor with a 200.
func TestChatAnswerNotStored(t *testing.T) {
	t.Parallel()
	p := newProxy(t, func(c *turn.Config) { c.Turns = forgetful{c.Turns} })
	res := p.post(t.Context(), p.join(nil), say("when is my train?", `,"stream":true`))
	body, err := io.ReadAll(res.Body)
	if err == nil || strings.Contains(string(body), "[DONE]") {
		t.Errorf("the stream ended in good order:\n%s", body)
	}
	if !strings.Contains(string(body), "could not be stored") {
		t.Errorf("the stream does not say what happened:\n%s", body)
	}
	res = p.post(t.Context(), p.join(nil), say("when is my train?", ""))
	if res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %d, want 503", res.StatusCode)
	}
}
