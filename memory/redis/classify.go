package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/heardlog/heardlog/internal/fault"
	"github.com/heardlog/heardlog/memory/seal"
)

// hints are what the replies of a server mean that cannot do what it is asked now, by their first word.
var hints = map[string]string{
	"LOADING": "the server is reading its data and not ready yet", "READONLY": "the server is a replica and takes no writes: name the primary",
	"OOM": "the server is out of memory: raise maxmemory", "MASTERDOWN": "the server is a replica that has lost its primary",
	"CLUSTERDOWN": "a part of the cluster is down", "TRYAGAIN": "the cluster is moving keys", "BUSY": "the server runs a script of somebody else's",
	"MISCONF": "the server cannot write its data to disk: look at its log", "NOAUTH": "the server wants a password", "WRONGPASS": "user or password is wrong",
	"NOPERM": "the user may not run the commands, or touch the keys, that are needed: see docs/redis.md", "NOREPLICAS": "the server has too few replicas to take writes",
	"UNKILLABLE": "the server runs a script of somebody else's", "MOVED": "the cluster is moving keys", "ASK": "the cluster is moving keys",
}

// errBadRow is the end of errors about what was read: it says that the server is not to blame.
var errBadRow = errors.New("what is stored is unreadable")

// classify gives an error of the server its code and the operator a hint; what says what was being done. It is the only code that knows the server's replies. Errors that
// have a code already pass unchanged.
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
	if reply, ok := rueidis.IsRedisErr(err); ok && !reply.IsNil() {
		word, _, _ := strings.Cut(strings.TrimPrefix(reply.Error(), "-"), " ")
		if hint := hints[word]; hint != "" {
			return unavailable(hint)
		}
		return fault.Wrap(fault.Internal, fmt.Errorf("%s: %w", what, err), "the store failed")
	}
	if unreadable(err) {
		return fault.Wrap(fault.Internal, fmt.Errorf("%s: %w", what, err), "the store failed")
	}
	return unavailable("the server cannot be reached, or the connection broke")
}

func unreadable(err error) bool {
	return rueidis.IsRedisNil(err) || errors.Is(err, errBadRow) || errors.Is(err, seal.ErrBroken) || rueidis.IsParseErr(err)
}

// broken tells that the connection failed: what was under way may have been done or not.
func broken(err error) bool {
	if err == nil || unreadable(err) {
		return false
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return false
	}
	if _, ok := errors.AsType[outcome](err); ok {
		return false
	}
	_, reply := rueidis.IsRedisErr(err)
	return !reply
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

func isNoAgent(err error) bool { return fault.Is(err, fault.NotFound) }
