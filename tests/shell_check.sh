#!/bin/bash
# shell_check.sh SCRIPT...: run shellcheck on those scripts that were not found right before, here or in another checkout,
# as they are and with all that they source: half a minute of processor time for all.
set -eu
kept=${XDG_CACHE_HOME:-${HOME:-/dev/null}/.cache}/notebook-launcher/shellcheck
version=$(shellcheck --version)

# settings SCRIPT: print what changes shellcheck's judgement: its options, and the first file of settings that it finds
settings() {
  local folder file
  printf '%s\n' "${SHELLCHECK_OPTS-}"
  folder=$(cd "$(dirname "$1")" && pwd -P)
  while :; do
    for file in "$folder"/{.,}shellcheckrc; do
      [ ! -f "$file" ] || { cat -- "$file" && return; }
    done
    [ "$folder" != / ] || break
    folder=$(dirname "$folder")
  done
  for file in "${HOME-}/.shellcheckrc" "${XDG_CONFIG_HOME:-${HOME-}/.config}/shellcheckrc"; do
    [ ! -f "$file" ] || { cat -- "$file" && return; }
  done
}

# sourced SCRIPT: print the paths of a script and of what it sources, each once
sourced() {
  local left=("$1") one seen=' '
  while ((${#left[@]})); do
    one=${left[0]} left=("${left[@]:1}")
    [[ $seen != *" $one "* ]] || continue
    seen+="$one "
    printf '%s\n' "$one"
    mapfile -t -O "${#left[@]}" left < <(sed -nE 's/^ *# shellcheck source=//p' "$one")
  done
}

# what cannot be kept, as on a full disk or without a home, is checked each time
{ mkdir -p -- "$kept" && find "$kept" -type f -mtime +30 -delete; } 2>/dev/null || true
names=() new=()
for script in "$@"; do
  mapfile -t all < <(sourced "$script")
  name=$({ printf '%s\n' "$version" "${all[@]}"; settings "$script" || true; cat -- "${all[@]}"; } | sha256sum)
  [ ! -e "$kept/${name%% *}" ] || continue
  new+=("$script") names+=("$kept/${name%% *}")
done
((${#new[@]})) || exit 0
printf '%s\0' "${new[@]}" | xargs -0 -n 1 -P 2 shellcheck -x
touch -- "${names[@]}" 2>/dev/null || true
