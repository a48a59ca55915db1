package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/codec"
	"github.com/heardlog/heardlog/memory/seal"
)

// classify gives an error of the database its code and the operator a hint; what says what was being done. It is the only code that knows
// SQLSTATE numbers. Errors that have a code already pass unchanged. The text of a server's error may quote values, so it stays in the cause.
func classify(err error, what string) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	unavailable := func(hint string) error {
		return fault.Wrap(fault.Unavailable, fmt.Errorf("%s: %w (%s)", what, err, hint), "the store cannot do this now")
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		if unreadable(err) {
			return fault.Wrap(fault.Internal, fmt.Errorf("%s: %w", what, err), "the store failed")
		}
		return unavailable("the database cannot be reached, or the connection broke")
	}
	switch {
	case e.Code == "23505" && e.ConstraintName == "delivery_pkey":
		return unavailable("the number of a delivery was taken by an import meanwhile")
	case e.Code == "23514":
		return unavailable("the store's secrets are encrypted by now, and this server has no key: set HEARDLOG_SECRET_KEY")
	case e.Code == "23505":
		return fault.Wrap(fault.Conflict, fmt.Errorf("%s: %w", what, err), "the store holds something of that identity already")
	case strings.HasPrefix(e.Code, "08"):
		return unavailable("the connection broke")
	case strings.HasPrefix(e.Code, "57P"), e.Code == "57014", e.Code == "25006":
		return unavailable("the database is starting, stopping, on standby or too slow")
	case strings.HasPrefix(e.Code, "53"):
		return unavailable("the database is out of connections, memory or disk")
	case strings.HasPrefix(e.Code, "40"), strings.HasPrefix(e.Code, "55"):
		return unavailable("others had the rows for too long")
	case strings.HasPrefix(e.Code, "28"), e.Code == "3D000", e.Code == "42501":
		return unavailable("the database refuses us: look at user, password, database name and rights")
	case strings.HasPrefix(e.Code, "58"), strings.HasPrefix(e.Code, "XX"):
		return unavailable("the database has trouble of its own: look at its log")
	case e.Code == "0A000", e.Code == "26000", e.Code == "42P05":
		return unavailable("the schema was changed meanwhile, or something between us and the database mixes up prepared statements")
	case e.Code == "25P03", e.Code == "25P02":
		return unavailable("the transaction was ended by the database")
	}
	return fault.Wrap(fault.Internal, fmt.Errorf("%s: %w", what, err), "the store failed")
}

// errBadRow is part of errors about a row that was read whole: the database is not to blame.
var errBadRow = codec.ErrUnreadable

func unreadable(err error) bool { return errors.Is(err, errBadRow) || errors.Is(err, seal.ErrBroken) }

// broken tells that the connection failed, or the server left us: what was under way may have been done or not.
func broken(err error) bool {
	if err == nil || unreadable(err) {
		return false
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return false
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	return !ok || e.Code == unknownEnd || strings.HasPrefix(e.Code, "57P") || strings.HasPrefix(e.Code, "08")
}

// transient tells that the same transaction may succeed when it is run again.
func transient(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(e.Code, "40") && e.Code != unknownEnd || e.Code == "0A000" || e.Code == "26000" || e.Code == "42P05")
}

// unknownEnd is what databases of PostgreSQL's kind say of a commit that may have come through or not, as a connection that broke does.
const unknownEnd = "40003"

// lockedOut tells that others had a row for too long.
func lockedOut(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "55P03"
}

// unsupported tells that the database does not have what was asked of it.
func unsupported(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "0A000" || e.Code == "42883")
}

// known tells that what was to be made is there already.
func known(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "42710"
}

// violated gives the unique constraint that an error is about; "" for others.
func violated(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "23505" {
		return e.ConstraintName
	}
	return ""
}

// ended gives the context's cause with a code. A deadline is somebody's limit and worth an answer; a cancelled caller reads none.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if _, ok := errors.AsType[*fault.Error](cause); ok {
		return cause
	}
	if errors.Is(cause, context.DeadlineExceeded) {
		return fault.Wrap(fault.Unavailable, cause, "the store did not answer in time")
	}
	return fault.Wrap(fault.Canceled, cause, "the call was given up")
}

func errClosed() error { return fault.New(fault.Unavailable, "the store is closed") }

func noAgent(id string) error { return fault.New(fault.NotFound, "there is no agent %q", id) }
