#!/usr/bin/env bash
# Tests the Python package, and frameworks against the real server with it.
#
#   scripts/test-python.sh [GROUP…]           with the locked versions; all groups by default
#   scripts/test-python.sh --newest [GROUP…]  with the newest versions; prints what broke
#   scripts/test-python.sh --live             one call in a LiveKit room; LIVEKIT_SERVER names the server
#   scripts/test-python.sh --lock [GROUP…]    writes the locks and the table of tested versions
#
# A group is a file compat/python/requirements/GROUP.in with its lock GROUP.txt. Its tests are
# compat/python/test_GROUP.py and test_GROUP_*.py. Each has a virtual environment of its own, because
# frameworks exclude each other. A test that is skipped is a failure. It needs Go (or a built server
# in HEARDLOG_BIN) and Python 3.11 or newer.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
compat=$root/compat/python
reqs=$compat/requirements
envs=$compat/.venv
uv_version=0.11.31

mode=locked
case ${1:-} in
  --newest) mode=newest; shift ;;
  --lock) mode=lock; shift ;;
  --live) mode=live; : "${LIVEKIT_SERVER:?names the program of a LiveKit server}"; set -- livekit ;;
  -*) echo "unknown option $1: use --newest, --live or --lock" >&2; exit 2 ;;
esac
groups=("$@")
if [ ${#groups[@]} = 0 ]; then
  for f in "$reqs"/*.in; do
    g=$(basename "$f" .in)
    case $g in common|tools) ;; litellm) groups=("$g" "${groups[@]}") ;; *) groups+=("$g") ;; esac
  done # litellm first: it takes longest
fi
for g in "${groups[@]}"; do
  if [ ! -f "$reqs/$g.in" ]; then echo "there is no group $g: $reqs/$g.in is missing" >&2; exit 2; fi
done

# A test file without a group would never run.
for f in "$compat"/test_*.py; do
  name=$(basename "$f" .py) found=
  for r in "$reqs"/*.in; do
    g=$(basename "$r" .in)
    case ${name#test_} in "$g"|"${g}"_*) found=yes ;; esac
  done
  if [ -z "$found" ]; then
    echo "$f belongs to no group: add $reqs/${name#test_}.in, then run scripts/test-python.sh --lock ${name#test_}" >&2
    exit 2
  fi
done

mkdir -p "$envs"
if ! "$envs/uv/bin/uv" --version 2>/dev/null | grep -q "^uv $uv_version"; then
  "$python" -m venv "$envs/uv"
  "$envs/uv/bin/pip" install -q --disable-pip-version-check "uv==$uv_version"
fi
uv() { "$envs/uv/bin/uv" --no-progress "$@"; }
# flags prints the options that a group's requirements ask for in a line "# uv: …".
flags() { sed -n 's/^# uv: //p' "$reqs/$1.in"; }
versions() { "$python" "$compat/harness/versions.py" "$@"; }

if [ $mode = lock ]; then
  for g in tools "${groups[@]}"; do
    # shellcheck disable=SC2046 # several options
    (cd "$reqs" && uv pip compile -q --universal --python-version 3.11 --no-header --no-annotate \
      $(flags "$g") --upgrade "$g.in" -o "$g.txt")
  done
  versions write
  exit
fi
if [ $mode = locked ]; then versions check; fi

# venv makes the environment of a group, or brings it up to date.
venv() {
  local g=$1 source=$reqs/$1.txt
  if [ $mode = newest ]; then source=$reqs/$1.in; fi
  [ -x "$envs/$g/bin/python" ] || uv venv -q --python "$python" "$envs/$g"
  if [ $mode = newest ]; then
    # shellcheck disable=SC2046
    uv pip install -q --upgrade $(flags "$g") --python "$envs/$g/bin/python" -r "$source"
  else
    uv pip sync -q --python "$envs/$g/bin/python" "$source"
  fi
}

# sdists fetches the sources whose own tests a group runs: those in its lines "# sdist: …".
sdists() {
  local g=$1 name version to
  for name in $(sed -n 's/^# sdist: //p' "$reqs/$g.in"); do
    version=$(uv pip freeze --python "$envs/$g/bin/python" | sed -n "s/^$name==//p")
    to=$envs/sdists/$name-$version
    [ -d "$to" ] && continue
    mkdir -p "$envs/sdists"
    rm -rf "$work/sdist" && mkdir "$work/sdist" "$work/sdist/out"
    "$envs/uv/bin/pip" download -q --disable-pip-version-check --no-deps --no-binary :all: \
      -d "$work/sdist" "$name==$version" &&
      tar xzf "$work"/sdist/*.tar.gz -C "$work/sdist/out" --strip-components 1 &&
      mv "$work/sdist/out" "$to" || return 1
  done
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "building the server, the package and the environments"
if [ -z "${HEARDLOG_BIN:-}" ]; then
  (cd "$root" && CGO_ENABLED=0 go build -trimpath -tags grpcnotrace,validator_novalidatefn -o "$work/heardlog" ./cmd/api)
  export HEARDLOG_BIN=$work/heardlog
fi
venv tools
uv build -q --wheel --no-build-isolation --python "$envs/tools/bin/python" -o "$work/dist" "$root/sdk/python"
wheel=$(echo "$work"/dist/*.whl)
# prepare makes the environment of a group. With the newest versions, one that cannot be made does
# not stop the others.
prepare() {
  venv "$1" &&
    uv pip install -q --no-deps --reinstall --python "$envs/$1/bin/python" "$wheel" &&
    sdists "$1"
}
for g in "${groups[@]}"; do
  if ! prepare "$g"; then
    echo "$g: its packages could not be installed"
    if [ $mode = locked ]; then exit 1; fi
  fi
done
export HEARDLOG_SDISTS=$envs/sdists

if [ $mode = live ]; then (cd "$compat" && "$envs/livekit/bin/python" live_livekit.py); exit; fi

if [ $mode = locked ]; then
  (cd "$root/sdk/python" && PATH=$envs/tools/bin:$PATH &&
    ruff check -q . "$compat" && ruff format --check -q . "$compat" &&
    python tools/generate.py --check && mypy src)
fi

# check runs the tests of a group, and leaves a file if they succeed.
check() {
  local g=$1 files=()
  for f in "$compat/test_$g.py" "$compat/test_${g}"_*.py; do
    if [ -f "$f" ]; then files+=("$f"); fi
  done
  if [ ${#files[@]} = 0 ]; then echo "$g: there is no test_$g.py"; return 1; fi
  if [ "$g" = client ]; then
    (cd "$root/sdk/python" && "$envs/$g/bin/python" -m pytest -q -p no:cacheprovider) || return 1
  fi
  cd "$compat"
  HEARDLOG_NO_SKIP=1 "$envs/$g/bin/python" -m pytest -q -rP -p no:cacheprovider "${files[@]}" || return 1
  touch "$work/$g.ok"
}

for g in "${groups[@]}"; do
  while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n || true; done
  (set +e; begin=$SECONDS; check "$g" >"$work/$g.log" 2>&1
    { echo "== $g ($((SECONDS - begin)) s)"; cat "$work/$g.log"; } >"$work/$g.out"; cat "$work/$g.out") &
done
wait

failed=()
for g in "${groups[@]}"; do
  if [ -f "$work/$g.ok" ]; then continue; fi
  failed+=("$g")
done
if [ $mode = newest ]; then
  for g in "${groups[@]}"; do
    uv pip freeze --python "$envs/$g/bin/python" | versions compare "$g" "$([ -f "$work/$g.ok" ] && echo works || echo BROKE)"
  done
fi
if [ ${#failed[@]} != 0 ]; then echo "failed: ${failed[*]}"; exit 1; fi
echo "all groups passed: ${groups[*]}"
