#!/bin/sh
# Replaces the vendored Scalar viewer. Usage: internal/page/scalar/update.sh VERSION
# It writes viewer.js.gz, VERSION and SHA256SUMS. Check the page in a browser and compare LICENSE with
# the licence of the new version before you commit.
set -eu
version=${1:?usage: update.sh VERSION}
cd "$(dirname "$0")"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
(cd "$tmp" && npm pack --silent "@scalar/api-reference@$version" >/dev/null && tar xzf ./*.tgz)
gzip -9nc "$tmp/package/dist/browser/standalone.js" >viewer.js.gz
echo "$version" >VERSION
sha256sum viewer.js.gz >SHA256SUMS
ls -l viewer.js.gz
