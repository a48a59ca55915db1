package handlers_test

import (
	"net/http"
	"testing"

	"github.com/heardlog/heardlog/handlers"
	"github.com/heardlog/heardlog/internal/fault"
)

func TestEveryCodeHasAStatus(t *testing.T) {
	t.Parallel()
	for _, c := range fault.Codes() {
		got := handlers.Status(c)
		if (got == http.StatusInternalServerError) != (c == fault.Internal) {
			t.Errorf("%s has status %d: only an internal error is a 500", c, got)
		}
	}
}
