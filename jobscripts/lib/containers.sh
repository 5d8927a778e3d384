# shellcheck shell=bash disable=SC2034,SC2154,SC2209   # what is set here is used, and used here set, by lib.sh and others
#
# Containers: which command runs an image, and with which arguments. lib.sh sources this file; it is never run.
#
# Each `run_with_…` function sets into_container to the words that run a command in the image: with the user's home, the
# working directory and the session's directory at the same paths, the same environment (never the token, which is in a
# file) and the same user. What a runtime changes nevertheless, `come_in` restores inside the container.

# ------------------------------------------------------------------------------------------- outside the container

# Set into_container, and container_command to the runtime's command, or fail.
prepare_container() {
  split_binds
  check_binds
  check_image
  check_image_digest
  find_container_command
  pack_for_the_door
  gpu_flags=() container_name=''
  "run_with_$container_kind"
}

# Set REPLY to the kind of an image, by its name: address (docker://…), folder, squash (of enroot), name (of an image
# stored by the runtime), or file.
image_kind() {
  case $want_container in
    *://*)                         REPLY=address ;;
    *.sqsh | *.sqfs | *.squashfs)  REPLY=squash ;;
    /* | ./* | ../* | *.sif | *.simg | *.img)
      REPLY=file
      [[ ! -d $want_container ]] || REPLY=folder
      ;;
    *)
      if [[ -d $want_container ]]; then REPLY=folder
      elif [[ -e $want_container ]]; then REPLY=file
      elif [[ $want_container == *:* ]] || keeps_images; then REPLY=name
      else REPLY=file
      fi
      ;;
  esac
}

keeps_images() {
  case ${want_container_command##*/} in
    podman | podman-hpc | shifter | pyxis | srun | charliecloud | ch-run) ;;
    *) return 1 ;;
  esac
}

# A name, or what an address refers to, can be checked only by the runtime.
check_image() {
  image_kind
  [[ $REPLY == address || $REPLY == name ]] && return
  [[ -e $want_container ]] || fail image-missing "There is no container image $want_container on $(uname -n)."
  [[ -r $want_container ]] ||
    fail image-unreadable "You may not read the container image $want_container: ask its owner for permission."
}

# If an environment requires a certain image, check its digest before anything runs in it.
check_image_digest() {
  [[ -n $want_digest ]] || return 0
  [[ -r $NBL_SESSION_DIR/image.sh ]] ||
    fail image-differs "image.sh is not in $NBL_SESSION_DIR, which compares the image's digest."
  "$BASH" "$NBL_SESSION_DIR/image.sh" check "$NBL_SESSION_DIR" </dev/null || exit 1
}

# Set bind_from, bind_to and bind_how (options, with commas) from bind=. One value may contain several specifications,
# separated by commas, as in Apptainer's --bind: FROM, FROM:TO or FROM:TO:OPTIONS.
split_binds() {
  local spec part parts from to how
  bind_spec=() bind_from=() bind_to=() bind_how=()
  for spec in "${want_binds[@]}"; do
    IFS=, read -r -a parts <<<"$spec"
    for part in "${parts[@]}"; do
      case $part in
        ro | rw | id=* | image-src=*) # an option of the previous specification
          ((${#bind_how[@]} == 0)) || bind_how[${#bind_how[@]} - 1]+=,$part
          continue
          ;;
      esac
      IFS=: read -r from to how <<<"$part"
      # Some runtimes do not take a name without a / for a directory.
      [[ $from == /* ]] || from=$PWD/$from
      bind_spec+=("$spec") bind_from+=("$from") bind_to+=("${to:-$from}") bind_how+=("$how")
    done
  done
}

check_binds() {
  local i
  for i in "${!bind_from[@]}"; do
    [[ -e ${bind_from[i]} ]] || fail bind-missing "The container should see ${bind_from[i]} (bind=${bind_spec[i]}),\
 but that is not there on $(uname -n)."
  done
}

# Set container_kind to the runtime's name and container_command to its command, or fail.
find_container_command() {
  local kind kinds
  if [[ -n $want_container_command ]]; then
    container_kind=${want_container_command##*/}
    find_runtime "$want_container_command" && return
  else
    image_kind
    case $REPLY in
      address)  kinds='apptainer singularity podman-hpc podman shifter pyxis' ;;
      folder)   kinds='apptainer singularity charliecloud' ;;
      squash)   kinds='apptainer singularity enroot pyxis' ;;
      name)     kinds='podman-hpc podman shifter pyxis' ;;
      *)        kinds='apptainer singularity' ;;
    esac
    for kind in $kinds; do
      container_kind=$kind
      find_runtime "$kind" && return
    done
  fi
  kinds=${want_container_command:-${kinds// / or }}
  fail container-command-missing "There is no $kinds on $(uname -n), which is needed to run $want_container; name what\
 runs it here with container_command= or load its module with module=."
}

# find_runtime NAME: NAME is one of those in docs/environments.md, or the path of a command. An unknown command is
# assumed to be compatible with Apptainer.
find_runtime() {
  local command=$1
  case $container_kind in
    ch-run)         container_kind=charliecloud ;;
    charliecloud)   command=ch-run ;;
    pyxis | srun)   container_kind=pyxis command=srun ;;
    singularity)    container_kind=apptainer ;;
    podman-hpc)     container_kind=podman_hpc ;;
    apptainer | podman | enroot | shifter) ;;
    *)              container_kind=apptainer ;;
  esac
  container_command=$(type -P -- "$command") || return
  [[ $container_kind != pyxis ]] || has_pyxis
}

# Slurm's plugin is installed if srun knows its flags.
has_pyxis() { [[ $("$container_command" --help 2>&1) == *--container-image* ]]; }

# Set gpu_makers to the vendors whose GPUs the container should see: nvidia, amd, both or none.
find_gpu_makers() {
  gpu_makers=''
  case $want_gpu in
    nvidia | amd) gpu_makers=$want_gpu ;;
    none)         ;;
    *)
      [[ -e /dev/nvidiactl || -e /dev/nvidia0 ]] && gpu_makers+='nvidia '
      [[ -e /dev/kfd ]] && gpu_makers+=amd
      ;;
  esac
}

# -------------------------------------------------------------------------------------------- inside the container

pack_for_the_door() {
  find_umask
  export NBL_HOME=$HOME NBL_FOLDER=$PWD NBL_UMASK=$REPLY
  container_mark=NBL_CONTAINER=$NBL_SESSION_DIR
}

# In the container: restore what the runtime has changed.
come_in() {
  [[ ! ${NBL_UMASK-} =~ ^[0-7]+$ ]] || umask "$NBL_UMASK"
  [[ -z ${NBL_HOME-} || ! -d ${NBL_HOME-} ]] || export HOME=$NBL_HOME
  if [[ -n ${NBL_FOLDER-} && $PWD != "$NBL_FOLDER" ]] && ! cd -- "$NBL_FOLDER" 2>/dev/null; then
    log "$NBL_FOLDER is not there in the container, going on in $PWD"
  fi
  unset NBL_HOME NBL_FOLDER NBL_UMASK NBL_GUARDED
}

# Set seen_from, seen_to and seen_how to all directories to mount with a runtime that mounts nothing by default: the
# user's home, /tmp, the session, the working directory, and those of bind=.
#
# list_seen SEPARATORS: a directory whose name contains one of these cannot be passed: it is left out; if bind= asks for
# it, fail.
list_seen() {
  local i path place paths=("$HOME" /tmp "$NBL_SESSION_DIR")
  is_in_every_image "$PWD" || paths+=("$PWD")
  for i in "${!bind_from[@]}"; do
    [[ ${bind_from[i]}${bind_to[i]} != *["$1"]* ]] || fail bind-missing "The container should see ${bind_from[i]}\
 (bind=${bind_spec[i]}), but ${container_command##*/} cannot be given a name with a space, a comma or the like."
  done
  seen_from=() seen_to=() seen_how=()
  for path in "${paths[@]}"; do
    [[ -d $path && $path != / && $path != *["$1"]* ]] || continue
    for place in "${seen_to[@]}" "${bind_to[@]}"; do
      [[ $path/ == "${place%/}"/* ]] && continue 2
    done
    seen_from+=("$path") seen_to+=("$path") seen_how+=('')
  done
  seen_from+=("${bind_from[@]}") seen_to+=("${bind_to[@]}") seen_how+=("${bind_how[@]}")
}

is_in_every_image() {
  case $1/ in
    // | /bin/* | /dev/* | /etc/* | /lib/* | /lib32/* | /lib64/* | /opt/*) ;;
    /proc/* | /run/* | /sbin/* | /sys/* | /usr/* | /var/) ;;
    *) return 1 ;;
  esac
}

# Set exported to the names of the variables to pass with a runtime that passes none by default. Those that refer to the
# node's programs and libraries are left out.
list_exported() {
  local name
  exported=()
  while IFS= read -r name; do
    case $name in
      PATH | LD_* | PYTHONHOME | BASH_ENV | ENV | SHLVL | _ | HOSTNAME | MANPATH | PWD | OLDPWD) ;;
      *) exported+=("$name") ;;
    esac
  done < <(compgen -e)
}

# -------------------------------------------------------------------------------------------------- the runtimes

# Apptainer and Singularity. They mount the home, /tmp and the working directory by default.
run_with_apptainer() {
  local spec binds=()
  image_kind
  [[ $REPLY != name ]] || fail image-missing "There is no container image $want_container on $(uname -n); if it should\
 be fetched, it is docker://$want_container."
  find_gpu_makers
  [[ $gpu_makers != *nvidia* ]] || gpu_flags+=(--nv)
  [[ $gpu_makers != *amd* ]] || gpu_flags+=(--rocm)
  for spec in "${want_binds[@]}"; do binds+=(--bind "$spec"); done
  into_container=("$container_command" exec "${gpu_flags[@]}" --bind "$NBL_SESSION_DIR" "${binds[@]}" --pwd "$PWD"
    "$want_container")
}

# Charliecloud. It execs the command. The GPU's libraries must be in the image already (ch-fromhost). If a mount point
# is missing in the image, a writable layer in memory is needed to create it.
run_with_charliecloud() {
  local i binds=() settings=() image=$want_container
  # Without a / it would be the name of an image stored by Charliecloud.
  [[ ! -e $image || $image == /* ]] || image=$PWD/$image
  list_seen :
  for i in "${!seen_from[@]}"; do
    [[ ${seen_to[i]} != /tmp ]] || continue # always there
    [[ ,${seen_how[i]}, != *,ro,* ]] || log "Charliecloud cannot show ${seen_from[i]} for reading only"
    binds+=(--bind "${seen_from[i]}:${seen_to[i]}")
    [[ -d $image/${seen_to[i]} || ${settings[*]} == *--write-fake* ]] && continue
    [[ $("$container_command" --help 2>&1) == *--write-fake* ]] || fail container-failed "Charliecloud on $(uname -n) is\
 too old to show ${seen_to[i]} in an image that has no such directory; make it in $image, and that of all the others."
    settings+=(--write-fake)
  done
  [[ ! -r $image/ch/environment ]] || settings+=(--set-env)
  into_container=("$container_command" "${settings[@]}" "${binds[@]}" "$image" --)
  # It requires this variable.
  export USER=${USER:-$(id -un)}
}

# Podman without root: the container stays in the job's cgroup, without one of its own, and uses the node's network.
run_with_podman() {
  find_gpu_makers
  [[ $gpu_makers != *nvidia* ]] || find_cdi
  [[ $gpu_makers != *amd* ]] || gpu_flags+=(--device /dev/kfd --device /dev/dri --group-add keep-groups)
  podman_words
  find_podman_image
  into_container=("$container_command" --log-level=error run "${podman_flags[@]}" --cgroups=disabled --userns=keep-id
    --user "$(id -u):$(id -g)" --network=host --ipc=host --security-opt label=disable --log-driver=none
    "${gpu_flags[@]}" "${podman_binds[@]}" "${podman_env[@]}" "${podman_image[@]}")
}

# NERSC's Podman handles GPUs, the user and cgroups itself.
run_with_podman_hpc() {
  find_gpu_makers
  [[ $gpu_makers != *nvidia* ]] || gpu_flags=(--gpu)
  export USER=${USER:-$(id -un)} # it fails without
  podman_words
  find_podman_image
  into_container=("$container_command" run "${podman_flags[@]}" --userns=keep-id --network=host --ipc=host
    "${gpu_flags[@]}" "${podman_binds[@]}" "${podman_env[@]}" "${podman_image[@]}")
}

# Set podman_flags, podman_binds and podman_env, and container_name, which end_container needs.
podman_words() {
  local i name
  list_seen :
  podman_binds=() podman_env=()
  for i in "${!seen_from[@]}"; do
    podman_binds+=(--volume "${seen_from[i]}:${seen_to[i]}${seen_how[i]:+:${seen_how[i]}}")
  done
  find_job_id
  container_name=notebook-launcher-${job_id//[!0-9A-Za-z]/-}-$BASHPID
  export "${container_mark?}" NBL_GUARDED=yes
  list_exported
  for name in "${exported[@]}"; do podman_env+=(--env "$name"); done
  podman_flags=(--rm --interactive --name "$container_name" --entrypoint '' --workdir /)
  [[ ! -t 0 || ! -t 1 ]] || podman_flags+=(--tty)
  # For cleaning up: the container is found by its name, the processes by the mark in their environment.
  write_file "$NBL_CONTAINER_FILE" "$container_name $container_command" || :
  : >"$NBL_SESSION_DIR/runtime/podman" || :
}

# A name or directory is that of an existing image; only an address is pulled. A job that was killed with all of its
# processes leaves a state in which every later call of Podman fails, and prints the remedy itself.
find_podman_image() {
  local said
  if [[ -d $want_container ]]; then
    podman_image=(--rootfs "$(CDPATH="" cd -- "$want_container" && pwd):O")
    return
  fi
  podman_image=("$want_container")
  [[ $want_container != *://* ]] || return 0
  podman_flags+=(--pull=never)
  said=$("$container_command" image exists "$want_container" 2>&1 </dev/null) && return
  if [[ $said == *'system migrate'* ]] && ! is_conmon_running; then
    is_podman_store_local || fail container-failed "Podman's records are those of a job on $(uname -n) that was killed;\
 outside of a job, '${container_command##*/} system migrate' puts them right, and ends all your containers."
    log "Podman's records on $(uname -n) are those of a job that was killed, putting them right"
    # It does what is needed, and may then crash with long output.
    "$container_command" system migrate </dev/null >/dev/null 2>&1
    said=$("$container_command" image exists "$want_container" 2>&1 </dev/null) && return
  fi
  [[ -z $said ]] || log "Podman said: $said"
  fail image-missing "There is no container image $want_container that ${container_command##*/} knows on $(uname -n);\
 fetch or load it before, outside of a job: ${container_command##*/} pull $want_container."
}

# Whether Podman's storage is local to this node: on a shared file system, it also records containers on other nodes.
is_podman_store_local() {
  local said place=''
  said=$("$container_command" --log-level=debug image exists "$want_container" 2>&1 </dev/null)
  [[ $said =~ 'Using graph root '([^\"]+) ]] && place=${BASH_REMATCH[1]}
  [[ -d $place ]] || return 1
  case $(stat -f -c %T -- "$place" 2>/dev/null) in
    ext* | xfs | btrfs | zfs | f2fs | tmpfs | ramfs | overlay*) ;;
    *) return 1 ;;
  esac
}

is_conmon_running() {
  local file name
  for file in /proc/[0-9]*/comm; do
    [[ -O $file ]] && { read -r name <"$file"; } 2>/dev/null && [[ $name == conmon ]] && return
  done
  return 1
}

# Podman finds NVIDIA's driver if the site has installed a CDI specification.
find_cdi() {
  local file
  for file in /etc/cdi/* /var/run/cdi/*; do
    [[ ! -e $file ]] || { gpu_flags+=(--device nvidia.com/gpu=all) && return; }
  done
  if [[ $want_gpu == nvidia ]]; then
    gpu_flags+=(--device nvidia.com/gpu=all)
  else
    log "Podman is not set up for the GPUs of $(uname -n) (nothing is in /etc/cdi): the container will not see them"
  fi
}

# Enroot. It passes only the variables named. NVIDIA_VISIBLE_DEVICES selects the GPUs.
run_with_enroot() {
  local i name flags=()
  show_gpus_by_variable
  export ENROOT_MOUNT_HOME=yes
  list_seen ":, "$'\t'
  for i in "${!seen_from[@]}"; do
    flags+=(--mount "${seen_from[i]}:${seen_to[i]}:x-create=auto,rbind${seen_how[i]:+,${seen_how[i]}}")
  done
  list_exported
  for name in "${exported[@]}"; do flags+=(--env "$name"); done
  # Replaces the image's entrypoint.
  write_file "$NBL_SESSION_DIR/runtime/enroot.rc" 'exec "$@"' && flags+=(--rc "$NBL_SESSION_DIR/runtime/enroot.rc")
  into_container=("$container_command" start "${flags[@]}" "$want_container")
}

# Enroot by Slurm's plugin: a job step on this node, with all resources of the job. A site's defaults for --mpi and CPU
# binding would be useless here.
run_with_pyxis() {
  local i mounts='' flags=() image
  [[ -n ${SLURM_JOB_ID-} ]] ||
    fail container-command-missing "Pyxis runs an image ($want_container) in a job of Slurm only, and this is none."
  show_gpus_by_variable
  find_pyxis_image
  list_seen ":, "$'\t'
  for i in "${!seen_from[@]}"; do
    mounts+=,${seen_from[i]}:${seen_to[i]}${seen_how[i]:+:${seen_how[i]//,/+}}
  done
  [[ ! -t 0 || ! -t 1 ]] || flags+=(--pty)
  into_container=("$container_command" --overlap --nodes=1 --ntasks=1 --nodelist="${SLURMD_NODENAME:-$(uname -n)}"
    --unbuffered --quiet --mpi=none --cpu-bind=none --export=ALL "${flags[@]}" --container-image="$image"
    --container-mount-home --no-container-entrypoint --container-mounts="${mounts#,}")
}

# Set image to the form that Enroot expects: REGISTRY#NAME:TAG, or a file's path with a /.
find_pyxis_image() {
  local registry
  image=${want_container#docker://}
  if [[ $image == "$want_container" && -e $image ]]; then
    [[ $image == /* ]] || image=$PWD/$image
    return
  fi
  registry=${image%%/*}
  [[ $image == */* && $registry == *[.:]* && $registry != *'#'* ]] || return 0
  image=$registry#${image#*/}
  image=${image#docker.io#}
}

show_gpus_by_variable() {
  find_gpu_makers
  if [[ $want_gpu == none ]]; then
    export NVIDIA_VISIBLE_DEVICES=void
  elif [[ $gpu_makers == *nvidia* ]]; then
    export NVIDIA_VISIBLE_DEVICES=${NVIDIA_VISIBLE_DEVICES:-all}
  fi
}

# Shifter mounts homes and the site's file systems by default; --volume is for the rest, and for the session.
run_with_shifter() {
  local i how flags=() image=$want_container
  find_gpu_makers
  [[ -z $gpu_makers ]] || gpu_flags=(--module=gpu)
  [[ $image != docker://* ]] || image=docker:${image#docker://}
  for i in "${!bind_from[@]}"; do
    how=${bind_how[i]}
    [[ $how != rw ]] || how='' # it accepts only ro
    flags+=(--volume="${bind_from[i]}:${bind_to[i]}${how:+:$how}")
  done
  [[ $NBL_SESSION_DIR/ == "$HOME"/* ]] || flags+=(--volume="$NBL_SESSION_DIR:$NBL_SESSION_DIR")
  into_container=("$container_command" --image="$image" "${gpu_flags[@]}" "${flags[@]}" --workdir="$PWD" --)
}

# ----------------------------------------------------------------------------------------- when the container ends

# Podman's container is not a child of its command: conmon runs it, in its own session. When the command is gone, the
# container's standard input ends, which `guard` notices, even if the job's script was killed.
#
# guard COMMAND...: in the container, run it until it ends or the job is gone. We are the container's first process, so
# that the kernel ends all others with us; and orphans become our children, which bash reaps.
guard() {
  local outside code
  guarded=''
  trap end_guarded TERM
  exec {outside}<&0 </dev/null
  set -m
  (
    set +m
    exec {outside}<&-
    "$@"
  ) &
  guarded=$!
  (
    # No input ever comes, until it ends.
    while read -r; do :; done
    kill -TERM "$$"
  ) <&"$outside" {outside}<&- >/dev/null 2>&1 &
  watcher=$!
  set +m
  exec {outside}<&-
  wait "$guarded"
  code=$?
  kill -KILL -- "-$watcher" 2>/dev/null
  exit "$code"
}

# Send TERM, wait some seconds, and exit. The signal may come from outside, from the job's script, or from ourselves.
# shellcheck disable=SC2317  # called by the trap
end_guarded() {
  trap '' TERM
  exec 2>/dev/null
  if [[ -n $guarded ]]; then
    kill -TERM -- "-$guarded"
    wait_while 0.1 80 kill -0 "$guarded"
    kill -KILL -- "-$guarded" "-$watcher"
  fi
  exit 143
}

# open_guard: give the container's command a standard input that ends only when the command does.
open_guard() {
  [[ -n $container_name ]] || return 0
  [[ -n $pause_fd ]] || open_pause_fd
  if [[ $pause_fd == none ]]; then unset NBL_GUARDED; else exec <&"$pause_fd"; fi
}

# end_container FILE...: end the containers that these files name, and remove them from Podman's storage.
end_container() {
  local file name command
  for file; do
    read_line "$file" || continue
    name=${REPLY%% *} command=${REPLY#* }
    # It may leave Podman's pause process, which has the mark in its environment as well.
    NBL_CONTAINER=$NBL_SESSION_DIR within 10 "$command" rm --force --time 0 --ignore "$name" </dev/null >/dev/null 2>&1 ||
      log "Podman did not remove the container $name; what of it still runs is ended"
    rm -f -- "$file"
  done
}

# within SECONDS COMMAND...: run it, with this time limit if `timeout` is installed.
within() {
  if type -P timeout >/dev/null; then timeout -k 1 "$@"; else "${@:2}"; fi
}
