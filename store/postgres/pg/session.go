package pg

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/heardlog/heardlog/internal/fault"
)

// Config reads a connection string. timeout bounds a transaction.
func Config(raw string, timeout time.Duration) (*pgxpool.Config, error) {
	c, err := pgxpool.ParseConfig(raw)
	if err != nil {
		// The driver's text may quote the URL with its password.
		return nil, fault.New(fault.Invalid, "the store's URL cannot be read: it is postgres://user:password@host:port/database?options")
	}
	if !strings.Contains(raw, "pool_max_conns") {
		c.MaxConns = int32(max(10, 4*runtime.GOMAXPROCS(0)))
	}
	if c.ConnConfig.ConnectTimeout == 0 {
		c.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	// A pooler may have given one of our sessions, which listens, to others. Without this,
	// notifications would pile up.
	c.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	c.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler { return closer{conn} }
	params := c.ConnConfig.RuntimeParams
	if params["application_name"] == "" {
		params["application_name"] = "heardlog"
	}
	c.PingTimeout = pong
	return c, nil
}

// closer closes the connection of a call that ends early. That frees its place in the pool at once,
// however silent the server is.
type closer struct{ conn *pgconn.PgConn }

func (c closer) HandleCancel(context.Context) { _ = c.conn.Conn().Close() }

func (c closer) HandleUnwatchAfterCancel() {}

// owned is a setting that PostgreSQL does not know and keeps for the session. A pooler that gives
// the sessions of its server to one client after the other refuses it, drops it, or shows that of
// another client.
const owned = "heardlog.session"

// own asks for a session of the connection's own; see owned.
func own(c *pgx.ConnConfig) { c.RuntimeParams[owned] = rand.Text() }

// findPooler connects once to learn whether sessions are shared with others. It then leaves the
// sessions as they are: what a transaction needs is set in each transaction. named says that the
// connection string chooses how statements are run.
func (d *DB) findPooler(ctx context.Context, c *pgxpool.Config, named bool) error {
	asking := c.ConnConfig.Copy()
	own(asking)
	conn, err := pgx.ConnectConfig(ctx, asking)
	if _, refused := errors.AsType[*pgconn.PgError](err); refused {
		if conn, err = pgx.ConnectConfig(ctx, c.ConnConfig); err == nil {
			d.shared.Store(true)
		}
	}
	if err != nil {
		return err
	}
	err = d.prepareSession(ctx, conn)
	_ = conn.Close(ctx)
	if err == nil && d.shared.Load() && !named { // such a pooler may not know of prepared statements
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return err
}

// Shared reports whether a pooler gives the server's sessions to one client after the other.
func (d *DB) Shared() bool { return d.shared.Load() }

// prepareSession makes a new connection keep the store's promises: an acknowledged write is on
// disk, and the locks of a server that died inside a transaction are released soon.
func (d *DB) prepareSession(ctx context.Context, conn *pgx.Conn) error {
	var durable, mark string
	var standbys bool
	err := conn.QueryRow(ctx, "SELECT current_setting('synchronous_commit'), "+hasStandbys+", coalesce(current_setting('"+owned+"', true), '')",
		pgx.QueryExecModeSimpleProtocol).Scan(&durable, &standbys, &mark)
	if err != nil {
		return err
	}
	d.standbys.Store(standbys)
	if mark != conn.Config().RuntimeParams[owned] || mark == "" {
		d.shared.Store(true)
	}
	if d.shared.Load() {
		return nil
	}
	set := fmt.Sprintf("SET idle_in_transaction_session_timeout = %d; SET lock_timeout = %d; SET statement_timeout = 0; SET client_min_messages = warning", (d.Timeout / 2).Milliseconds(), lockWait(d.Timeout).Milliseconds())
	if d.readOnly {
		set += "; SET default_transaction_read_only = on"
	}
	if durable == "off" {
		set += "; SET synchronous_commit = on"
	}
	if _, err := conn.Exec(ctx, set, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	// Statements look rows up by key and need the same plan whatever the arrays hold; planning each
	// time costs more than running. Joins follow the arrays row by row, in their order. Otherwise
	// the planner would read all of a small agent_head for each batch. Databases without these
	// settings go on without them.
	_, err = conn.Exec(ctx, "SET plan_cache_mode = force_generic_plan; SET enable_hashjoin = off; SET enable_mergejoin = off", pgx.QueryExecModeSimpleProtocol)
	if Broken(err) {
		return err
	}
	return nil
}

// Begin runs fn in a transaction. On a shared session the transaction brings the settings of
// prepareSession along.
func (d *DB) Begin(ctx context.Context, fn func(tx pgx.Tx) error) error {
	if !d.shared.Load() {
		return pgx.BeginFunc(ctx, d.Pool, fn)
	}
	return pgx.BeginTxFunc(ctx, d.Pool, pgx.TxOptions{BeginQuery: fmt.Sprintf(`BEGIN; SELECT set_config('idle_in_transaction_session_timeout', '%d', true), set_config('lock_timeout', '%d', true), set_config('statement_timeout', '0', true), set_config('client_min_messages', 'warning', true),
		set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
		set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)`,
		(d.Timeout / 2).Milliseconds(), lockWait(d.Timeout).Milliseconds())}, fn)
}
