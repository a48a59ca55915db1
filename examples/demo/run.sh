#!/usr/bin/env bash
# Starts Heardlog with a fake LLM and a webhook receiver, all on this machine. Ctrl-C stops all three.
#
# It prints the address of a page to try it on, and opens it on a desktop. DEMO_OPEN=no only prints it.
# HEARDLOG_BIN names a built server, such as that of a release; then only the two small programs are
# built.
set -euo pipefail
server=${HEARDLOG_BIN:+$(realpath "$HEARDLOG_BIN")}
unset HEARDLOG_BIN # it is no setting of the server
cd "$(dirname "$0")/../.."
mkdir -p bin
export CGO_ENABLED=0 # no C compiler is needed

# build PROGRAM FOLDER: builds a program, and shows on a terminal how many packages are compiled.
build() {
  go build -v -o "bin/$1" "$2" 2>&1 | awk -v tty="$([ -t 2 ] && echo 1)" '
    /^[a-z0-9.]+(\/[^ ]*)?$/ { n++; if (tty) printf "\r  %d packages compiled ", n; fflush(); next }
    { print }
    END { if (tty && n) print "" }' >&2
}
if [ -z "$server" ]; then
  echo "Building the server. The first time takes 2 to 5 minutes, because SQLite is compiled too; later it takes seconds." >&2
  build heardlog ./cmd/api
  server=bin/heardlog
fi
echo "Building the fake LLM and the webhook receiver." >&2
build fakellm ./examples/fakellm
build receiver ./examples/receiver
echo "Starting $server, the fake LLM and the receiver." >&2

bin/fakellm -addr "${DEMO_LLM:-127.0.0.1:9099}" -delay-chunk 100ms & fakellm=$!
bin/receiver -addr "${DEMO_RECEIVER:-127.0.0.1:9090}" -secret demo-secret & receiver=$!
trap 'kill $fakellm $receiver 2>/dev/null || true' EXIT
trap 'exit 0' INT TERM
addr=${HEARDLOG_ADDR:-127.0.0.1:8080}
HEARDLOG_ADDR=$addr HEARDLOG_LLM_PRICES=fake-1=0.15:0.60 \
HEARDLOG_LLM_URL="http://${DEMO_LLM:-127.0.0.1:9099}/v1" HEARDLOG_LLM_MODEL=fake-1 \
HEARDLOG_WEBHOOK_URL="http://${DEMO_RECEIVER:-127.0.0.1:9090}/" HEARDLOG_WEBHOOK_SECRET=demo-secret \
"$server" & server=$!
trap 'kill $server $fakellm $receiver 2>/dev/null || true' EXIT
until curl -so /dev/null "http://$addr/readyz"; do
  kill -0 $server 2>/dev/null || break # it could not start, and has said why
  sleep 0.1
done
# The settings' endpoint gets the events that Agora sends; this one, what was heard of a cut answer.
hooks=http://$addr/v1/webhooks/endpoints
curl -s "$hooks" | grep -q '"agent.interrupted"' || curl -s -o /dev/null "$hooks" \
  -d "{\"url\":\"http://${DEMO_RECEIVER:-127.0.0.1:9090}/\",\"secret\":\"demo-secret\",\"description\":\"the demo\",\"events\":[\"agent.interrupted\"]}" || true
echo "
Talk and interrupt: http://$addr/demo" >&2
if [ "${DEMO_OPEN:-}" != no ]; then
  if [ "$(uname)" = Darwin ]; then open "http://$addr/demo" || true
  elif [ -n "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ]; then xdg-open "http://$addr/demo" >/dev/null 2>&1 || true
  fi
fi
wait $server
