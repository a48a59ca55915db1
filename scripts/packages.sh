#!/usr/bin/env bash
# Makes the packages of a release: the npm tarball, the Python wheel and its source archive, with a
# bill of materials for each.
#
#   scripts/packages.sh FOLDER VERSION
#
# VERSION is that of the Go module, such as v1.2.3; both packages get the same in their own form.
# It needs npm, Python with venv, unzip, and the Python package index for the build tool.
set -euo pipefail
hatchling=1.33.0
out=$1 version=${2#v}
for tool in npm python3 unzip go; do command -v $tool >/dev/null || { echo "$tool is needed" >&2; exit 1; }; done
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
GOFLAGS='' go build -C tools -o "$tmp/sbom" ./sbom

# Python's form: 1.2.3-rc.1 is 1.2.3rc1, and 1.2.4-0.20261127211530-7d3f2a1b4c5d of a commit after
# a tag is 1.2.4.dev20261127211530+7d3f2a1b4c5d.
python_version=$(python3 - "$version" <<'PY'
import re
import sys

m = re.fullmatch(r"(\d+\.\d+\.\d+)(?:-(.+?))?(?:\+(.+))?", sys.argv[1])
if not m:
    sys.exit(f"{sys.argv[1]} is not a version")
base, pre, build = m.groups()
local = [build] if build else []
if pre and (dev := re.fullmatch(r"(?:.*\.)?(?:0\.)?(\d{14})-([0-9a-f]{12})", pre)):
    base += f".dev{dev[1]}"
    local.insert(0, dev[2])
elif pre and (named := re.fullmatch(r"(a|alpha|b|beta|rc)\.?(\d+)", pre)):
    base += {"alpha": "a", "beta": "b"}.get(named[1], named[1]) + named[2]
elif pre:
    sys.exit(f"{pre} has no form in Python: use alpha, beta or rc and a number")
print(base + ("+" + ".".join(local) if local else ""))
PY
)

# Only what is committed goes into a package.
git archive HEAD sdk/js sdk/python LICENSE | tar -x -C "$tmp"
cp "$tmp/LICENSE" "$tmp/sdk/js/"
cp "$tmp/LICENSE" "$tmp/sdk/python/"

echo "npm: $version"
(cd "$tmp/sdk/js" && npm pkg set version="$version" && npm pack --silent --pack-destination "$tmp" >"$tmp/npm")
mv "$tmp/$(cat "$tmp/npm")" "$out/heardlog-$version.tgz"
"$tmp/sbom" -package "pkg:npm/heardlog@$version" >"$out/heardlog-$version.tgz.cdx.json"

echo "Python: $python_version"
sed -i "s/^version = .*/version = \"$python_version\"/" "$tmp/sdk/python/pyproject.toml"
sed -i "s/^__version__ = .*/__version__ = \"$python_version\"/" "$tmp/sdk/python/src/heardlog/__init__.py"
python3 -m venv "$tmp/venv"
"$tmp/venv/bin/pip" install -q --disable-pip-version-check "hatchling==$hatchling"
(cd "$tmp/sdk/python" && "$tmp/venv/bin/hatchling" build -d "$out" >/dev/null)
wheel=heardlog-$python_version-py3-none-any.whl
mapfile -t needs < <(unzip -p "$out/$wheel" '*/METADATA' | sed -n 's/^Requires-Dist: //p' | grep -v 'extra ==')
"$tmp/sbom" -package "pkg:pypi/heardlog@$python_version" "${needs[@]}" >"$out/$wheel.cdx.json"
