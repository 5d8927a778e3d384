#!/bin/bash
# Write samples of a job's usage to SESSION_DIR/usage.csv every SECONDS seconds, for as long as the job's script runs.
#
#   bash usage.sh SESSION_DIR SECONDS PID
#
# PID is the process of the job's script. docs/job-script.md describes the file, and how each value is measured. A
# sample starts no process: the shell reads /proc and the job's cgroup itself, and the output of one nvidia-smi that
# runs all the time. A failure here does not affect the job: a field stays empty.

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

# Rows (about 3 MB) above which the older samples are thinned out.
readonly MOST_ROWS=32000
# Samples after which processes of other users are checked again, because a process id may be reused.
readonly FORGET_SAMPLES=20

main() {
  [[ $# == 3 && $2 =~ ^[1-9][0-9]{0,3}$ && $3 =~ ^[1-9][0-9]*$ ]] || usage
  dir=${1%/} interval=$2 root=$3
  scripts=$(dirname -- "${BASH_SOURCE[0]}")
  # shellcheck source=jobscripts/lib/lib.sh
  source "$scripts/lib.sh"
  # shellcheck source=jobscripts/lib/usage_gpu.sh
  source "$scripts/usage_gpu.sh"
  umask 077
  answer_signals
  begin
  while await_sample; do
    sample
  done
  end
}

usage() {
  printf 'usage: usage.sh SESSION_DIR SECONDS PID\n' >&2
  exit 2
}

# Traps only note a signal, because one that runs inside `read -t` may be aborted. That `read` waits for a line, so the
# trap writes one, unless there is something to read anyway: the output of a GPU program might have filled the pipe.
answer_signals() {
  ending='' pipe=''
  trap 'ending=yes; [[ -z $pipe ]] || read -r -t 0 -u "$pipe" || printf "\n" >&"$pipe"' TERM INT HUP
  # At a limit on the size of files, a write should fail instead of ending us.
  trap '' XFSZ
}

begin() {
  file=$dir/usage.csv samples=0
  users_timezone=${TZ-} has_timezone=${TZ+yes}
  export LC_ALL=C TZ=UTC0
  { look_at_clock && read_process "$root"; } || refuse "there is no usable /proc"
  root_start=$start began=$now due=$((now + 100 * interval))
  ticks=$(getconf CLK_TCK 2>/dev/null) page=$(getconf PAGESIZE 2>/dev/null)
  ticks=${ticks:-100} page=${page:-4096}
  # In a container with a time namespace, the script may seem to have started in the future.
  script_began=$((root_start * 100 / ticks))
  ((script_began <= now)) || script_began=$now
  open_file || refuse "$file cannot be written"
  open_pipe
  find_cgroup
  find_gpu_command
  measure
  busy_before=$busy busy_at=$now
}

refuse() {
  say "what the job uses is not sampled: $1"
  exit 1
}

# The log is in the user's time zone, the file in UTC.
say() (
  if [[ -n $has_timezone ]]; then export TZ=$users_timezone; else unset TZ; fi
  log "$1"
)

end() {
  local cost elapsed more=samples
  stop_gpus
  look_at_clock
  elapsed=$((now - began))
  read_process "$$" && ((elapsed > 0)) || return 0
  # In tenths of a percent; children (mainly nvidia-smi) are counted once they have ended.
  cost=$(((own + children) * 100000 / ticks / elapsed))
  ((samples != 1)) || more=sample
  say "usage.csv has $samples more $more; sampling took $((cost / 10)).$((cost % 10)) % of one core"
}

# ------------------------------------------------------------------------------------------------------- the clock

# Set now, in hundredths of a second, from a monotonic clock.
look_at_clock() {
  local uptime=''
  { read -r uptime _ </proc/uptime; } 2>/dev/null
  [[ $uptime =~ ^([0-9]+)\.([0-9][0-9])$ ]] && now=$((10#${BASH_REMATCH[1]}${BASH_REMATCH[2]}))
}

# Wait until the next sample is due, reading the GPU program's output meanwhile. Return 1 if there will be none.
await_sample() {
  while is_wanted; do
    look_at_clock
    ((now < due)) || return 0
    listen "$((due - now < 100 ? due - now : 100))"
  done
  return 1
}

# Whether there was no signal, and the job's script still runs: its process id may be reused, or it may be a zombie.
is_wanted() { [[ -z $ending ]] && read_process "$root" && [[ $state != Z && $start == "$root_start" ]]; }

sample() {
  local head elapsed
  look_at_clock
  attend_gpus
  measure
  printf -v head '%(%Y-%m-%dT%H:%M:%SZ)T' -1
  elapsed=$((now - script_began))
  head+=,$((elapsed / 100)).$((elapsed / 10 % 10))
  find_cores
  compose_rows "$head,$cores,$memory"
  begin_readings
  write_rows
  # At fixed intervals. Missed samples, for instance while the machine was suspended, are skipped.
  due=$((due + 100 * interval))
  ((due > now)) || due=$((now + 100 * interval - (now - due) % (100 * interval)))
}

# -------------------------------------------------------------------------------------------------------- the file

open_file() {
  local rows_there
  rows=0 spacing=$interval
  { : >>"$file"; } 2>/dev/null || return 1
  if [[ ! -s $file ]]; then
    append "time,seconds,cpu_cores,memory_mib,gpu,gpu_name,gpu_percent,gpu_memory_mib,gpu_memory_total_mib,gpu_watts"
    return
  fi
  # The file may be from an earlier run, with a truncated last line.
  [[ -z $(tail -c 1 -- "$file") ]] || append ''
  rows_there=$(wc -l <"$file") && rows=$((rows_there))
}

# Opened and closed each time, because only then is it written to a file server.
append() { printf '%s\n' "$1" >>"$file"; } 2>/dev/null

write_rows() {
  if append "$torn$lines"; then
    ((samples++, rows += line_count))
    torn=''
  else
    torn=$'\n'   # a part of the line may have been written
  fi
  ((rows < MOST_ROWS)) || thin_out
}
torn=''

# compose_rows HEAD: set lines to a row for each GPU with recent values, or to one row without a GPU.
compose_rows() {
  local index
  lines='' line_count=0
  for index in "${!gpus[@]}"; do
    ((gpu_at[index] >= stale)) || continue
    lines+=${lines:+$'\n'}$1,${gpus[index]}
    ((++line_count))
  done
  ((line_count)) || lines=$1,,,,,, line_count=1
}
stale=0

# Remove as many as necessary of the samples in the older three quarters of the file, evenly. So the file stays small
# however long the job runs, and recent samples stay complete. Peaks are kept.
thin_out() {
  local all kept
  local -A peaks=()
  mapfile -t all <"$file"
  find_peaks
  kept=("${all[@]}")
  while ((${#kept[@]} > MOST_ROWS * 3 / 4 && spacing < 1000000)); do
    ((spacing *= 2))
    space_out
  done
  if printf '%s\n' "${kept[@]}" >"$file.new.$$" && mv -f -- "$file.new.$$" "$file"; then
    rows=${#kept[@]}
  else
    rm -f -- "$file.new.$$"
    rows=$((MOST_ROWS * 3 / 4))   # so that it is tried again, but not at once
  fi
} 2>/dev/null

# Set peaks to the times of the older samples with the maximum of cores, memory, or a GPU's use, memory or power, for
# each run. With one sample for each of these, and not one for each interval, the means are hardly affected.
find_peaks() {
  local line words key value whole part run=0 last=0 number column IFS=, old=$((${#all[@]} * 3 / 4))
  local -A most=() said=() when=()
  set -f
  for line in "${all[@]:1:old}"; do
    # shellcheck disable=SC2206  # to be split
    words=($line)
    [[ ${words[1]-} =~ ^[0-9]{1,12}\.[0-9]$ ]] || continue
    number=$((10#${words[1]/./}))
    ((number >= last)) || ((++run))
    last=$number
    for column in 2 3 6 7 9; do
      value=${words[column]-} key=$run,$column,${words[4]-}
      [[ $value != "${said[$key]-}" && $value == [0-9]* && $value != *[!0-9.]* && ${#value} -lt 13 ]] || continue
      whole=${value%%.*} part=${value#"$whole"} part=${part//./}000
      number=$((10#$whole${part:0:3}))
      if ((number > ${most[$key]:--1})); then most[$key]=$number said[$key]=$value when[$key]=${words[0]}; fi
    done
  done
  set +f
  for key in "${!when[@]}"; do peaks[${when[$key]}]=yes; done
}

# Set kept to the rows to keep, with older samples at least so many seconds apart. A requeued job starts again.
space_out() {
  local line at last=$((-spacing)) keep=yes before=- number=0 old=$((${#all[@]} * 3 / 4))
  kept=("${all[0]}")
  for line in "${all[@]:1}"; do
    ((++number))
    at=${line#*,} at=${at%%[.,]*}
    [[ $at =~ ^[0-9]{1,12}$ ]] || continue   # truncated by an earlier run
    if [[ $line != "$before"* ]]; then
      before=${line%%,*}, keep=''
      if ((number >= old || 10#$at < last || 10#$at >= last + spacing)); then keep=yes last=$((10#$at)); fi
      [[ -z ${peaks[${line%%,*}]-} ]] || keep=yes
    fi
    [[ -z $keep ]] || kept+=("$line")
  done
}

# ---------------------------------------------------------------------------------------------- processor and memory

# Set busy to the processor time of the job in microseconds, and memory to its MiB; to nothing if unknown.
measure() {
  busy='' memory=''
  if [[ -z $cpu_place || -z $memory_place ]]; then
    scan_processes
    busy=$((tree_ticks * 1000000 / ticks))
    memory=$(((tree_pages * page + 524288) / 1048576))
  fi
  [[ -z $cpu_place ]] || read_cgroup_cpu
  [[ -z $memory_place ]] || read_cgroup_memory
}

# Set cores to the average number of busy cores since the previous sample.
find_cores() {
  local used=0 passed=$((now - busy_at))
  cores=''
  if [[ -n $busy && -n $busy_before ]] && ((passed > 0)); then
    used=$(((busy - busy_before + 50 * passed) / (100 * passed)))
    ((used >= 0)) || used=0
    printf -v cores '%d.%02d' "$((used / 100))" "$((used % 100))"
  fi
  busy_before=$busy busy_at=$now
}

# -------------------------------------------------------------------------------------------------- the job's cgroup

# Set cpu_place and memory_place to the directories of the cgroup of the whole job on this node; to nothing if there is
# none, or it has no accounting: the cgroup of a service or of the whole node tells nothing about the job.
find_cgroup() {
  local names path mounts_v2='' mount_cpu='' mount_memory=''
  cpu_place='' cpu_file='' memory_place='' memory_file='' memory_key=''
  find_job_id
  [[ -n $job_id ]] || return 0
  find_mounts
  while IFS=: read -r _ names path; do
    cut_to_job "$path" || continue
    case ,$names, in
      ,,)           use_unified "$mounts_v2$REPLY" ;;
      *,cpuacct,*)  use_cpuacct "$mount_cpu$REPLY" ;;
      *,memory,*)   use_memory "$mount_memory$REPLY" ;;
    esac
  done <"/proc/$root/cgroup"
} 2>/dev/null

# cut_to_job PATH: set REPLY to the part up to the job's own cgroup, as in /slurm/uid_7/job_42/step_batch.
cut_to_job() {
  local name
  for name in ${SLURM_JOB_ID:+"job_$SLURM_JOB_ID"} ${PBS_JOBID:+"$PBS_JOBID"}; do
    REPLY=${1%%/"$name"/*}
    [[ $1/ != */"$name"/* ]] || { REPLY=${REPLY%/"$name"}/$name; return 0; }
  done
  return 1
}

find_mounts() {
  local line words type
  while IFS= read -r line; do
    # shellcheck disable=SC2206  # to be split: root, mount point; type, source, options
    words=($line) type=(${line##* - })
    [[ ${words[3]} == / ]] || continue
    case ${type[0]},${type[2]-}, in
      cgroup2,*)         mounts_v2=${words[4]} ;;
      cgroup,*,cpuacct,*) mount_cpu=${words[4]} ;;
      cgroup,*,memory,*) mount_memory=${words[4]} ;;
    esac
  done </proc/self/mountinfo
}

use_unified() {
  if [[ -r $1/cpu.stat ]]; then cpu_place=$1 cpu_file=$1/cpu.stat; fi
  if [[ -r $1/memory.current && -r $1/memory.stat ]]; then
    memory_place=$1 memory_file=$1/memory.current memory_key=inactive_file
  fi
}

use_cpuacct() {
  if [[ -z $cpu_place && -r $1/cpuacct.usage ]]; then cpu_place=$1 cpu_file=$1/cpuacct.usage; fi
}

use_memory() {
  if [[ -z $memory_place && -r $1/memory.usage_in_bytes && -r $1/memory.stat ]]; then
    memory_place=$1 memory_file=$1/memory.usage_in_bytes memory_key=total_inactive_file
  fi
}

read_cgroup_cpu() {
  local key value
  busy=''
  while read -r key value; do
    case $key in
      usage_usec)  busy=$value; break ;;
      *[!0-9]*)    ;;
      *)           busy=$((key / 1000)); break ;;   # version 1: one number, in nanoseconds
    esac
  done <"$cpu_file"
} 2>/dev/null

# Read the memory without reclaimable page cache, as Slurm and the kernel's own tools do.
read_cgroup_memory() {
  local bytes='' key value spare=0
  memory=''
  { read -r bytes <"$memory_file" && [[ $bytes =~ ^[0-9]+$ ]]; } || return 0
  while read -r key value; do
    [[ $key != "$memory_key" ]] || { spare=$value; break; }
  done <"$memory_place/memory.stat"
  ((spare <= bytes)) || spare=$bytes
  memory=$(((bytes - spare + 524288) / 1048576))
} 2>/dev/null

# ----------------------------------------------------------------------------------------------- the job's processes

# read_process PID: set state, parent, session, start, own, children (processor time in ticks, its own and that of
# children that have ended) and pages (resident). Return 1 if there is no such process.
read_process() {
  local text='' fields
  { IFS= read -r -d '' text; } 2>/dev/null <"/proc/$1/stat"
  # proc(5): the process id, the name in parentheses, and the fields that we need. A name may contain anything, also
  # parentheses and numbers: only the part after the last one can be trusted.
  [[ $text == *') '* ]] || return 1
  # shellcheck disable=SC2206  # numbers, and one letter
  fields=(${text##*') '})
  ((${#fields[@]} > 21)) || return 1
  state=${fields[0]} parent=${fields[1]} session=${fields[3]} start=${fields[19]}
  own=$((fields[11] + fields[12])) children=$((fields[13] + fields[14])) pages=${fields[21]}
}

# Set tree_pages to the resident pages of the job, and add to tree_ticks the time used since the last call.
#
# Processes of the job are its script, all its descendants, those in its session, and those that were any of these at
# the last check (a program that goes into the background gets another parent). The time of a process is its own and
# that of its children that have ended; so when one ends, its time moves to its parent and is not counted twice. If no
# process waits for it, its time since the last check is lost.
scan_processes() {
  local path pid grown=0 inherited=0 lost=0 parent session state start own children pages
  local -A parents=() starts=() owns=() inherits=() sizes=()
  ((++scans % FORGET_SAMPLES)) || foreign=()
  tree_pages=0
  for path in /proc/[0-9]*; do
    pid=${path:6}
    [[ -z ${foreign[$pid]-} ]] || continue
    read_process "$pid" || continue
    if [[ ${ours[$pid]-} == "$start" || $pid == "$root" || $session == "$root" ]]; then
      count_process "$pid"
    else
      parents[$pid]=$parent starts[$pid]=$start owns[$pid]=$own inherits[$pid]=$children sizes[$pid]=$pages
    fi
  done
  for pid in "${!parents[@]}"; do classify "$pid"; done
  for pid in "${!added[@]}"; do
    start=${starts[$pid]} own=${owns[$pid]} children=${inherits[$pid]} pages=${sizes[$pid]}
    count_process "$pid"
  done
  added=()
  for pid in "${!ours[@]}"; do
    [[ ${seen[$pid]} != "$scans" ]] || continue
    forget_process "$pid"
  done
  tree_ticks=$((tree_ticks + grown + (inherited > lost ? inherited - lost : 0)))
}
declare -A foreign=() ours=() seen=() own_before=() inherited_before=() added=()
scans=0 tree_ticks=0

# Follow the parents of an unknown process to a known one, and classify all on the way.
classify() {
  local pid=$1 way=()
  while [[ -n ${parents[$pid]-} ]]; do
    way+=("$pid")
    local above=${parents[$pid]}
    unset "parents[$pid]"
    pid=$above
  done
  if [[ -n ${ours[$pid]-}${added[$pid]-} ]]; then
    for pid in ${way[@]+"${way[@]}"}; do added[$pid]=yes; done
  else
    for pid in ${way[@]+"${way[@]}"}; do foreign[$pid]=yes; done
  fi
}

count_process() {
  local pid=$1
  if [[ ${ours[$pid]-} != "$start" ]]; then
    [[ -z ${ours[$pid]-} ]] || forget_process "$pid"
    ours[$pid]=$start own_before[$pid]=0 inherited_before[$pid]=0
  fi
  ((grown += own - own_before[$pid], inherited += children - inherited_before[$pid], tree_pages += pages))
  seen[$pid]=$scans own_before[$pid]=$own inherited_before[$pid]=$children
}

# The time of an ended process is now included in its parent's, if the parent has waited for it.
forget_process() {
  ((lost += own_before[$1] + inherited_before[$1]))
  unset "ours[$1]" "seen[$1]" "own_before[$1]" "inherited_before[$1]"
}

main "$@"
exit
