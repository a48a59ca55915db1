package context_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/heardlog/heardlog/memory"
	memctx "github.com/heardlog/heardlog/memory/context"
	"github.com/heardlog/heardlog/memory/view"
	"github.com/heardlog/heardlog/memory/window"
)

// TestBudgetCountsWhatIsTold: a projection that tells more than was heard of an answer pays for
// that in tokens, and what is told stays within them.
func TestBudgetCountsWhatIsTold(t *testing.T) {
	t.Parallel()
	s := newService(t)
	a := join(t, s)
	cut := llm("Once")
	cut.Generated, cut.Interrupted = "Once "+strings.Repeat("upon a time ", 200), true
	if _, err := s.mem.Messages.Append(t.Context(), "p", a.ID, []memory.Message{user("tell"), cut, user("and?")}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		projection     view.Projection
		tokens, told   int
		mostCharacters int
	}{
		{view.HeardOnly, 50, 3, 12},
		{view.HeardAndUnsaid, 50, 1, 200},
		{view.GeneratedWhole, 50, 1, 200},
		{view.GeneratedWhole, 1000, 3, 4000},
	} {
		got, err := s.Context(t.Context(), "p", a.ID, memctx.Request{Policy: &window.Policy{Projection: string(tt.projection), MaxTokens: &tt.tokens}})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, m := range got.Messages {
			n += utf8.RuneCountInString(m.Text)
		}
		if len(got.Messages) != tt.told || n > tt.mostCharacters || n/4 != got.Tokens {
			t.Errorf("%s in %d tokens: %d messages of %d characters, %d tokens told", tt.projection, tt.tokens, len(got.Messages), n, got.Tokens)
		}
	}
}
