#!/bin/bash
# Query the scheduler once for all launchers of a user that make the same query on this machine.
#
#   bash shared_query.sh PLACE MAX_AGE [COMMAND... --together] COMMAND...
#
# Prints a line `AGE CLOCK FOR` and then the output of the last COMMAND: run now, or by another launcher with the same
# PLACE at most MAX_AGE seconds (such as 2.50) before our call. Its exit code is passed on, and if it failed, its error
# messages. PLACE is the beginning of file names; its directory is created if necessary.
#
#   AGE    the seconds before our call at which the query was made, such as 2.50; 0: it was made for us
#   CLOCK  the time here, with its zone
#   FOR    `alone` if the COMMAND before --together was run: it is cheaper for the scheduler, but its answer is useful for
#          only one session, so it is used by a launcher that has been the only one here for some minutes; otherwise
#          `together`
#
# If several launchers need a new answer, one of them queries, and the others wait for it. While they wait they print
# empty lines (before the first one), and end when nobody reads them any more. A failure is not kept as an answer, but
# shared for a moment, so that not all of them query a scheduler that is down. If nothing can be shared (the directory
# is not writable or not ours, the disk is full), the command is simply run.

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

set -u

# The launcher itself waits for at most 90 s.
readonly COMMAND_SECONDS=50
# Seconds to wait for the answer of another launcher.
readonly PATIENCE_SECONDS=60
# Seconds in which to take over the turn of a launcher that hangs, before querying without a turn.
readonly TAKING_OVER_SECONDS=5
readonly FAILURE_SECONDS=10
# A launcher with a pending session queries at least this often, in seconds.
readonly PRESENT_SECONDS=300
# Files unchanged for so many seconds are removed, a limited number at a time.
readonly KEPT_SECONDS=3600
readonly MOST_FILES=200

main() {
  place=$1
  read_seconds "$2"
  max_age=$REPLY
  shift 2
  split_commands "$@"
  umask 077
  # At a limit on the size of files, a write should fail instead of ending us.
  trap '' XFSZ
  find_files || just_run together "${together[@]}"
  called=$now
  look_around
  until find_answer; do
    is_patient || just_run together "${together[@]}"
    ((others)) || just_run alone "${alone[@]}"
    if take_turn; then
      # Another launcher may have got an answer just before our turn.
      find_answer || ask
      end_turn
      break
    fi
    wait_a_moment
  done
  tell
}

# The rounds are counted as well, in case the clock stops working.
is_patient() {
  local -r most=$((PATIENCE_SECONDS + TAKING_OVER_SECONDS))
  ((rounds++ < most && now <= called + 100 * most))
}
rounds=0

split_commands() {
  local word
  alone=() together=()
  for word; do
    if [[ $word == --together ]]; then
      alone=("${together[@]}") together=()
    else
      together+=("$word")
    fi
  done
}

# Set answer, turn and errors to names of files in a directory of our own. Return 1 if there is none.
#
# Ages are measured by the time since boot, because that clock is never set. It differs between machines, so each
# machine has its own files.
find_files() {
  local directory=${place%/*} machine
  { read -r machine </proc/sys/kernel/hostname && read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null &&
    look_at_clock || return 1
  [[ -d $directory ]] || mkdir -- "$directory" 2>/dev/null
  [[ -d $directory && ! -L $directory && -O $directory && -w $directory ]] || return 1
  answer=$place.$machine turn=$place.$machine.turn errors=$place.$machine.errors.$$
}

# Set now, in hundredths of a second.
look_at_clock() {
  local uptime _
  { read -r uptime _ </proc/uptime; } 2>/dev/null
  read_seconds "${uptime-}" && now=$REPLY
}

# read_seconds SECONDS.HUNDREDTHS: set REPLY to hundredths of a second, or to nothing for anything else.
read_seconds() {
  REPLY=0
  [[ $1 =~ ^[0-9]{1,13}\.[0-9][0-9]$ ]] && REPLY=$((10#${1/./}))
}

just_run() {
  printf '0 %(%FT%T%z)T %s\n' -1 "$1"
  shift
  timeout -k 5 "$COMMAND_SECONDS" "$@" </dev/null
  code=$?
  ((code != 124)) || printf '%s\n' "$1 gave no answer within $COMMAND_SECONDS s" >&2
  exit "$code"
}

# Set others if there are other launchers, or no command for a single one; and leave a mark for them.
look_around() {
  local us=${BASH_SOURCE[0]%/*} mark
  us=$answer.by.${us##*/} others=1
  ((${#alone[@]})) || return 0
  others=0
  [[ -e $us ]] || tidy_up
  [[ -L $us ]] || { printf '%s %s\n' "$boot" "$now" >"$us" || rm -f -- "$us"; } 2>/dev/null
  for mark in "$answer".by.*; do
    [[ $mark != "$us" ]] || continue
    if is_fresh "$mark"; then others=1; else rm -f -- "$mark"; fi
  done
}

is_fresh() {
  local boot_then at
  is_ours "$1" && read -r boot_then at <"$1" && [[ $boot_then == "$boot" ]] && is_within "${PRESENT_SECONDS}00" "$at"
} 2>/dev/null

# Whether a file is ours and not a link: other files are not read.
is_ours() { [[ -f $1 && ! -L $1 && -O $1 ]]; }

# is_within HUNDREDTHS MOMENT: whether MOMENT is at most that long before our call, and not in the future.
is_within() { [[ $2 =~ ^[1-9][0-9]{0,14}$ ]] && ((called - $1 <= $2 && $2 <= now)); }

# Set text, code and age from a recent answer. Return 1 if there is none.
find_answer() {
  look_at_clock
  is_ours "$answer" && read_answer <"$answer"
} 2>/dev/null

read_answer() {
  local boot_then asked bytes
  read -r boot_then asked code bytes && [[ $boot_then == "$boot" && $code =~ ^(0|[1-9][0-9]{0,2})$ ]] || return 1
  is_within "$((code ? 100 * FAILURE_SECONDS : max_age))" "$asked" || return 1
  IFS= read -r -d '' text
  text=${text%$'\n'}
  count_bytes "$text"
  [[ $bytes == "$REPLY" ]] || return 1
  # A query made while we were waiting counts as made just before our call.
  age=$((asked < called ? called - asked : 1))
  printf -v age '%d.%02d' "$((age / 100))" "$((age % 100))"
}

# Set REPLY to the number of bytes, whatever the locale.
count_bytes() {
  local LC_ALL=C
  REPLY=${#1}
}

# Remove files older than an hour: answers, marks, and those of killed launchers. That is done whenever a file is added,
# so there are never many. Ages are by the file system's clock, which may differ: a launcher that loses an answer, a
# mark or a turn by that queries again.
tidy_up() {
  local file at seconds files=() old=()
  local -r ours='/[[:alnum:]_.-]+-[0-9a-f]+\.[^/]+$'
  for file in "${place%/*}"/*; do
    [[ $file =~ $ours ]] && is_ours "$file" && files+=("$file")
    ((${#files[@]} < MOST_FILES)) || break
  done
  ((${#files[@]})) || return 0
  printf -v seconds '%(%s)T' -1
  while read -r at file; do
    ((at >= seconds - KEPT_SECONDS)) || old+=("$file")
  done < <(stat -c '%Y %n' -- "${files[@]}")
  ((${#old[@]} == 0)) || rm -f -- "${old[@]}"
} 2>/dev/null

# ---------------------------------------------------------------------------------------------------- taking turns

# Return 1 while another launcher queries.
take_turn() {
  grab_turn && return
  ((!full)) || just_run together "${together[@]}"
  if [[ ! -e $turn ]]; then
    # The turn has just been given back, or the file cannot be created because no more files fit.
    ((++vain < 5)) || just_run together "${together[@]}"
    return 1
  fi
  vain=0
  is_forsaken && pass_on && grab_turn
}
vain=0

# The launcher that creates the file has the turn: with noclobber, bash never opens an existing one. If it can be
# created but not written (the disk or quota is full, which some file systems report only later), set full.
grab_turn() {
  local made='' holder=''
  set -C
  { made=1 && printf '%s\n' "$$"; } >"$turn"
  set +C
  [[ -n $made ]] || return 1
  read -r holder <"$turn"
  [[ $holder != "$$" ]] || return 0
  end_turn
  full=1
  return 1
} 2>/dev/null
full=0

# Whether the launcher that has the turn was killed, or hangs.
is_forsaken() {
  holder=''
  read -r holder <"$turn"
  ((now > called + 100 * PATIENCE_SECONDS)) || { [[ $holder =~ ^[1-9][0-9]*$ ]] && ! kill -0 "$holder"; }
} 2>/dev/null

# Remove an abandoned turn. Of several launchers, only one does so, and only while the turn has not changed.
pass_on() {
  local still='' mark=$turn.of.$holder
  # The launcher that was removing it may have been killed.
  ((now <= called + 100 * PATIENCE_SECONDS)) || rm -f -- "$mark"
  # If no more files fit, no mark can be created.
  (set -C && : >"$mark") || { [[ -e $mark ]] || full=1; return 1; }
  read -r still <"$turn"
  [[ $still != "$holder" ]] || rm -f -- "$turn"
  rm -f -- "$mark"
} 2>/dev/null

# Works even if a full disk has truncated our id in the file.
end_turn() {
  local holder=''
  { read -r holder <"$turn"; } 2>/dev/null
  [[ $$ != "$holder"* ]] || rm -f -- "$turn"
}

# Longer each time: with a slow scheduler, there may be many of us. The empty line fails if nobody reads it any more.
wait_a_moment() {
  printf '\n' || exit
  sleep "$pause"
  case $pause in
    0.1) pause=0.2 ;;
    0.2) pause=0.5 ;;
    *)   pause=1 ;;
  esac
}
pause=0.1

# ---------------------------------------------------------------------------------------------------------- asking

# Query, and save the answer atomically for the others.
ask() {
  [[ -e $answer ]] || tidy_up
  { : >"$errors"; } 2>/dev/null || { end_turn; just_run together "${together[@]}"; }
  look_at_clock
  local asked=$now
  age=0
  text=$(timeout -k 5 "$COMMAND_SECONDS" "${together[@]}" 2>"$errors" </dev/null)
  code=$?
  ((code == 0)) || text=$(<"$errors")
  ((code != 124)) || text="${together[0]} gave no answer within $COMMAND_SECONDS s"
  count_bytes "$text"
  { printf '%s %s %s %s\n%s\n' "$boot" "$asked" "$code" "$REPLY" "$text" >"$answer.new.$$" &&
    mv -f -- "$answer.new.$$" "$answer"; } 2>/dev/null
  rm -f -- "$errors" "$answer.new.$$"
}

tell() {
  printf '%s %(%FT%T%z)T together\n' "$age" -1
  if ((code)); then
    printf '%s\n' "$text" >&2
  elif [[ -n $text ]]; then
    printf '%s\n' "$text"
  fi
  exit "$code"
}

main "$@"
