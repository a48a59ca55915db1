package memories_test

import (
	"context"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/memory"
	"github.com/heardlog/heardlog/memory/memories"
	"github.com/heardlog/heardlog/memory/window"
	"github.com/heardlog/heardlog/store/storetest"
)

// largestPage notes how many bytes of texts a search was given at a time.
type largestPage struct {
	store
	most, reads int
}

func (p *largestPage) Items(ctx context.Context, project string, q memories.Query) ([]memories.Item, int64, error) {
	list, next, err := p.store.Items(ctx, project, q)
	n := 0
	for i := range list {
		n += len(list[i].Message.Content)
	}
	p.most, p.reads = max(p.most, n), p.reads+1
	return list, next, err
}

// TestSearchHolds: however long the texts are, a search holds no more than its bytes of them and
// one page, which is no more than that; short ones take few reads.
func TestSearchHolds(t *testing.T) {
	t.Parallel()
	const most = 32 << 20
	for _, tt := range []struct {
		name      string
		text      string
		n         int
		truncated bool
		reads     int
	}{
		{"long", strings.Repeat("x", 256<<10), 260, true, 2},
		{"short", "short", 2000, false, 16},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			store := &largestPage{store: storetest.New(t)}
			s := serviceOn(store, 0)
			for range tt.n {
				if _, err := s.Add(t.Context(), "p", memory.Message{Role: memory.User, Content: tt.text, Details: &memory.Details{Filed: memory.Filed{Item: &memory.Item{}}}}); err != nil {
					t.Fatal(err)
				}
			}
			found, err := s.Search(t.Context(), "p", window.SearchQuery{Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			if held := found.Total * len(tt.text); held > 2*most || found.Truncated != tt.truncated {
				t.Errorf("looked at %d, %d bytes, truncated %t", found.Total, held, found.Truncated)
			}
			if store.most > most || store.reads > tt.reads {
				t.Errorf("%d reads, of up to %d bytes; want at most %d", store.reads, store.most, tt.reads)
			}
		})
	}
}
