#!/bin/bash
# Submit a job, and keep the answer.
#
#   bash submit.sh SESSION_DIR COMMAND [ARGUMENT...]
#
# What COMMAND prints is in SESSION_DIR/job the moment it has succeeded, before it is reported: whoever asked for the
# job may lose the connection in just that moment, and the job must still be found. Standard output, standard error and
# the exit code are passed on.

# Shell options as bash has them by itself, whatever BASH_ENV and SHELLOPTS bring: the same lines in every script.
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
  # A hang-up, a Ctrl-C or a broken pipe concern whoever asked, and not the submission. These are handlers and not
  # `trap ''`: COMMAND, and a job that a local scheduler starts, would inherit ignored signals for good.
  trap : HUP INT PIPE
  # Before anything is submitted: a job could not use a full or read-only directory either.
  { : >"$dir/submit.out" && : >"$dir/submit.err"; } || exit 73
  submit "$@"
  code=$?
  answer=$dir/submit.out
  if ((code == 0)) && mv -f -- "$answer" "$dir/job"; then answer=$dir/job; fi
  cat -- "$answer"
  cat -- "$dir/submit.err" >&2
  rm -f -- "$dir/submit.out" "$dir/submit.err" "$dir/submit.code"
  exit "$code"
}

# Run COMMAND in a process group of its own, where the terminal's signals do not reach it.
submit() {
  local command code
  set -m
  (
    (umask "$users_umask" && exec_as_inherited "$@") >"$dir/submit.out" 2>"$dir/submit.err"
    printf '%s' "$?" >"$dir/submit.code"
  ) &
  command=$!
  set +m
  # A signal of ours ends `wait`, with a code of its own, and not the command.
  while kill -0 "$command" 2>/dev/null; do wait "$command"; done
  code=255
  read -r code <"$dir/submit.code"
  return "$code"
}

# The job inherits COMMAND's environment: it gets the shell options that came in ours (see find_inherited_options of
# lib.sh).
exec_as_inherited() {
  local words=()
  [[ $(declare -p SHELLOPTS) != declare\ -*x*\ SHELLOPTS=* ]] || words+=("SHELLOPTS=${users_options[0]}")
  [[ $(declare -p BASHOPTS) != declare\ -*x*\ BASHOPTS=* ]] || words+=("BASHOPTS=${users_options[1]}")
  [[ -z ${users_options[2]} ]] || words+=(POSIXLY_CORRECT=y)
  ((!${#words[@]})) || set -- env "${words[@]}" "$@"
  exec "$@"
}

main "$@"
