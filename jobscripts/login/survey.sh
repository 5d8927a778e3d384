#!/bin/bash
# Read what a cluster reports about itself, without changing anything.
#
#   bash survey.sh login [CLUSTER]     on a login node; CLUSTER: another cluster of the same Slurm, as with -M
#   bash survey.sh node                on a compute node, in a job
#
# It is sent over standard input (bash -s -- login), because the cluster may have no files of ours yet. It prints
# `survey 1` (anything before it comes from a start-up file), then parts, then `end`:
#
#   part NAME       begins a part; parts are in the order of this script
#   |LINE           a line of the command's standard output
#   !LINE           a line of its standard error
#   code NUMBER     its exit code, 124 if it took too long, `skipped` if there was no time left to start it
#
# Every line of a command has a mark, so that whatever it prints cannot look like a part. Each command has its own time
# limit, and all of them have one together: a slow or hanging command costs only its own answer.

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

set -u

readonly ALL_SECONDS=70
readonly MOST_BYTES=200000
# Of the modules of a large site, only these are of interest; some names begin with a year.
readonly MODULES='jupyter|ipython|python|conda|mamba|miniforge|pytorch|torch|tensorflow|keras|apptainer|singularity'
readonly RUNTIMES='apptainer singularity ch-run podman podman-hpc enroot shifter'

main() {
  export LC_ALL=C LMOD_PAGER=none MODULES_PAGER=''
  # Variables of the user act like flags: with SINFO_PARTITION, all other partitions would be missing.
  unset "${!SINFO_@}" "${!SCONTROL_@}" SLURM_CLUSTERS
  # The bash commands below would source it again.
  unset BASH_ENV
  printf 'survey 1\n'
  case ${1-} in
    login) survey_login "${2-}" ;;
    node)  survey_node ;;
    *)     printf 'survey.sh: unknown action %s: login or node\n' "${1-}" >&2; exit 2 ;;
  esac
  printf 'end\n'
}

survey_login() {
  local on=${1:+--clusters=$1} user
  user=$(id -un)
  part machine 5 uname -m
  part hostname 5 hostname
  part hostname_f 5 hostname -f
  part groups 5 id -Gn
  part version 5 sinfo --version
  part sinfo 15 sinfo ${on:+"$on"} --noheader --format='%R|%P|%a|%l|%D|%t|%G|%f|%c|%m'
  part partitions 15 scontrol ${on:+"$on"} --oneliner show partition
  only='^(clustername|slurm_version|accountingstorage(type|enforce)|privatedata) '
  part config 15 scontrol ${on:+"$on"} show config
  only=''
  part associations 15 sacctmgr -n -P show assoc "user=$user" format=cluster,account,partition,qos,defaultqos
  part default_account 15 sacctmgr -n -P show user "$user" format=defaultaccount
  part clusters 15 sacctmgr -n -P show clusters format=cluster,controlhost
  part others 5 bash -c 'type -P bsub pbs_rsub qconf'
  survey_software
  part home 5 stat -f -c '%T' -- "$HOME"
  # shellcheck disable=SC2016
  part quota_commands 5 bash -c 'compgen -c | while read -r name; do
    case $name in *quota*) type -P -- "$name" ;; esac
  done | sort -u; type -P lfs; :'
  part quota 10 quota -s
}

survey_node() {
  part machine 5 uname -m
  part hostname 5 hostname
  survey_software
  part gpus 15 nvidia-smi -L
  part amd_gpus 15 rocm-smi --showproductname
}

survey_software() {
  # shellcheck disable=SC2016,SC2086   # for the inner shell; several names
  part runtimes 5 bash -c 'for name; do type -P -- "$name"; done; :' runtimes $RUNTIMES
  # Slurm's help lists the options that plug-ins add; Pyxis, which runs images, adds this one.
  # shellcheck disable=SC2016
  part pyxis 5 bash -c 'srun --help | while IFS= read -r line; do
    [[ $line != *--container-image* ]] || printf "%s\n" "$line"
  done'
  part jupyter 5 bash -c 'type -P jupyter-lab'
  # shellcheck disable=SC2016
  part_by_login_shell module_system 15 '[[ $(type -t module) == function ]] || exit 1
    printf "%s\n" "${LMOD_VERSION:+Lmod $LMOD_VERSION}"; [[ -n ${LMOD_VERSION-} ]] || module --version 2>&1'
  only=$MODULES'|^20[0-9][0-9][ab]?/?$'
  part_by_login_shell modules 25 'module -t avail 2>&1'
  # Lmod's `avail` shows only modules that can be loaded now; `spider` shows all.
  # shellcheck disable=SC2016
  part_by_login_shell all_modules 25 '[[ -n ${LMOD_VERSION-} ]] || exit 0; module -t spider 2>&1'
  only=''
}
only=''

# part_by_login_shell NAME SECONDS SCRIPT: run it in a new login shell, which defines `module`. The output of start-up
# files is discarded.
part_by_login_shell() {
  # shellcheck disable=SC2016
  part "$1" "$2" bash -c 'exec bash -lc "exec >&5 5>&-; $0" 5>&1 >/dev/null' "$3"
}

# part NAME SECONDS COMMAND...: run a command with this time limit, and print a part.
part() {
  local name=$1 limit=$2
  shift 2
  ((limit <= ${NBL_SURVEY_SECONDS:-$limit})) || limit=$NBL_SURVEY_SECONDS
  ((limit <= ALL_SECONDS - SECONDS)) || limit=$((ALL_SECONDS - SECONDS))
  printf 'part %s\n' "$name"
  if ((limit <= 0)); then
    printf 'code skipped\n'
    return
  fi
  # 3: the command's standard output, 4: our own.
  {
    {
      { timeout -k 1 "$limit" "$@" </dev/null 3>&- 4>&-; printf 'code %d\n' "$?" >&4; } 2>&1 1>&3 |
        marked '!' "$limit" 3>&- >&4
    } 3>&1 | marked '|' "$limit" >&4
  } 4>&1
}

# marked MARK SECONDS: print standard input with a mark before each line, up to MOST_BYTES. A background process of a
# command may keep the pipe open for ever, and print to it: so stop after that many seconds.
marked() {
  local mark=$1 end=$((SECONDS + $2 + 2)) left=$MOST_BYTES line
  shopt -s nocasematch
  while ((left > 0 && SECONDS < end)) &&
    { IFS= read -r -t "$((end - SECONDS))" -n 16384 line || [[ -n $line ]]; }; do
    ((left -= ${#line} + 1))
    [[ $mark == '|' && -n $only && ! $line =~ $only ]] || printf '%s%s\n' "$mark" "$line"
  done
}

main "$@"
exit
