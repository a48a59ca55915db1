#!/bin/sh
# Starts Heardlog with a fake LLM and a webhook receiver, all on this machine. Ctrl-C stops all three.
set -eu
cd "$(dirname "$0")/../.."
go build -o bin/ ./cmd/api ./examples/fakellm ./examples/receiver
bin/fakellm -addr "${DEMO_LLM:-127.0.0.1:9099}" -delay-chunk 100ms & fakellm=$!
bin/receiver -addr "${DEMO_RECEIVER:-127.0.0.1:9090}" -secret demo-secret & receiver=$!
trap 'kill $fakellm $receiver 2>/dev/null || true' EXIT
trap 'exit 0' INT TERM
HEARDLOG_ADDR="${HEARDLOG_ADDR:-127.0.0.1:8080}" \
HEARDLOG_LLM_URL="http://${DEMO_LLM:-127.0.0.1:9099}/v1" HEARDLOG_LLM_MODEL=fake-1 \
HEARDLOG_WEBHOOK_URL="http://${DEMO_RECEIVER:-127.0.0.1:9090}/" HEARDLOG_WEBHOOK_SECRET=demo-secret \
bin/api & server=$!
trap 'kill $server $fakellm $receiver 2>/dev/null || true' EXIT
wait $server
