#!/usr/bin/env bash
# Installs the programs that tests use and that are not on this machine, on Debian and its
# derivatives. It starts no service: tests start servers of their own. Go, gcc, Python 3 and node
# with npm must be there already, since their versions matter.
set -euo pipefail
for runtime in go gcc python3 node npm; do
  if ! command -v "$runtime" >/dev/null; then echo "$runtime is not on this machine: install it" >&2; exit 1; fi
done
# missing prints the packages of programs that cannot be found.
missing() {
  local PATH=$PATH w
  for bin in /usr/lib/postgresql/*/bin; do PATH="$bin:$PATH"; done # where Debian keeps initdb
  for w in make:make git:git curl:curl jq:jq openssl:openssl setpriv:util-linux \
    initdb:postgresql pgbench:postgresql psql:postgresql-client \
    pgbouncer:pgbouncer patroni:patroni patronictl:patroni etcd:etcd-server \
    redis-server:redis-server redis-benchmark:redis-tools memcached:memcached chromium:chromium; do
    if ! command -v "${w%%:*}" >/dev/null; then echo "${w#*:}"; fi
  done | sort -u
}
mapfile -t packages < <(missing)
if [ ${#packages[@]} = 0 ]; then exit 0; fi
echo "installing ${packages[*]}"
as=()
if [ "$(id -u)" != 0 ]; then as=(sudo); fi
policy=/usr/sbin/policy-rc.d # without it the packages start their services
if [ ! -e $policy ]; then
  trap '"${as[@]}" rm -f $policy' EXIT
  printf '#!/bin/sh\nexit 101\n' | "${as[@]}" install -m 755 /dev/stdin $policy
fi
"${as[@]}" apt-get update -qq
"${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
mapfile -t packages < <(missing)
if [ ${#packages[@]} != 0 ]; then echo "still missing after the installation: ${packages[*]}" >&2; exit 1; fi
