package data

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/heardlog/heardlog/config"
	"github.com/heardlog/heardlog/store"
	"github.com/heardlog/heardlog/store/archive"
	"github.com/heardlog/heardlog/store/engine"
	"github.com/heardlog/heardlog/store/export"
	"github.com/heardlog/heardlog/store/postgres"
	"github.com/heardlog/heardlog/store/sqlite"
)

type compactCommand struct{ StoreFlag }

// Help returns the details.
func (*compactCommand) Help() string {
	return "Returns to the disk what erased agents and deliveries have left unused. An SQLite file must not be in use by a server; it is written again beside the old one, which it replaces, so the disk needs room for both. In PostgreSQL, VACUUM (ANALYZE) runs over the tables, also beside servers. The database uses the space again, but files get smaller only at their ends."
}

// Run compacts the store.
func (k *compactCommand) Run(ctx context.Context, e Env) (err error) {
	c, err := loadStore(ctx, e, k.Store)
	if err != nil {
		return err
	}
	var before, after int64
	if c.StoreURL != "" {
		from, err := openTables(ctx, c, nil)
		if err != nil {
			return err
		}
		if before, after, err = from.Vacuum(ctx); err != nil {
			return errors.Join(err, from.Close())
		}
		if err := from.Close(); err != nil {
			return err
		}
	} else {
		before, after, err = sqlite.Compact(fileOptions(c), func(need int64) error {
			folder := filepath.Dir(c.StorePath)
			if free, err := freeBytes(folder); err == nil && free < need+need/20 {
				return fmt.Errorf("the new file needs %s, and %s has %s free: make room; nothing was changed", bytesText(need), folder, bytesText(free))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(e.Stdout, "%s: %s before, %s now\n", storeName(c), bytesText(before), bytesText(after))
	return err
}

// openTables opens a PostgreSQL store and creates or migrates its tables. A store whose secrets are
// in clear is opened without the key: with it, they would be encrypted while servers run without a
// key. archived is the archive for a command that changes calls, or else nil.
func openTables(ctx context.Context, c config.Config, archived *archive.Archive) (*store.Postgres, error) {
	o := tableOptions(c)
	s, err := func() (*store.Postgres, error) {
		p, err := postgres.Probe(ctx, o.URL)
		if err != nil {
			return nil, err
		}
		if len(o.SealKey) > 0 && p.Schema == p.Known {
			r, err := postgres.OpenReader(ctx, o)
			if err != nil {
				return nil, err
			}
			if !r.Sealed() {
				empty, err := export.Empty(ctx, r)
				if err != nil {
					return nil, errors.Join(err, r.Close())
				}
				if !empty {
					o.SealKey = nil
				}
			}
			if err := r.Close(); err != nil {
				return nil, err
			}
		}
		if archived == nil {
			return store.OpenPostgres(ctx, o, engine.Options{})
		}
		return store.OpenArchivedPostgres(ctx, o, engine.Options{}, archived)
	}()
	if err != nil {
		return nil, fmt.Errorf("open the store %s: %w", storeName(c), err)
	}
	return s, nil
}
