# shellcheck shell=bash
#
# Archives of folders that are mounted instead of unpacked: file systems in one file (squashfs), of which only what is
# used is read. stage.sh sources this file; it is never run.
#
# A node needs squashfuse_ll to mount one, and mksquashfs to make one; both come with Apptainer. On other nodes, folders
# are staged as tar archives, which are unpacked.
#
# shellcheck disable=SC2034,SC2154  # it shares its variables with stage.sh, and want_… are set by lib.sh

# Options of mksquashfs. Its memory and cores are limited, because they belong to the job's other programs.
readonly SQUASH_WORDS=(-noappend -no-xattrs -no-progress -exit-on-error -processors 1 -mem 128M -wildcards)
readonly SQUASH_QUICKLY=(-comp zstd -Xcompression-level 3)

# Set squash to `image` if the container command can run such a file in place of a folder; otherwise to nothing.
find_squash_runner() {
  local command=${want_container_command##*/}
  squash=''
  [[ -z $command || $command == apptainer || $command == singularity ]] || return 0
  command=$(
    set_up_node >/dev/null 2>&1
    if [[ -n $want_container_command ]]; then type -P -- "$want_container_command"; else
      type -P apptainer || type -P singularity
    fi
  )
  [[ -z $command ]] || squash=image squash_runner=$command
}

# Set squashfuse to the program that mounts such a file, which Apptainer contains; to nothing if there is none.
find_squashfuse() {
  local place prefix
  prefix=$(type -P apptainer || type -P singularity)
  for place in "$(type -P squashfuse_ll)" {"${prefix%/bin/*}",/usr,/usr/local}/lib{exec,,64}/{apptainer,singularity}/bin/squashfuse_ll; do
    squashfuse=$place
    [[ $squashfuse != /* || ! -x $squashfuse ]] || return 0
  done
  squashfuse=''
}

# Set squash_form to options that make an archive which can be mounted here, tested with a small one; or fail.
find_squash_form() {
  local small=$new/small form
  [[ -n $squash ]] && type -P mksquashfs >/dev/null && mkdir -- "$small" "$small/folder" && : >"$small/folder/file" || return
  for form in "${SQUASH_QUICKLY[*]}" ''; do
    read -r -a squash_form <<<"$form"
    squash_form=("${SQUASH_WORDS[@]}" "${squash_form[@]}")
    within 20 mksquashfs "$small/folder" "$small/archive" "${squash_form[@]}" >/dev/null 2>&1 </dev/null &&
      { [[ $squash == image ]] || try_mounting "$small/archive"; } && break
    squash_form=()
  done
  rm -rf -- "$small"
  ((${#squash_form[@]}))
}

# try_mounting ARCHIVE
try_mounting() { within 20 "$python" -I "$script" --try "$1" "$squashfuse" >/dev/null 2>&1 </dev/null; }

# try_running ARCHIVE: whether it can be run; some sites forbid such images. Called when it is copied, not at each
# start.
try_running() {
  within 60 "$squash_runner" exec --pwd / "$1" /bin/bash -c : >/dev/null 2>&1 </dev/null
}
