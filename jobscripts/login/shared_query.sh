#!/bin/bash
# Ask the scheduler something, once for all launchers of a user that want to know the same on this machine.
#
#   bash shared_query.sh PLACE MAX_AGE [COMMAND... --together] COMMAND...
#
# Prints a line `AGE CLOCK FOR` and then what the last COMMAND printed: now, or to another launcher with the same PLACE,
# MAX_AGE seconds (such as 2.50) before our call or later. Passes on its exit code and, where it failed, what it said as
# errors. PLACE is the beginning of file names; its directory is made if need be.
#
#   AGE    how many seconds before our call that was asked, such as 2.50; 0: it was asked for us
#   CLOCK  the time here, with its zone
#   FOR    `alone` where the COMMAND before --together was run: the scheduler has less to do for it, but its answer is
#          of use to one session only, so it is for a launcher that has been the only one here for some minutes; else
#          `together`
#
# Of several launchers that need a new answer one asks, and the others wait for it. While they wait they print empty
# lines (before that first one), and end when nobody listens any more. A failure is not kept as an answer, but it is
# shared for a moment: a scheduler that is down is not asked by all of them. Where nothing can be shared (the directory
# cannot be written or is not ours, the disk is full) the command is simply run.

# Shell options as bash has them by itself, whatever BASH_ENV and SHELLOPTS bring: the same lines in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

set -u

# The launcher itself waits for at most 90 s.
readonly COMMAND_SECONDS=50
# Whoever waited that long for another one's answer need not wait for it any longer.
readonly PATIENCE_SECONDS=60
# Whoever could not take the turn from them by then asks for itself.
readonly TAKING_OVER_SECONDS=5
readonly FAILURE_SECONDS=10
# A launcher whose session waits asks at least that often.
readonly PRESENT_SECONDS=300
# What nobody has written to for so long is of no use to anybody; of so many files it is found out at once.
readonly KEPT_SECONDS=3600
readonly MOST_FILES=200

main() {
  place=$1
  read_seconds "$2"
  max_age=$REPLY
  shift 2
  split_commands "$@"
  umask 077
  # A limit on the size of files is a write that fails, and not our end.
  trap '' XFSZ
  find_files || just_run together "${together[@]}"
  called=$now
  look_around
  until find_answer; do
    is_patient || just_run together "${together[@]}"
    ((others)) || just_run alone "${alone[@]}"
    if take_turn; then
      # Somebody may have answered just before it was our turn.
      find_answer || ask
      end_turn
      break
    fi
    wait_a_moment
  done
  tell
}

# The rounds are counted as well, should the clock stop working.
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

# Set answer, turn and errors to names of files, in a directory of our own. Return 1 where there is none.
#
# Ages are measured by the clock that runs since the machine was started, because nobody ever sets that one. Other machines
# have other such clocks, and so files of their own.
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

# read_seconds SECONDS.HUNDREDTHS: set REPLY to hundredths of a second, to none when it is something else.
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

# Set others to whether there are any, or there is no command for one; and leave a mark for them.
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

# Nothing is read from, or through, what somebody else has put there.
is_ours() { [[ -f $1 && ! -L $1 && -O $1 ]]; }

# is_within HUNDREDTHS MOMENT: whether MOMENT is that long before our call, or later, and not in the future.
is_within() { [[ $2 =~ ^[1-9][0-9]{0,14}$ ]] && ((called - $1 <= $2 && $2 <= now)); }

# Set text, code and age to what was answered not too long ago. Return 1 when there is nothing.
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
  # What was asked while we waited counts as asked just before.
  age=$((asked < called ? called - asked : 1))
  printf -v age '%d.%02d' "$((age / 100))" "$((age % 100))"
}

# Set REPLY to their number, in any language's characters.
count_bytes() {
  local LC_ALL=C
  REPLY=${#1}
}

# Remove what was left in the directory an hour ago or earlier: answers, marks, and what those who were killed left.
# That is done when there will be one file more, so there are never many. Its age is that of the file system, whose
# clock may be another one: who loses an answer, a mark or a turn by that asks once more.
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

# Return 1 while another one asks.
take_turn() {
  grab_turn && return
  ((!full)) || just_run together "${together[@]}"
  if [[ ! -e $turn ]]; then
    # Given back just now, or it cannot be made: no more files fit.
    ((++vain < 5)) || just_run together "${together[@]}"
    return 1
  fi
  vain=0
  is_forsaken && pass_on && grab_turn
}
vain=0

# Whoever makes the file has the turn: with noclobber, bash never opens one that is there. Where it can be made and not
# written (the disk is full, a quota is used up, which some file systems tell only later), set full.
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

# Whether the one whose turn it is was killed, or hangs.
is_forsaken() {
  holder=''
  read -r holder <"$turn"
  ((now > called + 100 * PATIENCE_SECONDS)) || { [[ $holder =~ ^[1-9][0-9]*$ ]] && ! kill -0 "$holder"; }
} 2>/dev/null

# Remove a forsaken turn. Of those who want to, only one does, and only while it is still the same one's.
pass_on() {
  local still='' mark=$turn.of.$holder
  # The one who wanted to may have been killed just then.
  ((now <= called + 100 * PATIENCE_SECONDS)) || rm -f -- "$mark"
  # Where no more files fit, nobody can leave a mark.
  (set -C && : >"$mark") || { [[ -e $mark ]] || full=1; return 1; }
  read -r still <"$turn"
  [[ $still != "$holder" ]] || rm -f -- "$turn"
  rm -f -- "$mark"
} 2>/dev/null

# Also where a full disk has cut off our number.
end_turn() {
  local holder=''
  { read -r holder <"$turn"; } 2>/dev/null
  [[ $$ != "$holder"* ]] || rm -f -- "$turn"
}

# Ever longer: where the scheduler is slow, there may be many of us. The empty line finds out whether anybody listens.
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

# Ask, and leave the answer for the others, whole or not at all.
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
