#!/usr/bin/env bash
# Runs a command with a PostgreSQL server for tests: the one in TEST_POSTGRES_URL, or one on
# 127.0.0.1:5432 that has their database, or else one that is started for the command and removed
# after it.
set -euo pipefail
for bin in /usr/lib/postgresql/*/bin; do PATH="$bin:$PATH"; done # where Debian keeps initdb
# answers reports whether the server on the port listens and lets the tests in.
answers() {
  (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null || return 1
  ! command -v psql >/dev/null || PGCONNECT_TIMEOUT=10 psql -w -q -X "postgres://postgres@127.0.0.1:$1/test?sslmode=disable" -c 'SELECT' >/dev/null 2>&1
}
if [ -z "${TEST_POSTGRES_URL:-}" ] && ! answers 5432; then
  if ! command -v initdb >/dev/null; then
    echo "no PostgreSQL: set TEST_POSTGRES_URL, start one on 127.0.0.1:5432, or install it (initdb is not found)" >&2
    exit 1
  fi
  pg=$(mktemp -d)
  as=(env -C "$pg") # its user may not enter the folder of the call
  if [ "$(id -u)" = 0 ]; then
    user=postgres
    if ! id $user >/dev/null 2>&1; then user=nobody; fi
    chown $user "$pg"
    as+=(setpriv "--reuid=$user" "--regid=$(id -g $user)" --clear-groups)
  fi
  "${as[@]}" initdb -D "$pg/data" -U postgres -A trust -E UTF8 --no-sync >/dev/null
  trap '"${as[@]}" pg_ctl -D "$pg/data" -m immediate -w stop >/dev/null; rm -rf "$pg"' EXIT
  port=54329
  until "${as[@]}" pg_ctl -D "$pg/data" -l "$pg/log" -w -o "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c max_connections=200" start >"$pg/out" 2>&1; do
    if ! grep -q 'Address already in use' "$pg/log" || [ $port = 54399 ]; then
      trap 'rm -rf "$pg"' EXIT
      cat "$pg/out" "$pg/log" >&2
      exit 1
    fi
    rm "$pg/log"
    port=$((port + 1)) # another run has it
  done
  export TEST_POSTGRES_URL="postgres://postgres@127.0.0.1:$port/postgres?sslmode=disable"
fi
"$@"
