#!/usr/bin/env bash
# Runs a command with a PostgreSQL server for tests: the one in TEST_POSTGRES_URL, or one on
# 127.0.0.1:5432, or else one that is started for the command and removed after it.
set -euo pipefail
if [ -z "${TEST_POSTGRES_URL:-}" ] && ! (exec 3<>/dev/tcp/127.0.0.1/5432) 2>/dev/null; then
  for bin in /usr/lib/postgresql/*/bin; do PATH="$bin:$PATH"; done # where Debian keeps initdb
  if ! command -v initdb >/dev/null; then
    echo "no PostgreSQL: set TEST_POSTGRES_URL, start one on 127.0.0.1:5432, or install it (initdb is not found)" >&2
    exit 1
  fi
  pg=$(mktemp -d)
  as=()
  if [ "$(id -u)" = 0 ]; then chown postgres "$pg"; as=(setpriv --reuid=postgres --regid=postgres --clear-groups); fi
  "${as[@]}" initdb -D "$pg/data" -U postgres -A trust -E UTF8 --no-sync >/dev/null
  trap '"${as[@]}" pg_ctl -D "$pg/data" -m immediate -w stop >/dev/null; rm -rf "$pg"' EXIT
  "${as[@]}" pg_ctl -D "$pg/data" -l "$pg/log" -w -o "-p 54329 -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c max_connections=200" start >/dev/null
  export TEST_POSTGRES_URL='postgres://postgres@127.0.0.1:54329/postgres?sslmode=disable'
fi
"$@"
