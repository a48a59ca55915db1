//go:build !unix

package sqlite_test

import (
	"context"

	"github.com/heardlog/heardlog/internal/drivers"
)

// helpEarly and helpFull have no disk here that they could make refuse.
func helpEarly(context.Context, *drivers.SQLite, string) error { return nil }

func helpFull(context.Context, *drivers.SQLite, string) error { return nil }
