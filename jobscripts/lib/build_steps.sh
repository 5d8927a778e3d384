# shellcheck shell=bash disable=SC2154,SC2317   # work is set by the scripts that source this; traps call what is here
#
# Runs the commands that make images (image.sh) and environments (create_environment.sh), and stops them cleanly.
#
# Sourced, never run. Those scripts define `tidy_up`. The file WORK_DIR/stop ends everything, as a signal does.

# Messages to the launcher contain the name of the work folder, because the build may print similar lines.
tell_launcher() { printf 'nbl-%s %s %s\n' "$1" "${work##*/}" "$2"; }

# Clean up before the last message: the launcher ends us when it reads that.
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

# follow COMMAND...: run it in its own process group, with its output on ours, until it ends or WORK_DIR/stop exists: a
# scheduler ends a job step without warning.
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
