#!/bin/bash
# venv.sh FOLDER EXTRAS: make a virtual environment with the project and these extras in it.
set -eu
folder=$1 extras=$2
python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  echo "venv.sh: Python 3.10 or newer is needed; name one with PYTHON=/path/to/python3" >&2
  exit 1
fi
# Debian keeps venv's heart in a package of its own.
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
  "$(dirname "$0")/apt.sh" python3-venv
fi
[ -x "$folder/bin/python" ] || "$python" -m venv "$folder"

pip() { "$folder/bin/python" -m pip --disable-pip-version-check "$@"; }

# pip_setting NAME: what pip was told by its configuration or its environment, one word a line.
pip_setting() {
  sed -nE "s/^(global|install|:env:)\.$1='(.*)'$/\2/p" <<<"$pip_settings" | sed 's/\\n/ /g' | xargs -r -n 1
}

# compile: compile what is installed, as pip does. What was compiled of the same packages is kept for the next checkout,
# as it takes longer than all the rest. Python compiles what is of another size or time; uv gives each file the same time,
# except where its cache is on another file system.
compile() {
  local these began at_once=1
  packages=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  these=$("$folder/bin/python" -VV | cat - <(cd "$packages" && printf '%s\n' *.dist-info) | cksum | tr ' ' -)
  kept=${XDG_CACHE_HOME:-${HOME:-/dev/null}/.cache}/notebook-launcher/bytecode/$these.tar
  [ ! -e "$kept" ] || { touch -- "$kept"; tar -C "$packages" --skip-old-files -xf "$kept"; } 2>/dev/null || true
  began=$(mktemp)
  "$folder/bin/python" -c 'import click'
  [ -z "$(compiled "$packages/click")" ] || at_once=0 # as many as there are cores
  # some packages have files for other Pythons; those of the project are new each time
  "$folder/bin/python" -m compileall -q -j "$at_once" -x /notebook_launcher/ "$packages" >/dev/null || true
  [ -z "$(compiled "$packages")" ] || keep 2>/dev/null || true
  rm -f -- "$began"
}

# keep: keep what was compiled. Another checkout may read or write in the same folder at this moment. That it cannot be
# kept, as on a full disk or without a home, is no failure.
keep() {
  mkdir -p -- "${kept%/*}" || return
  find "${kept%/*}" -type f -mtime +7 -delete || true # of packages that no checkout has had for a week
  new=$(mktemp "$kept.XXXXXX") || return
  trap 'rm -f -- "$new"' EXIT
  (cd "$packages" && find . -name __pycache__ -print0 | tar --null -T - -cf "$new") && mv -f -- "$new" "$kept"
}

# compiled FOLDER: one of the files in it that were compiled just now, if any
compiled() { find "$1" -name '*.pyc' -newer "$began" -print -quit; }

# uv installs the same in a fifth of pip's time, but does not read pip's settings.
if pip install --quiet 'uv>=0.5' 2>/dev/null; then
  pip_settings=$(pip config list)
  settings=(--index-strategy unsafe-best-match) # the newest from any index, as pip does
  for setting in index-url extra-index-url find-links; do
    while read -r word; do
      settings+=("--$setting" "$word")
    done < <(pip_setting "$setting")
  done
  while read -r word; do
    settings+=(--constraints "$word")
  done < <(pip_setting constraint)
  certificates=$(pip_setting cert | sed -n 1p)
  [ -z "$certificates" ] || export SSL_CERT_FILE=$certificates
  if "$folder/bin/uv" pip install --quiet --python "$folder/bin/python" "${settings[@]}" --editable ".[$extras]"; then
    compile
    exit
  fi
  echo "venv.sh: uv could not install it; trying pip" >&2
fi
pip install --quiet --editable ".[$extras]"
