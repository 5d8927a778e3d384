#!/bin/bash
# Tell which sessions there are under a folder, and tidy up after those that are over.
#
#   bash sessions.sh ROOT [list [UNTIL]]
#   bash sessions.sh ROOT tidy [ID...] [--remove ID...]
#
# It is sent over standard input (bash -s -- ROOT), because a place may have no session yet.
#
# `list` prints `sessions 1` (what stands before it is a start-up file's), some lines for each session, `end`:
#
#   ID session JSON   ID started JSON   ID endpoint JSON   ID exit JSON   ID idle JSON   ID progress JSON
#                       the file of that name, where it is there; - for one that holds no line of JSON
#   ID job 7;snowy      what the submit command answered
#   ID cancelled TIME   when a launcher cancelled its job, where exit.json does not say whether that ended it: there is
#                       none, or it is that of a job array, in which a task that was ended counts as one that failed
#   ID secrets          the token or keys are still there
#   ID damaged          it has a session's name, and cannot be read as one
#   ID foreign          the same: all there are somebody else's, says the file server, and yet this one may be read
#   unreadable          ROOT is there, and may not be read
#   removed 3           so many old records were removed just now
#   scripts DIGEST      a version of the job scripts that sessions share (see submit.sh), whole or not
#
# With UNTIL (UTC, as 2026-10-22T01:44:55Z), records of sessions that ended before it and were tidied already are
# removed, a few at each call, and not listed; folders and logs of images and environments that are as old likewise.
# `tidy` removes the token, the keys and the job scripts of sessions that are over, and, after --remove, the whole
# record. Whether a session is over is for the scheduler to say: a job that waits to run again has an exit.json as well.
#
# Whatever lies in ROOT, nothing is waited for, at most MOST_BYTES of a file are read, and no process is started but to
# remove something. Nothing is removed from a ROOT in which others may rename. Only files that are ours are ever removed;
# a directory that holds others stays, with these: so does work/, where a notebook has left something.

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

set -u

readonly MOST_BYTES=16384
readonly MOST_REMOVED=20
readonly MOST_PATHS=200 # for one command: the system limits what its arguments take up together
readonly UNUSED_DAYS=${NBL_UNUSED_DAYS:-7}
readonly JOB_COMMAND='^(image|look|make)-([0-9]{8})-([0-9]{6})-[a-z2-7]{4}(\.log)?$'
readonly NAME='^[0-9]{8}-[0-9]{6}-[a-z2-7]{4}$'

main() {
  # One byte is one character: what is read is bounded, and any byte can be read.
  export LC_ALL=C
  shopt -s nullglob
  root=${1%/} until='' may_remove=''
  old=()
  local action=${2-list}
  shift; (($# == 0)) || shift
  case $action in
    list) until=${1-}; list ;;
    tidy) tidy "$@" ;;
    *)    printf 'sessions.sh: unknown action %s: list or tidy\n' "$action" >&2; exit 2 ;;
  esac
}

# ---------------------------------------------------------------------------------------------------------- list

list() {
  local dir id own='' foreign=()
  printf 'sessions 1\n'
  if [[ -e $root && ! (-d $root && -r $root && -x $root) ]]; then printf 'unreadable\n'; fi
  for dir in "$root"/*; do
    id=${dir##*/}
    [[ $id =~ $NAME ]] || continue
    # Somebody else's, in a folder that several people share, are their affair.
    if [[ -O $dir || -L $dir ]]; then
      own=yes
      tell "$dir" "$id"
    elif [[ -r $dir && -x $dir ]]; then
      foreign+=("$id foreign")
    fi
  done
  # Unless it is all that there is: some file servers (AFS, NFS with other users) show no file's owner as it is.
  [[ $own || ${#foreign[@]} -eq 0 ]] || printf '%s\n' "${foreign[@]}"
  remove_records ${old[@]+"${old[@]}"}
  if ((${#old[@]})); then
    remove_unused_scripts
    printf 'removed %s\n' "${#old[@]}"
  fi
  [[ -z $until ]] || remove_job_commands
  for dir in "$root"/.scripts/*; do
    if [[ ${dir##*/} =~ ^[0-9a-f]{64}$ ]] && is_own "$dir"; then printf 'scripts %s\n' "${dir##*/}"; fi
  done
  printf 'end\n'
}

# tell DIR ID: print one session, or remember it as one to be removed.
tell() {
  local dir=$1 id=$2 text='' name exit_line=''
  if ! is_own "$dir" || [[ ! -r $dir || ! -x $dir ]]; then
    printf '%s damaged\n' "$id"
    return
  fi
  # Listed, and not just opened: an NFS client looks for another machine's new files only then.
  # shellcheck disable=SC2034
  [[ -e $dir/exit.json ]] || local listing=("$dir"/*)
  if [[ ! -e $dir/session.json ]]; then
    # Being written or removed just now, or what somebody put beside a record that is gone.
    [[ ! -e $dir/job && ! -e $dir/started.json ]] || printf '%s damaged\n' "$id"
    return
  fi
  for name in session started endpoint exit idle progress; do
    read_json "$dir/$name.json" || continue
    text+="$id $name $REPLY"$'\n'
    [[ $name != exit ]] || exit_line=$REPLY
  done
  if read_job "$dir/job"; then text+="$id job $REPLY"$'\n'; fi
  # How the others ended, they say themselves.
  if [[ -z $exit_line || $exit_line == *'"script-failed"'* || $exit_line == *'"stopped"'* ]] &&
    read_cancelled "$dir/ended-from"; then
    text+="$id cancelled $REPLY"$'\n'
  fi
  if has_secrets "$dir"; then
    text+="$id secrets"$'\n'
  elif is_old "$exit_line"; then
    old+=("$dir")
    return
  fi
  printf '%s' "$text"
}

# Nothing is read or removed through a link, or in what belongs to somebody else.
is_own() { [[ -d $1 && ! -L $1 && -O $1 ]]; }

# read_json FILE: set REPLY to its first line, to - where that cannot be JSON. Return 1 where there is no file.
read_json() {
  REPLY=-
  [[ -e $1 || -L $1 ]] || return 1
  read_start "$1" || return 0
  REPLY=${REPLY%%$'\n'*}
  [[ $REPLY == '{'*'}' && $REPLY != *[[:cntrl:]]* ]] || REPLY=-
}

# read_job FILE: set REPLY to the last line that looks like a job; a site's plug-in may print sentences around it.
read_job() {
  local line found='' of_lsf='^Job <([0-9]+)> is submitted'
  read_start "$1" || return 1
  while IFS= read -r line; do
    [[ $line =~ ^[0-9][0-9A-Za-z._-]*(;[0-9A-Za-z._-]+)?$ ]] && found=$line
    [[ $line =~ $of_lsf ]] && found=${BASH_REMATCH[1]}
  done <<<"$REPLY"
  REPLY=$found
  [[ -n $found ]]
}

# read_cancelled FILE: set REPLY to its second line, if that is a time. The first is the machine of the launcher.
read_cancelled() {
  read_start "$1" || return 1
  REPLY=${REPLY#*$'\n'}
  REPLY=${REPLY%%$'\n'*}
  [[ $REPLY =~ ^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[0-9:+-]*$ ]]
}

# read_start FILE: set REPLY to what a file begins with, up to its first zero byte. A bounded read passes over zero
# bytes without counting them, and would not come to an end of a huge file that is full of them.
read_start() {
  REPLY=''
  [[ -f $1 && ! -L $1 && -r $1 ]] && { IFS= read -r -d '' -n "$MOST_BYTES" REPLY <"$1"; } 2>/dev/null
  [[ -n $REPLY ]]
}

has_secrets() {
  [[ -e $1/token || -e $1/ssh_host_key || -e $1/authorized_keys || -e $1/dask-key.pem || -e $1/ray-token ||
    -e $1/ray-ca-key.pem ]]
}

# Two times in the same form are in the order of their characters.
is_old() {
  [[ -n $until && $1 =~ \"ended\":\ ?\"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z)\" ]] || return 1
  [[ ${BASH_REMATCH[1]} < $until ]] && ((${#old[@]} < MOST_REMOVED)) && may_remove
}

# Where others may rename in ROOT, they could put a link to another directory in the place of one that is being emptied.
# A launch refuses such a folder; it may have been opened to others since.
may_remove() {
  if [[ -z $may_remove ]]; then
    may_remove=no
    # The sticky bit does not keep the folder's owner from renaming.
    local whose=('(' -user "$EUID" -o -user 0 ')') safe=('(' -perm -1000 -o ! -perm /022 ')')
    [[ -z $(find "$root/" -maxdepth 0 "${whose[@]}" "${safe[@]}" 2>/dev/null) ]] || may_remove=yes
  fi
  [[ $may_remove == yes ]]
}

# ---------------------------------------------------------------------------------------------------------- tidy

tidy() {
  local id dir action=over secrets=() leaving=()
  may_remove || return 0
  shopt -s dotglob
  for id; do
    dir=$root/$id
    if [[ $id == --remove ]]; then
      action=remove
    elif [[ ! $id =~ $NAME ]] || ! is_own "$dir"; then
      continue
    elif [[ $action == remove ]]; then
      old+=("$dir")
    else
      secrets+=("$dir"/{token,ssh_host_key,authorized_keys,dask-{key,cert,ca}.pem,ray-{ca-key,ca}.pem,ray-token}
        "$dir"/new_key.* "$dir"/.new.*/*)
      find_scripts "$dir"
      leaving+=(${scripts[@]+"${scripts[@]}"})
      is_own "$dir/runtime" && secrets+=("$dir"/runtime/{jpserver-*,ray-*-key.pem})
    fi
  done
  # The connection may break meanwhile, and what matters goes first.
  in_portions 'rm -f' ${secrets[@]+"${secrets[@]}"} 2>/dev/null
  in_portions 'rm -f' ${leaving[@]+"${leaving[@]}"} 2>/dev/null
  remove_records ${old[@]+"${old[@]}"}
}

# in_portions COMMAND PATH...: run it with some of the paths at a time.
in_portions() {
  local command=$1
  shift
  while (($#)); do
    # shellcheck disable=SC2086  # rm -f are two words
    $command -- "${@:1:MOST_PATHS}"
    shift "$(($# < MOST_PATHS ? $# : MOST_PATHS))"
  done
}

# find_scripts DIR: set scripts to the job scripts there that nobody will run again: most of what a session takes up.
# Without a scheduler, it is a session's own local.sh that says how its job ended, or that there was none.
find_scripts() {
  local file keep=''
  scripts=()
  # before the flags, of which one may have that name
  read_json "$1/session.json" && [[ ${REPLY%%'"flags":'*} == *'"scheduler":"local"'* ]] && keep='local.sh lib.sh'
  # tasks: of a job array
  for file in "$1"/*.{sh,py,js} "$1"/tasks/[0-9]*/*.{sh,py,js}; do
    [[ " $keep " == *" ${file##*/} "* ]] || ! is_ours "${file##*/}" || scripts+=("$file")
  done
}

# remove_records DIR...: remove what is ours in these directories, and those that are empty then. The record goes last:
# what is left of an interrupted removal is a session yet, and is removed the next time.
remove_records() {
  local dir file files=() folders=() records=() empty=()
  (($#)) || return 0
  shopt -s dotglob
  for dir; do
    for file in "$dir"/*; do
      if [[ -d $file && ! -L $file ]]; then
        case ${file##*/} in runtime | tasks | .new.??????) folders+=("$file") ;; esac
      elif [[ $file != */exit.json && $file != */session.json ]] && is_ours "${file##*/}"; then
        files+=("$file")
      fi
    done
    [[ ! -d $dir/work || -L $dir/work ]] || empty+=("$dir/work")
    records+=("$dir/exit.json" "$dir/session.json")
  done
  in_portions 'rm -rf' ${folders[@]+"${folders[@]}"}
  in_portions 'rm -f' ${files[@]+"${files[@]}"}
  in_portions rmdir ${empty[@]+"${empty[@]}"}
  in_portions 'rm -f' "${records[@]}"
  in_portions rmdir "$@"
} 2>/dev/null

# Versions of the job scripts that no session has links to any more (see share_scripts in submit.sh), nor had for days.
remove_unused_scripts() {
  local version unused=()
  is_own "$root/.scripts" || return 0
  shopt -s dotglob
  for version in "$root"/.scripts/*; do
    is_own "$version" || continue
    [[ -n $(find "$version" -type f '(' -links +1 -o -newerct "$UNUSED_DAYS days ago" ')' 2>&1) ]] || unused+=("$version")
  done
  shopt -u dotglob
  ((${#unused[@]} == 0)) || rm -rf -- "${unused[@]}" 2>/dev/null
}

# What making images and environments and looking into them has left where the launcher was killed. As old as records
# that are removed, a few at each call.
remove_job_commands() {
  local path made until_digits=${until//[!0-9]/} folders=()
  for path in "$root"/{image,look,make}-*; do
    [[ ${path##*/} =~ $JOB_COMMAND && -O $path && ! -L $path ]] || continue
    made=${BASH_REMATCH[2]}${BASH_REMATCH[3]}
    ((${#folders[@]} == MOST_REMOVED)) || [[ ! $made < $until_digits ]] || folders+=("$path")
  done
  ((${#folders[@]} == 0)) || ! may_remove || rm -rf -- "${folders[@]}" 2>/dev/null
}

# is_ours NAME: whether the launcher or its job writes a file of that name, or has begun to.
is_ours() {
  case ${1%.new.[0-9]*} in
    session.json | session.env | token | job | job.log | submit.out | submit.err | submit.code) ;;
    ssh_host_key | ssh_host_key.pub | authorized_keys | sshd_config | new_key.[0-9]*) ;;
    started.json | endpoint.json | exit.json | idle.json | image.json | notice.json | usage.csv | local.state | ended-from) ;;
    progress.json | staging.json | input.ipynb | results.sent | sent.json | scripts.sha256 | arguments) ;;
    apps.json | session_apps.py | app_requests.py | app_tensorboard.py) ;;
    unsaved.json | renew.json | next_job.json | panel.json | panel.js | panel_view.js | panel_apps.js | panel.py | panel_facts.py | panel_saving.py) ;;
    jupyterlab.sh | lib.sh | containers.sh | submit.sh | sshd.sh | shell.sh | watch.sh | usage.sh) ;;
    array_task.sh | watch_tasks.sh | job-[0-9]*.log | reverse.sh | survey.sh) ;;
    stage.sh | stage_disk.sh | stage_squash.sh | staged_mount.py) ;;
    activate.sh | enter.sh | program.sh | job_services.sh | usage_gpu.sh | idle_rules.py) ;;
    import_cache.py | static_files.py | workers.sh | worker_node.sh | torchrun_nodes.sh | node_resources.py | own_connections.py) ;;
    workers_dask.sh | dask_node.py | dask-ca.pem | dask-cert.pem | dask-key.pem) ;;
    workers_ray.sh | ray_node.py | ray-ca.pem | ray-ca-key.pem | ray-token) ;;
    execute_common.py | execute_kernel.py | execute_outputs.py | execute_script.py | execute_html.py | quick_start.py) ;;
    shared_query.sh | asked.sh | local.sh | image.sh | heartbeat.sh | jupyter_server_config.py | idle_guard.py | execute.py) ;;
    *) return 1 ;;
  esac
}

main "$@"
exit
