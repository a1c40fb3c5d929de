#!/usr/bin/env bash
# Installs the official A2A SDKs that tests/peers.rs runs against the relay:
# two Python environments and one Node folder under .peers/ in the repository.
# Idempotent; quick when everything is already there.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
peers=$(cd "$here/../.." && pwd)/.peers
mkdir -p "$peers"

# A folder is complete when its stamp equals what it was made from.
stamp() { cat "$@" | cksum; }
complete() { [[ -f $1/.stamp && $(cat "$1/.stamp") == "$2" ]]; }

want_v1=$(stamp "$here/python/requirements-v1.txt")
want_v03=$(stamp "$here/python/requirements-v03.txt")
want_js=$(stamp "$here/js/package.json")
if complete "$peers/python-v1" "$want_v1" && complete "$peers/python-v03" "$want_v03" && complete "$peers/js" "$want_js"; then
  echo "peers: already installed"
  exit 0
fi

# System packages, only those that are missing.
missing=()
python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3 python3-venv)
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
if ((${#missing[@]})); then
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
  else
    echo "peers: install these packages first: ${missing[*]}" >&2
    exit 1
  fi
fi

python_environment() { # folder, requirements file, stamp
  complete "$1" "$3" && return
  echo "peers: installing $(basename "$1")"
  rm -rf "$1"
  python3 -m venv "$1"
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check -r "$2"
  echo "$3" >"$1/.stamp"
}
python_environment "$peers/python-v1" "$here/python/requirements-v1.txt" "$want_v1"
python_environment "$peers/python-v03" "$here/python/requirements-v03.txt" "$want_v03"

if ! complete "$peers/js" "$want_js"; then
  echo "peers: installing js"
  rm -rf "$peers/js"
  mkdir -p "$peers/js"
  cp "$here/js/package.json" "$peers/js/"
  (cd "$peers/js" && npm install --silent --no-audit --no-fund --no-package-lock)
  echo "$want_js" >"$peers/js/.stamp"
fi
echo "peers: installed"
