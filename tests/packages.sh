#!/bin/bash
# What the tests need from Debian: a browser, an ssh server, three more shells, the shell checker, and the tools of the practice cluster.
set -eu
if [ "$(uname -s)" != Linux ]; then
  echo "packages.sh: not Linux, so the tests on the practice cluster cannot run here" >&2
  exit 0
fi
apt=$(dirname "$0")/apt.sh
browser=chromium-headless-shell
if ! "$apt" "$browser"; then
  echo "packages.sh: without chromium-headless-shell, the tests use chromium, which takes more processor time" >&2
  browser=chromium
fi
exec "$apt" acl "$browser" fish openssh-client openssh-server iproute2 procps shellcheck tcsh tmux util-linux zsh
