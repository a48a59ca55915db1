package fault_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/heardlog/heardlog/internal/fault"
)

func TestCodeOf(t *testing.T) {
	t.Parallel()
	cause := errors.New("disk")
	for _, tt := range []struct {
		name string
		err  error
		want fault.Code
	}{
		{"nil", nil, ""},
		{"plain", cause, fault.Internal},
		{"coded", fault.New(fault.NotFound, "no %s", "agent"), fault.NotFound},
		{"wrapped", fmt.Errorf("get: %w", fault.At(fault.Invalid, "a.b", "is wrong")), fault.Invalid},
		{"with a cause", fault.Wrap(fault.Unavailable, cause, "try again"), fault.Unavailable},
		{"the outermost counts", fault.Wrap(fault.Unavailable, fault.New(fault.NotFound, "x"), "y"), fault.Unavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := fault.CodeOf(tt.err); got != tt.want {
				t.Errorf("code %q, want %q", got, tt.want)
			}
		})
	}
	if !errors.Is(fault.Wrap(fault.Unavailable, cause, "x"), cause) {
		t.Error("the cause is not in the chain")
	}
}

func TestAtNamesTheField(t *testing.T) {
	t.Parallel()
	e, ok := errors.AsType[*fault.Error](fault.At(fault.Invalid, "messages[0].role", "is wrong"))
	if !ok || e.Field != "messages[0].role" || e.Msg != "messages[0].role: is wrong" {
		t.Errorf("got %+v", e)
	}
}
