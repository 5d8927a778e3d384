# shellcheck shell=bash
#
# The copies of environments on the node's own disk: where they are, how much space they use, and when they are removed.
# stage.sh sources this file, and job_services.sh at the end of a job; it is never run.
#
# Copies are in PLACE/notebook-launcher-stage-UID, which nobody else may enter:
#
#   KEY/        a complete copy: `content` (a folder, or a file with its suffix; that of a folder's archive is .sqfs),
#               `size` (KiB), and `count` (the number of entries, or of bytes of a file); for KEY see stage_key
#   new-KEY/    a copy in progress; remains of a killed job are removed by the next one
#   KEY.lock    locked exclusively by a job that makes or removes the copy, and shared by those that use it
#   KEY.done    during the copy: `packing` or `copying`, the number of bytes so far, and in total
#
# shellcheck disable=SC2034,SC2154  # it shares its variables with stage.sh, and want_… are set by lib.sh

# Space in KiB that must stay free on a disk; and days after which an unused copy is removed.
readonly STAGE_RESERVE=${NBL_STAGE_RESERVE:-1048576} STAGE_DAYS=14

# Set stage_place to our folder on the node's own disk, and stage_limit to the space that copies may use there (KiB).
find_stage_place() {
  local place why='' usual=("${SLURM_TMPDIR-}" "${TMPDIR-}" /tmp /var/tmp)
  stage_limit=$((want_stage_limit * 1048576))
  [[ -z $want_stage_dir ]] || usual=("$want_stage_dir")
  for place in "${usual[@]}"; do
    [[ $place == /* ]] || continue
    place=$(realpath -e -- "$place" 2>/dev/null)
    [[ -d $place ]] || continue
    [[ $place != *[:,[:space:]]* ]] || { why="$place has a character that mounting cannot express"; continue; }
    # A folder named in the profile is not checked.
    [[ -n $want_stage_dir ]] || is_own_disk "$place" || { why="$place is no disk of this node"; continue; }
    is_guarded "$place" || { why="others could replace folders in $place"; continue; }
    stage_place=$place/notebook-launcher-stage-$UID
    (umask 077 && mkdir -- "$stage_place") 2>/dev/null
    [[ -d $stage_place && ! -L $stage_place && -O $stage_place ]] && is_closed "$stage_place" && return
    why="$stage_place is not yours alone"
  done
  not_staged "${why:-there is no folder ${want_stage_dir:-for temporary files} on $(uname -n)}"
  return 1
}

# Whether nobody else may enter. In a setgid folder, new folders have the setgid bit as well.
is_closed() { [[ $(stat -c %a -- "$1") =~ ^[0-7]?700$ ]]; }

# Whether a folder is on a local disk. In a tmpfs, a copy would use the job's memory, and on another shared file system
# it would have no advantage. What is below an overlay is not visible: on diskless nodes it is memory, and no larger
# than that.
is_own_disk() {
  local size memory
  case $(stat -f -c %T -- "$1" 2>/dev/null) in
    ext* | xfs | btrfs | zfs | f2fs) return ;;
    overlay*) ;;
    *) return 1 ;;
  esac
  read -r _ memory _ </proc/meminfo
  size=$(df -Pk -- "$1" 2>/dev/null | { read -r _; read -r _ size _; printf '%s' "$size"; })
  [[ $size =~ ^[0-9]+$ ]] && ((size > memory))
}

# is_guarded FOLDER: whether only root and we may rename entries in it and in the folders above.
is_guarded() {
  local folder=$1 owner mode
  while :; do
    read -r owner mode < <(stat -c '%u %a' -- "$folder" 2>/dev/null) || return
    [[ $owner == 0 || $owner == "$UID" ]] && (((8#$mode & 8#22) == 0 || (8#$mode & 8#1000) != 0)) || return
    [[ $folder != / ]] || return 0
    folder=${folder%/*}
    folder=${folder:-/}
  done
}

# has_room KIB: whether that much space and the reserve are free; in the folder stage_room, if that is set.
has_room() {
  local free
  free=$(df -Pk -- "${stage_room:-$stage_place}" 2>/dev/null | { read -r _; read -r _ _ _ free _; printf '%s' "$free"; })
  [[ $free =~ ^[0-9]+$ ]] && ((free >= $1 + STAGE_RESERVE))
}

# make_room KIB [FREE]: remove the least recently used copies until KIB fit below the limit, and KIB or FREE on the
# disk.
make_room() {
  local name used
  until used=$(kept_size) && ((used + $1 <= stage_limit)) && has_room "${2-$1}"; do
    while IFS= read -r name; do
      remove_unused "${name%/size}" && continue 2
    done < <(cd -- "$stage_place" && ls -tr -- */size 2>/dev/null)
    stage_why="the disk of $(uname -n) has no room for its $(($1 / 1024)) MiB"
    ((used + $1 <= stage_limit)) ||
      stage_why="its $(($1 / 1024)) MiB exceed the limit of $want_stage_limit GB for all copies on $(uname -n)"
    return 1
  done
}

# Print the size of all copies in KiB.
kept_size() {
  local file sum=0
  for file in "$stage_place"/*/size; do
    read_line "$file" && [[ $REPLY =~ ^[0-9]+$ ]] && ((sum += REPLY))
  done
  printf '%d' "$sum"
}

# remove_unused KEY: remove a copy unless a job uses it.
remove_unused() {
  local other code=1
  [[ $1 =~ ^[0-9a-f]{32}$ && $1 != "$key" ]] && { exec {other}>>"$stage_place/$1.lock"; } 2>/dev/null || return
  if flock -x -n "$other" && [[ /dev/fd/$other -ef $stage_place/$1.lock ]]; then
    mv -T -- "$stage_place/$1" "$stage_place/new-$1" 2>/dev/null
    remove_copy "$stage_place/new-$1"
    rm -f -- "$stage_place/$1.lock" "$stage_place/$1.done"
    code=0
  fi
  exec {other}>&-
  return "$code"
}

# Whether the copy exists and is complete. Programs that clean /tmp remove single old files.
is_whole() {
  local noted
  [[ $kind != folder ]] || content=content
  [[ $kind != folder || -z $squash || ! -e $stage_place/$key/content.sqfs ]] || content=content.sqfs
  [[ -e $stage_place/$key/$content ]] && read_line "$stage_place/$key/count" && [[ $REPLY =~ ^[0-9]+$ ]] || return
  noted=$REPLY
  count_in "$stage_place/$key/$content"
  [[ -z $REPLY ]] || ((REPLY >= noted))
}

# count_in PATH: set REPLY to the number of entries of a folder (nothing if counting takes too long) or of bytes of a
# file.
count_in() {
  if [[ ! -d $1 ]]; then
    REPLY=$(stat -c %s -- "$1")
    return
  fi
  REPLY=$(set -o pipefail; within 60 find "$1" -printf . 2>/dev/null | wc -c)
  (($? < 124)) || REPLY=''
}

# Flush a file or folder to its disk. Best effort: older versions of `sync` cannot do that for a single file system.
make_lasting() {
  within 120 sync -f -- "$1" 2>/dev/null || (($? >= 124)) || within 120 sync
  return 0
}

# remove_half_made FOLDER: remove the incomplete copies of this session's processes that were ended; FOLDER lists them.
remove_half_made() {
  local file tries half
  for file in "$1"/{copying,packing}-*; do
    read_line "$file" || continue
    rm -f -- "$file"
    if [[ $REPLY =~ ^/.*/\.[^/]*\.stage-[0-9a-f]{32}\.(tar|sqfs)\.new-[^/]+$ ]]; then
      [[ ! -f $REPLY || -L $REPLY || ! -O $REPLY ]] || rm -f -- "$REPLY"
    elif [[ $REPLY =~ ^/.*/notebook-launcher-stage-[0-9]+/new-[0-9a-f]{32}$ && -O $REPLY ]]; then
      half=$REPLY
      # Processes killed a moment ago may still hold the lock; or another job has started the copy again.
      for ((tries = 0; tries < 10; tries++)); do
        ! remove_half "$half" || break
        pause 0.05
      done
    fi
  done
}

# remove_half PATH/new-KEY: unless KEY is locked.
remove_half() {
  local other code=1 lock=${1%/*}/${1##*/new-}.lock
  { exec {other}>>"$lock"; } 2>/dev/null || return
  if flock -x -n "$other" && [[ /dev/fd/$other -ef $lock ]]; then
    remove_copy "$1"
    code=0
  fi
  exec {other}>&-
  return "$code"
}

# Permissions of an environment's files may keep even their owner from removing them at once.
remove_copy() {
  [[ -e $1 ]] || return 0
  rm -rf -- "$1" 2>/dev/null
  [[ -e $1 ]] || return 0
  chmod -R u+rwX -- "$1" 2>/dev/null
  rm -rf -- "$1"
}

# clean_stage KEY: remove copies not used for long, and incomplete ones of killed jobs; but not KEY, which is next.
clean_stage() {
  local path name
  for path in "$stage_place"/{new-*,*.lock}; do
    name=${path##*/} name=${name#new-} name=${name%.lock}
    [[ $path == */new-* || ! -e $stage_place/$name ]] && [[ -e $path ]] && remove_unused "$name"
  done
  while IFS= read -r path; do
    path=${path%/size}
    remove_unused "${path##*/}"
  done < <(find "$stage_place" -mindepth 2 -maxdepth 2 -name size -mtime "+$STAGE_DAYS" 2>/dev/null)
}
