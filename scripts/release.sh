#!/usr/bin/env bash
# Makes a release: static binaries in archives with the licences, the packages of npm and Python, a
# bill of materials for each, and SHA256SUMS. The version of all is that of the checkout's tag, else
# one made of its commit.
#
#   scripts/release.sh [FOLDER [OS/ARCH...]]
#
# The folder is dist, and the systems are linux, darwin and windows on amd64 and arm64.
set -euo pipefail
max=46000000 # bytes of a binary
out=${1:-dist}
targets=("${@:2}")
if [ ${#targets[@]} = 0 ]; then targets=({linux,darwin,windows}/{amd64,arm64}); fi
for tool in zip sha256sum; do command -v $tool >/dev/null || { echo "$tool is needed" >&2; exit 1; }; done
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.."
if [ -n "$(ls -A "$out")" ]; then echo "$out is not empty" >&2; exit 1; fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export CGO_ENABLED=0 GOFLAGS=
go build -C tools -o "$tmp/sbom" ./sbom
for target in "${targets[@]}"; do
  os=${target%/*} arch=${target#*/} exe=
  if [ "$os" = windows ]; then exe=.exe; fi
  name=heardlog_${os}_$arch
  program=$tmp/$name/heardlog$exe
  echo "$name: building"
  mkdir "$tmp/$name"
  # The tags leave out parts of libraries that nothing uses: pages with html/template, and a rule that
  # finds methods by name, for which the linker would keep every method.
  GOOS=$os GOARCH=$arch go build -trimpath -buildvcs=true -tags grpcnotrace,validator_novalidatefn -ldflags='-s -w' -o "$program" ./cmd/api
  size=$(wc -c <"$program")
  echo "$name: $size bytes"
  if [ "$size" -gt $max ]; then echo "$name is larger than $max bytes" >&2; exit 1; fi
  if ! go version -m "$program" | grep -q vcs.revision; then echo "$name names no commit: make releases in a git clone" >&2; exit 1; fi
  "$tmp/sbom" -licenses "$tmp/$name/THIRD_PARTY_LICENSES" "$program" >"$out/$name.cdx.json"
  cp LICENSE NOTICE README.md CHANGELOG.md "$tmp/$name/"
  if [ "$os" = windows ]; then
    (cd "$tmp" && zip -qr "$out/$name.zip" "$name")
  else
    tar -C "$tmp" -czf "$out/$name.tar.gz" "$name"
  fi
  version=$(go version -m "$program" | awk '$1 == "mod" { print $3 }')
  if [ "$target" = "$(go env GOOS)/$(go env GOARCH)" ]; then "$program" --version; fi
done
scripts/packages.sh "$out" "$version"
(cd "$out" && sha256sum heardlog* >SHA256SUMS)
ls -l "$out"
