#!/bin/bash
# Copies the environment to the node's own disk in one stream, because from a slow shared file system, an environment of
# many files takes minutes to start. enter.sh and shell.sh source this file if session.env has stage=yes.
#
#   stage.sh SESSION_DIR       once JupyterLab runs: make the archive or copy that does not exist yet, for the next job
#
# An image file is copied before JupyterLab starts. For a folder, an archive beside it is copied: a file system in one
# file, which is mounted (stage_squash.sh), or if that is not possible, a tar archive, which is unpacked. Making the
# archive takes longer than starting from the folder once: so JupyterLab does that, and the archive is made meanwhile.
#
# stage_disk.sh describes where copies are. Failures are reported, and JupyterLab then starts from the shared file
# system.
#
# shellcheck disable=SC2154  # want_… are set by lib.sh

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

# The number of jobs that try to make an archive; the maximum seconds of a copy, and without a byte being copied.
readonly STAGE_TRIES=3 STAGE_SECONDS=${NBL_STAGE_SECONDS:-3600} STAGE_STALL_SECONDS=${NBL_STAGE_STALL_SECONDS:-300}

# shellcheck source=jobscripts/lib/stage_disk.sh
source "${BASH_SOURCE[0]%/*}/stage_disk.sh" || exit
# shellcheck source=jobscripts/lib/stage_squash.sh
source "${BASH_SOURCE[0]%/*}/stage_squash.sh" || exit

# While JupyterLab runs: make archives; nobody waits for them.
stage_for_the_next() {
  export NBL_SESSION_DIR=${1%/} NBL_CAUSE_FILE=${1%/}/runtime/stage-cause
  # shellcheck source=jobscripts/lib/lib.sh
  source "$NBL_SESSION_DIR/lib.sh"
  read_settings "$NBL_SESSION_DIR/session.env" 2>/dev/null # the job has already reported problems
  stage_thorough=yes
  tell_staging() { note_copy "$@"; }
  trap 'end_copying; exit 143' TERM
  if [[ -n $want_container ]]; then stage_image; else stage_folders; fi
}

# Called during stream, or what surrounds it.
# shellcheck disable=SC2317  # called by the trap
end_copying() {
  [[ -z ${child-} ]] || kill -KILL "$child" 2>/dev/null
  [[ -z ${lock-} ]] || exec {lock}<&-
  remove_half_made "$NBL_SESSION_DIR/runtime"
}

# ------------------------------------------------------------------------------------------------- what is staged

# Set the image to its copy on this node. staged_from keeps its name for messages.
stage_image() {
  staged_from=$want_container
  squash=''
  image_kind
  case $REPLY in
    file | squash)  stage_copy file "$want_container" || return 0 ;;
    folder)
      find_squash_runner
      stage_copy folder "$want_container" || return 0
      ;;
    *)              not_staged "it is no file and no folder, but kept by what runs it"; return 0 ;;
  esac
  want_container=$staged
}

# Set staged_way to the words before a command that mount the copies over the environment's folders for it.
#
# Programs in an environment contain its path, so a copy cannot be used elsewhere: it is mounted over the folder, only
# for this session's processes, and read-only, because packages installed there would be lost.
stage_folders() {
  local folder python script=$NBL_SESSION_DIR/staged_mount.py pairs=()
  staged_way=()
  find_stage_folders
  find_squashfuse
  for folder in "${stage_folders[@]}"; do
    staged_from=$folder
    find_mounting_python "$folder" "$script" || {
      not_staged "this node lets no ordinary user mount a copy over it (user namespaces are needed for that)"
      continue
    }
    stage_copy folder "$folder" && pairs+=("$staged_source" "$staged")
  done
  # shellcheck disable=SC2034  # for enter.sh and shell.sh
  ((!${#pairs[@]})) || staged_way=("$python" -I "$script" ${squashfuse:+"--with=$squashfuse"} "${pairs[@]}" --)
}

# Set stage_folders to the existing folders of conda, venv and uv.
find_stage_folders() {
  local prefix
  stage_folders=()
  if [[ -n $want_conda ]]; then
    prefix=$(find_conda_prefix)
    if [[ -n $prefix ]]; then stage_folders+=("$prefix"); else
      staged_from=$want_conda
      not_staged "its folder was not found; name it by its path"
    fi
  fi
  [[ ! -d $want_venv ]] || stage_folders+=("$want_venv")
  [[ -z $want_uv || ! -d $want_uv/.venv ]] || stage_folders+=("$want_uv/.venv")
}

# Print the folder of the conda environment, which may be known only after loading modules.
find_conda_prefix() {
  local script root base
  (
    set_up_node >/dev/null 2>&1
    script=$(find_conda_script)
    root=${MAMBA_ROOT_PREFIX:-$HOME/micromamba}
    base=${script%/etc/profile.d/conda.sh}
    for root in "$want_conda" "${base:-$root}/envs/$want_conda" "$root/envs/$want_conda" "$HOME/.conda/envs/$want_conda"; do
      [[ $root == */* && -d $root/conda-meta ]] && printf '%s\n' "$root" && break
    done
  )
}

# Set python to a Python that can mount here, and squash to `mount` if it can mount archives as well.
find_mounting_python() {
  squash=''
  for python in /usr/bin/python3 /usr/libexec/platform-python "$(type -P python3)" "$1/bin/python"; do
    [[ -x $python ]] || continue
    squash=$(within 20 "$python" -I "$2" --try 2>/dev/null </dev/null) || continue
    [[ $squash == mount && -n $squashfuse ]] || squash=''
    return 0
  done
  return 1
}

# ------------------------------------------------------------------------------------------------------- one copy

# stage_copy file|folder PATH: set staged to its copy on this node, staged_source to its real path, and keep it locked;
# or fail after reporting why.
stage_copy() {
  local kind=$1 key='' lock='' content=content deadline=$((SECONDS + STAGE_SECONDS))
  local tries=0
  stage_why='' staged='' staged_source=$(realpath -e -- "$2" 2>/dev/null) || staged_source=''
  [[ -n $staged_source ]] || { not_staged "it cannot be found on $(uname -n)"; return 1; }
  type -P flock >/dev/null || { not_staged "flock, which keeps jobs apart, is not on $(uname -n)"; return 1; }
  # Some programs recognize the type of a file by its suffix.
  [[ $kind == folder || ! $staged_source =~ \.[a-z]+$ ]] || content+=${BASH_REMATCH[0]}
  find_stage_place || return 1
  key=$(stage_key "$kind" "$staged_source")
  [[ -n $key ]] || { not_staged "it cannot be read"; return 1; }
  [[ -n ${stage_thorough-} ]] || : >"$NBL_SESSION_DIR/runtime/staging" # JupyterLab's start-up time does not run meanwhile
  clean_stage "$key"
  until lock_copy; do
    if read_line "$stage_place/$key.done" && [[ $REPLY == packing* ]]; then
      not_staged "a job that runs on $(uname -n) is just making its archive"
      break
    elif ((SECONDS > deadline)); then
      not_staged "another job was copying it for more than $STAGE_SECONDS seconds"
      break
    fi
    tell_waiting
    pause 0.5
  done
  [[ -n ${stage_thorough-} ]] || rm -f -- "$NBL_SESSION_DIR/runtime/staging"
  [[ -n $staged ]] || { [[ -z $lock ]] || exec {lock}<&-; return 1; }
  # The modification time of `size` is the time of the last use; touching the lock keeps programs that clean /tmp away.
  touch -c -- "$stage_place/$key/size" "$stage_place/$key.lock" 2>/dev/null
  printf '%s\n' "$stage_place/$key.lock" >>"$NBL_SESSION_DIR/runtime/staged"
}

# Succeed once there is nothing left to wait for: either staged is set, or the failure was reported. The lock is held by
# this shell, and by the program that it execs.
lock_copy() {
  local code
  [[ -z $lock ]] || exec {lock}<&-
  { exec {lock}>>"$stage_place/$key.lock"; } 2>/dev/null || { lock=''; not_staged "$stage_place cannot be written"; return 0; }
  flock -s -n "$lock" && [[ /dev/fd/$lock -ef $stage_place/$key.lock ]] || return 1
  if is_whole; then
    staged=$stage_place/$key/$content
    tell_staging kept
    return 0
  fi
  # Another process may have been faster: in between, nothing is locked.
  if ! flock -x -n "$lock"; then
    ((++tries > 10)) || return 1 # a process that copies it holds an exclusive lock, and we would not have come this far
    not_staged "files of its copy there were removed, and another job uses what is left"
    return 0
  fi
  if ! is_whole; then
    make_copy
    code=$?
    rm -f -- "$stage_place/$key.done" "$NBL_SESSION_DIR/runtime"/{copying,packing}-"$key"
    ((code == 0)) || return 0
  fi
  flock -s -n "$lock" && [[ -e $stage_place/$key/$content ]] || return 1
  staged=$stage_place/$key/$content
}

# Print a key for a path and its content: it changes with the image's file, or with a folder when packages are installed
# or removed there, or when it is touched. Checking each of its files would take as long as starting from it. No inode
# number, because on some file systems it differs between nodes.
stage_key() {
  local path found sum
  if [[ $1 == file ]]; then
    found=$(stat -L -c '%s-%.9Y-%.9Z' -- "$2" 2>/dev/null)
  else
    found=$(for path in "$2" "$2"/{pyvenv.cfg,bin,etc,lib,lib64,opt,usr,conda-meta{,/history},share/jupyter{,/kernels}} \
      "$2"/lib/python*{,/site-packages} "$2"/{usr/bin,usr/local{,/bin},var/lib/{dpkg,rpm}{,/status}} \
      "$2"/{usr,usr/local,opt/*}/lib/python*/{site,dist}-packages; do printf '%s\0' "$path"; done |
      xargs -0 stat -c '%n %.9Y-%.9Z' -- 2>/dev/null)
  fi
  [[ -n $found ]] || return
  sum=$(printf '%s\n%s\n' "$2" "$found" | sha256sum) && printf '%s\n' "${sum:0:32}"
}

# Called with the lock. The copy gets its name when it is complete, and only if nothing has changed meanwhile.
make_copy() {
  local new=$stage_place/new-$key began=$SECONDS size
  remove_copy "$stage_place/$key"
  remove_copy "$new"
  printf '%s\n' "$new" >"$NBL_SESSION_DIR/runtime/copying-$key" # see remove_half_made
  mkdir -- "$new" || { not_staged "$stage_place cannot be written"; return 1; }
  if copy_"$kind" && [[ $(stage_key "$kind" "$staged_source") == "$key" ]]; then
    size=$(du -sk -- "$new" 2>/dev/null) size=${size%%[!0-9]*}
    if [[ -n $size ]] && make_room "$size" 0 && name_copy; then
      log "copied $staged_source to $stage_place/$key ($((size / 1024)) MiB, $((SECONDS - began)) s)"
      tell_staging copied "$((1024 * size))" "$((1024 * size))"
      return
    fi
    stage_why=${stage_why:-$stage_place cannot be written}
  fi
  remove_copy "$new"
  if [[ $stage_why == later ]]; then
    log "there is no archive of $staged_source yet: JupyterLab starts from there, and it is made meanwhile"
    : >"$NBL_SESSION_DIR/runtime/stage-later"
    stage_why=''
    tell_staging later
  else
    not_staged "${stage_why:-it was changed meanwhile}"
  fi
  return 1
}

# After a crash of the node, a renamed file might be empty: so flush everything to the disk first.
name_copy() {
  count_in "$new/$content"
  write_file "$new/count" "${REPLY:-0}" && write_file "$new/size" "$size" && make_lasting "$new" &&
    mv -T -- "$new" "$stage_place/$key"
}

copy_file() {
  local in bytes
  stage_why=''
  { exec {in}<"$staged_source"; } 2>/dev/null || { stage_why='it cannot be read'; return 1; }
  bytes=$(stat -L -c %s -- "/dev/fd/$in")
  make_room "$((bytes / 1024))" && stream copying "$in" "$bytes" cat
  set -- "$?"
  exec {in}<&-
  return "$1"
}

# Copy a folder from its archive, in one sequential read.
copy_folder() {
  local in='' bytes archive name=${staged_source##*/} beside squash_form=()
  stage_why=''
  beside=${staged_source%/*}/.$name.stage-$key
  remove_old_archives
  if ! { [[ -n $squash ]] && open_archive "$beside.sqfs"; } && ! open_archive "$beside.tar"; then
    is_for_us_to_pack || return
    [[ -n ${stage_thorough-} ]] || { stage_why=later; return 1; }
    make_best_archive || return
    open_archive "$archive" || { stage_why="its archive cannot be read"; return 1; }
  fi
  bytes=$(stat -L -c %s -- "/dev/fd/$in")
  make_room "$((bytes / 1024))" && unpack_archive
  set -- "$?"
  exec {in}<&-
  [[ $archive != "$new"/archive.* ]] || rm -f -- "$archive"
  return "$1"
}

# An archive that is mounted is not unpacked.
unpack_archive() {
  if [[ $archive == *.sqfs ]]; then
    content=content.sqfs
    stream copying "$in" "$bytes" cat || return
    [[ $squash != image ]] || try_running "$new/$content" || {
      stage_why="${squash_runner##*/} on $(uname -n) does not run its archive"
      return 1
    }
  else
    mkdir -- "$new/$content" && stream copying "$in" "$bytes" tar -xp --no-same-owner -f - -C "$new/$content"
  fi
}

# open_archive FILE: set in, if the archive belongs to the folder's owner or us, and nobody else can have written it.
# The open file is checked, because its name may refer to another one meanwhile.
open_archive() {
  local owner mode
  [[ -f $1 && ! -L $1 ]] || return
  { exec {in}<"$1"; } 2>/dev/null || { in=''; return 1; }
  read -r owner mode < <(stat -L -c '%u %a' -- "/dev/fd/$in")
  if [[ $owner == "$UID" || $owner == "$(stat -c %u -- "$staged_source")" ]] && (((8#$mode & 8#22) == 0)); then
    archive=$1
    return
  fi
  exec {in}<&-
  in=''
  return 1
}

# Whether to make an archive of this folder. Not of somebody else's, such as a course's: every participant would read
# all of it. Nor if another job is packing it, or if earlier jobs ended before it was done: that is tried again when
# remove_old_archives has removed the counters.
is_for_us_to_pack() {
  local owner
  owner=$(stat -c %U -- "$staged_source")
  if [[ ! -O $staged_source ]]; then
    stage_why="there is no archive of it that you may read; only its owner, $owner, can make one (Slow file systems in\
 docs/environments.md)"
  elif [[ -n $(find "${beside%/*}" -maxdepth 1 -name "${beside##*/}.*.new-*" -mmin -10 2>/dev/null) ]]; then
    stage_why='another job is just making its archive'
  elif [[ -O $beside.tar.tried-$STAGE_TRIES || -O $beside.sqfs.tried-$STAGE_TRIES ]]; then
    stage_why="its archive was not done by the end of $STAGE_TRIES jobs; after a day it is tried again"
  fi
  [[ -z $stage_why ]]
}

make_best_archive() {
  if find_squash_form; then
    make_archive "$beside.sqfs" || return
    [[ $squash == image ]] && ! try_running "$archive" || return 0
    rm -f -- "$archive"
    squash=''
  fi
  make_archive "$beside.tar"
}

# make_archive FILE: set archive to FILE, or to one in the copy's folder if FILE cannot be written. Readable only by us,
# because it also contains files of the folder that only we can read.
make_archive() {
  local out temporary code stage_room=${1%/*}
  temporary=$1.new-$(uname -n)-$$
  archive=$1
  if open_new "$temporary"; then
    printf '%s\n' "$temporary" >"$NBL_SESSION_DIR/runtime/packing-$key"
    note_try "$1"
    if has_room 0 && pack "$1" && make_lasting "$temporary" &&
      mv -T -- "$temporary" "$1"; then
      exec {out}>&-
      rm -f -- "$1".tried-*
      return
    fi
    is_writable "$out"
    code=$?
    exec {out}>&-
    rm -f -- "$temporary"
    ((code)) || { stage_why="its archive was given up: $stage_why"; return 1; }
    rm -f -- "$1".tried-*
  fi
  log "no archive can be written in $stage_room, so there is one on $(uname -n) alone${stage_why:+ ($stage_why)}"
  archive=$new/archive.${1##*.} stage_why='' stage_room=''
  open_new "$archive" || { stage_why="$stage_place cannot be written"; return 1; }
  pack "$archive"
  set -- "$?"
  exec {out}>&-
  return "$1"
}

# pack FILE: write the archive to the file that is open as out; the suffix of FILE selects the format.
pack() {
  if [[ $1 == *.sqfs ]]; then
    stream packing "$out" '' mksquashfs "$staged_source" "/dev/fd/$out" "${squash_form[@]}" -e 'dev/*'
  else
    stream packing "$out" '' tar -c --exclude='./dev/*' -f - -C "$staged_source" .
  fi
}

# note_try FILE: create one more of these counters; never by opening an existing name.
note_try() {
  local number out
  for ((number = 1; number <= STAGE_TRIES; number++)); do
    open_new "$1.tried-$number" || continue
    exec {out}>&-
    return
  done
}

# is_writable FD: whether there is room for more data. A quota may be noticed only when it is reached.
is_writable() {
  has_room 0 || { stage_why="$stage_room has no room"; return 1; }
  head -c 65536 /dev/zero >&"$1" || { stage_why="$stage_room cannot be written: is a quota reached?"; return 1; }
} 2>/dev/null

# open_new FILE: set out to a new private file; never by opening an existing name.
open_new() {
  local mask code
  mask=$(umask)
  umask 077
  set -C
  { exec {out}>"$1"; } 2>/dev/null
  code=$?
  set +C
  umask "$mask"
  return "$code"
}

# Remove our archives of earlier states of the folder, and files that killed jobs left a day ago or earlier.
remove_old_archives() {
  local file
  for file in "${staged_source%/*}/.${staged_source##*/}".stage-*; do
    [[ -f $file && ! -L $file && -O $file ]] || continue
    if [[ $file == *.tar || $file == *.sqfs ]]; then
      [[ ${file%.*} == "$beside" ]] || rm -f -- "$file"
    elif [[ -n $(find "$file" -mmin +1440 2>/dev/null) ]]; then
      rm -f -- "$file"
    fi
  done
}

# stream copying|packing FD BYTES COMMAND...: run it with FD as its input, and new/content as its output if it is cat;
# to pack, with FD as its output or as an argument. Reports progress; without BYTES, the total is unknown. It ends with
# us, when no data comes any more, when the disk gets full, or after STAGE_SECONDS.
stream() {
  local doing=$1 fd=$2 bytes=$3 child place=0 before=-1 moved=$SECONDS told=-1 deadline=$((SECONDS + STAGE_SECONDS))
  shift 3
  case $doing-$1 in
    packing-mk*) "$@" </dev/null >/dev/null & ;;
    packing-*)   "$@" >&"$fd" </dev/null & ;;
    copying-cat) "$@" <&"$fd" >"$new/$content" & ;;
    *)           "$@" <&"$fd" & ;;
  esac
  child=$!
  while kill -0 "$child" 2>/dev/null; do
    pause 0.02
    ((SECONDS > told)) || continue
    place=$(position_of "$fd")
    [[ $place == "$before" ]] || { before=$place moved=$SECONDS; }
    told=$SECONDS
    tell_staging "$doing" "$place" "$bytes"
    if ((SECONDS > moved + STAGE_STALL_SECONDS)); then stage_why="no more came within $STAGE_STALL_SECONDS seconds"
    elif ((SECONDS > deadline)); then stage_why="it was not copied within $STAGE_SECONDS seconds"
    elif ! has_room 0; then stage_why="${stage_room:-the disk of $(uname -n)} is full"
    else continue
    fi
    kill -KILL "$child" 2>/dev/null
    return 1
  done
  wait "$child" && return
  has_room 0 || stage_why="${stage_room:-the disk of $(uname -n)} is full"
  stage_why=${stage_why:-it could not be copied: see the job\'s log}
  return 1
}

# Print the position of FD, which the command shares: how much it has read or written.
position_of() {
  local name value
  [[ $doing != packing ]] || { stat -L -c %s -- "/dev/fd/$1"; return; }
  while read -r name value; do
    [[ $name != pos: ]] || { printf '%d' "$value"; return; }
  done 2>/dev/null <"/proc/$BASHPID/fdinfo/$1"
  printf 0
}

# ---------------------------------------------------------------------------------------------------- reporting

# tell_staging STATE [DONE [BYTES]]: write staging.json for the launcher. shell.sh redefines this for a terminal.
tell_staging() {
  local path where
  note_copy "$@"
  json_string "$staged_from"
  path=$REPLY
  json_string "$(uname -n)"
  where=$REPLY
  json_string "${stage_why-}"
  write_file "$NBL_SESSION_DIR/staging.json" "{\"version\":1,\"node\":$where,\"path\":$path,\"state\":\"$1\",\
\"done\":${2:-null},\"bytes\":${3:-null},\"why\":$REPLY}"
}

# Write the progress for other jobs that wait for this copy.
note_copy() {
  case $1 in packing | copying) write_file "$stage_place/$key.done" "$1 $2 ${3:-null}" ;; esac
}

# Report the progress of the other job.
tell_waiting() {
  local so_far=0 bytes=''
  if read_line "$stage_place/$key.done" && [[ $REPLY =~ ^copying\ ([0-9]+)\ ([0-9]+|null)$ ]]; then
    so_far=${BASH_REMATCH[1]} bytes=${BASH_REMATCH[2]#null}
  fi
  tell_staging waiting "$so_far" "$bytes"
}

# not_staged WHY
not_staged() {
  stage_why=$1
  log "$staged_from is not staged on $(uname -n): $1"
  tell_staging failed
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
  stage_for_the_next "$@"
  exit
fi
