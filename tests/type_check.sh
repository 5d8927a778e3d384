#!/bin/bash
# type_check.sh VENV: run mypy. In a new checkout it begins with what was known in the last one on this machine, as most
# of what it reads are libraries. Of a file at another path, or with another time, it compares the content; only one with
# the same path, time and size it takes for unchanged.
set -eu
kept=${XDG_CACHE_HOME:-${HOME:-/dev/null}/.cache}/notebook-launcher/mypy.tar
known=.mypy_cache
new=

# keep: keep it for the next checkout. Another one may read or write the same file at this moment.
keep() {
  mkdir -p -- "${kept%/*}" && new=$(mktemp "$kept.XXXXXX") && tar -cf "$new" "$known" && mv -f -- "$new" "$kept"
}

[ -e "$known" ] || [ ! -e "$kept" ] || tar -xf "$kept" || rm -rf -- "$known"
"$1/bin/mypy"
trap 'rm -f -- "$new"' EXIT
keep 2>/dev/null || true # as on a full disk, or without a home
