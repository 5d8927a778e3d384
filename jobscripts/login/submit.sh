#!/bin/bash
# Submit a job, and keep the answer.
#
#   bash submit.sh SESSION_DIR COMMAND [ARGUMENT...]
#
# The output of COMMAND is written to SESSION_DIR/job as soon as it has succeeded, before it is reported: the launcher
# may lose the connection at that moment, and the job must still be found. Standard output, standard error and the exit
# code are passed on.
#
# Of the job scripts, SESSION_DIR may contain only this one and their checksums, if shared copies of the same version
# are expected (see share_scripts). If there are none, "job scripts needed" is printed, with exit code 75, and nothing
# is submitted.

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

set -u

main() {
  dir=$1
  shift
  users_umask=$(umask)
  umask 077
  # A hang-up, a Ctrl-C or a broken pipe must not interrupt the submission. These are handlers and not `trap ''`,
  # because COMMAND, and a job that a local scheduler starts, would inherit ignored signals permanently.
  trap : HUP INT PIPE
  # Checked before anything is submitted: a job could not use a full or read-only directory either.
  { : >"$dir/submit.out" && : >"$dir/submit.err"; } || exit 73
  scripts_missing=''
  share_scripts >/dev/null 2>&1
  if [[ -n $scripts_missing ]]; then
    rm -f -- "$dir/submit.out" "$dir/submit.err"
    printf 'job scripts needed\n'
    exit 75
  fi
  submit "$@"
  code=$?
  answer=$dir/submit.out
  if ((code == 0)) && mv -f -- "$answer" "$dir/job"; then answer=$dir/job; fi
  cat -- "$answer"
  cat -- "$dir/submit.err" >&2
  rm -f -- "$dir/submit.out" "$dir/submit.err" "$dir/submit.code"
  exit "$code"
}

# Store the job scripts of one version once, in .scripts/DIGEST beside the session directories, with hard links to them
# here: copies would be most of a session's size, and use up a quota of files. Only files that match scripts.sha256
# (from the launcher) are shared; if others are found, or the file server has no hard links, copies are kept. These
# files are never written to: a change replaces the file.
#
# Set scripts_missing if no copies were sent, and no correct ones are here in the end.
share_scripts() {
  local sums=$dir/scripts.sha256 all=${dir%/*}/.scripts digest='' name names=() sent=''
  [[ $dir == /* && -f $sums ]] || return 0
  {
    read -r _ digest
    while read -r _ name; do
      [[ $name =~ ^[a-z_]+\.(sh|py)$ ]] || return 0
      names+=("$name")
    done
  } <"$sums"
  [[ $digest =~ ^[0-9a-f]{64}$ ]] && ((${#names[@]})) || return 0
  for name in "${names[@]}"; do
    [[ $name == submit.sh || ! -e $dir/$name ]] || sent=yes
  done
  if [[ -n $sent ]]; then
    are_whole "$dir" || return 0
    mkdir -p -- "$all"
  else
    scripts_missing=yes
  fi
  is_private "$all" || return 0
  if [[ ! -e $all/$digest && ! -L $all/$digest ]]; then
    [[ -z $sent ]] || begin_sharing
  elif ! is_private "$all/$digest"; then
    return 0
  elif are_whole "$all/$digest"; then
    cd -- "$all/$digest" || return 0
    ln -f -- "${names[@]}" "$dir/" || cp -- "${names[@]}" "$dir/"
    cd -- "$OLDPWD" || return 0
    if [[ -z $sent ]] && are_whole "$dir"; then scripts_missing=''; fi
  elif [[ -n $sent ]]; then
    begin_sharing again
  fi
}

# begin_sharing [again]: create a version that does not exist, or is incomplete, atomically. It is created in a folder
# with a random name, because processes on different login nodes may have the same id.
begin_sharing() {
  local new
  new=$(mktemp -d -- "$all/.new.XXXXXX") || return
  if mkdir -- "$new/whole" && (cd -- "$dir" && chmod 400 -- "${names[@]}" && ln -- "${names[@]}" "$new/whole/"); then
    [[ -z ${1-} ]] || mv -T -- "$all/$digest" "$new/damaged"
    mv -T -- "$new/whole" "$all/$digest"
  fi
  rm -rf -- "$new"
}

are_whole() { (cd -- "$1" && exec sha256sum --check --status "$sums"); }

# Whether nobody else can write there, not even by an access control list.
is_private() { [[ -d $1 && ! -L $1 && -O $1 && $(ls -ld -- "$1") == drwx------[\ .]* ]]; }

# Run COMMAND in its own process group, which the terminal's signals do not reach.
submit() {
  local command code
  set -m
  (
    (umask "$users_umask" && exec_as_inherited "$@") >"$dir/submit.out" 2>"$dir/submit.err"
    printf '%s' "$?" >"$dir/submit.code"
  ) &
  command=$!
  set +m
  # A signal to us interrupts `wait`, with another exit code, but not the command.
  while kill -0 "$command" 2>/dev/null; do wait "$command"; done
  code=255
  read -r code <"$dir/submit.code"
  return "$code"
}

# The job inherits COMMAND's environment, so COMMAND gets the shell options of our environment (see
# find_inherited_options in lib.sh).
exec_as_inherited() {
  local words=()
  [[ $(declare -p SHELLOPTS) != declare\ -*x*\ SHELLOPTS=* ]] || words+=("SHELLOPTS=${users_options[0]}")
  [[ $(declare -p BASHOPTS) != declare\ -*x*\ BASHOPTS=* ]] || words+=("BASHOPTS=${users_options[1]}")
  [[ -z ${users_options[2]} ]] || words+=(POSIXLY_CORRECT=y)
  ((!${#words[@]})) || set -- env "${words[@]}" "$@"
  exec "$@"
}

main "$@"
