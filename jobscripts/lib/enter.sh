#!/bin/bash
# Load modules, enter the container, activate the environment, and exec JupyterLab or the program that runs a notebook.
#
#   enter.sh SESSION_DIR ADDRESS           the part inside the container; jupyterlab.sh sources the other
#   enter.sh SESSION_DIR ADDRESS staged    the part that sees the copies of the environment's folders
#
# shellcheck disable=SC2154  # want_… and the like are set by lib.sh and jupyterlab.sh

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

readonly SESSION_NAME='^[0-9]{8}-[0-9]{6}-[a-z2-7]{4}$'

enter() {
  [[ $want_program != jupyterlab ]] || lay_quick_start
  [[ $want_stage != yes ]] || use_staged
  set_up_node
  if [[ -n $want_container ]]; then
    enter_container
  else
    exec_program
  fi
}

# Continue with the copy of the image or of the environment's folders on this node's own disk, if there is one.
use_staged() {
  staged_way=()
  if [[ ! -r $NBL_SESSION_DIR/stage.sh || ! -r $NBL_SESSION_DIR/stage_disk.sh || ! -r $NBL_SESSION_DIR/stage_squash.sh ]]; then
    log "stage.sh, stage_disk.sh or stage_squash.sh is not in $NBL_SESSION_DIR, so nothing is staged"
    : >"$NBL_SESSION_DIR/runtime/staging-over"
    return
  fi
  # shellcheck source=jobscripts/lib/stage.sh
  source "$NBL_SESSION_DIR/stage.sh"
  if [[ -n $want_container ]]; then
    note_identity
    stage_image
  else
    stage_folders
  fi
  : >"$NBL_SESSION_DIR/runtime/staging-over"
  await_holding
  ((${#staged_way[@]})) || return 0
  find_inherited_options
  exec "${as_inherited[@]}" "${staged_way[@]}" \
    "$BASH" "$NBL_SESSION_DIR/enter.sh" "$NBL_SESSION_DIR" "$listen_address" staged
}

# Wait until the job's script has locked the copy, which protects it from removal until the script ends (program.sh).
await_holding() {
  local looks
  for ((looks = 0; looks < 100; looks++)); do
    [[ -e $NBL_SESSION_DIR/runtime/staged && ! -e $NBL_SESSION_DIR/runtime/staged-held ]] || return 0
    pause 0.05
  done
}

enter_container() {
  show_folder
  [[ -n ${staged-} ]] || note_identity
  name_imports
  prepare_container
  log "entering $want_container with ${container_command##*/}${gpu_flags[*]:+ ${gpu_flags[*]}}"
  open_guard
  find_inherited_options
  exec "${as_inherited[@]}" "${into_container[@]}" \
    /bin/bash "$NBL_SESSION_DIR/enter.sh" "$NBL_SESSION_DIR" "$listen_address"
}

# Record which image file is entered, for image.json.
note_identity() {
  [[ ! -f $want_container ]] ||
    (umask 077 && exec stat -L -c '%i-%s-%Y-%Z' -- "$want_container" >"$NBL_SESSION_DIR/runtime/image" 2>/dev/null)
}

# Choose the file beside the sessions for what JupyterLab or execute.py imports from this image (import_cache.py).
name_imports() {
  local folder=${NBL_SESSION_DIR%/*}/.imports
  unset NBL_IMPORTS
  [[ $want_program =~ ^(jupyterlab|notebook)$ && $want_fast_start == yes && ${NBL_SESSION_DIR##*/} =~ $SESSION_NAME ]] &&
    read_line "$NBL_SESSION_DIR/runtime/image" || return 0
  [[ $want_program != notebook ]] || REPLY+=-run
  [[ -e $folder ]] || (umask 077 && mkdir -- "$folder") 2>/dev/null
  [[ -d $folder && -O $folder && ! -L $folder ]] || return 0
  export NBL_IMPORTS=$folder/$REPLY
  [[ $folder == "$HOME"/* ]] || want_binds+=("$folder")
}

# Mount the folder of the notebook or script in the container. The home and the working directory are mounted anyway.
show_folder() {
  [[ $want_program =~ ^(notebook|script)$ && -d $want_folder && $want_folder != *[:,]* ]] || return 0
  [[ $want_folder/ == "$HOME"/* || $want_folder/ == "$PWD"/* ]] || want_binds+=("$want_folder")
}

run_in_container() {
  know_session "$1" "$2"
  mark inside "$$" || printf 'notebook-launcher: %s cannot be written in the container\n' "$NBL_SESSION_DIR" >&2
  if [[ -n ${NBL_GUARDED-} ]]; then guard become_program; else become_program; fi
}

run_staged() {
  know_session "$1" "$2"
  set_up_node
  exec_program
}

# mark NAME TEXT: write a file for jupyterlab.sh without running a program, which would have to be read from the image.
mark() { write_privately "$2"$'\n' "$NBL_SESSION_DIR/runtime/$1"; }

# write_privately TEXT FILE: readable only by this user, whatever the umask is, and without another process.
write_privately() {
  local code umask_before
  find_umask
  umask_before=$REPLY
  umask 077
  { printf %s "$1" >"$2"; } 2>/dev/null
  code=$?
  umask "$umask_before"
  return "$code"
}

know_session() {
  export NBL_SESSION_DIR=$1 NBL_CAUSE_FILE=$1/runtime/cause
  listen_address=$2
  # shellcheck source=jobscripts/lib/lib.sh
  source "$NBL_SESSION_DIR/lib.sh"
  read_settings "$NBL_SESSION_DIR/session.env" 2>/dev/null # the outer part has already reported problems
}

become_program() {
  set_up_container
  exec_program
}

exec_program() {
  activate
  [[ $want_program != script ]] || exec_script
  add_commands
  export JUPYTER_RUNTIME_DIR=$NBL_SESSION_DIR/runtime NBL_USAGE_CSV=$NBL_SESSION_DIR/usage.csv
  name_kernel_folder
  if [[ $want_program == notebook ]]; then exec_notebook; else exec_jupyterlab; fi
}

# If the job has several nodes, give cells and terminals a command that runs torchrun on all of them.
add_commands() {
  local folder=$NBL_SESSION_DIR/runtime/bin command=$NBL_SESSION_DIR/torchrun_nodes.sh
  [[ ${SLURM_JOB_NUM_NODES-} =~ ^[1-9][0-9]*$ && -r $command ]] && ((SLURM_JOB_NUM_NODES > 1)) || return 0
  mkdir -p -- "$folder" && cp -- "$command" "$folder/torchrun-all-nodes" && chmod 700 "$folder/torchrun-all-nodes" &&
    export PATH=$PATH:$folder
}

# Choose a folder for the sockets of kernels; the program that starts kernels creates it, closed to other users. On
# ports of 127.0.0.1, Jupyter's default, every user of the node could read what is run and what it prints. A socket's
# path may have 107 characters, too few for many session directories. jupyterlab.sh removes the folder.
name_kernel_folder() {
  local place name
  unset NBL_KERNEL_FOLDER
  if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501)); then
    printf -v name %08x "$SRANDOM"
  else
    name=$(mktemp -u XXXXXXXX)
  fi
  for place in "${TMPDIR-}" /tmp /var/tmp; do
    [[ -n $name && $place == /* && ${#place} -le 60 && -d $place && -w $place ]] || continue
    NBL_KERNEL_FOLDER=$place/nl-kernels-$name
    mark kernels "$NBL_KERNEL_FOLDER" || break
    export NBL_KERNEL_FOLDER
    return
  done
  log "no private folder for the kernels' sockets was found, so other users of this node can read what cells run and print"
}

exec_jupyterlab() {
  find_jupyterlab
  export NBL_LISTEN=$listen_address
  export NBL_IDLE_STOP=$want_idle_stop NBL_GPU_IDLE=$want_gpu_idle NBL_USAGE=$want_usage NBL_PANEL=$want_panel
  quicken_start
  find_inherited_options
  exec "${as_inherited[@]}" "${jupyterlab_command[@]}" --config="$NBL_SESSION_DIR/jupyter_server_config.py"
}

# Put quick_start.py where JupyterLab's Python runs it first: it skips slow steps that nobody needs, and removes the
# folder from the path again, before a kernel could see it. This is done outside the container, where programs start
# faster. The folder for its bytecode is created here as well: Python would create it with the umask of the user's
# files.
lay_quick_start() {
  local text folder=$NBL_SESSION_DIR/runtime/python
  [[ $want_fast_start == yes && -r $NBL_SESSION_DIR/quick_start.py && -d $folder && $folder != *:* ]] || return 0
  IFS= read -r -d '' text <"$NBL_SESSION_DIR/quick_start.py"
  [[ -n $text ]] && write_privately "$text" "$folder/sitecustomize.py"
}

quicken_start() {
  local folder=$NBL_SESSION_DIR/runtime/python
  [[ ! -r $folder/sitecustomize.py ]] || export PYTHONPATH=$folder${PYTHONPATH:+:$PYTHONPATH}
}

find_jupyterlab() {
  if type -P jupyter-lab >/dev/null; then
    jupyterlab_command=(jupyter-lab)
  elif has_jupyterlab; then
    # Installed with `pip install --user`, whose bin directory is rarely on the PATH. With -m, Python would look for
    # every module in the working directory first.
    jupyterlab_command=(python3 -c "$not_from_here; import runpy; runpy.run_module('jupyterlab', None, '__main__', True)")
  else
    fail jupyter-missing "There is no JupyterLab in $(where_it_should_be jupyterlab)."
  fi
}

exec_notebook() {
  find_notebook_python
  find_job_id
  export NBL_RESULTS=$NBL_SESSION_DIR/work/results.jsonl
  # execute.py removes these from the environment again.
  export NBL_NOTEBOOK=$want_notebook NBL_NOTEBOOK_TO=$want_to NBL_NOTEBOOK_FOLDER=$want_folder NBL_NOTEBOOK_HTML=$want_html
  export NBL_NOTEBOOK_JOB=$job_id NBL_NOTEBOOK_START_TIMEOUT=$want_start_timeout NBL_NOTEBOOK_PLACE
  NBL_NOTEBOOK_PLACE=$(where_it_should_be ipykernel)
  # -B: no bytecode in the session directory, because only known files there are removed with a session.
  find_inherited_options
  exec "${as_inherited[@]}" "$notebook_python" -B "$NBL_SESSION_DIR/execute.py"
}

# Run the user's script by its first line, as the scheduler would, in the requested folder or its own.
exec_script() {
  local script=$NBL_SESSION_DIR/work/$want_script folder first='' interpreter=/bin/sh argument='' line arguments=()
  { IFS= read -r first; } 2>/dev/null <"$script"
  first=${first%"${first##*[![:blank:]]}"}
  if [[ $first =~ ^#![[:blank:]]*([^[:blank:]]+)[[:blank:]]*(.*)$ ]]; then
    interpreter=${BASH_REMATCH[1]} argument=${BASH_REMATCH[2]}
  fi
  { while IFS= read -r line; do arguments+=("$line"); done <"$NBL_SESSION_DIR/arguments"; } 2>/dev/null
  folder=${want_folder:-$NBL_SESSION_DIR/work}
  cd -- "$folder" || fail folder-missing "There is no folder $folder on $(uname -n), or it may not be entered."
  if [[ -n $want_input ]]; then
    # A file that was sent is in work/.
    [[ $want_input == /* || ! -e $NBL_SESSION_DIR/work/$want_input ]] || want_input=$NBL_SESSION_DIR/work/$want_input
    # Checked first, because bash would report the error without a hint.
    [[ -r $want_input && ! -d $want_input ]] || fail input-missing \
      "The script's standard input, the file $want_input, is not there on $(uname -n), or cannot be read."
    exec <"$want_input"
  fi
  # Scripts use this as the folder of the submission, but submit.sh was run in another one.
  [[ -z ${SLURM_SUBMIT_DIR-} ]] || export SLURM_SUBMIT_DIR=$PWD
  # By this, a script can tell whether it is the job's own script, which may requeue the job.
  [[ -z ${SLURM_TASK_PID-} ]] || export SLURM_TASK_PID=$BASHPID
  find_inherited_options
  exec "${as_inherited[@]}" "$interpreter" ${argument:+"$argument"} "$script" "${arguments[@]}"
}

# Set notebook_python to the Python of the environment's JupyterLab, or to one that can run notebooks without it.
find_notebook_python() {
  local lab needed=(nbformat nbclient)
  [[ $want_to == notebook ]] || needed+=(nbconvert)
  lab=$(type -P jupyter-lab)
  for notebook_python in "$(python_of "$lab")" "${lab:+${lab%/*}/python3}" "$(type -P python3)" "$(type -P python)"; do
    [[ -x $notebook_python ]] && has_modules "$notebook_python" "${needed[@]}" && return
  done
  fail jupyter-missing "There is no Python that can run notebooks (with ${needed[*]}) in\
 $(where_it_should_be "${needed[*]} ipykernel")."
}

# python_of PROGRAM: print the Python named by its first lines. If the path is long or contains a space, pip uses
# /bin/sh and a line that is a string for Python: '''exec' "/long path/python" "$0" "$@".
python_of() {
  local first='' second='' of_sh="^'''exec' \"?([^\"]+)\"? \"[$]0\""
  { IFS= read -r first && IFS= read -r second; } 2>/dev/null <"$1"
  first=${first#'#!'} first=${first# } first=${first%% -*}
  if [[ $first == /bin/sh* && $second =~ $of_sh ]]; then
    printf '%s\n' "${BASH_REMATCH[1]}"
  elif [[ $first == /* && ${first##*/} == py* ]]; then
    printf '%s\n' "$first"
  fi
}

# has_modules PYTHON MODULE...: whether they are installed. They are not imported, which may take seconds; nor is Python
# started (0.1 s in a container) if they are in the environment's folder of packages.
has_modules() {
  local folders=("${1%/bin/*}"/lib/python3*/site-packages) module missing=''
  for module in "${@:2}"; do [[ -e ${folders[0]}/$module/__init__.py ]] || missing=yes; done
  ((${#folders[@]} > 1)) || [[ -n $missing ]] || return 0
  "$1" -c "$not_from_here; import importlib.util; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))" \
    "${@:2}" </dev/null 2>/dev/null
}

# where_it_should_be PACKAGES: print where they should be installed, and the hint.
where_it_should_be() {
  local install="install it there with: pip install $1"
  if [[ -n $want_uv ]]; then
    printf 'the uv project %s; add it there with: uv add --project %s %s' "$want_uv" "$want_uv" "$1"
  elif [[ -n $want_venv ]]; then printf 'the virtual environment %s; %s' "$want_venv" "$install"
  elif [[ -n $want_conda ]]; then printf 'the conda environment %s; %s' "$want_conda" "$install"
  elif [[ -n $want_container ]]; then printf 'the container image %s; choose one that has it' "$want_container"
  elif ((${#want_modules[@]})); then
    printf 'the modules %s on %s; load one that has it as well' "${want_modules[*]}" "$(uname -n)"
  else
    printf 'the plain environment of %s; choose a container, modules, conda or a venv' "$(uname -n)"
  fi
}

# bash reads the whole file before it runs anything, because the file may be replaced while the job waits.
if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  if [[ ${3-} == staged ]]; then run_staged "$@"; else run_in_container "$@"; fi
  exit
fi
