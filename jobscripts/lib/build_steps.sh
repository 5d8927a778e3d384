# shellcheck shell=bash disable=SC2154,SC2317   # work is set by the scripts that source this; traps call what is here
#
# What makes images (image.sh) and environments (create_environment.sh): followed to its end, and stopped in good order.
#
# Sourced, never run. `tidy_up` is theirs; WORK_DIR/stop ends all, as a signal does.

# Words for the launcher carry the name of the work folder: what is built may print lines as well.
tell_launcher() { printf 'nbl-%s %s %s\n' "$1" "${work##*/}" "$2"; }

# Tidied up before the last word: whoever reads it ends us.
give_up() {
  tidy_up
  tell_launcher failed "$1"
  exit 1
}

cause_of_failure() {
  if read_line "$NBL_CAUSE_FILE"; then printf '%s' "${REPLY#* }"; else printf 'The modules could not be loaded.'; fi
}

stopped() {
  trap '' TERM INT HUP
  exit 143
}

stop_if_asked() { [[ ! -e $work/stop ]] || stopped; }

# follow COMMAND...: run it in a process group of its own, with its output on ours, until it ends. Or until WORK_DIR/stop
# is there: where a scheduler ends the step of a job, that comes without a warning.
follow() {
  local code
  set -m
  "$@" </dev/null 2>&1 &
  child=$!
  set +m
  while kill -0 "$child" 2>/dev/null; do
    stop_if_asked
    pause 0.3
  done
  wait "$child"
  code=$?
  child=''
  stop_if_asked
  return "$code"
}

end_child() {
  local tries
  kill -TERM -- "-$child" 2>/dev/null
  for ((tries = 0; tries < 30; tries++)); do
    kill -0 -- "-$child" 2>/dev/null || return 0
    pause 0.1
  done
  kill -KILL -- "-$child" 2>/dev/null
}
