//go:build !unix

package sqlite_test

import (
	"context"

	"github.com/heardlog/heardlog/internal/drivers"
)

// helpEarly has no disk here that it could make refuse.
func helpEarly(context.Context, *drivers.SQLite, string) error { return nil }
