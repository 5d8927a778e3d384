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
"$folder/bin/pip" install --quiet --disable-pip-version-check --editable ".[$extras]"
