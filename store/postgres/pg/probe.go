package pg

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Probed describes a database that has not been opened.
type Probed struct {
	Version   string        // of the server
	Schema    int           // of the tables; 0 = there are none yet
	Known     int           // the newest schema that this program knows
	ReadOnly  bool          // a standby, or a database whose transactions only read
	CanCreate bool          // the user may make tables
	CanRead   bool          // the user may read all tables
	Denied    []string      // rights on tables that a server needs and the user lacks
	Async     bool          // commits do not wait for the disk unless a connection asks for it
	Standbys  string        // synchronous_standby_names: the standbys that commits wait for
	Connected int           // standbys that are connected
	Waiting   int           // commits of this user that have waited for a standby for longer than a second
	Skew      time.Duration // how far its clock is ahead of the local one
}

// Probe inspects a database with the tables of a schema without changing it. Its errors hold no
// password.
func Probe(ctx context.Context, url string, schema Schema, tables []string) (Probed, error) {
	p := Probed{Known: len(schema.Steps)}
	c, err := Config(url, 0)
	if err != nil {
		return p, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, c.ConnConfig)
	if err != nil {
		return p, Classify(err, "connect")
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	began := time.Now()
	var now time.Time
	var there bool
	err = conn.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('transaction_read_only') = 'on', coalesce(has_schema_privilege(current_schema(), 'CREATE'), false),
		current_setting('synchronous_commit') = 'off', clock_timestamp(), to_regclass('heardlog_schema') IS NOT NULL`).Scan(&p.Version, &p.ReadOnly, &p.CanCreate, &p.Async, &now, &there)
	if err == nil {
		err = conn.QueryRow(ctx, `SELECT current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication),
			(SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND clock_timestamp() - query_start > interval '1 second')`).Scan(&p.Standbys, &p.Connected, &p.Waiting)
		if Refused(err) { // another database than PostgreSQL
			err = nil
		}
	}
	if err != nil {
		return p, Classify(err, "ask the server")
	}
	p.Skew = now.Sub(began.Add(time.Since(began) / 2))
	if there {
		if err := p.rights(ctx, conn, tables); err != nil {
			return p, Classify(err, "ask the server")
		}
		p.Schema, err = SchemaVersion(ctx, conn)
	}
	return p, Classify(err, "ask the server")
}

// rights reads the user's rights on the existing tables.
func (p *Probed) rights(ctx context.Context, conn *pgx.Conn, tables []string) error {
	p.CanRead = true
	var what string
	var reads bool
	return Each(ctx, conn, []any{&what, &reads}, func() error {
		p.CanRead = p.CanRead && !reads
		p.Denied = append(p.Denied, what)
		return nil
	}, `SELECT r.name || ' on table ' || t.name, r.name = 'SELECT' FROM unnest($1::text[]) t(name), unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) r(name)
		WHERE to_regclass(t.name) IS NOT NULL AND NOT has_table_privilege(to_regclass(t.name), r.name) ORDER BY t.name, r.name`, tables)
}

// Plain describes why a database cannot be used, and what to do about it. The texts hold no
// password.
func Plain(err error) (what, do string) {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case e.Code == "28P01":
			return "the server does not take this user and password", "correct user and password in HEARDLOG_STORE"
		case strings.HasPrefix(e.Code, "28"):
			return "the server does not let this user in from here", "look at user and sslmode in HEARDLOG_STORE, and at pg_hba.conf of the server"
		case e.Code == "3D000":
			return "the server has no database of this name", "correct the name in HEARDLOG_STORE, or CREATE DATABASE"
		case e.Code == "42501":
			return "the user lacks rights: " + e.Message, "GRANT them to the user, or let the user own the tables"
		case strings.HasPrefix(e.Code, "53"):
			return "the server is out of connections, memory or disk", "end other connections, or raise max_connections; look at the server's disk"
		case e.Code == "57P03":
			return "the server starts or stops just now", "wait, then look again"
		}
		return "the server refuses: " + e.Message + " (SQLSTATE " + e.Code + ")", "look at the server's log"
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return "the host " + dns.Name + " is not known here", "correct the host in HEARDLOG_STORE, or look at the name server"
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "it cannot be reached: nobody listens there", "look at host and port of HEARDLOG_STORE, and whether the server runs"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return "it cannot be reached: no answer in time", "look at host and port of HEARDLOG_STORE, and at firewalls between"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the server's certificate is not accepted here", "look at sslmode and sslrootcert in HEARDLOG_STORE"
	}
	return "it cannot be reached: " + err.Error(), "look at host, port, user, password and database of HEARDLOG_STORE, and whether the server runs"
}
