package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Probed is what is to be known of a database before it is opened.
type Probed struct {
	Version   string        // of the server
	Schema    int           // of the tables; 0 = there are none yet
	Known     int           // the newest that this program knows
	ReadOnly  bool          // a standby, or a database whose transactions only read
	CanCreate bool          // the user may make tables
	Async     bool          // commits do not wait for the disk unless a connection asks for it
	Skew      time.Duration // how far its clock is before ours
}

// Probe looks at a database and changes nothing. Its errors hold no password.
func Probe(ctx context.Context, url string) (Probed, error) {
	var p Probed
	steps, err := migrations()
	if err != nil {
		return p, err
	}
	p.Known = len(steps)
	c, err := poolConfig(Options{URL: url})
	if err != nil {
		return p, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, c.ConnConfig)
	if err != nil {
		return p, classify(err, "connect")
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	began := time.Now()
	var now time.Time
	var there bool
	err = conn.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('transaction_read_only') = 'on', coalesce(has_schema_privilege(current_schema(), 'CREATE'), false),
		current_setting('synchronous_commit') = 'off', clock_timestamp(), to_regclass('heardlog_schema') IS NOT NULL`).Scan(&p.Version, &p.ReadOnly, &p.CanCreate, &p.Async, &now, &there)
	if err != nil {
		return p, classify(err, "ask the server")
	}
	p.Skew = now.Sub(began.Add(time.Since(began) / 2))
	if there {
		err = conn.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM heardlog_schema").Scan(&p.Schema)
	}
	return p, classify(err, "ask the server")
}
