# shellcheck shell=bash disable=SC2006,SC2034   # what the functions set is used by the scripts that source this file
#
# Functions shared by the job scripts. They need only bash 4.2 or newer: a compute node may lack jq, curl and Python.
#
# Sourced, never run. There is no `set -eu` here: environment modules, conda and activation code, which run in the
# same shell, would break under it, so every failure is handled where it can happen.
#
# There are backquotes where the script of a job may get a signal meanwhile: see jupyterlab.sh.

# ---------------------------------------------------------------------------------------------- the log

log_fd=2
log() { printf '%(%H:%M:%S)T notebook-launcher: %s\n' -1 "$*" >&"$log_fd"; }

# ------------------------------------------------------------------------------------------------------ settings

# read_settings FILE: fill the want_* variables from session.env. A missing file means: a plain environment.
#
# The file is data. Its values are taken literally, whatever they contain; it is never sourced.
read_settings() {
  want_container='' want_container_command='' want_gpu=auto want_start_timeout=600 want_conda='' want_venv=''
  want_uv='' want_with='' want_continues='' want_reverse=no want_survey=no
  want_digest='' want_sshd=no want_listen=local want_usage=5 want_idle_stop=0 want_gpu_idle=warn want_program=jupyterlab
  want_notebook=notebook.ipynb want_to=notebook want_folder='' want_html=no want_fast_start=yes want_script='' want_input=''
  want_stage=no want_stage_dir='' want_stage_limit=50 want_class_folder='' want_course_folder='' want_panel=yes
  want_binds=() want_modules=() want_module_uses=() want_activate=() want_env=() want_paths=()
  [[ -e $1 ]] || return 0
  local line key value
  while IFS= read -r line || [[ -n $line ]]; do
    key=${line%%=*} value=${line#*=}
    [[ $line == *=* ]] || key='' value=''
    [[ -n $line && $line != '#'* ]] || key='#'
    case $key in
      '#')               ;;
      container)         want_container=$value ;;
      container_command) want_container_command=$value ;;
      bind)              want_binds+=("$value") ;;
      module)            want_modules+=("$value") ;;
      module_use)        want_module_uses+=("$value") ;;
      conda)             want_conda=$value ;;
      venv)              want_venv=$value ;;
      uv)                want_uv=$value ;;
      with)              want_with=$value ;;
      digest)            want_digest=$value ;;
      activate)          want_activate+=("$value") ;;
      setenv)            want_env+=("$value") ;;
      path)              want_paths+=("$value") ;;
      gpu)               want_gpu=$value ;;
      start_timeout)     want_start_timeout=$value ;;
      sshd)              want_sshd=$value ;;
      reverse)           want_reverse=$value ;;
      survey)            want_survey=$value ;;
      listen)            want_listen=$value ;;
      usage)             want_usage=$value ;;
      idle_stop)         want_idle_stop=$value ;;
      gpu_idle)          want_gpu_idle=$value ;;
      fast_start)        want_fast_start=$value ;;
      panel)             want_panel=$value ;;
      stage)             want_stage=$value ;;
      stage_dir)         want_stage_dir=$value ;;
      stage_limit)       want_stage_limit=$value ;;
      class_folder)      want_class_folder=$value ;;
      course_folder)     want_course_folder=$value ;;
      program)           want_program=$value ;;
      notebook)          want_notebook=$value ;;
      script)            want_script=$value ;;
      input)             want_input=$value ;;
      to)                want_to=$value ;;
      continues)         want_continues=$value ;;
      folder)            want_folder=$value ;;
      html)              want_html=$value ;;
      '')                log "ignoring a line of session.env that is not key=value" ;;
      *)                 log "ignoring the unknown key '$key' of session.env" ;;
    esac
  done <"$1"
  if [[ ! $want_start_timeout =~ ^[1-9][0-9]{0,6}$ ]]; then
    log "start_timeout='$want_start_timeout' is not a number of seconds; using 600"
    want_start_timeout=600
  fi
  if [[ -n $want_with && $want_with != dask && $want_with != ray ]]; then
    log "with='$want_with' is neither dask nor ray; no workers are started"
    want_with=''
  fi
  if [[ $want_sshd != yes && $want_sshd != no ]]; then
    log "sshd='$want_sshd' is neither yes nor no; starting no SSH server"
    want_sshd=no
  fi
  if [[ $want_reverse != yes && $want_reverse != no ]]; then
    log "reverse='$want_reverse' is neither yes nor no; no login node can call this job"
    want_reverse=no
  fi
  if [[ $want_fast_start != yes && $want_fast_start != no ]]; then
    log "fast_start='$want_fast_start' is neither yes nor no; using yes"
    want_fast_start=yes
  fi
  if [[ $want_panel != yes && $want_panel != no ]]; then
    log "panel='$want_panel' is neither yes nor no; using yes"
    want_panel=yes
  fi
  if [[ $want_stage != yes && $want_stage != no ]]; then
    log "stage='$want_stage' is neither yes nor no; nothing is staged"
    want_stage=no
  fi
  if [[ ! $want_stage_limit =~ ^[1-9][0-9]{0,5}$ ]]; then
    log "stage_limit='$want_stage_limit' is not a number of gigabytes; using 50"
    want_stage_limit=50
  fi
  if [[ $want_listen != local && $want_listen != node ]]; then
    log "listen='$want_listen' is neither local nor node; JupyterLab will listen on 127.0.0.1 only"
    want_listen=local
  fi
  if [[ ! $want_idle_stop =~ ^(0|[1-9][0-9]{0,7})$ ]]; then
    log "idle_stop='$want_idle_stop' is not a number of seconds; the session does not end when nobody uses it"
    want_idle_stop=0
  fi
  if [[ $want_gpu_idle != warn && $want_gpu_idle != end ]]; then
    log "gpu_idle='$want_gpu_idle' is neither warn nor end; an unused GPU is only warned about"
    want_gpu_idle=warn
  fi
  if [[ -n $want_class_folder && $want_class_folder != /?* ]]; then
    log "class_folder='$want_class_folder' does not begin with /; nothing is reported to the teacher"
    want_class_folder=''
  fi
  if [[ ! $want_usage =~ ^(0|[1-9][0-9]{0,3})$ ]] || ((want_usage > 3600)); then
    log "usage='$want_usage' is neither 0 nor a number of seconds up to 3600; using 5"
    want_usage=5
  fi
  if [[ ! $want_program =~ ^(jupyterlab|shell|notebook|script)$ ]]; then
    log "program='$want_program' is none of jupyterlab, shell, notebook and script; starting JupyterLab"
    want_program=jupyterlab
  fi
  if [[ $want_to != notebook && $want_to != script ]]; then
    log "to='$want_to' is neither notebook nor script; the notebook is run as one"
    want_to=notebook
  fi
  if [[ $want_html != yes && $want_html != no ]]; then
    log "html='$want_html' is neither yes nor no; no HTML copy is made"
    want_html=no
  fi
  # Names without a path: the files are in the session's directory.
  want_notebook=${want_notebook##*/} want_script=${want_script##*/}
  [[ $want_notebook == ?*.ipynb ]] || want_notebook=${want_notebook:-notebook}.ipynb
  [[ -z $want_folder || $want_folder == /* ]] || want_folder=$PWD/$want_folder
}

# Export every setenv=NAME=VALUE.
apply_env() {
  local pair
  for pair in "${want_env[@]}"; do
    if [[ $pair =~ ^[A-Za-z_][A-Za-z0-9_]*= ]]; then
      export "${pair?}"
    else
      log "ignoring setenv=${pair%%=*}: not NAME=VALUE"
    fi
  done
}

apply_paths() {
  local dir
  for dir in "${want_paths[@]}"; do PATH=$PATH:$dir; done
  export PATH
}

# Remove variables that a login session, a JupyterHub or another JupyterLab left in the environment.
#
# XDG_RUNTIME_DIR names a directory of the login node. JPY_* and JUPYTER* may carry another server's token, port or
# hub; only the variables that say where the user keeps kernels, data and settings are kept.
clean_environment() {
  local name
  unset XDG_RUNTIME_DIR
  for name in "${!JUPYTER@}" "${!JPY_@}"; do
    case $name in
      JUPYTER_PATH | JUPYTER_DATA_DIR | JUPYTER_CONFIG_DIR | JUPYTER_CONFIG_PATH) ;;
      JUPYTER_PLATFORM_DIRS | JUPYTER_PREFER_ENV_PATH) ;;
      JUPYTERLAB_DIR | JUPYTERLAB_SETTINGS_DIR | JUPYTERLAB_WORKSPACES_DIR) ;;
      *) unset "$name" ;;
    esac
  done
}

# On the node: prepare everything outside the container, or before the activation if there is no container.
set_up_node() {
  clean_environment
  apply_env
  load_modules
  apply_paths
}

# Set as_inherited to the words before a program of the user, with which it gets the shell options that came in the
# environment: each script saves them at its start, in users_options.
find_inherited_options() {
  as_inherited=()
  ! is_exported SHELLOPTS || as_inherited+=("SHELLOPTS=${users_options[0]}")
  ! is_exported BASHOPTS || as_inherited+=("BASHOPTS=${users_options[1]}")
  [[ -z ${users_options[2]} ]] || as_inherited+=(POSIXLY_CORRECT=y)
  ((!${#as_inherited[@]})) || as_inherited=(env "${as_inherited[@]}")
}

# is_exported NAME: bash 4.4 can tell without another process.
is_exported() {
  local attributes
  if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)); then
    eval "attributes=\${$1@a}"
    [[ $attributes == *x* ]]
  else
    [[ `declare -p "$1"` == declare\ -*x*\ "$1"=* ]]
  fi
}

# In the container: remove variables from outside that do not apply there.
set_up_container() {
  come_in
  clean_environment
  apply_env
  if [[ -n ${TMPDIR-} && ! -d $TMPDIR ]]; then
    log "TMPDIR=$TMPDIR is not there in the container, leaving it out"
    unset TMPDIR
  fi
}

# --------------------------------------------------------------------------------------------------- JSON, files

# json_string TEXT: set REPLY to TEXT as a JSON string, with its quotes.
json_string() {
  local text=$1 code char escape backslash=\\ quote='"'
  # The replacements are in variables, because in a literal one bash 5.2 interprets backslashes and &.
  text=${text//"$backslash"/"$backslash$backslash"}
  text=${text//"$quote"/"$backslash$quote"}
  if [[ $text == *[[:cntrl:]]* ]]; then
    for code in {1..31} 127; do
      printf -v escape '\\u%04x' "$code"
      printf -v char '%b' "\\x${escape:4}"
      text=${text//"$char"/"$escape"}
    done
  fi
  REPLY=$quote$text$quote
}

# json_list TEXT...: set REPLY to a JSON list of strings.
json_list() {
  local item list=''
  for item; do
    json_string "$item"
    list+=,$REPLY
  done
  REPLY="[${list#,}]"
}

# write_file FILE TEXT: replace FILE atomically by the line TEXT.
#
# `cat` and not `printf >FILE`, because cat also notices "quota exceeded", which NFS reports only on closing.
write_file() {
  local temporary=$1.new.$$
  if printf '%s\n' "$2" | (umask 077 && exec cat >"$temporary") && mv -f -- "$temporary" "$1"; then return 0; fi
  rm -f -- "$temporary" 2>/dev/null
  return 1
}

# Set REPLY to this shell's umask; on Linux without another process.
find_umask() {
  local name
  { while read -r name REPLY; do [[ $name != Umask: ]] || return 0; done </proc/self/status; } 2>/dev/null
  REPLY=`umask`
}

# read_line FILE: set REPLY to the first line of FILE, or to nothing if there is none.
read_line() {
  REPLY=''
  { IFS= read -r REPLY <"$1"; } 2>/dev/null
  [[ -n $REPLY ]]
}

# Set REPLY to the time, in UTC.
utc_now() { TZ=UTC0 printf -v REPLY '%(%Y-%m-%dT%H:%M:%SZ)T' -1; }

# ----------------------------------------------------------------------------------------------------- failures

# fail CAUSE SENTENCE: write the cause to a file for the script's outer part, and end this part.
fail() {
  # shellcheck disable=SC2154  # the scripts that use this export it
  write_file "$NBL_CAUSE_FILE" "$1 $2"
  exit 1
}

# ------------------------------------------------------------------------------------------------------ waiting

pause_fd=''

# pause SECONDS: wait without starting a process, so that a waiting job or watch costs nothing.
pause() {
  [[ -n $pause_fd ]] || open_pause_fd
  if [[ $pause_fd == none ]]; then
    sleep "$1"
  else
    # The descriptor is both ends of a pipe to which nothing is ever written, so the read always times out.
    read -r -t "$1" -u "$pause_fd" || :
  fi
}

# wait_while SECONDS LOOKS COMMAND...: pause as long as the command succeeds, SECONDS at a time and LOOKS times at most.
wait_while() {
  local seconds=$1 most=$2 looks=0
  shift 2
  while ((looks++ < most)) && "$@"; do pause "$seconds"; done
}

open_pause_fd() {
  { exec {pause_fd}<> <(:); } 2>/dev/null || pause_fd=none
}

# -------------------------------------------------------------------------------------- the node and the scheduler

# Set job_id, whatever scheduler started us. The local scheduler removes the others' variables from its jobs, so an
# NBL_JOB_ID inherited by another scheduler's job comes last here.
find_job_id() { job_id=${SLURM_JOB_ID:-${PBS_JOBID:-${LSB_JOBID:-${JOB_ID:-${NBL_JOB_ID:-}}}}}; }

# Whether this is a job of a scheduler with a queue, and not of local.sh or started by hand.
has_queue() { [[ -n ${SLURM_JOB_ID:-}${PBS_JOBID:-}${LSB_JOBID:-}${JOB_ID:-} ]]; }

# Set node; find_node_names adds its other names. $HOSTNAME is not used: a batch job may inherit the login node's.
find_node() {
  read_line /proc/sys/kernel/hostname || REPLY=`uname -n`
  node=$REPLY node_names=()
}

# Set node_names to all names of this machine.
find_node_names() {
  local name
  find_node
  node_names=("$node")
  for name in "${SLURMD_NODENAME:-}" "`full_hostname`"; do
    [[ -n $name && " ${node_names[*]} " != *" $name "* ]] && node_names+=("$name")
  done
}

# A broken name server must not delay the job.
full_hostname() {
  if command -v timeout >/dev/null; then timeout 2 hostname -f; else hostname -f; fi 2>/dev/null
}

# Set listen_address to where JupyterLab should listen: 127.0.0.1, or with listen=node the address by which other nodes
# know this one.
find_listen_address() {
  listen_address=127.0.0.1
  [[ $want_listen == node ]] || return 0
  ((${#node_names[@]})) || find_node_names
  if find_node_address; then
    log "JupyterLab will listen on $listen_address: whoever reaches this node can connect, and only the token keeps\
 strangers out"
  else
    log "no address of $node was found that other nodes could reach; JupyterLab will listen on 127.0.0.1 only"
  fi
}

# A node may have several networks; other nodes use the one to which its name resolves. Its own /etc/hosts may differ,
# as Debian's does with 127.0.1.1, or come from another machine: only addresses of its interfaces are accepted. If the
# name does not resolve, use the first interface.
find_node_address() {
  local name address own
  own=" `own_addresses` "
  for name in "${node_names[@]}"; do
    for address in `addresses_of "$name"`; do
      is_reachable "$address" && [[ $own == '  ' || $own == *" $address "* ]] && listen_address=$address && return
    done
  done
  for address in $own; do
    is_reachable "$address" && listen_address=$address && return
  done
  return 1
}

# Print the IPv4 addresses of this machine's interfaces on one line; nothing if no program lists them.
own_addresses() {
  local words
  words=`hostname -I 2>/dev/null || ip -4 -o addr show 2>/dev/null`
  [[ $words =~ [^[:space:]] ]] || return 0
  for words in $words; do printf '%s ' "${words%%/*}"; done
}

# A broken name server must not delay the job.
addresses_of() {
  local address _
  if command -v timeout >/dev/null; then timeout 2 getent ahostsv4 "$1"; else getent ahostsv4 "$1"; fi 2>/dev/null |
    while read -r address _; do printf '%s\n' "$address"; done
}

# Whether an IPv4 address is neither a loopback nor a link-local one.
is_reachable() { [[ $1 =~ ^[0-9]+(\.[0-9]+){3}$ && $1 != 127.* && $1 != 0.* && $1 != 169.254.* ]]; }

# Set host_keys to this machine's public SSH host keys, with which the launcher verifies the node.
find_host_keys() {
  local file type key _
  host_keys=()
  for file in /etc/ssh/ssh_host_*_key.pub; do
    [[ -r $file ]] && read -r type key _ <"$file" && [[ -n $key ]] && host_keys+=("$type $key")
  done
}

# --------------------------------------------------------------------------------------------------- other parts

# How images are run, and how modules, conda, venv and uv are activated. If a file is missing, bash reports it, and we
# exit, because a step that does nothing would otherwise count as successful.
nbl_parts=${BASH_SOURCE[0]%/*}
[[ ${BASH_SOURCE[0]} == */* ]] || nbl_parts=.
# shellcheck source=jobscripts/lib/containers.sh
source "$nbl_parts/containers.sh" || exit
# shellcheck source=jobscripts/lib/activate.sh
source "$nbl_parts/activate.sh" || exit
unset nbl_parts

# ----------------------------------------------------------------------------------------------------- processes

# is_job_running PID: whether this background process of this shell still runs. Bash knows: the process id of one that has
# ended may have been reused.
is_job_running() { [[ -n $1 && $'\n'`jobs -rp`$'\n' == *$'\n'"$1"$'\n'* ]]; }

# end_writers FILE: kill all processes whose standard error is FILE, and those they start meanwhile. Without /proc, none
# is found.
end_writers() {
  local tries link pid found
  for ((tries = 0; tries < 100; tries++)); do
    found=()
    for link in /proc/[0-9]*/fd/2; do
      pid=${link#/proc/} pid=${pid%%/*}
      [[ $link -ef $1 ]] && found+=("$pid")
    done
    ((${#found[@]})) || return 0
    kill -KILL "${found[@]}" 2>/dev/null
    pause 0.01
  done
}

# list_tagged NAME=VALUE: set tagged to the ids of all processes, except this shell, with this in their environment.
#
# Jupyter starts every kernel in a new session, so that a job's remaining processes cannot be found by process group or
# session, but by the environment, which all of them inherit. A batch job submitted from a notebook may inherit it as
# well, but has another job id, and is not ours. Without /proc, nothing is found.
list_tagged() {
  local file pid seen unsure=()
  tagged=()
  for file in /proc/[0-9]*/environ; do
    pid=${file#/proc/} pid=${pid%/environ}
    if [[ ! -O $file || $pid == "$$" ]]; then :
    elif is_tagged "$pid" "$1"; then tagged+=("$pid")
    elif [[ -z $seen ]] && may_get_environment "$pid"; then unsure+=("$pid")
    fi
  done
  ((${#unsure[@]})) || return 0
  # A process that is just calling exec has no environment for a moment.
  pause 0.05
  for pid in "${unsure[@]}"; do
    if is_tagged "$pid" "$1"; then tagged+=("$pid"); fi
  done
}

# is_tagged PID NAME=VALUE: also sets seen if it has an environment.
is_tagged() {
  local entry entries=() own='' foreign=''
  seen=''
  # Bash 4.4 reads all of it at once. Most processes do not have the variable, which saves checking each entry.
  if ! mapfile -d '' entries <"/proc/$1/environ"; then
    while IFS= read -r -d '' entry; do entries+=("$entry"); done <"/proc/$1/environ"
  fi 2>/dev/null
  ((!${#entries[@]})) || seen=yes
  case "${entries[*]}" in *"$2"*) ;; *) return 1 ;; esac
  for entry in "${entries[@]}"; do
    case $entry in
      "$2") own=yes ;;
      SLURM_JOB_ID="${SLURM_JOB_ID-}" | PBS_JOBID="${PBS_JOBID-}" | LSB_JOBID="${LSB_JOBID-}") ;;
      SLURM_JOB_ID=* | PBS_JOBID=* | LSB_JOBID=*) foreign=yes ;;
      JOB_ID=*) [[ -z ${JOB_ID-} || $entry == "JOB_ID=$JOB_ID" ]] || foreign=yes ;; # Grid Engine's
    esac
  done
  [[ -n $own && -z $foreign ]]
}

# Whether a process may have an environment: not a dead one or a kernel thread.
may_get_environment() {
  local fields
  read_stat "/proc/$1/stat"
  ((${#fields[@]} > 6)) && [[ ${fields[0]} != [ZX] ]] && ((!(fields[6] & 0x200000)))   # PF_KTHREAD
}

# read_stat FILE: set fields to what follows the name in a stat file of /proc: state, parent, process group, session …; to
# nothing if the process has ended. The name may contain anything, even newlines.
read_stat() {
  local text=''
  { IFS= read -r -d '' text <"$1"; } 2>/dev/null
  read -r -a fields <<<"${text##*') '}"
}

# end_tagged NAME=VALUE: end all processes that list_tagged finds, and set ended to their number. Checking all processes
# may take seconds on a busy node, so it is done once for each signal; those found then have a second or two. The second
# KILL is for processes started meanwhile.
end_tagged() {
  local how pid seen patience
  ended=0
  for how in TERM KILL KILL; do
    list_tagged "$1"
    ((${#tagged[@]})) || return 0
    ((ended)) || ended=${#tagged[@]}
    kill "-$how" "${tagged[@]}" 2>/dev/null
    patience=$((SECONDS + 2))
    for pid in "${tagged[@]}"; do
      while ((SECONDS < patience)) && is_tagged "$pid" "$1"; do pause 0.05; done
    done
  done
}
