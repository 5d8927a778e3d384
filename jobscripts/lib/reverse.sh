#!/bin/bash
# A connection into a job that the job itself makes: where nobody may connect to a compute node, but the node to the login
# node. The job opens an ssh connection to the login node on which it is called, as its user does, and there is an SSH
# server into the session (sshd.sh step) at its near end. Nothing listens anywhere: the two ends meet in a folder of the
# user's own on the login node, which is new and gone as soon as they have met.
#
#   bash reverse.sh answer SESSION_DIR      in the job: answer each call, until standard input ends
#   bash reverse.sh call SESSION_DIR        on the login node: call the job, and print how that went:
#     open TAG                                it is connected, and waits for `join TAG`, 30 s at most
#     closed|no-host-key|unsafe|silent|no-sshd|denied|unknown-host|elsewhere|unreached WHY
#   bash reverse.sh join SESSION_DIR TAG    there: the connection, on standard input and output
#   bash reverse.sh meet SESSION_DIR TAG    there, over the job's own ssh connection: its far end
#
# In SESSION_DIR/runtime/reverse, `calls` has the tags of all calls, in the order in which they came: without that file,
# none are answered any more. TAG says by which names the login node is called, TAG.hosts has its host keys, and
# TAG.answer why the job could not connect.

# Shell options as bash has them by itself, whatever BASH_ENV and SHELLOPTS bring: the same lines in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

set -u

# How long a call waits for the job, how long the job tries, and how long it then waits for `join`.
readonly CALL_SECONDS=40 TRY_SECONDS=30 JOIN_SECONDS=30
# How long one address may take to be reached, and then the login there, with the user's start-up files.
readonly CONNECT_SECONDS=5 LOGIN_SECONDS=20
# Seconds between two looks at whether somebody calls: in the first half minute, while the launcher waits for the session,
# and after each call; later; and where nobody has called for long.
readonly FIRST_SECONDS=30 FIRST_LOOK=0.2 LATER_LOOK=1 RARE_AFTER=600 RARE_LOOK=2
# The most names of a login node that are tried, and the most lines that its start-up files may print.
readonly MOST_NAMES=5 MOST_LINES=500
# The name under which TAG.hosts has the login node's keys, whichever of its names is tried.
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

# What a name or an address of a host consists of; the first character keeps it from being an option.
is_host() { [[ $1 =~ ^[[:alnum:]:][[:alnum:]._:-]*$ ]]; }

# ------------------------------------------------------------------------------------------------- on the login node

# What is told is one line, whatever it came from.
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
  # Whoever may rename what others have put there could put something else in its place.
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
    # Opened at each look: only then an NFS client asks whether another machine has written it.
    ! read_line "$place/$tag.answer" || tell "${REPLY%% *}" "${REPLY#* }"
    pause 0.1
  done
  tell silent
}

# Files first that the job reads, then the line by which it finds them. The answer is a file that is there already: an NFS
# client does not look for a new one each time.
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

# Set names to what this machine is called, the best first, and ports to where its SSH server listens. The server that
# let the launcher in has told its own address and port.
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

# What is left of calls that were killed before the two ends had met.
remove_left_calls() {
  find "$place" -maxdepth 1 -type f \( -name '????????' -o -name '????????.*' \) -mmin +10 -exec rm -f -- {} + 2>/dev/null
  find /tmp -maxdepth 1 -type d -name 'nl-call-????????' -user "$(id -u)" -mmin +10 -exec rm -rf -- {} + 2>/dev/null
}

# Work inside the folder of a call from now on, whatever happens to its name. Fail if it is not there, or not ours alone.
enter_folder() {
  is_tag "$1" || usage
  folder=/tmp/nl-call-$1
  [[ ! -L $folder ]] && cd -P -- "$folder" 2>/dev/null && [[ -O . && -p up && -p down ]] && chmod 700 .
}

# The launcher's end. Each pipe is opened for both directions first, which never waits for the other end: if that has
# gone, there is nothing to read, and it ends.
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

# The job's end. What is printed before the first of its lines is the user's start-up files'. Both pipes are open before
# the other end may come, and stay so until it has come: what has no other end ends.
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

# When one direction is over, so is the connection. The programs themselves have told both ends so, at once; only what is
# left has to go.
await_either() {
  while kill -0 "$from" && kill -0 "$to"; do pause 1; done 2>/dev/null
  kill "$from" "$to" 2>/dev/null
  exit 0
}

# -------------------------------------------------------------------------------------------------------- in the job

# Descriptor 3 is the job's log. Each call has a file of its own for what its programs say, by which the job finds all of
# them at its end.
answer() {
  local answered=0 last_call=0
  log_fd=3
  # A scheduler may send these to all of a job's processes; they are for others.
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

# Wait for the next look. Fail when the job script has ended, which has the other end of standard input.
await_look() {
  local code look=$FIRST_LOOK quiet=$((SECONDS - last_call))
  ((quiet < FIRST_SECONDS)) || look=$LATER_LOOK
  ((quiet < RARE_AFTER)) || look=$RARE_LOOK
  read -r -t "$look"
  code=$?
  ((code == 0 || code > 128))
}

# Opened at each look, as the answer above. Fail if it is not there any more.
read_calls() {
  local line
  calls=()
  { while IFS= read -r line; do calls+=("$line"); done <calls; } 2>/dev/null || [[ -e calls ]]
}

answer_call() {
  local deadline=$((SECONDS + TRY_SECONDS)) name port count=0
  said=$dir/runtime/reverse-$1.log cause=unreached why='none of its names is known' looks=()
  read_request "$1" || give_up "$1"
  if ! "$BASH" "$here/sshd.sh" check "$dir"; then
    read_said
    cause=no-sshd why=${REPLY##*notebook-launcher: }
    give_up "$1"
  fi
  look_for_others
  for port in "${ports[@]}"; do
    for name in "${names[@]}"; do
      ((SECONDS < deadline)) || give_up "$1"
      # The first one in any case: the user's own ssh may have another way there.
      if ((count == 0)) || is_reached "$count"; then connect "$1" "$name" "$port"; fi
      ((count++))
      # It is the same server under its other names: more attempts only fill its log.
      [[ $cause != denied ]] || give_up "$1"
    done
  done
  give_up "$1"
}

# Try all addresses but the first for a TCP connection, at the same time: where packets are dropped, each takes as long as
# CONNECT_SECONDS. Set looks to the processes, in the order of the addresses.
look_for_others() {
  local name port
  looks=() looks_began=$SECONDS
  for port in "${ports[@]}"; do
    for name in "${names[@]}"; do
      ((${#looks[@]} == 0)) || : <"/dev/tcp/$name/$port" &
      looks+=("$!")
    done
  done 2>/dev/null
}

# is_reached NUMBER: whether that address answers; it has CONNECT_SECONDS for that, since the look at all of them began.
is_reached() {
  while kill -0 "${looks[$1]}" 2>/dev/null; do
    ((SECONDS <= looks_began + CONNECT_SECONDS)) || return
    pause 0.1
  done
  wait "${looks[$1]}" 2>/dev/null
}

end_looks() {
  ((${#looks[@]})) || return 0
  { kill "${looks[@]}"; wait "${looks[@]}"; } 2>/dev/null
  looks=()
}

give_up() {
  end_looks
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

# connect TAG NAME PORT: become the SSH server behind a connection to the login node; else set cause and why.
connect() {
  local from to line='' lines meet ssh
  quote "$dir/reverse.sh"
  meet="exec bash $REPLY meet"
  quote "$dir"
  meet+=" $REPLY $1"
  # It waits for a line: bash forgets the descriptors of one that has ended.
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
    end_looks
    # shellcheck disable=SC2093
    exec "$BASH" "$here/sshd.sh" step "$dir" <&"$from" >&"$to" {from}<&- {to}>&-
  done
  { kill "$ssh"; wait "$ssh"; } 2>/dev/null
  exec {from}<&- {to}>&-
  note_failure "$line" "$1"
}

# The user's own way to log in, keys and all; what matters here is not left to a configuration file. Words that an older
# ssh does not know are ignored.
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
  # In variables: bash 5.2 gives backslashes in a literal replacement a meaning.
  local mark="'" escaped="'\\''"
  REPLY=$mark${1//"$mark"/"$escaped"}$mark
}

# note_failure LINE TAG: what was the matter, unless something more telling is known already.
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

# Set REPLY to the last line that a program has said.
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
