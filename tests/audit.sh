#!/bin/bash
# audit.sh VENV: look up what is installed in a virtual environment in PyPI's list of known vulnerabilities.
#
# Where that list cannot be had, it says so, and that is no failure: an index may mirror the packages alone.
set -eu
python=$1/bin/python
packages=$(mktemp)
trap 'rm -f -- "$packages"' EXIT

audit() { "$python" -m pip_audit --progress-spinner off --disable-pip --no-deps --requirement "$packages" "$@"; }

# A release with known vulnerabilities: where it has none, there is no list.
echo 'jinja2==2.10' >"$packages"
if ! audit --format json 2>/dev/null | grep -q '"fix_versions"'; then
  echo "audit.sh: PyPI's list of known vulnerabilities cannot be had here, so nothing was looked up" >&2
  exit 0
fi
"$python" -m pip list --disable-pip-version-check --format freeze --exclude-editable >"$packages"
audit
