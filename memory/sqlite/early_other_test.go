//go:build !unix

package sqlite_test

import (
	"context"

	"github.com/heardlog/heardlog/memory/sqlite"
)

// helpEarly has no disk here that it could make refuse.
func helpEarly(context.Context, *sqlite.Store, string) error { return nil }
