#!/bin/bash
# The far end of `launch-notebook copy`. Nothing of it is installed: it comes over the standard input, before the data.
#
#   bash -c 'LC_ALL=C; export LC_ALL; IFS= read -r -d "" script; eval "$script"'
#
# Standard input: this file; how many words follow; the words, which are one of the verbs below and its arguments; each
# ended by a null byte, because a name may have any other byte in it. Then the verb's data, until the end.
# Standard output: the verb's answer; a null byte; its exit code, a space, and what was said as an error.
#
# A file is written under a hidden name (a "part") with mode 0600, and gets its own name when it is complete.

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

# Put the absolute path into $path: relative ones begin at home, as does ~.
find_path() {
  path=$1
  [[ $path == \~ || $path == \~/* ]] && path=$HOME${path:1}
  [[ $path == /* ]] || path=$HOME/$path
  while [[ $path == ?*/ ]]; do path=${path%/}; done
}

# Hash standard input. OpenSSL is three times as fast as many a sha256sum.
digest() {
  local known=2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881 # that of an x
  if [[ $(printf x | openssl dgst -sha256 -r 2>/dev/null) == "$known"* ]]; then
    openssl dgst -sha256 -r
  else
    sha256sum
  fi
}

# list PATH...: what there is to be copied. For each path S and its absolute form (M: missing), then for all that is in
# it E, readable (y, n), type, type of what a link leads to, mode, bytes, time, path below, link; and for links to files
# L, mode, bytes, time, absolute path. All these end in null bytes.
verb_list() {
  local path
  for path; do
    find_path "$path"
    if [[ ! -e $path ]]; then
      printf 'M\0%s\0' "$path"
      continue
    fi
    printf 'S\0%s\0' "$path"
    find -H "$path" \( -readable -printf 'E\0y\0' -o -printf 'E\0n\0' \) \
      -printf '%y\0%Y\0%m\0%s\0%T@\0%P\0%l\0'
    find -H "$path" -type l -xtype f -print0 2>/dev/null |
      xargs -0 -r stat -L --printf 'L\0%a\0%s\0%Y\0%n\0' --
  done
  return 0 # what find could not read has been said
}

# target PATH: what lies at the destination (d, f, o; - for nothing, ? where not even its folder is there), its path
# without links, whether its folder can be written (y, n), and df's line for that.
verb_target() {
  local path real kind=- folder writable=n
  find_path "$1"
  real=$(readlink -f -n -- "$path" && printf x) || { printf '?\0%s\0n\0\0' "$path"; return 0; }
  real=${real%x}
  if [[ -d $real ]]; then kind=d; elif [[ -f $real ]]; then kind=f; elif [[ -e $real ]]; then kind=o; fi
  folder=$real
  [[ $kind == d ]] || folder=${real%/*}
  [[ -w ${folder:-/} && -x ${folder:-/} ]] && writable=y
  printf '%s\0%s\0%s\0' "$kind" "$real" "$writable"
  df -P -k -- "${folder:-/}" 2>/dev/null | tail -n 1 | tr '\n' '\0'
  return 0
}

# stats (names as data): mode in hexadecimal, bytes and name of those that are there.
verb_stats() {
  xargs -0 -r stat -L --printf '%f\0%s\0%n\0' -- 2>/dev/null
  return 0
}

# links (names as data): where the links lead; o for what is no link, - for nothing; each with its name behind.
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

# get FILE OFFSET COUNT: so many bytes of it, and a line: their hash, and the file's size and time afterwards.
# Read twice at the same time, and not by way of tee, whose small pieces would be the narrowest place of all.
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

# put FOLDER PART OFFSET COUNT (bytes as data): write them into the part from there on, and tell its size and, once it
# is large enough, the hash of what can be read from there on.
# Always at their own place, and from nothing into a new file: an earlier attempt may still be writing.
verb_put() {
  local hash='' size
  umask 077
  cd -- "$1" || return
  if [[ $3 == 0 ]]; then rm -f -- "./$2" || return; fi
  dd of="./$2" bs=256K seek="$3" oflag=seek_bytes conv=notrunc status=none || return
  size=$(stat -c %s -- "./$2") || return
  if ((size == $3 + $4)); then hash=$(bytes "./$2" "$3" "$4" | digest) || return; fi
  printf '%s %s\n' "${hash:0:64}" "$size"
}

# place FOLDER PART NAME MODE TIME FORCE: a complete part gets its mode (under the umask), its time and its name.
verb_place() {
  cd -- "$1" || return
  chmod "$(masked "$4")" "./$2" && touch -d "@$5" -- "./$2" || return
  if [[ $6 == yes ]]; then
    mv -f -T -- "./$2" "./$3"
  else
    mv -n -T -- "./$2" "./$3"
    [[ ! -e ./$2 ]] || return "$THERE_ALREADY"
  fi
}

masked() { printf '%o' "$((8#$1 & 8#777 & ~8#$users_umask))"; }

# unpack BASE STAGE (a tar as data): unpack it into a new hidden folder, and hash all that is there.
verb_unpack() {
  cd -- "$1" && rm -rf -- "./$2" && (umask 077 && mkdir -- "./$2") && cd -- "./$2" || return
  tar -x -f - --no-same-owner --no-same-permissions || return
  cat >/dev/null
  find . -type f -print0 | xargs -0 -r sha256sum --
}

# settle BASE STAGE FORCE: what was unpacked gets its place. Told: what does not, because something is there.
verb_settle() {
  local folder how=-n
  [[ $3 == yes ]] && how=-f
  cd -- "$1/$2" || return
  while IFS= read -r -d '' folder; do
    find "$folder" -maxdepth 1 -type f -print0 | xargs -0 -r mv "$how" -t "../$folder" --
  done < <(find . -type f -printf '%h\0' | sort -z -u)
  find . -type f -print0
  cd .. && rm -rf -- "./$2"
}

# pack (absolute names without their first slash as data): a tar of these files; of links, of what they lead to.
verb_pack() { tar -c -f - --format=gnu -h --hard-dereference --no-recursion -C / --null -T -; }

# folders BASE (names as data): make those that are missing, for nobody else yet.
verb_folders() {
  umask 077
  cd -- "$1" && xargs -0 -r mkdir -p --
}

# modes BASE MODE (names as data): give folders this mode, under the umask.
verb_modes() { cd -- "$1" && xargs -0 -r chmod "$(masked "$2")" --; }

# tie BASE FORCE (link, name as data): make links.
verb_tie() {
  local link name how=-sT
  [[ $2 == yes ]] && how=-sfnT
  cd -- "$1" || return
  while IFS= read -r -d '' link && IFS= read -r -d '' name; do
    ln "$how" -- "$link" "$name" || return
  done
}

main
