#!/bin/bash
# Container images: which one a session runs in, and how one is made.
#
#   image.sh note SESSION_DIR                      write SESSION_DIR/image.json: the image, with its digest
#   image.sh check SESSION_DIR                     fail unless the image has the digest that session.env demands
#   image.sh build WORK_DIR IMAGE [force]          make IMAGE of WORK_DIR/definition.def
#   image.sh pull WORK_DIR IMAGE SOURCE [force]    make IMAGE of SOURCE, docker://… and the like
#
# The digest is the SHA-256 of the image's file. Whoever makes an image here leaves it beside it, in IMAGE.json, with
# the size and the time of change of the file that it was taken of: as long as these are the same it is not taken again.
#
# `build` and `pull` print what the container command says, and at last `nbl-image JSON` or `nbl-failed SENTENCE`. IMAGE
# is put in place whole. What runs in the image that was there goes on with that one. WORK_DIR/session.env names modules
# and the container command, as a session's does.

main() {
  local here
  here=$(dirname -- "${BASH_SOURCE[0]}")
  # shellcheck source=jobscripts/lib.sh
  source "$here/lib.sh"
  case ${1-} in
    note)   note "${2%/}" ;;
    check)  check "${2%/}" ;;
    build)  make_image "$2" "$3" '' "${4-}" ;;
    pull)   make_image "$2" "$3" "$4" "${5-}" ;;
    *)      printf 'usage: image.sh note|check SESSION_DIR, or build|pull WORK_DIR IMAGE …\n' >&2; exit 2 ;;
  esac
}

# =============================================================================================== a session's image

readonly SESSION_NAME='^[0-9]{8}-[0-9]{6}-[a-z2-7]{4}$'

# Written twice where the digest must be taken first, which takes a while with a large image: then `null` stands for it.
note() {
  dir=$1
  find_job_id
  read_settings "$dir/session.env" 2>/dev/null # the job has said what there is to say
  [[ -n $want_container ]] || return 0
  find_kind "$want_container"
  [[ $kind == file ]] || { write_note; return; }
  find_noted_digest "$want_container" || write_note
  take_digest "$want_container" && write_note
}

check() {
  dir=$1
  read_settings "$dir/session.env" 2>/dev/null
  [[ -n $want_digest ]] || return 0
  find_kind "$want_container"
  [[ $kind == file ]] || fail image-differs "$want_container is a $kind and no file, so that it cannot have the digest\
 ${want_digest:0:19}…, which the environment demands."
  find_noted_digest "$want_container" || log "taking the digest of $want_container, which the environment demands"
  take_digest "$want_container" ||
    fail image-unreadable "The digest of $want_container could not be taken on $(uname -n)."
  [[ $digest == "$want_digest" ]] || fail image-differs "The image $want_container is not the one that the environment\
 demands: its digest is ${digest:0:19}… and should be ${want_digest:0:19}…."
}

# Set kind to what stands behind the name of an image.
find_kind() {
  digest='' told_by='' bytes=0 modified=0
  case $1 in
    *://*) kind=reference ;;
    *)     if [[ -d $1 ]]; then kind=directory; elif [[ -f $1 ]]; then kind='file'; else kind=name; fi ;;
  esac
  [[ $kind != file ]] || read -r bytes modified inode < <(stat -L -c '%s %Y %i' -- "$1" 2>/dev/null)
}

# Set digest to what was noted of this very file: beside it, or by an earlier session of this user.
find_noted_digest() {
  local text
  { IFS= read -r text <"$1.json"; } 2>/dev/null
  if [[ $text =~ \"bytes\":\ ?([0-9]+)[,}] && ${BASH_REMATCH[1]} == "$bytes" &&
    $text =~ \"modified\":\ ?([0-9]+)[,}] && ${BASH_REMATCH[1]} == "$modified" &&
    $text =~ \"digest\":\ ?\"(sha256:[0-9a-f]{64})\" ]]; then
    digest=${BASH_REMATCH[1]} told_by=$1.json
  elif read_line "$(noted_digest_file)" && [[ $REPLY =~ ^sha256:[0-9a-f]{64}$ ]]; then
    digest=$REPLY told_by='an earlier session'
  fi
  [[ -n $digest ]]
}

# take_digest FILE: set digest where it is not known yet, behind everything else that wants the node and its disks.
take_digest() {
  local quietly=() sum file
  [[ -z $digest ]] || return 0
  type -P ionice >/dev/null && quietly=(ionice -c 3)
  sum=$(nice -n 19 "${quietly[@]}" sha256sum <"$1")
  [[ $sum =~ ^([0-9a-f]{64}) ]] || return 1
  digest=sha256:${BASH_REMATCH[1]} told_by='this session'
  file=$(noted_digest_file)
  if [[ -n $file ]] && (umask 077 && mkdir -p -- "${file%/*}") 2>/dev/null; then write_file "$file" "$digest"; fi
}

# Print where the digest of this file is kept for later sessions: beside the sessions, where we are in one.
noted_digest_file() {
  [[ ! ${dir##*/} =~ $SESSION_NAME ]] || printf '%s' "${dir%/*}/image-digests/$inode-$bytes-$modified"
}

write_note() {
  local image by known=null
  json_string "$want_container"
  image=$REPLY
  json_string "$told_by"
  by=$REPLY
  [[ -z $digest ]] || known=\"$digest\"
  write_file "$dir/image.json" "{\"version\":1,\"job\":\"$job_id\",\"image\":$image,\"kind\":\"$kind\",\
\"digest\":$known,\"bytes\":$bytes,\"modified\":$modified,\"told_by\":$by}"
}

# ================================================================================================= making an image

# Free space, in KiB, that a place for the unpacked image should have.
readonly ENOUGH_ROOM=$((20 * 1024 * 1024))

make_image() {
  local work=$1 image=$2 source=$3 force=$4
  child='' temporary='' room=''
  NBL_CAUSE_FILE=$work/cause
  dir=$work
  trap 'stopped' TERM INT HUP
  trap 'tidy_up' EXIT
  find_job_id
  read_settings "$work/session.env"
  (load_modules) || give_up "$(cause_of_failure)"
  load_modules
  find_builder
  find_room "$work"
  refuse_existing "$image" "$force"
  temporary=${image%/*}/.${image##*/}.${work##*/}
  mkdir -p -- "${image%/*}" || give_up "The folder ${image%/*} cannot be made on $(uname -n)."
  export APPTAINER_TMPDIR=$room SINGULARITY_TMPDIR=$room
  export APPTAINER_CACHEDIR=${APPTAINER_CACHEDIR:-$room/cache} SINGULARITY_CACHEDIR=${SINGULARITY_CACHEDIR:-$room/cache}
  printf 'by %s on %s, in %s\n' "$("$builder" --version 2>/dev/null)" "$(uname -n)" "$room"
  if [[ -n $source ]]; then
    follow "$builder" pull --force "$temporary" "$source"
  else
    # Beside the definition, as its %files may name them.
    cd -- "$work" || give_up "The folder $work cannot be entered."
    follow "$builder" build "${build_options[@]}" --force "$temporary" definition.def
  fi || give_up "${builder##*/} ended with exit code $? on $(uname -n)."
  [[ -s $temporary ]] || give_up "${builder##*/} made no image on $(uname -n)."
  put_in_place "$temporary" "$image" "$force"
}

# Images of the usual kind are made by these two alone.
find_builder() {
  local name
  build_options=()
  for name in apptainer singularity; do builder=$(type -P "$name") && break; done
  [[ -n $builder ]] || give_up "There is neither apptainer nor singularity on $(uname -n), which make images."
  # Apptainer finds by itself how an ordinary user builds; its sister wants to be told.
  [[ $("$builder" --version 2>/dev/null) == *apptainer* ]] || build_options=(--fakeroot)
}

# Set room to a folder of our own where an image is unpacked: on the node itself if there is space, else where most is.
find_room() {
  local place free most=-1 best=''
  for place in "${SLURM_TMPDIR-}" "${TMPDIR-}" /tmp /var/tmp "$1"; do
    [[ -n $place && -d $place && -w $place ]] || continue
    free=$(df -Pk -- "$place" 2>/dev/null | { read -r _; read -r _ _ _ free _; printf '%s' "$free"; })
    [[ $free =~ ^[0-9]+$ ]] || free=0
    # What lies in memory is the job's memory.
    [[ $(stat -f -c %T -- "$place" 2>/dev/null) != tmpfs ]] || free=$((free / 1000))
    if ((free > most)); then most=$free best=$place; fi
    ((free < ENOUGH_ROOM)) || break
  done
  room=$(mktemp -d -- "$best/image-XXXXXXXX") || give_up "There is no folder for temporary files on $(uname -n)."
}

refuse_existing() {
  [[ ! -e $1 || $2 == force ]] || give_up "There is an image $1 already; --force replaces it."
}

# follow COMMAND...: run it in a process group of its own, with its output on ours, until it ends. Or until WORK_DIR/stop
# is there: where a scheduler ends the step of a job, that comes without a warning.
follow() {
  local code
  set -m
  "$@" </dev/null 2>&1 &
  child=$!
  set +m
  while kill -0 "$child" 2>/dev/null; do
    [[ ! -e $dir/stop ]] || stopped
    pause 0.3
  done
  wait "$child"
  code=$?
  child=''
  return "$code"
}

put_in_place() {
  local new=$1 image=$2 sum source definition=null
  sum=$(sha256sum <"$new")
  [[ $sum =~ ^([0-9a-f]{64}) ]] || give_up "The new image cannot be read."
  digest=sha256:${BASH_REMATCH[1]}
  read -r bytes modified < <(stat -c '%s %Y' -- "$new")
  [[ ! -r $dir/definition.def ]] || definition=\"sha256:$(sha256sum <"$dir/definition.def" | cut -c 1-64)\"
  read_line "$dir/source"
  json_string "$REPLY"
  source=$REPLY
  json_string "$image"
  note="{\"version\":1,\"image\":$REPLY,\"digest\":\"$digest\",\"bytes\":$bytes,\"modified\":$modified,\
\"source\":$source,\"definition\":$definition,\"made\":\"$(utc_now)\",\"by\":\"$(id -un)\",\"node\":\"$(uname -n)\"}"
  refuse_existing "$image" "$3"
  mv -f -- "$new" "$image" || give_up "The image could not be put in place as $image."
  temporary=''
  # Who may read the image may read what it is.
  if write_file "$image.json" "$note"; then chmod --reference="$image" -- "$image.json"; chmod a-x -- "$image.json"; fi
  tidy_up
  printf 'nbl-image %s\n' "$note"
}

# Tidied up before the last word: whoever reads it ends us.
give_up() {
  tidy_up
  printf 'nbl-failed %s\n' "$1"
  exit 1
}

cause_of_failure() {
  if read_line "$NBL_CAUSE_FILE"; then printf '%s' "${REPLY#* }"; else printf 'The modules could not be loaded.'; fi
}

# shellcheck disable=SC2317  # called by the traps
stopped() {
  trap '' TERM INT HUP
  exit 143
}

# shellcheck disable=SC2317
tidy_up() {
  [[ -z $child ]] || end_child
  [[ -z $temporary ]] || rm -f -- "$temporary"
  temporary=''
  [[ -n $room ]] || return 0
  # Files of an image may be such that even their owner cannot remove them at once.
  chmod -R u+rwX -- "$room" 2>/dev/null
  rm -rf -- "$room"
  room=''
}

# shellcheck disable=SC2317
end_child() {
  local tries
  kill -TERM -- "-$child" 2>/dev/null
  for ((tries = 0; tries < 30; tries++)); do
    kill -0 -- "-$child" 2>/dev/null || return 0
    pause 0.1
  done
  kill -KILL -- "-$child" 2>/dev/null
}

main "$@"
exit
