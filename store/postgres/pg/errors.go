package pg

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/store/codec"
	"github.com/heardlog/heardlog/store/encryption"
)

// Classify adds a code and a hint for the operator to an error of the database. what names the
// operation that failed. Only this package knows SQLSTATE codes. An error that has a code already
// is returned unchanged. The text of a server error may quote stored values, so it stays in the
// cause.
func Classify(err error, what string) error {
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
		if Unreadable(err) {
			return fault.Wrap(fault.Internal, fmt.Errorf("%s: %w", what, err), "the store failed")
		}
		return unavailable("the database cannot be reached, or the connection broke")
	}
	switch {
	case e.Code == "23505" && e.ConstraintName == "delivery_pkey":
		return unavailable("the number of a delivery was taken by an import meanwhile")
	case e.Code == "23514":
		return unavailable("the store's secrets were encrypted meanwhile, and this server has no key: set HEARDLOG_SECRET_KEY")
	case e.Code == "23505":
		return fault.Wrap(fault.Conflict, fmt.Errorf("%s: %w", what, err), "the store already holds something with that ID")
	case strings.HasPrefix(e.Code, "08"):
		return unavailable("the connection broke")
	case strings.HasPrefix(e.Code, "57P"), e.Code == "57014", e.Code == "25006":
		return unavailable("the database is starting, stopping, on standby or too slow")
	case strings.HasPrefix(e.Code, "53"):
		return unavailable("the database is out of connections, memory or disk")
	case strings.HasPrefix(e.Code, "40"), strings.HasPrefix(e.Code, "55"):
		return unavailable("other transactions locked the rows for too long")
	case strings.HasPrefix(e.Code, "28"), e.Code == "3D000", e.Code == "42501":
		return unavailable("the database rejects this server: check user, password, database name and rights")
	case strings.HasPrefix(e.Code, "58"), strings.HasPrefix(e.Code, "XX"):
		return unavailable("the database reports an internal error: check its log")
	case e.Code == "0A000", e.Code == "26000", e.Code == "42P05":
		return unavailable("the schema was changed meanwhile, or a pooler in between mixes up prepared statements")
	case e.Code == "25P03", e.Code == "25P02":
		return unavailable("the transaction was ended by the database")
	}
	return fault.Wrap(fault.Internal, fmt.Errorf("%s: %w", what, err), "the store failed")
}

// Unreadable reports whether a row was read but cannot be decoded or decrypted. The connection is
// intact.
func Unreadable(err error) bool {
	return errors.Is(err, codec.ErrUnreadable) || errors.Is(err, encryption.ErrBroken)
}

// Broken reports whether the connection failed or the server closed it. The outcome of the
// operation is then unknown.
func Broken(err error) bool {
	if err == nil || Unreadable(err) {
		return false
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return false
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	return !ok || e.Code == unknownEnd || strings.HasPrefix(e.Code, "57P") || strings.HasPrefix(e.Code, "08")
}

// movedAway reports whether the server was the primary and is a standby now.
func movedAway(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "25006"
}

// Transient reports whether the same transaction may succeed if it is run again.
func Transient(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(e.Code, "40") && e.Code != unknownEnd || e.Code == "0A000" || e.Code == "26000" || e.Code == "42P05")
}

// unknownEnd is the SQLSTATE statement_completion_unknown. Some PostgreSQL-compatible databases
// return it for a commit whose outcome is unknown.
const unknownEnd = "40003"

// LockedOut reports whether the wait for a lock timed out.
func LockedOut(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "55P03"
}

// Unsupported reports whether the database lacks the feature or function that was used.
func Unsupported(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "0A000" || e.Code == "42883")
}

// Exists reports whether the object to be created exists already.
func Exists(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "42710"
}

// Violated returns the name of the unique constraint that was violated, or "" for any other error.
func Violated(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == "23505" {
		return e.ConstraintName
	}
	return ""
}

// ErrClosed returns the error of calls after Shut.
func ErrClosed() error { return fault.New(fault.Unavailable, "the store is closed") }

// outOfResources reports whether the database lacks disk, memory or connections.
func outOfResources(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(e.Code, "53") || strings.HasPrefix(e.Code, "58"))
}

// Refused reports whether the database is available but rejected the statement.
func Refused(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && !Broken(err) && !LockedOut(err) && !strings.HasPrefix(e.Code, "40")
}
