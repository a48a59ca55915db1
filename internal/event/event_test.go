package event_test

import (
	"testing"

	"github.com/heardlog/heardlog/internal/event"
)

func TestTypes(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	last := 0
	for _, typ := range event.Types() {
		if typ.Number <= last || typ.Name == "" || names[typ.Name] {
			t.Errorf("%+v is out of order, or its name is not its own", typ)
		}
		if got, ok := event.Of(typ.Number); !ok || got != typ || event.Name(typ.Number) != typ.Name {
			t.Errorf("%d is found as %+v, %q", typ.Number, got, event.Name(typ.Number))
		}
		last, names[typ.Name] = typ.Number, true
	}
	if _, ok := event.Of(100); ok || event.Name(100) != "100" {
		t.Errorf("type 100 exists, named %q", event.Name(100))
	}
}
