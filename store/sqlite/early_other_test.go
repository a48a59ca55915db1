//go:build !unix

package sqlite_test

import (
	"context"

	"github.com/heardlog/heardlog/store"
)

// helpEarly and helpFull have no disk here that they could make refuse.
func helpEarly(context.Context, *store.SQLite, string) error { return nil }

func helpFull(context.Context, *store.SQLite, string) error { return nil }
