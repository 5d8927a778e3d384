#!/bin/bash
# as-root.sh COMMAND...: run a command as root, by sudo where that is needed.
set -eu
[ "$(id -u)" = 0 ] && exec "$@"
exec sudo --preserve-env=PATH,XDG_CACHE_HOME "$@"
