#!/bin/bash
# type_check.sh VENV: run mypy. In a new checkout it begins with what was known in the last one on this machine: what has
# changed it sees by each file's content, and most of what it reads are libraries.
set -eu
kept=${XDG_CACHE_HOME:-$HOME/.cache}/notebook-launcher/mypy.tar
known=.mypy_cache

[ -e "$known" ] || [ ! -e "$kept" ] || tar -xf "$kept" || rm -rf -- "$known"
"$1/bin/mypy"
mkdir -p -- "${kept%/*}"
new=$(mktemp "$kept.XXXXXX") # another checkout may read or write it at this moment
tar -cf "$new" "$known"
mv -f -- "$new" "$kept"
