#!/bin/bash
# Container images: records and checks the image of a session, and makes images.
#
#   image.sh note SESSION_DIR                      write SESSION_DIR/image.json: the image, with its digest
#   image.sh note-now SESSION_DIR                  the same, but not at low priority: somebody waits for it
#   image.sh check SESSION_DIR                     fail unless the image has the digest that session.env demands
#   image.sh build WORK_DIR IMAGE [force]          make IMAGE of WORK_DIR/definition.def
#   image.sh pull WORK_DIR IMAGE SOURCE [force]    make IMAGE of SOURCE, docker://… and the like
#
# The digest is the SHA-256 of the image's file. `build` and `pull` write it to IMAGE.json, with the size and
# modification time of the file: as long as these are the same, it is not computed again.
#
# `build` and `pull` print Apptainer's output, and finally `nbl-image WORK JSON`, `nbl-failed WORK SENTENCE` or
# `nbl-differs WORK DIGEST`, where WORK is the name of WORK_DIR. IMAGE is put in place atomically. WORK_DIR/session.env
# names modules, as a session's does.

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

main() {
  local here
  here=$(dirname -- "${BASH_SOURCE[0]}")
  # shellcheck source=jobscripts/lib/lib.sh
  source "$here/lib.sh"
  case ${1-} in build | pull)
    # shellcheck source=jobscripts/lib/build_steps.sh
    source "$here/build_steps.sh" ;;
  esac
  case ${1-} in
    note)      find_quiet_words; note "${2%/}" ;;
    note-now)  quietly=(); note "${2%/}" ;;
    check)     check "${2%/}" ;;
    build)     make_image "$2" "$3" '' "${4-}" ;;
    pull)      make_image "$2" "$3" "$4" "${5-}" ;;
    *)         printf 'usage: image.sh note|note-now|check SESSION_DIR, or build|pull WORK_DIR IMAGE …\n' >&2; exit 2 ;;
  esac
}

# =============================================================================================== a session's image

readonly SESSION_NAME='^[0-9]{8}-[0-9]{6}-[a-z2-7]{4}$'

# Written twice if the digest must be computed, which takes long for a large image: first with `null` in its place. It
# stays `null` if the image has been replaced since the job entered it.
note() {
  dir=$1
  find_job_id
  read_settings "$dir/session.env" 2>/dev/null # the job has already reported problems
  [[ -n $want_container ]] || return 0
  find_kind "$want_container"
  if [[ $kind != file ]] || was_replaced; then
    bytes=0 modified=0
    write_note
    return
  fi
  find_noted_digest "$want_container" || write_note
  take_digest "$want_container" && write_note
}

find_quiet_words() {
  quietly=(nice -n 19)
  ! type -P ionice >/dev/null || quietly+=(ionice -c 3)
}

# At normal priority, because somebody waits for it.
check() {
  dir=$1
  read_settings "$dir/session.env" 2>/dev/null
  [[ -n $want_digest ]] || return 0
  find_kind "$want_container"
  [[ $kind == file ]] || fail image-differs "$want_container is a $kind and no file, so that it cannot have the digest\
 ${want_digest:0:19}…, which the environment demands."
  find_noted_digest "$want_container" || log "taking the digest of $want_container, which the environment demands"
  quietly=()
  { : >"$dir/runtime/taking-digest"; } 2>/dev/null # JupyterLab's start-up time does not run meanwhile
  take_digest "$want_container" ||
    fail image-unreadable "The digest of $want_container could not be taken on $(uname -n)."
  rm -f -- "$dir/runtime/taking-digest"
  [[ $digest == "$want_digest" ]] || fail image-differs "The image $want_container is not the one that the environment\
 demands: its digest is ${digest:0:19}… and should be ${want_digest:0:19}…."
}

# Set kind to the kind of file that the name of an image refers to.
find_kind() {
  digest='' told_by='' bytes=0 modified=0 identity=''
  case $1 in
    *://*) kind=reference ;;
    *)     if [[ -d $1 ]]; then kind=directory; elif [[ -f $1 ]]; then kind='file'; else kind=name; fi ;;
  esac
  [[ $kind == file ]] || return 0
  read -r bytes modified < <(stat -L -c '%s %Y' -- "$1" 2>/dev/null)
  identity=$(identity_of "$1")
}

# Print what identifies a version of a file, even if its size and time were preserved. No device number, because that of
# a shared file system differs between nodes.
identity_of() { stat -L -c '%i-%s-%Y-%Z' -- "$1" 2>/dev/null; }

# The program that entered the image has recorded which file it was.
was_replaced() { read_line "$dir/runtime/image" && [[ $REPLY != "$identity" ]]; }

# Set digest to the one recorded for exactly this file: beside it, or by an earlier session of this user.
find_noted_digest() {
  local text=''
  [[ ! -f $1.json ]] || { IFS= read -r -n 16384 text <"$1.json"; } 2>/dev/null
  if [[ $text =~ \"bytes\":\ ?([0-9]+)[,}] && ${BASH_REMATCH[1]} == "$bytes" &&
    $text =~ \"modified\":\ ?([0-9]+)[,}] && ${BASH_REMATCH[1]} == "$modified" &&
    $text =~ \"digest\":\ ?\"(sha256:[0-9a-f]{64})\" ]]; then
    digest=${BASH_REMATCH[1]} told_by=$1.json
  elif read_own_note "$(noted_digest_file)" && [[ $REPLY =~ ^sha256:[0-9a-f]{64}$ ]]; then
    digest=$REPLY told_by='an earlier session'
  fi
  [[ -n $digest ]]
}

# read_own_note FILE: set REPLY to its first line, if it is ours and in a folder where nobody else may write: the
# sessions' folder may be shared. The open file is checked, because its name may refer to another one meanwhile.
read_own_note() {
  local note own=''
  REPLY=''
  [[ -n $1 && -O ${1%/*} && ! -L ${1%/*} && $(stat -c %a -- "${1%/*}" 2>/dev/null) == 700 ]] || return 1
  { exec {note}<"$1"; } 2>/dev/null || return 1
  [[ ! -O /dev/fd/$note ]] || own=yes
  IFS= read -r REPLY <&"$note"
  exec {note}<&-
  [[ -n $own && -n $REPLY ]]
}

# take_digest FILE: set digest if it is not known yet, with the words of `quietly` before the command; not if the file
# changes meanwhile.
take_digest() {
  local sum file image
  [[ -z $digest ]] || return 0
  { exec {image}<"$1"; } 2>/dev/null || return 1
  [[ $(identity_of "/dev/fd/$image") == "$identity" ]] && sum=$("${quietly[@]}" sha256sum <&"$image") &&
    [[ $sum =~ ^([0-9a-f]{64}) && $(identity_of "/dev/fd/$image") == "$identity" ]] || sum=''
  exec {image}<&-
  [[ -n $sum ]] || return 1
  digest=sha256:${sum:0:64} told_by='this session'
  file=$(noted_digest_file)
  if [[ -n $file ]] && (umask 077 && mkdir -p -- "${file%/*}") 2>/dev/null; then
    write_file "$file" "$digest"
    forget_old_digests "${file%/*}"
  fi
}

# Print the path at which this file's digest is saved for later sessions: beside the sessions, if this is one.
noted_digest_file() {
  [[ ! ${dir##*/} =~ $SESSION_NAME ]] || printf '%s' "${dir%/*}/image-digests/$identity"
}

# forget_old_digests FOLDER: keep the newest hundred.
forget_old_digests() {
  local name number=0
  while IFS= read -r name; do
    [[ ! $name =~ ^[0-9-]+$ ]] || ((++number <= 100)) || rm -f -- "$1/$name"
  done < <(ls -t -- "$1" 2>/dev/null)
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

# Free space in KiB that a folder for the unpacked image should have.
readonly ENOUGH_ROOM=$((20 * 1024 * 1024))
readonly ROOM=notebook-launcher-image

make_image() {
  local image=$2 source=$3 force=$4
  work=$1 child='' temporary='' room=''
  NBL_CAUSE_FILE=$work/cause
  trap 'stopped' TERM INT HUP
  trap 'tidy_up' EXIT
  find_job_id
  read_settings "$work/session.env"
  (load_modules) || give_up "$(cause_of_failure)"
  load_modules
  find_builder
  find_room "$work"
  refuse_existing "$image" "$force"
  remove_old_halves "$image"
  temporary=${image%/*}/.${image##*/}.${work##*/}
  mkdir -p -- "${image%/*}" || give_up "The folder ${image%/*} cannot be made on $(uname -n)."
  export APPTAINER_TMPDIR=$room SINGULARITY_TMPDIR=$room
  export APPTAINER_CACHEDIR=${APPTAINER_CACHEDIR:-$room/cache} SINGULARITY_CACHEDIR=${SINGULARITY_CACHEDIR:-$room/cache}
  printf 'by %s on %s, in %s\n' "$("$builder" --version 2>/dev/null)" "$(uname -n)" "$room"
  if [[ -n $source ]]; then
    follow "$builder" pull --force "$temporary" "$source"
  else
    # In the definition's folder, because its %files may contain relative paths.
    cd -- "$work" || give_up "The folder $work cannot be entered."
    follow "$builder" build "${build_options[@]}" --force "$temporary" definition.def
  fi || give_up "${builder##*/} ended with exit code $? on $(uname -n)."
  [[ -s $temporary ]] || give_up "${builder##*/} made no image on $(uname -n)."
  put_in_place "$temporary" "$image" "$force"
}

# Only these two programs make SIF images.
find_builder() {
  local name
  build_options=()
  for name in apptainer singularity; do builder=$(type -P "$name") && break; done
  [[ -n $builder ]] || give_up "There is neither apptainer nor singularity on $(uname -n), which make images."
  # Apptainer chooses itself how an unprivileged user builds; Singularity needs a flag.
  [[ $("$builder" --version 2>/dev/null) == *apptainer* ]] || build_options=(--fakeroot)
}

# Set room to a new folder for unpacking an image: on the node itself if there is enough space, otherwise where most is.
find_room() {
  local place free most=-1 best=''
  for place in "${SLURM_TMPDIR-}" "${TMPDIR-}" /tmp /var/tmp "$1"; do
    [[ -n $place && -d $place && -w $place ]] || continue
    free=$(df -Pk -- "$place" 2>/dev/null | { read -r _; read -r _ _ _ free _; printf '%s' "$free"; })
    [[ $free =~ ^[0-9]+$ ]] || free=0
    # Files in a tmpfs use the job's memory.
    [[ $(stat -f -c %T -- "$place" 2>/dev/null) != tmpfs ]] || free=$((free / 1000))
    if ((free > most)); then most=$free best=$place; fi
    ((free < ENOUGH_ROOM)) || break
  done
  remove_old_rooms "$best/$ROOM-$(uname -n)"
  room=$(mktemp -d -- "$best/$ROOM-$(uname -n)-$$-XXXXXXXX") ||
    give_up "There is no folder for temporary files on $(uname -n)."
}

# remove_old_rooms START: remove those on this node that were left behind because their process was killed.
remove_old_rooms() {
  local folder maker
  for folder in "$1"-*-*; do
    maker=${folder#"$1"-} maker=${maker%-*}
    [[ -O $folder && -d $folder && ! -L $folder && $maker =~ ^[0-9]+$ ]] && ! kill -0 "$maker" 2>/dev/null &&
      remove_room "$folder"
  done
}

# remove_old_halves IMAGE: remove incomplete files of other builds that have not changed for a day.
remove_old_halves() {
  local half
  touch -d '1 day ago' -- "$work/yesterday" 2>/dev/null || return 0
  for half in "${1%/*}/.${1##*/}".image-*; do
    [[ ! -f $half || ! -O $half || ! $half -ot $work/yesterday ]] || rm -f -- "$half"
  done
}

refuse_existing() {
  [[ ! -d $1 ]] || give_up "$1 is a folder; name a file."
  [[ ! -e $1 && ! -L $1 || $2 == force ]] || give_up "There is an image $1 already; --force replaces it."
}

# If the launcher requires a digest (WORK_DIR/digest), reject other images: no session would start in them.
refuse_other_digest() {
  read_line "$work/digest" && [[ $REPLY != "$digest" ]] || return 0
  tidy_up
  tell_launcher differs "$digest"
  exit 1
}

put_in_place() {
  local new=$1 image=$2 image_name source by definition=null force=-n
  # shellcheck disable=SC2016
  follow "$BASH" -c 'sha256sum <"$1" >"$2"' bash "$new" "$work/sum"
  read_line "$work/sum"
  [[ $REPLY =~ ^([0-9a-f]{64}) ]] || give_up "The new image cannot be read."
  digest=sha256:${BASH_REMATCH[1]}
  refuse_other_digest
  read -r bytes modified < <(stat -c '%s %Y' -- "$new")
  [[ ! -r $work/definition.def ]] || definition=\"sha256:$(sha256sum <"$work/definition.def" | cut -c 1-64)\"
  read_line "$work/source"
  json_string "$REPLY"
  source=$REPLY
  json_string "$(id -un)"
  by=$REPLY
  json_string "$image"
  image_name=$REPLY
  utc_now
  note="{\"version\":1,\"image\":$image_name,\"digest\":\"$digest\",\"bytes\":$bytes,\"modified\":$modified,\
\"source\":$source,\"definition\":$definition,\"made\":\"$REPLY\",\"by\":$by,\"node\":\"$(uname -n)\"}"
  refuse_existing "$image" "$3"
  [[ $3 != force ]] || force=-f
  stop_if_asked
  # Not into a folder, and not over an image that somebody else has created meanwhile.
  { mv "$force" -T -- "$new" "$image" && [[ ! -e $new ]]; } || give_up "The image could not be put in place as $image."
  temporary=''
  # Everybody who may read the image may read its digest.
  if write_file "$image.json" "$note"; then chmod --reference="$image" -- "$image.json"; chmod a-x -- "$image.json"; fi
  tidy_up
  tell_launcher image "$note"
}

# shellcheck disable=SC2317
tidy_up() {
  [[ -z $child ]] || end_child
  [[ -z $temporary ]] || rm -f -- "$temporary"
  temporary=''
  [[ -n $room ]] || return 0
  remove_room "$room"
  room=''
}

# Permissions of an image's files may keep even their owner from removing them at once.
remove_room() {
  chmod -R u+rwX -- "$1" 2>/dev/null
  rm -rf -- "$1"
}

main "$@"
exit
