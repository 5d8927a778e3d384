#!/bin/bash
# An SSH server for one session, run as the user: it accepts only the session's keys, and only forwards to this node's
# 127.0.0.1. It allows no shell, no command and no file transfer.
#
#   bash sshd.sh step SESSION_DIR      on standard input and output, for one connection, through a job step
#   bash sshd.sh listen SESSION_DIR    on a free port, until the process that has started this one ends
#   bash sshd.sh check SESSION_DIR     no server: only check whether one could run
#
# SESSION_DIR/authorized_keys lists the accepted public keys, and is read at every login. The host key is
# SESSION_DIR/ssh_host_key, which is created if it does not exist. `listen` writes its port to
# SESSION_DIR/runtime/ssh_port as soon as it accepts connections. Exit code 1: no server can run here, and standard
# error says why.

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

set -u

# The ports from which `listen` chooses one: above those that Linux uses for outgoing connections.
readonly FIRST_PORT=61000 PORTS=4500

# How many of them are tried. If that many are in use, something else is wrong on the node.
readonly TRIES=20

main() {
  umask 077
  [[ $# == 2 && -n $2 ]] || usage
  dir=${2%/}
  [[ $dir == /* ]] || dir=$PWD/$dir
  local here=${BASH_SOURCE[0]}
  [[ $here == */* ]] || here=./$here
  # shellcheck source=jobscripts/lib/lib.sh
  source "${here%/*}/lib.sh"
  check_session_dir
  find_sshd
  make_host_key
  write_config
  case $1 in
    step)   step ;;
    listen) listen ;;
    check)  ;;
    *)      usage ;;
  esac
}

usage() {
  printf 'usage: sshd.sh step|listen|check SESSION_DIR\n' >&2
  exit 2
}

# Never print to standard output: with `step` that is the connection.
refuse() {
  log "there is no SSH server into this session on $(uname -n): $1"
  exit 1
}

# ------------------------------------------------------------------------------------------------- what is needed

check_session_dir() {
  # Anybody who could write to it could add keys.
  [[ -O $dir ]] || refuse "the session directory $dir is not there, or belongs to somebody else"
  # sshd's configuration cannot express these characters in every version.
  [[ $dir != *[\"\\[:cntrl:]]* ]] || refuse "the session directory $dir has a quote, backslash or control character"
}

# Set sshd to the program's absolute path, which it requires, because it re-executes itself for every connection.
find_sshd() {
  local place
  for place in "$(type -P sshd)" {/usr/sbin,/usr/local/sbin,/sbin,/usr/lib/ssh,/opt/ssh/sbin}/sshd; do
    sshd=$place
    [[ $sshd == /* && -x $sshd ]] && return
  done
  refuse "sshd is not installed (neither on the PATH nor in /usr/sbin)"
}

# The launcher has created a key already; this is for a session started by hand.
make_host_key() {
  local key=$dir/ssh_host_key new=$dir/ssh_host_key.new.$$
  if [[ ! -s $key ]]; then
    { ssh-keygen -q -t ed25519 -N '' -C '' -f "$new" </dev/null >&2 && keep_host_key; } ||
      refuse "$key is missing and could not be made"
  fi
  # sshd uses no private key that others may read.
  chmod 600 -- "$key" || refuse "$key cannot be closed to others"
}

# `ln` does not overwrite: if two processes create a key at the same time, one wins, and both use that key.
keep_host_key() {
  if ln -- "$new" "$key" 2>/dev/null; then mv -f -- "$new.pub" "$key.pub"; fi
  rm -f -- "$new" "$new.pub"
  [[ -s $key ]]
}

# The content is the same for all servers of a session, even if several start at once; so the file is written only if it
# does not exist yet, and a home that has become full meanwhile does not prevent logins.
write_config() {
  local config text
  config=$dir/sshd_config
  compose_config
  { IFS= read -r -d '' text <"$config"; } 2>/dev/null
  [[ ${text-} == "$REPLY"$'\n' ]] || write_file "$config" "$REPLY" || refuse "$config could not be written"
}

# Set REPLY to the configuration, with keywords that OpenSSH 8.0 knows.
#
# StrictModes would check the modes of all folders from the file up to the home or the root, so that a group-writable
# home or project directory, or a file server with other permissions, would prevent logins. Its purpose is met
# otherwise: the session directory is the user's and closed to others, and the scripts are read from it as well.
#
# MaxSessions 0 forbids shells, commands and subsystems, and still lets forwarding through.
compose_config() {
  local user keys=${dir//%/%%}/authorized_keys   # % is special in this keyword
  user=$(id -un) || refuse "the user $EUID has no name here"
  # AllowUsers interprets user@host and patterns. Only the user can log in anyway, unless sshd runs as root.
  user=${user//[^[:alnum:]._-]/?}
  REPLY="# Written by sshd.sh.
HostKey \"$dir/ssh_host_key\"
AuthorizedKeysFile \"$keys\"
StrictModes no
AllowUsers $user
AuthenticationMethods publickey
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
AllowTcpForwarding local
PermitOpen 127.0.0.1:* localhost:*
GatewayPorts no
AllowStreamLocalForwarding no
AllowAgentForwarding no
X11Forwarding no
PermitTunnel no
PermitTTY no
PermitUserRC no
MaxSessions 0
LoginGraceTime 60
ClientAliveInterval 30
ClientAliveCountMax 3
UseDNS no
PidFile none
LogLevel ERROR"
}

# ----------------------------------------------------------------------------------------------------------- step

step() {
  [[ -s $dir/authorized_keys ]] || refuse "$dir/authorized_keys holds no key that could be let in"
  exec "$sshd" -i -e -f "$dir/sshd_config"
}

# --------------------------------------------------------------------------------------------------------- listen

listen() {
  starter=$PPID ending=''
  pid_file=$dir/runtime/sshd.pid
  words=$dir/runtime/sshd.log
  # On a login node with many users, one of them must not get it blocked by trying wrong keys, as OpenSSH 9.8 and newer
  # would do by default; older versions do not know the keyword.
  options=(-o 'PerSourcePenalties=no')
  [[ -d ${words%/*} ]] || mkdir -p -- "${words%/*}" || refuse "$dir cannot be written"
  # Only note the signal: a trap that runs inside `read -t` may be aborted.
  trap 'ending=yes' TERM INT HUP
  find_port
  write_file "$dir/runtime/ssh_port" "$port" || {
    end_writers "$words"
    refuse "$dir/runtime/ssh_port could not be written"
  }
  log "an SSH server into this session listens on port $port, for the keys in $dir/authorized_keys"
  supervise
}

find_port() {
  local tries
  for ((tries = 0; tries < TRIES; tries++)); do
    port=$((FIRST_PORT + RANDOM % PORTS))
    try_port && return
    is_wanted || exit 0
    read_words
    case $REPLY in
      *'Bad configuration option: PerSourcePenalties'*) options=() ;;
      *'already in use'*) ;;
      *) refuse "$sshd does not start: ${REPLY:-it says nothing}" ;;
    esac
  done
  refuse "none of $TRIES ports could be had: $REPLY"
}

# Start the server, and succeed when it listens, which is when sshd writes its PidFile.
try_port() {
  [[ ! -e $pid_file && ! -L $pid_file ]] || rm -f -- "$pid_file"
  "$sshd" -D -e -f "$dir/sshd_config" -p "$port" -o "PidFile=\"$pid_file\"" ${options[@]+"${options[@]}"} \
    </dev/null >/dev/null 2>"$words" &
  server=$!
  until [[ -s $pid_file ]]; do
    is_wanted || { end_writers "$words"; exit 0; }
    kill -0 "$server" 2>/dev/null || return 1
    pause 0.01
  done
  # The port may be in use for IPv4 but free for IPv6. sshd accepts that, but a client might connect to the other
  # program.
  read_words
  [[ $REPLY == *'already in use'* ]] || return 0
  end_writers "$words"
  return 1
}

# The job's script ends all of this itself; if it was killed, it is done here.
supervise() {
  local code
  while is_wanted; do
    if ! kill -0 "$server" 2>/dev/null; then
      wait "$server"
      code=$?
      read_words
      log "the SSH server on port $port has ended by itself (exit code $code)${REPLY:+: $REPLY}"
      end_writers "$words"   # the processes of connections, which would continue without it
      exit 1
    fi
    pause 1
  done
  exec 2>/dev/null   # bash would print how its child died
  end_writers "$words"
}

# Whether neither a signal has come, nor the parent has ended: an orphan gets another parent. (Checking for the parent's
# process id would not do: the process may remain as a zombie, and the id may be reused later.)
is_wanted() {
  local stat
  [[ -z $ending ]] || return 1
  { IFS= read -r stat <"/proc/$$/stat"; } 2>/dev/null || return 0
  stat=${stat##*) ? }   # after the name: state, parent
  [[ ${stat%% *} == "$starter" ]]
}

# Set REPLY to the messages of sshd on one line. It ends its lines with CR LF.
read_words() {
  REPLY=''
  { IFS= read -r -d '' REPLY <"$words"; } 2>/dev/null
  REPLY=${REPLY//$'\r'/}
  REPLY=${REPLY%$'\n'}
  REPLY=${REPLY//$'\n'/; }
}

main "$@"
exit
