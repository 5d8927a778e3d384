#!/bin/bash
# The remote end of `launch-notebook copy`. It is not installed: it is sent over standard input, before the data.
#
#   bash -c 'LC_ALL=C; export LC_ALL; IFS= read -r -d "" script; eval "$script"'
#
# Standard input: this file; the number of words that follow; the words, which are one of the verbs below and its
# arguments; each ended by a null byte, because a name may contain any other byte. Then the verb's data, until the end.
# Standard output: the verb's answer; a null byte; its exit code, a space, and the error messages.
#
# A file is written under a hidden name (a "part") with mode 0600, and gets its own name when it is complete.
#
# In a folder to which others may write, anybody can replace a folder or file by a link between two steps. Nothing is
# changed through such a name: a folder is entered, and then it is checked where that led; a file is opened, and then it
# is checked what was opened. From then on, names are not used.

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

set -u -o pipefail
unset TAR_OPTIONS POSIXLY_CORRECT BLOCK_SIZE DF_BLOCK_SIZE CDPATH

readonly THERE_ALREADY=17 MOST_SAID=2000

main() {
  local count word words=() said code
  users_umask=$(umask)
  IFS= read -r -d '' count
  while ((count-- > 0)) && IFS= read -r -d '' word; do words+=("$word"); done
  exec 3>&1
  said=$("verb_${words[0]}" "${words[@]:1}" 2>&1 >&3 3>&-)
  code=$?
  printf '\0%d %s\n' "$code" "${said:0:MOST_SAID}"
}

# Set path to the absolute path; relative paths and ~ begin at the home.
find_path() {
  path=$1
  [[ $path == \~ || $path == \~/* ]] && path=$HOME${path:1}
  [[ $path == /* ]] || path=$HOME/$path
  while [[ $path == ?*/ ]]; do path=${path%/}; done
}

# Resolve the links in path, except for its last name: tar does not accept names with .. in them.
take_links_out() {
  local last=${path##*/} folder=${path%/*}
  if [[ $last == . || $last == .. ]]; then last='' folder=$path; fi
  folder=$(cd -P -- "$folder/." && pwd -P && printf x) || return
  folder=${folder%$'\nx'}
  path=$folder
  [[ -z $last ]] || path=${folder%/}/$last
}

# Enter the folder of this absolute path, which had no links in it when it was resolved: fails if it has one now. The
# external pwd is used, because bash's own remembers names.
enter() {
  local here
  cd -P -- "$1" || return
  here=$(env pwd -P && printf x) || return
  [[ ${here%$'\nx'} == "$1" ]] || give_up "$1 has been replaced"
}

# Create a new hidden folder that is closed to others, and enter it. It stays open as $stage. Folders of copies that
# were killed more than a day ago are removed.
readonly stage=/proc/self/fd/8
enter_new_stage() {
  enter "$1" || return
  find . -maxdepth 1 -name '.copy.part-??????????' -type d -uid "$EUID" -mmin +1440 -exec rm -rf {} + 2>/dev/null
  mkdir -m 700 -- "./$2" && enter_stage "$1" "$2"
}

enter_stage() {
  enter "${1%/}/$2" || return
  # in a setgid folder of a project, a new folder has the setgid bit as well
  [[ -O . && $(stat -c %a .) =~ ^2?700$ ]] || give_up "$2 has been replaced" || return
  exec 8<.
}

# Enter the folder of an entry below the base, and set last to the entry's name there.
enter_folder_of() {
  local whole=${1%/}/$2
  last=${whole##*/} whole=${whole%/*}
  enter "${whole:-/}"
}

# Print what identifies an open file or folder in its file system. No device number, which differs between machines.
identity() { stat -L -c %i -- "$1"; }

# Hash standard input. OpenSSL is three times as fast as many a sha256sum.
digest() {
  local known=2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881 # the hash of "x"
  if [[ $(printf x | openssl dgst -sha256 -r 2>/dev/null) == "$known"* ]]; then
    openssl dgst -sha256 -r
  else
    sha256sum
  fi
}

# list PATH...: what can be copied. For each path S and its absolute form (M: missing), then for each entry in it E,
# readable (y, n), type, type of a link's target, mode, bytes, time, path below, link; and for links to files L, mode,
# bytes, time, absolute path. All fields end in null bytes.
verb_list() {
  local path
  for path; do
    find_path "$path"
    if [[ ! -e $path ]]; then
      printf 'M\0%s\0' "$path"
      continue
    fi
    take_links_out || return
    printf 'S\0%s\0' "$path"
    find -H "$path" \( -readable -printf 'E\0y\0' -o -printf 'E\0n\0' \) \
      -printf '%y\0%Y\0%m\0%s\0%T@\0%P\0%l\0'
    find -H "$path" -type l -xtype f -print0 2>/dev/null |
      xargs -0 -r stat -L --printf 'L\0%a\0%s\0%Y\0%n\0' --
  done
  return 0 # find has reported what it could not read
}

# target PATH: what is at the destination (d, f, o; - for nothing, ? if not even its folder exists), its path without
# links, whether its folder is writable (y, n), its identity, and df's line for it.
verb_target() {
  local path real kind=- folder writable=n
  find_path "$1"
  real=$(readlink -f -n -- "$path" && printf x) || { printf '?\0%s\0n\0\0\0' "$path"; return 0; }
  real=${real%x}
  if [[ -d $real ]]; then kind=d; elif [[ -f $real ]]; then kind=f; elif [[ -e $real ]]; then kind=o; fi
  folder=$real
  [[ $kind == d ]] || folder=${real%/*}
  [[ -w ${folder:-/} && -x ${folder:-/} ]] && writable=y
  printf '%s\0%s\0%s\0%s\0' "$kind" "$real" "$writable" "$(identity "$real" 2>/dev/null)"
  df -P -k -- "${folder:-/}" 2>/dev/null | tail -n 1 | tr '\n' '\0'
  return 0
}

# stats (names as data): mode in hexadecimal, bytes and name of those that exist.
verb_stats() {
  xargs -0 -r stat -L --printf '%f\0%s\0%n\0' -- 2>/dev/null
  return 0
}

# links (names as data): the links' targets; o if it is not a link, - for nothing; each followed by its name.
verb_links() {
  local name to
  while IFS= read -r -d '' name; do
    if [[ -L $name ]]; then
      to=$(readlink -n -- "$name" && printf x)
      printf 'l%s\0%s\0' "${to%x}" "$name"
    elif [[ -e $name ]]; then
      printf 'o\0%s\0' "$name"
    else
      printf -- '-\0%s\0' "$name"
    fi
  done
}

# hashes (names as data): sha256sum's lines.
verb_hashes() { xargs -0 -r sha256sum --; }

# beginning FILE COUNT: the hash of its first bytes.
verb_beginning() { head -c "$2" -- "$1" | digest; }

# get FILE OFFSET COUNT: that many bytes of it, and a line: their hash, and the file's size and time afterwards.
# The file is read twice at the same time, because tee with its small buffers would be the bottleneck.
verb_get() {
  local hash
  exec 6>&1
  hash=$(
    bytes "$1" "$2" "$3" >&6 &
    bytes "$1" "$2" "$3" | digest || exit
    wait "$!"
  ) || return
  printf '%s %s\n' "${hash:0:64}" "$(stat -L -c '%s %Y' -- "$1")"
}

bytes() { dd if="$1" bs=1M iflag=skip_bytes,count_bytes skip="$2" count="$3" status=none; }

# Whether it is a regular file with a single name, and whether an attempt of this user created it: in a shared folder,
# anybody may have put a file or link there.
is_plain() { [[ ! -L $1 && -f $1 && $(stat -c %h -- "$1") == 1 ]]; }
is_part() { is_plain "$1" && [[ -O $1 && $(stat -c %a -- "$1") == 600 ]]; }

give_up() {
  printf '%s\n' "$1" >&2
  return 1
}

# part FILE: its bytes, if an attempt may continue from there.
verb_part() { if is_part "$1"; then stat -c %s -- "$1"; fi; }

# put FOLDER PART OFFSET COUNT (bytes as data): write them into the part at that offset, and print its size, its
# identity and, first, once it is large enough, the hash of the bytes from that offset on. Always at a fixed position,
# and at offset 0 into a new file, because an earlier attempt may still be writing.
verb_put() {
  local hash='' size open=/dev/fd/7
  umask 077
  enter "$1" || return
  if [[ $3 == 0 ]]; then
    set -C # creates a new file, never opens one that somebody has just put there
    rm -f -- "./$2" && exec 7>"./$2" && [[ -f $open ]] || return
    chmod 600 $open # a folder's default ACL may give its files more permissions
  else
    is_part "./$2" && exec 7<>"./$2" && is_part "./$2" && [[ ./$2 -ef $open && $(stat -L -c %s $open) -ge $3 ]] ||
      give_up "$2 has been replaced" || return
  fi
  dd bs=256K seek="$3" oflag=seek_bytes conv=notrunc status=none >&7 || return
  [[ ./$2 -ef $open ]] || give_up "$2 has been replaced, by another copy maybe" || return
  size=$(stat -L -c %s $open) || return
  if ((size == $3 + $4)); then hash=$(bytes $open "$3" "$4" | digest) || return; fi
  printf '%s %s %s\n' "${hash:0:64}" "$size" "$(identity $open)"
}

# place FOLDER PART NAME BYTES MODE TIME FORCE IDENTITY: a complete part, if it is still the file that was written, gets
# its mode (under the umask), its time and its name.
verb_place() {
  local how=-n open=/dev/fd/7
  [[ $7 == yes ]] && how=-f
  enter "$1" || return
  # for reading and writing, which does not block if it has been replaced by a pipe
  is_plain "./$2" && exec 7<>"./$2" && [[ $(identity $open) == "$8" && $(stat -L -c %s $open) == "$4" ]] ||
    give_up "$2 has been replaced" || return
  touch -d "@$6" -- $open && chmod "$(masked "$5")" $open || return
  exec 7<&-
  if mv "$how" -T -- "./$2" "./$3" && [[ ! -e ./$2 ]]; then return 0; fi
  [[ $how == -n && (-e ./$3 || -L ./$3) ]] && return "$THERE_ALREADY"
  return 1
}

masked() { printf '%o' "$((8#$1 & 8#777 & ~8#$users_umask))"; }

# unpack BASE STAGE (a tar archive as data): unpack it into a new hidden folder, and hash all files in it.
verb_unpack() {
  enter_new_stage "$1" "$2" || return
  if ! tar -x -f - --no-same-owner --no-same-permissions; then
    cd .. && rm -rf -- "./$2"
    return 1
  fi
  cat >/dev/null
  find . -type f -print0 | xargs -0 -r sha256sum --
}

# settle BASE STAGE FORCE (names as data): move unpacked files to their places. Printed, in three words each: L, -, name
# of those that were not moved; T, bytes, name of those that were.
verb_settle() {
  local folder into how=-n
  [[ $3 == yes ]] && how=-f
  enter_stage "$1" "$2" || return
  while IFS= read -r -d '' folder; do
    into=${1%/}${folder#.}
    enter "${into:-/}" || return
    find "$stage/$folder" -maxdepth 1 -type f -print0 | xargs -0 -r mv "$how" -t . --
  done < <(find . -type f -printf '%h\0' | sort -z -u)
  enter_stage "$1" "$2" || return
  find . -type f -printf 'L\0-\0%p\0'
  cd .. && rm -rf -- "./$2"
  xargs -0 -r stat --printf 'T\0%s\0%n\0' -- 2>/dev/null
  return 0
}

# pack (absolute names without their first slash as data): a tar archive of these files; of links, their targets.
verb_pack() { tar -c -f - --format=gnu -h --hard-dereference --no-recursion -C / --null -T -; }

# results SESSION MOST NAME...: the results of a run, by their paths below the session's directory: bytes, time and path
# of the named files that exist, then of at most MOST files in its folder. No link is followed.
verb_results() {
  local most=$2 size at name
  cd -- "$1" || return
  shift 2
  for name; do
    find "$name" -maxdepth 0 -type f -printf '%s\0%T@\0%p\0' 2>/dev/null
  done
  find work -xdev \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -o \
    -type f -printf '%s\0%T@\0%p\0' 2>/dev/null |
    while ((most-- > 0)) && IFS= read -r -d '' size && IFS= read -r -d '' at && IFS= read -r -d '' name; do
      printf '%s\0%s\0%s\0' "$size" "$at" "$name"
    done
  return 0
}

# folders BASE STAGE (mode, name as data, parents first): create missing ones, with their modes under the umask;
# printed: the identity and the name of each. They are created in a hidden folder, and moved with all that is below
# them.
verb_folders() {
  local code
  make_folders "$@"
  code=$?
  enter "$1" && rm -rf -- "./$2"
  return "$code"
}

make_folders() {
  local mode name index last which modes=() names=()
  local -A is_new=() is_ours=() identities=()
  while IFS= read -r -d '' mode && IFS= read -r -d '' name; do modes+=("$mode") names+=("$name") is_new[$name]=yes; done
  enter_new_stage "$1" "$2" && printf '%s\0' "${names[@]}" | xargs -0 mkdir -p -- || return
  for mode in $(printf '%s\n' "${modes[@]}" | sort -u); do
    for index in "${!names[@]}"; do
      [[ ${modes[index]} != "$mode" ]] || printf '%s\0' "${names[index]}"
    done | xargs -0 chmod "$(masked "$mode")" -- || return
  done
  while IFS= read -r -d '' which && IFS= read -r -d '' name; do
    identities[$name]=$which
  done < <(printf '%s\0' "${names[@]}" | xargs -0 stat --printf '%i\0%n\0' --)
  for name in "${names[@]}"; do
    if [[ $name == */* && -n ${is_new[${name%/*}]-} ]]; then
      is_ours[$name]=yes # moved with its parent
      continue
    fi
    enter_folder_of "$1" "$name" || return
    if [[ -d ./$last && ! -L ./$last ]]; then
      is_new[$name]='' # somebody else has created it meanwhile; its subfolders may be missing there
    else
      mv -nT -- "$stage/$name" "./$last" || return
      is_ours[$name]=yes
    fi
  done
  for name in "${!is_ours[@]}"; do printf '%s\0%s\0' "${identities[$name]-}" "$name"; done
}

# modes BASE (mode, identity, name as data): set the modes of these folders, under the umask; a folder that has replaced
# one of them keeps its own.
verb_modes() {
  local mode which name
  while IFS= read -r -d '' mode && IFS= read -r -d '' which && IFS= read -r -d '' name; do
    enter "${1%/}/$name" || return
    if [[ $(identity .) == "$which" ]]; then chmod "$(masked "$mode")" . || return; fi
  done
}

# tie BASE FORCE (link, name as data): create links; one that exists already may be from an interrupted attempt.
verb_tie() {
  local link name last at=/ how=-sT
  [[ $2 == yes ]] && how=-sfnT
  while IFS= read -r -d '' link && IFS= read -r -d '' name; do
    last=${name##*/}
    if [[ ${name%"$last"} != "$at" ]]; then # a folder with many links is entered only once
      enter_folder_of "$1" "$name" || return
      at=${name%"$last"}
    fi
    [[ -L ./$last && $(readlink -n -- "./$last" && printf x) == "${link}x" ]] ||
      ln "$how" -- "$link" "./$last" || return
  done
}

main
