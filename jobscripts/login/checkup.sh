#!/bin/bash
# Look for JupyterLab on a login node as a job would: load the modules, enter the image, activate. Nothing is started.
#
#   bash checkup.sh DIR
#
# DIR contains this file, lib.sh, containers.sh, activate.sh and session.env. It prints `passed STEP` for each
# successful step (modules, container, environment, jupyterlab), and after the first that failed `failed CAUSE
# SENTENCE`, as in exit.json, or with the cause `not-tried`; then, as `said LINE`, the last lines of programs' standard
# error. At the end it removes DIR.

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

main() {
  export NBL_SESSION_DIR=$1 NBL_CAUSE_FILE=$1/cause
  if [[ ${2-} == --inside ]]; then
    # shellcheck source=jobscripts/lib/lib.sh
    source "$1/lib.sh"
    read_settings "$1/session.env" 2>/dev/null
    set_up_container
    look_inside
    exit
  fi
  checkup_folder=$1
  # a second signal must not end rm
  trap 'trap "" HUP INT PIPE TERM; rm -rf -- "$checkup_folder"' EXIT
  trap 'trap "" HUP INT PIPE TERM; exit' HUP INT PIPE TERM
  # shellcheck source=jobscripts/lib/lib.sh
  source "$1/lib.sh"
  read_settings "$1/session.env"
  local code
  (trap - EXIT HUP INT PIPE TERM; look) </dev/null 2>"$1/errors"
  code=$?
  if read_line "$NBL_CAUSE_FILE"; then
    printf 'failed %s\n' "$REPLY"
  elif ((code)); then
    printf 'failed container-failed It ended with exit code %d.\n' "$code"
  fi
  tail -n 20 -- "$1/errors" | sed 's/^/said /'
}

look() {
  set_up_node
  printf 'passed modules\n'
  if [[ -n $want_container ]]; then
    check_lightness
    want_digest='' # checked separately, because it may take minutes
    prepare_container
    printf 'passed container\n'
    "${into_container[@]}" /bin/bash "$NBL_SESSION_DIR/checkup.sh" "$NBL_SESSION_DIR" --inside
  else
    look_inside
  fi
}

# A login node is shared: nothing is downloaded or unpacked there, and no job is started, as pyxis would do.
check_lightness() {
  image_kind
  [[ $REPLY == file || $REPLY == folder || $REPLY == squash ]] ||
    fail not-tried "The image $want_container would have to be fetched, or is kept by its runtime."
  find_container_command
  [[ $container_kind == apptainer || $container_kind == charliecloud ]] ||
    fail not-tried "${container_command##*/} runs images on the compute nodes alone."
}

look_inside() {
  activate
  printf 'passed environment\n'
  if has_jupyterlab; then
    printf 'passed jupyterlab\n'
  else
    fail jupyter-missing "There is no JupyterLab in it."
  fi
}

main "$@"
exit
