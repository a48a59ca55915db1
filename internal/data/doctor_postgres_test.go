package data_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heardlog/heardlog/internal/data"
	"github.com/heardlog/heardlog/store/postgres/postgrestest"
)

// refusing starts a server that answers every connection with an error of that code, and returns
// its URL.
func refusing(t *testing.T, code string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var size [4]byte
			_, _ = io.ReadFull(c, size[:])
			_, _ = io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(size[:]))-4)
			body := "SFATAL\x00VFATAL\x00C" + code + "\x00Mrefused\x00\x00"
			_, _ = c.Write(append(binary.BigEndian.AppendUint32([]byte{'E'}, uint32(len(body)+4)), body...))
			_ = c.Close()
		}
	}()
	return "postgres://u:hidden-password@" + l.Addr().String() + "/d?sslmode=disable"
}

// TestDoctorPostgres: problems with a database are reported with advice and without secrets.
func TestDoctorPostgres(t *testing.T) {
	t.Parallel()
	steps, err := filepath.Glob("../../store/postgres/schema/*.sql")
	if err != nil || len(steps) == 0 {
		t.Fatalf("%d steps of the schema, %v", len(steps), err)
	}
	filledURL := func(t *testing.T) string {
		url := postgrestest.URL(t)
		filled(t, url, 1)
		return url
	}
	as := func(t *testing.T, at, user string) string {
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(user, "hidden-password")
		return u.String()
	}
	for _, tt := range []struct {
		name string
		url  func(t *testing.T) string
		key  string
		want []string
		fail bool
	}{
		{"all well", filledURL, sealKey, []string{"ok   store    postgres://", fmt.Sprintf("schema %d of %d", len(steps), len(steps))}, false},
		{"nothing there yet", func(t *testing.T) string { return postgrestest.URL(t) }, sealKey, []string{fmt.Sprintf("schema 0 of %d", len(steps))}, false},
		{"no key", filledURL, "", []string{"FAIL store    the secrets in this database cannot be read", "set HEARDLOG_SECRET_KEY"}, true},
		{"another key", filledURL, strings.Repeat("hidden-hidden-", 5), []string{"FAIL store    the secrets in this database cannot be read", "set HEARDLOG_SECRET_KEY"}, true},
		{"another password", func(t *testing.T) string { return refusing(t, "28P01") }, "", []string{"does not take this user and password", "correct user and password"}, true},
		{"another user", func(t *testing.T) string { return refusing(t, "28000") }, "", []string{"does not let this user in", "pg_hba.conf"}, true},
		{"too many", func(t *testing.T) string { return refusing(t, "53300") }, "", []string{"out of connections", "max_connections"}, true},
		{"it starts", func(t *testing.T) string { return refusing(t, "57P03") }, "", []string{"starts or stops just now"}, true},
		{"no such database", func(t *testing.T) string {
			u, _ := url.Parse(postgrestest.URL(t))
			u.Path = "/there_is_none"
			return u.String()
		}, "", []string{"has no database of this name", "CREATE DATABASE"}, true},
		{"no such host", func(*testing.T) string { return "postgres://u:hidden-password@none.invalid/d" }, "", []string{"the host none.invalid is not known here"}, true},
		{"rights to read alone", func(t *testing.T) string {
			at := filledURL(t)
			schema := at[strings.LastIndex(at, "=")+1:]
			role := "reader_" + schema
			postgrestest.Exec(t, at, "CREATE ROLE "+role+" LOGIN PASSWORD 'hidden-password'")
			t.Cleanup(func() { postgrestest.Exec(t, at, "DROP OWNED BY "+role); postgrestest.Exec(t, at, "DROP ROLE "+role) })
			postgrestest.Exec(t, at, "GRANT USAGE ON SCHEMA "+schema+" TO "+role)
			postgrestest.Exec(t, at, "GRANT SELECT ON ALL TABLES IN SCHEMA "+schema+" TO "+role)
			return as(t, at, role)
		}, sealKey, []string{"FAIL store    the user lacks rights: DELETE on table agent, INSERT on table agent, UPDATE on table agent", "GRANT them"}, true},
		{"no rights", func(t *testing.T) string {
			at := filledURL(t)
			schema := at[strings.LastIndex(at, "=")+1:]
			role := "nobody_" + schema
			postgrestest.Exec(t, at, "CREATE ROLE "+role+" LOGIN")
			t.Cleanup(func() { postgrestest.Exec(t, at, "DROP OWNED BY "+role); postgrestest.Exec(t, at, "DROP ROLE "+role) })
			postgrestest.Exec(t, at, "GRANT USAGE ON SCHEMA "+schema+" TO "+role)
			return as(t, at, role)
		}, sealKey, []string{"FAIL store", "the user lacks rights: permission denied for table heardlog_schema", "GRANT them"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, errs, err := run(t, map[string]string{"HEARDLOG_STORE": tt.url(t), "HEARDLOG_SECRET_KEY": tt.key}, "", "doctor", "-offline")
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in\n%s", want, out)
				}
			}
			if errors.Is(err, data.ErrFound) != tt.fail || err != nil && !tt.fail || !tt.fail && strings.Contains(out, "FAIL") {
				t.Errorf("error %v, want one: %t\n%s", err, tt.fail, out)
			}
			if all := out + errs; strings.Contains(all, "hidden") || strings.Contains(all, sealKey) {
				t.Errorf("a secret was shown:\n%s", all)
			}
		})
	}
}
