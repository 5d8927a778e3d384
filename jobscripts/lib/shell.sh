#!/bin/bash
#
# A shell in a session's job: inside its environment, or outside of it on the plain node.
#
#   shell.sh SESSION_DIR inside|outside [COMMAND]
#
# Run on the job's node by a job step. Without COMMAND it is an interactive bash, with the user's ~/.bashrc and a prompt
# that says where it is. session.env applies as it does for jupyterlab.sh, and errors are reported in the same
# sentences. SESSION_DIR/runtime/shell-PID tells the job that a shell is running, first-shell that there was one.
#
# It has three parts: the outer part keeps running, the inner part (--here) execs the shell, in the container if there
# is one. The third is the start-up file of the interactive bash: it sources ~/.bashrc before it activates the
# environment.

if [[ ${BASH_SOURCE[0]} != "$0" ]]; then
  nbl_path=$PATH nbl_condas=${CONDA_SHLVL:-0}
  # Variables with which the container command sets its own prompt.
  [[ ${PROMPT_COMMAND-} != *[aA]pptainer* && ${PROMPT_COMMAND-} != *[sS]ingularity* ]] || unset PROMPT_COMMAND
  # shellcheck disable=SC1090
  [[ -r ~/.bashrc ]] && source ~/.bashrc
  # Its settings are restored at the end, but must not affect the code here: some people's rm is an interactive alias.
  nbl_options=$(trap -p DEBUG ERR RETURN; set +o; shopt -p; declare -p IFS GLOBIGNORE 2>/dev/null || :)
fi

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

if [[ ${BASH_SOURCE[0]} != "$0" ]]; then
  # Functions defined here are removed again, and functions of the user with the same names are restored.
  nbl_ours=$(while IFS= read -r line; do
    [[ $line =~ ^([a-z_]+)\(\) ]] && printf '%s ' "${BASH_REMATCH[1]}"
  done < <(cat -- "$NBL_SESSION_DIR"/{lib,containers,shell}.sh))
  # shellcheck disable=SC2086
  nbl_theirs=$(declare -f $nbl_ours)
fi

main() {
  case ${1-} in
    --here)   become_shell "$2" "$3" "$4" "$5" ;;
    '' | -*)  printf 'usage: shell.sh SESSION_DIR inside|outside [COMMAND]\n' >&2; exit 2 ;;
    *)        run_shell "$1" "${2:-inside}" "${3-}" ;;
  esac
}

# ================================================================================================= the outer part

# Mark that there is a shell, run it, and report errors.
run_shell() {
  local way=("$BASH")
  know "${1%/}" "$2" "$$"
  mark=$NBL_SESSION_DIR/runtime/shell-$$
  trap 'finish $?' EXIT
  { write_file "$mark" "$$" && write_file "$NBL_SESSION_DIR/runtime/first-shell" "$$"; } ||
    say "the session directory $NBL_SESSION_DIR cannot be written on $(uname -n)"
  # The job's working directory, because paths of an image or a bind may be relative to it.
  if read_line "$NBL_SESSION_DIR/runtime/folder"; then cd -- "$REPLY" || :; fi
  read_settings "$NBL_SESSION_DIR/session.env"
  if [[ $NBL_SHELL == inside && -n $want_container ]]; then
    NBL_SHELL=container
    use_staged
    set_up_node
    prepare_container
    way=("${into_container[@]}" /bin/bash)
  elif [[ $NBL_SHELL == inside ]]; then
    use_staged
    way=("${staged_way[@]}" "$BASH")
  fi
  quietly "${way[@]}" "$NBL_SESSION_DIR/shell.sh" --here "$NBL_SESSION_DIR" "$NBL_SHELL" "$$" "$3"
}

# As for JupyterLab (enter.sh), in a job; `env check` also runs this script on the login node.
use_staged() {
  local told=0
  staged_way=()
  [[ $want_stage == yes && -r $NBL_SESSION_DIR/stage_squash.sh && -e $NBL_SESSION_DIR/started.json ]] || return 0
  # shellcheck source=jobscripts/lib/stage.sh
  source "$NBL_SESSION_DIR/stage.sh"
  # Every five seconds; errors are reported by log.
  tell_staging() {
    [[ -n ${2-} ]] && ((SECONDS >= told + 5)) || return 0
    told=$SECONDS
    say "staging $staged_from on $(uname -n): $(($2 / 1048576))${3:+ of $(($3 / 1048576))} MB"
  }
  if [[ $NBL_SHELL == container ]]; then stage_image; else stage_folders; fi
}

# quietly COMMAND...: without bash's message on how it died, which names this file.
quietly() {
  local code err
  exec {err}>&2 2>/dev/null
  "$@" 2>&"$err" {err}>&-
  code=$?
  exec 2>&"$err" {err}>&-
  return "$code"
}

finish() {
  local code=$1
  [[ ! -e $NBL_CONTAINER_FILE ]] || end_container "$NBL_CONTAINER_FILE"
  end_tagged "$shell_run"
  if read_line "$NBL_CAUSE_FILE"; then
    say "${REPLY#* }"
    ((code)) || code=1
  elif [[ $NBL_SHELL == container && ! -e $NBL_INSIDE_FILE ]] && ((code)); then
    say "The container command could not run bash in $want_container on $(uname -n) (exit code $code): see above."
  fi
  rm -f -- "$mark" "$NBL_CAUSE_FILE" "$NBL_INSIDE_FILE"
  exit "$code"
}

# ================================================================================================= the inner part

become_shell() {
  know "$1" "$2" "$3"
  [[ $NBL_SHELL != container ]] || { write_file "$NBL_INSIDE_FILE" "$$" && come_in; }
  if [[ -z $4 ]]; then
    find_inherited_options
    be_followed "${as_inherited[@]}" "$BASH" --rcfile "$NBL_SESSION_DIR/shell.sh" -i
  else
    set_up
    forget
    find_inherited_options
    be_followed "${as_inherited[@]}" "$BASH" -c "$4"
  fi
}

# be_followed COMMAND...: run it, and end the processes that it leaves running: a container and a job step do not end
# before all of their processes have ended, and the scheduler would end them anyway.
be_followed() {
  local code
  export "${shell_run?}"
  quietly "$@"
  code=$?
  export -n "${shell_run%%=*}"
  end_tagged "$shell_run"
  ((!ended)) || say "ended what still ran in the background ($ended)"
  exit "$code"
}

set_up() {
  read_settings "$NBL_SESSION_DIR/session.env" 2>/dev/null # the outer part has already reported problems
  case $NBL_SHELL in
    outside)    clean_environment; return ;;
    container)  set_up_container ;;
    *)          set_up_node ;;
  esac
  activate
}

# ========================================================================================== the shell's start-up file

# Put the session's environment before what ~/.bashrc has put at the front of PATH: often the user's own conda.
make_way() {
  [[ $NBL_SHELL != outside ]] || return 0
  if [[ ${CONDA_SHLVL:-0} -gt $nbl_condas && $(type -t conda) == function ]]; then conda deactivate; fi
  [[ $PATH == "$nbl_path" ]] || PATH=$nbl_path:$PATH
}

set_prompt() {
  local node
  node=$(uname -n)
  node=${node%%.*}
  if [[ $NBL_SHELL == outside ]]; then
    nbl_where="outside the ${want_container:+container}"
    [[ -n $want_container ]] || nbl_where+=environment
    nbl_where+=", $node"
  else
    nbl_where="$(environment_name) on $node"
  fi
  # The value of a variable in the prompt is not expanded again, whatever a name contains.
  # shellcheck disable=SC2016
  PS1='($nbl_where) \u:\w\$ '
}

# Print the name by which the user knows the environment.
environment_name() {
  local name=''
  read_line "$NBL_SESSION_DIR/session.json"
  # Not a flag of this name in "flags": after the environment comes "route".
  if [[ $REPLY =~ \"environment\":\ *\"([^\"]+)\",\ *\"route\": ]]; then name=${BASH_REMATCH[1]}
  elif [[ -n $want_conda$want_venv$want_uv ]]; then name=${want_conda:-${want_venv:-$want_uv}}
  elif [[ -n $want_container ]]; then name=$want_container
  elif ((${#want_modules[@]})); then name=${want_modules[*]}
  else name=plain
  fi
  [[ $name != /* ]] || name=${name##*/}
  printf '%s' "${name//[[:cntrl:]]/}"
}

# ---------------------------------------------------------------------------------------------------------- all parts

# know SESSION_DIR KIND PID: set the variables that each part needs; PID is the outer part's.
know() {
  export NBL_SESSION_DIR=$1 NBL_SHELL=$2
  export NBL_CAUSE_FILE=$1/runtime/cause-$3 NBL_INSIDE_FILE=$1/runtime/inside-$3
  export NBL_CONTAINER_FILE=$1/runtime/container-$3
  shell_run=NBL_SHELL_RUN=${1##*/}:$3
  use_lib
}

# Remove variables that the user's programs do not need.
forget() { unset NBL_SESSION_DIR NBL_SHELL NBL_CAUSE_FILE NBL_INSIDE_FILE NBL_CONTAINER NBL_CONTAINER_FILE; }

use_lib() {
  # shellcheck source=jobscripts/lib/lib.sh
  source "$NBL_SESSION_DIR/lib.sh"
  log() { say "$*"; }
}

# There is no log here: the output of a command is directly above.
say() {
  local as_in_the_log=": see the job's log"
  printf 'notebook-launcher: %s\n' "${1//"$as_in_the_log"/: see above}" >&2
}

# ---------------------------------------------------------------------------------------------------------------------

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  main "$@"
  exit
fi

use_lib
make_way
set_up
set_prompt
forget
# shellcheck disable=SC2086
unset -f $nbl_ours
unset "${!want_@}" log_fd pause_fd users_options as_inherited REPLY
eval "$nbl_theirs"
eval "$nbl_options"
unset nbl_path nbl_condas nbl_options nbl_ours nbl_theirs
