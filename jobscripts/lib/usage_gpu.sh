# shellcheck shell=bash
#
# The usage of a job's GPUs: the part of usage.sh that reads the output of nvidia-smi or rocm-smi. usage.sh sources this
# file; it is never run.
#
# shellcheck disable=SC2034,SC2154  # it shares its variables with usage.sh

# Seconds after which nvidia-smi is started again if it has died, hangs or prints unexpected output.
readonly RETRY_SECONDS=600
# nvidia-smi reports the use of a GPU in the last second at most. So it is read every second, and a sample has the mean;
# but at most this often per sample.
readonly MOST_READINGS=10
# If it prints more lines between two samples, something is wrong.
readonly MOST_LINES=500
# Seconds between two calls of rocm-smi, a Python program that takes most of a second.
readonly ROCM_SECONDS=30

readonly NVIDIA_QUERY=index,name,utilization.gpu,memory.used,memory.total,power.draw

# Set gpu_command (to nothing if there is no GPU to observe), and gpu_ids to those of the job (nothing: all that are
# visible).
find_gpu_command() {
  gpu_command='' gpu_ids='' gpu_pid='' gpu_start='' gpu_words='' gpu_due=$now silent_since=$now chatter=0
  gpus=()
  [[ -n $pipe ]] || return 0
  if type -P nvidia-smi >/dev/null; then
    gpu_command=nvidia-smi
    find_nvidia_ids || gpu_command=''
  elif type -P rocm-smi >/dev/null; then
    gpu_command=rocm-smi
    find_amd_ids || gpu_command=''
  fi
  [[ -z $gpu_command ]] || start_gpus
}

# Slurm numbers the GPUs as nvidia-smi does: from 0 if the job sees only its own, otherwise as on the node. Without
# GPUs, a job has none of these variables.
find_nvidia_ids() {
  local id
  gpu_ids=${CUDA_VISIBLE_DEVICES-${SLURM_STEP_GPUS-${SLURM_JOB_GPUS-}}}
  [[ -n ${CUDA_VISIBLE_DEVICES+set}${SLURM_STEP_GPUS+set}${SLURM_JOB_GPUS+set} ]] || { [[ -z ${SLURM_JOB_ID-} ]]; return; }
  # This query does not accept the name of a MIG instance, only of a GPU; such a job sees no other GPUs.
  [[ $gpu_ids != MIG-* ]] || { gpu_ids=''; return 0; }
  for id in ${gpu_ids//,/ }; do
    [[ $id =~ ^([0-9]+|GPU-[0-9a-f-]+)$ ]] || return 1
  done
  [[ -n $gpu_ids ]]
}

# rocm-smi shows the GPUs of the node. This has not been tested on real hardware.
find_amd_ids() {
  gpu_ids=${SLURM_JOB_GPUS-${ROCR_VISIBLE_DEVICES-}}
  [[ -n $gpu_ids ]] || { [[ -z ${SLURM_JOB_ID-} ]]; return; }
  [[ $gpu_ids =~ ^[0-9]+(,[0-9]+)*$ ]] || gpu_ids=''
}

# Open a pipe whose read end only this shell has, so that a writer does not outlive it.
open_pipe() {
  { exec {pipe}<> <(:); } 2>/dev/null || pipe=''
  [[ -z $pipe || -w /proc/self/fd/$pipe ]] || pipe=''
}

start_gpus() {
  gpu_words='' chatter=0 silent_since=$now
  if [[ $gpu_command == nvidia-smi ]]; then feed_nvidia & else feed_rocm & fi
  gpu_pid=$! gpu_start=''
  if read_process "$gpu_pid"; then gpu_start=$start; fi
} 2>/dev/null

feed_nvidia() {
  local every=$((interval > MOST_READINGS ? interval / MOST_READINGS : 1))
  local words=(nvidia-smi --query-gpu="$NVIDIA_QUERY" --format="csv,noheader,nounits" -l "$every")
  open_feed
  [[ -z $gpu_ids ]] || words+=(-i "$gpu_ids")
  # In case it buffers its output to a pipe.
  type -P stdbuf >/dev/null && words=(stdbuf -oL "${words[@]}")
  exec "${words[@]}"
}

feed_rocm() {
  local rest=$((interval > ROCM_SECONDS ? interval : ROCM_SECONDS))
  open_feed
  pause_fd=''
  while timeout -k 5 20 rocm-smi --showproductname --showuse --showmeminfo vram --showpower --csv; do pause "$rest"; done
}

open_feed() {
  exec </dev/null >"/proc/self/fd/$pipe" 2>/dev/null {pipe}>&-
}

is_gpu_program_there() { [[ -n $gpu_pid ]] && read_process "$gpu_pid" && [[ $state != Z && $start == "$gpu_start" ]]; }

# KILL at once, because it has nothing to save. One that hangs in the driver ends when the driver returns.
stop_gpus() {
  local looks
  if is_gpu_program_there; then
    kill -KILL "$gpu_pid"
    for ((looks = 0; looks < 20; looks++)); do
      is_gpu_program_there || break
      pause 0.01
    done
  fi
  gpus=() gpu_words=''
} 2>/dev/null

# Check whether the GPU program works. If it hangs, it is left alone, and no second one is started.
attend_gpus() {
  [[ -n $gpu_command ]] || return 0
  local patience=$((300 * interval))
  ((patience >= 6000)) || patience=6000
  if [[ $gpu_command == rocm-smi ]] && ((patience < 300 * ROCM_SECONDS)); then patience=$((300 * ROCM_SECONDS)); fi
  stale=$((now - patience))
  if is_gpu_program_there; then
    ((now - silent_since > patience)) && give_up_gpus "has said nothing for $((patience / 100)) s"
  elif [[ -n $gpu_pid ]]; then
    give_up_gpus "has ended"
  elif ((now >= gpu_due)); then
    start_gpus
  fi
  chatter=0
}

give_up_gpus() {
  [[ -n ${gpu_complained-} ]] ||
    say "$gpu_command $1, so the use of GPUs is not known for now; it is tried again every $((RETRY_SECONDS / 60)) min"
  gpu_complained=yes
  stop_gpus
  is_gpu_program_there || gpu_pid=''
  gpu_due=$((now + 100 * RETRY_SECONDS)) silent_since=$now
}

# listen HUNDREDTHS: wait for that long, or until the GPU program has printed a line.
listen() {
  local piece='' wait code
  printf -v wait '0.%02d' "$1"
  [[ $1 -lt 100 ]] || wait=1
  if [[ -z $pipe ]]; then
    pause "$wait"
    return
  fi
  IFS= read -r -n 1000 -t "$wait" -u "$pipe" piece
  code=$?
  gpu_words+=$piece   # an incomplete line, if the time was over
  ((code == 0)) || return 0
  if ((${#piece} >= 1000 || ++chatter > MOST_LINES)); then
    # Limits the time spent on unexpected output.
    look_at_clock
    give_up_gpus "talks nonsense"
    drain
    return
  fi
  piece=$gpu_words gpu_words=''
  [[ -z $piece ]] || hear_gpu "${piece%$'\r'}"
}

drain() {
  local rest
  while read -r -t 0 -u "$pipe" && IFS= read -r -n 1000 -t 0.01 -u "$pipe" rest; do :; done
}

hear_gpu() {
  local words
  IFS=, read -r -a words <<<"$1,"
  if [[ $gpu_command == nvidia-smi ]]; then hear_nvidia; else hear_rocm; fi
}

# Parse a line such as `0, NVIDIA A100-SXM4-40GB, 35, 1234, 40960, 98.12`. Unsupported values are words in brackets.
hear_nvidia() {
  local count=${#words[@]} name
  ((count >= 6)) && [[ ${words[0]} =~ ^[0-9]+$ ]] || return 0
  name=${words[*]:1:count-5}
  note_gpu "${words[0]}" "$name" "${words[count - 4]}" "${words[count - 3]}" "${words[count - 2]}" "${words[count - 1]}"
}

# Parse a heading, and then a line for each card, which begins with its name: `card0`. The columns, and some of their
# names, vary between versions.
hear_rocm() {
  local column value name='' percent='' used='' total='' watts=''
  if [[ ${words[0]} == device ]]; then
    rocm_columns=("${words[@]}")
    return
  fi
  [[ ${words[0]} =~ ^card([0-9]+)$ && ,${gpu_ids:-${BASH_REMATCH[1]}}, == *,${BASH_REMATCH[1]},* ]] || return 0
  for column in "${!rocm_columns[@]}"; do
    value=${words[column]-}
    case ${rocm_columns[column]} in
      'GPU use (%)')                   percent=$value ;;
      'VRAM Total Memory (B)')         is_number "$value" && total=$((value / 1048576)) ;;
      'VRAM Total Used Memory (B)')    is_number "$value" && used=$((value / 1048576)) ;;
      *'Graphics Package Power (W)')   watts=$value ;;
      'Card Series' | 'Card series')   name=$value ;;
    esac
  done
  note_gpu "${words[0]#card}" "$name" "$percent" "$used" "$total" "$watts"
}
rocm_columns=()

is_number() { [[ $1 =~ ^\ *([0-9]{1,12}(\.[0-9]{1,12})?)\ *$ ]]; }

# note_gpu INDEX NAME PERCENT USED TOTAL WATTS: set the GPU's row from the values since the last sample: the mean of its
# use and its power, and the maximum memory. Values that the card does not report are left empty.
note_gpu() {
  local name=$2 total='' percent watts memory
  # Without characters that have a meaning for programs that read the file.
  name=${name//[^[:alnum:] ._()\/+-]/ }
  name=${name#"${name%%[! ]*}"} name=${name%"${name##*[! ]}"}
  find_mean "$1.percent" "$3" && percent=$(((mean + 50) / 100))
  find_most "$1.memory" "$4" && memory=$most
  is_number "$5" && total=${BASH_REMATCH[1]}
  find_mean "$1.watts" "$6" && printf -v watts '%d.%02d' "$((mean / 100))" "$((mean % 100))"
  gpus[$1]=$1,${name:0:60},${percent-},${memory-},$total,${watts-} gpu_at[$1]=$now
  silent_since=$now
}

# find_mean KEY NUMBER: set mean to that of the numbers for this key since the last sample, in hundredths; fail if there
# is none.
find_mean() {
  local part
  if is_number "$2"; then
    part=${BASH_REMATCH[2]#.}00
    ((sums[$1] += 10#${BASH_REMATCH[1]%%.*}${part:0:2}, counts[$1] += 1))
  fi
  ((${counts[$1]-0})) && mean=$(((sums[$1] + counts[$1] / 2) / counts[$1]))
}

# find_most KEY NUMBER: likewise the maximum, as a whole number.
find_most() {
  is_number "$2" && ((10#${BASH_REMATCH[1]%%.*} > ${mosts[$1]:--1})) && mosts[$1]=$((10#${BASH_REMATCH[1]%%.*}))
  most=${mosts[$1]-}
  [[ -n $most ]]
}

# Called after each sample. A GPU without new values until the next sample keeps its row.
begin_readings() { sums=() counts=() mosts=(); }
declare -A sums=() counts=() mosts=()
gpu_at=()
