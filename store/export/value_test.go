package export_test

import (
	"testing"

	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/record"
)

// TestPlace: an import into an empty store keeps the revision of a space, and readers of a space
// that is there already notice it.
func TestPlace(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ before, want record.State }{
		"an empty store":       {record.State{}, record.State{Rev: 7, CompactedRev: 7, Count: 1, Bytes: 3}},
		"the next record":      {record.State{Rev: 7, CompactedRev: 7, Count: 1, Bytes: 3}, record.State{Rev: 7, CompactedRev: 7, Count: 2, Bytes: 6}},
		"an older space":       {record.State{Rev: 3, Count: 2, Bytes: 9}, record.State{Rev: 7, CompactedRev: 7, Count: 3, Bytes: 12}},
		"one as old":           {record.State{Rev: 7, Count: 2, Bytes: 9}, record.State{Rev: 8, CompactedRev: 8, Count: 3, Bytes: 12}},
		"a newer space":        {record.State{Rev: 9, CompactedRev: 2, Count: 2, Bytes: 9}, record.State{Rev: 10, CompactedRev: 10, Count: 3, Bytes: 12}},
		"after an erasure":     {record.State{Rev: 7, CompactedRev: 7}, record.State{Rev: 8, CompactedRev: 8, Count: 1, Bytes: 3}},
		"after a long history": {record.State{Rev: 9, CompactedRev: 9}, record.State{Rev: 10, CompactedRev: 10, Count: 1, Bytes: 3}},
	} {
		v := export.Value{ID: export.Text("a"), Body: export.Text("{}"), SpaceRev: 7}
		if got := v.Place(tt.before); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
