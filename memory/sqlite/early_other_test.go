//go:build !unix

package sqlite_test

import (
	"context"

	"github.com/heardlog/heardlog/internal/store"
)

// helpEarly has no disk here that it could make refuse.
func helpEarly(context.Context, *store.SQLite, string) error { return nil }
