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
  certificates=$(pip_setting cert | head -n 1)
  [ -z "$certificates" ] || export SSL_CERT_FILE=$certificates
  "$folder/bin/uv" pip install --quiet --python "$folder/bin/python" --compile-bytecode "${settings[@]}" \
    --editable ".[$extras]" && exit
  echo "venv.sh: uv could not install it; trying pip" >&2
fi
pip install --quiet --editable ".[$extras]"
