#!/bin/bash
# A connection into a job that the job itself opens, for sites where nobody may connect to a compute node, but the node
# may connect to the login node. The job opens an ssh connection to the login node from which it is called, as its user,
# with an SSH server into the session (sshd.sh step) at the job's end. No port is opened: the launcher and the job meet
# in a new private folder on the login node, which is removed as soon as they have met.
#
#   bash reverse.sh answer SESSION_DIR      in the job: answer each call, until standard input ends
#   bash reverse.sh call SESSION_DIR        on the login node: call the job, and print the outcome:
#     open TAG                                it is connected, and waits for `join TAG`, 30 s at most
#     closed|no-host-key|unsafe|silent|no-sshd|denied|unknown-host|elsewhere|unreached WHY
#   bash reverse.sh join SESSION_DIR TAG    there: the connection, on standard input and output
#   bash reverse.sh meet SESSION_DIR TAG    there, over the job's own ssh connection: its far end
#
# In SESSION_DIR/runtime/reverse, `calls` has the tags of all calls, in order; without that file, calls are no longer
# answered. TAG has the names of the login node, TAG.hosts its host keys, and TAG.answer the reason why the job could
# not connect.

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

set -u

# Seconds that a call waits for the job, that the job tries, and that it then waits for `join`.
readonly CALL_SECONDS=40 TRY_SECONDS=30 JOIN_SECONDS=30
# Seconds for connecting to one address, and then for the login there, with the user's start-up files.
readonly CONNECT_SECONDS=5 LOGIN_SECONDS=20
# Seconds between two checks for calls: in the first half minute, while the launcher waits for the session, and after
# each call; later; and after a long time without calls.
readonly FIRST_SECONDS=30 FIRST_LOOK=0.2 LATER_LOOK=1 RARE_AFTER=600 RARE_LOOK=2
# The maximum number of names of a login node to try, and of lines that start-up files may print there.
readonly MOST_NAMES=5 MOST_LINES=500
# The name for which TAG.hosts lists the login node's keys, whichever of its names is tried.
readonly KNOWN_AS=login-node

main() {
  umask 077
  [[ $# -ge 2 && -n $2 ]] || usage
  dir=${2%/}
  [[ $dir == /* ]] || dir=$PWD/$dir
  here=$(dirname -- "${BASH_SOURCE[0]}")
  place=$dir/runtime/reverse
  # shellcheck source=jobscripts/lib/lib.sh
  source "$here/lib.sh"
  case $1:$# in
    answer:2) answer ;;
    call:2)   call ;;
    join:3)   join "$3" ;;
    meet:3)   meet "$3" ;;
    *)        usage ;;
  esac
}

usage() {
  printf 'usage: reverse.sh answer|call SESSION_DIR | reverse.sh join|meet SESSION_DIR TAG\n' >&2
  exit 2
}

is_tag() { [[ $1 =~ ^[[:alnum:]]{8}$ ]]; }

# Whether a word is a valid host name or address; the first character ensures that it cannot be an option.
is_host() { [[ $1 =~ ^[[:alnum:]:][[:alnum:]._:-]*$ ]]; }

# ------------------------------------------------------------------------------------------------- on the login node

# Print a message on one line, whatever it contains.
tell() {
  local words=${2-}
  printf '%s %s\n' "$1" "${words//[[:cntrl:]]/ }"
  exit 0
}

call() {
  local deadline
  [[ -e $place/calls ]] || tell closed
  find_host_keys
  ((${#host_keys[@]})) || tell no-host-key
  # Anybody who may rename other users' files there could replace them.
  [[ -k /tmp && $(stat -c %u /tmp) == 0 ]] || tell unsafe
  remove_left_calls
  folder=$(mktemp -d /tmp/nl-call-XXXXXXXX) || tell unsafe
  tag=${folder##*-}
  trap hang_up EXIT
  mkfifo "$folder/up" "$folder/down" || tell unsafe
  place_call || tell closed
  deadline=$((SECONDS + CALL_SECONDS))
  while ((SECONDS < deadline)); do
    if [[ -e $folder/ready ]]; then
      trap - EXIT
      tell open "$tag"
    fi
    # Opened at each check: only then does an NFS client ask whether another machine has written it.
    ! read_line "$place/$tag.answer" || tell "${REPLY%% *}" "${REPLY#* }"
    pause 0.1
  done
  tell silent
}

# Write the files that the job reads, then the line by which it finds them. The file for the answer is created here,
# because an NFS client does not look for a new file each time.
place_call() {
  local key lines='' name
  for key in "${host_keys[@]}"; do lines+="$KNOWN_AS $key"$'\n'; done
  write_file "$place/$tag.hosts" "${lines%$'\n'}" && : >"$place/$tag.answer" || return
  find_own_names
  lines="user=$(id -un)"
  for name in ${names[@]+"${names[@]}"}; do lines+=$'\n'"name=$name"; done
  for name in "${ports[@]}"; do lines+=$'\n'"port=$name"; done
  write_file "$place/$tag" "$lines" && printf '%s\n' "$tag" >>"$place/calls"
}

# Set names to the names of this machine, the best first, and ports to those of its SSH server. The SSH server of the
# launcher's connection has put its own address and port into the environment.
find_own_names() {
  local name address='' port='' _
  names=() ports=()
  read -r _ _ address port <<<"${SSH_CONNECTION-}"
  for name in "$(full_hostname)" "$(uname -n)" "$address" $(own_addresses); do
    [[ $name != localhost* && $name != 127.* && $name != ::1 && " ${names[*]-} " != *" $name "* ]] || continue
    ! is_host "$name" || names+=("$name")
  done
  names=(${names[@]+"${names[@]:0:MOST_NAMES}"})
  [[ ! $port =~ ^[0-9]{1,5}$ || $port == 22 ]] || ports=("$port")
  ports+=(22)
}

hang_up() {
  rm -rf -- "$folder"
  rm -f -- "$place/$tag" "$place/$tag".{hosts,answer}
}

# Remove the folders of calls that were killed before the two ends had met.
remove_left_calls() {
  find "$place" -maxdepth 1 -type f \( -name '????????' -o -name '????????.*' \) -mmin +10 -exec rm -f -- {} + 2>/dev/null
  find /tmp -maxdepth 1 -type d -name 'nl-call-????????' -user "$(id -u)" -mmin +10 -exec rm -rf -- {} + 2>/dev/null
}

# Change to the folder of a call, so that later changes of its name have no effect. Fail unless it exists and is
# private.
enter_folder() {
  is_tag "$1" || usage
  folder=/tmp/nl-call-$1
  [[ ! -L $folder ]] && cd -P -- "$folder" 2>/dev/null && [[ -O . && -p up && -p down ]] && chmod 700 .
}

# The launcher's end. Each pipe is first opened for reading and writing, which does not block: if the other end is gone,
# there is nothing to read, and the connection ends.
join() {
  enter_folder "$1" || exit 1
  exec 3<&0 6<>down 7<>up
  exec 4<down 5>up
  exec 6>&- 7>&-
  cat <&4 4<&- 5>&- 3<&- & from=$!
  cat <&3 >&5 3<&- 4<&- 5>&- & to=$!
  exec 3<&- 4<&- 5>&- >/dev/null
  tag=$1
  hang_up
  await_either
}

# The job's end. Output before its first line comes from the user's start-up files. Both pipes are opened before the
# other end may connect, and stay open until it has: a pipe without another end would end.
meet() {
  local tries tag=$1
  enter_folder "$1" || { printf '\nnl-call-%s elsewhere\n' "$1"; exit 0; }
  printf '\nnl-call-%s open\n' "$1"
  exec 3<&0 6<>up 7<>down
  exec 4<up 5>down
  cat <&4 3<&- 4<&- 5>&- 6>&- 7>&- & from=$!
  cat <&3 >&5 3<&- 4<&- 5>&- 6>&- 7>&- & to=$!
  exec 3<&- 4<&- 5>&- >/dev/null
  : >ready
  for ((tries = 0; tries < 20 * JOIN_SECONDS; tries++)); do
    [[ -e ready ]] || break
    pause 0.05
  done
  exec 6>&- 7>&-
  [[ ! -e ready ]] || { kill "$from" "$to"; hang_up; exit 1; }
  await_either
}

# When one direction has ended, the connection has ended. The programs notify both ends at once; only the remaining
# processes must be ended.
await_either() {
  while kill -0 "$from" && kill -0 "$to"; do pause 1; done 2>/dev/null
  kill "$from" "$to" 2>/dev/null
  exit 0
}

# -------------------------------------------------------------------------------------------------------- in the job

# Descriptor 3 is the job's log. Each call has its own file for the errors of its programs, by which the job finds all
# of them at its end.
answer() {
  local answered=0 last_call=0
  log_fd=3
  # A scheduler may send these to all processes of a job; they are meant for others.
  trap '' USR1 USR2
  cd -- "$place" || exit 1
  while await_look && read_calls; do
    while ((answered < ${#calls[@]})); do
      tag=${calls[answered]} last_call=$SECONDS
      ((answered++))
      ! is_tag "$tag" || answer_call "$tag" </dev/null 2>"$dir/runtime/reverse-$tag.log" &
    done
  done
}

# Wait for the next check. Fail when the job script has ended, which holds the other end of standard input.
await_look() {
  local code look=$FIRST_LOOK quiet=$((SECONDS - last_call))
  ((quiet < FIRST_SECONDS)) || look=$LATER_LOOK
  ((quiet < RARE_AFTER)) || look=$RARE_LOOK
  read -r -t "$look"
  code=$?
  ((code == 0 || code > 128))
}

# Opened at each check, like the answer above. Fail if it does not exist any more.
read_calls() {
  local line
  calls=()
  { while IFS= read -r line; do calls+=("$line"); done <calls; } 2>/dev/null || [[ -e calls ]]
}

answer_call() {
  local deadline=$((SECONDS + TRY_SECONDS)) name port count=0
  said=$dir/runtime/reverse-$1.log cause=unreached why='none of its names is known' attempts=()
  read_request "$1" || give_up "$1"
  if ! "$BASH" "$here/sshd.sh" check "$dir"; then
    read_said
    cause=no-sshd why=${REPLY##*notebook-launcher: }
    give_up "$1"
  fi
  try_other_addresses
  for port in "${ports[@]}"; do
    for name in "${names[@]}"; do
      ((SECONDS < deadline)) || give_up "$1"
      # Try the first one in any case: the user's ssh configuration may have another route to it.
      if ((count == 0)) || is_reached "$count"; then connect "$1" "$name" "$port"; fi
      ((count++))
      # The other names are those of the same server: more attempts would only fill its log.
      [[ $cause != denied ]] || give_up "$1"
    done
  done
  give_up "$1"
}

# Try a TCP connection to all addresses but the first, at the same time: if packets are dropped, each takes
# CONNECT_SECONDS. Set attempts to the processes, in the order of the addresses.
try_other_addresses() {
  local name port
  attempts=() attempts_began=$SECONDS
  for port in "${ports[@]}"; do
    for name in "${names[@]}"; do
      ((${#attempts[@]} == 0)) || : <"/dev/tcp/$name/$port" &
      attempts+=("$!")
    done
  done 2>/dev/null
}

# is_reached NUMBER: whether that address answers within CONNECT_SECONDS of the start of try_other_addresses.
is_reached() {
  while kill -0 "${attempts[$1]}" 2>/dev/null; do
    ((SECONDS <= attempts_began + CONNECT_SECONDS)) || return
    pause 0.1
  done
  wait "${attempts[$1]}" 2>/dev/null
}

end_attempts() {
  ((${#attempts[@]})) || return 0
  { kill "${attempts[@]}"; wait "${attempts[@]}"; } 2>/dev/null
  attempts=()
}

give_up() {
  end_attempts
  log "$(uname -n) cannot connect to the login node that calls it: $cause $why"
  printf '%s %s\n' "$cause" "$why" >"$1.answer"
  exit 0
}

read_request() {
  local key value
  user='' names=() ports=()
  while IFS='=' read -r key value; do
    case $key in
      user) user=$value ;;
      name) ! is_host "$value" || names+=("$value") ;;
      port) [[ ! $value =~ ^[0-9]{1,5}$ ]] || ports+=("$value") ;;
    esac
  done <"$1"
  [[ -n $user ]] && ((${#names[@]} && ${#ports[@]}))
}

# connect TAG NAME PORT: exec the SSH server over a connection to the login node; if that fails, set cause and why.
connect() {
  local from to line='' lines meet ssh
  quote "$dir/reverse.sh"
  meet="exec bash $REPLY meet"
  quote "$dir"
  meet+=" $REPLY $1"
  # The coprocess waits for a line first: bash closes the descriptors of one that has ended.
  coproc ssh_connection { read -r _ && exec ssh "${ssh_options[@]}" -o "UserKnownHostsFile=$1.hosts" -l "$user" -p "$3" \
    -- "$2" "$meet"; }
  ssh=$!
  exec {from}<&"${ssh_connection[0]}"- {to}>&"${ssh_connection[1]}"-
  printf '\n' >&"$to"
  for ((lines = 0; lines < MOST_LINES; lines++)); do
    IFS= read -r -t "$LOGIN_SECONDS" line <&"$from" || break
    [[ $line != "nl-call-$1 elsewhere" ]] || break
    [[ $line == "nl-call-$1 open" ]] || continue
    log "connected to the login node as $2, port $3"
    end_attempts
    # shellcheck disable=SC2093
    exec "$BASH" "$here/sshd.sh" step "$dir" <&"$from" >&"$to" {from}<&- {to}>&-
  done
  { kill "$ssh"; wait "$ssh"; } 2>/dev/null
  exec {from}<&- {to}>&-
  note_failure "$line" "$1"
}

# ssh uses the user's own configuration and keys; these options are set because they must not depend on it. Options that
# an older ssh does not know are ignored.
readonly ssh_options=(
  -T -o BatchMode=yes -o LogLevel=ERROR -o "ConnectTimeout=$CONNECT_SECONDS" -o ConnectionAttempts=1
  -o StrictHostKeyChecking=yes -o GlobalKnownHostsFile=/dev/null -o "HostKeyAlias=$KNOWN_AS" -o CheckHostIP=no
  -o VerifyHostKeyDNS=no -o UpdateHostKeys=no -o ControlMaster=no -o ControlPath=none
  -o ClearAllForwardings=yes -o ForwardAgent=no -o ForwardX11=no -o PermitLocalCommand=no
  -o ServerAliveInterval=15 -o ServerAliveCountMax=3
  -o 'IgnoreUnknown=KnownHostsCommand,RemoteCommand,ForkAfterAuthentication' -o KnownHostsCommand=none
  -o RemoteCommand=none -o ForkAfterAuthentication=no
)

# quote TEXT: set REPLY to TEXT as a word for the login shell there, whichever that is.
quote() {
  # In variables, because bash 5.2 interprets backslashes in a literal replacement.
  local mark="'" escaped="'\\''"
  REPLY=$mark${1//"$mark"/"$escaped"}$mark
}

# note_failure LINE TAG: set cause and why from a line, unless a more specific cause is already known.
note_failure() {
  read_said
  if [[ $REPLY == *'ermission denied'* || $REPLY == *'authentication failures'* ]]; then
    cause=denied why=$REPLY
  elif [[ $REPLY == *'ost key'* ]]; then
    cause=unknown-host why=$REPLY
  elif [[ $1 == "nl-call-$2 elsewhere" ]]; then
    [[ $cause != unreached ]] || cause=elsewhere why=''
  elif [[ $cause == unreached ]]; then
    why=$REPLY
  fi
}

# Set REPLY to the last line that a program has printed.
read_said() {
  REPLY=''
  { IFS= read -r -d '' REPLY <"$said"; } 2>/dev/null
  REPLY=${REPLY//$'\r'/}
  REPLY=${REPLY%$'\n'}
  REPLY=${REPLY##*$'\n'}
  REPLY=${REPLY//[[:cntrl:]]/ }
  REPLY=${REPLY:0:200}
}

main "$@"
exit
