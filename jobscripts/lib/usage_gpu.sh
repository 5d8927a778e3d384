# shellcheck shell=bash
#
# What a job's GPUs do: the half of usage.sh that listens to nvidia-smi or rocm-smi. usage.sh sources this file; it is
# never run.
#
# shellcheck disable=SC2034,SC2154  # it shares its variables with usage.sh

# After an nvidia-smi that has died, hangs or talks nonsense, another one is tried so much later.
readonly RETRY_SECONDS=600
# nvidia-smi tells what a GPU did in the last second at most. So it is read every second, and a sample has the mean; or
# this often in a sample, where that takes longer.
readonly MOST_READINGS=10
# More lines between two samples are no answer of such a program.
readonly MOST_LINES=500
# rocm-smi is a Python program that costs most of a second.
readonly ROCM_SECONDS=30

readonly NVIDIA_QUERY=index,name,utilization.gpu,memory.used,memory.total,power.draw

# Set gpu_command, to nothing where no GPU is to be looked at, and gpu_ids to those that are the job's (nothing: all that
# are to be seen).
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

# Slurm numbers the GPUs as nvidia-smi does: from 0 where the job sees only its own, else as they are on the node. A job
# that has asked for none has none of these variables.
find_nvidia_ids() {
  local id
  gpu_ids=${CUDA_VISIBLE_DEVICES-${SLURM_STEP_GPUS-${SLURM_JOB_GPUS-}}}
  [[ -n ${CUDA_VISIBLE_DEVICES+set}${SLURM_STEP_GPUS+set}${SLURM_JOB_GPUS+set} ]] || { [[ -z ${SLURM_JOB_ID-} ]]; return; }
  # A part of a GPU (MIG) is not known to this query by its name, only the GPU is; such a job sees nothing else.
  [[ $gpu_ids != MIG-* ]] || { gpu_ids=''; return 0; }
  for id in ${gpu_ids//,/ }; do
    [[ $id =~ ^([0-9]+|GPU-[0-9a-f-]+)$ ]] || return 1
  done
  [[ -n $gpu_ids ]]
}

# rocm-smi shows those of the node. It was never tried on a real card.
find_amd_ids() {
  gpu_ids=${SLURM_JOB_GPUS-${ROCR_VISIBLE_DEVICES-}}
  [[ -n $gpu_ids ]] || { [[ -z ${SLURM_JOB_ID-} ]]; return; }
  [[ $gpu_ids =~ ^[0-9]+(,[0-9]+)*$ ]] || gpu_ids=''
}

# A pipe of which this shell alone has the end that is read: a writer does not outlive it.
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
  # Should it hold back what goes into a pipe.
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

# Killed and not asked: it has nothing to lose. One that hangs in its driver goes when that lets it.
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

# Look whether the GPU program is well. A stuck one is left alone then, and no second one is started beside it.
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

# listen HUNDREDTHS: wait for that long, or until the GPU program has said a line.
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
  gpu_words+=$piece   # half a line, where the time was over
  ((code == 0)) || return 0
  if ((${#piece} >= 1000 || ++chatter > MOST_LINES)); then
    # So nobody keeps us busy with what we did not ask for.
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

# As in `0, NVIDIA A100-SXM4-40GB, 35, 1234, 40960, 98.12`. What a card does not tell is a word in brackets.
hear_nvidia() {
  local count=${#words[@]} name
  ((count >= 6)) && [[ ${words[0]} =~ ^[0-9]+$ ]] || return 0
  name=${words[*]:1:count-5}
  note_gpu "${words[0]}" "$name" "${words[count - 4]}" "${words[count - 3]}" "${words[count - 2]}" "${words[count - 1]}"
}

# A heading, and then a line for each card, which it begins with: `card0`. Which columns there are, and some of their
# names, change from version to version.
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

# note_gpu INDEX NAME PERCENT USED TOTAL WATTS: set the GPU's row to what was read since the last sample: the mean of its
# use and its power, and the most memory. What the card does not tell is left empty.
note_gpu() {
  local name=$2 total='' percent watts memory
  # Nothing in it is of meaning to whoever reads the file, or a line of it.
  name=${name//[^[:alnum:] ._()\/+-]/ }
  name=${name#"${name%%[! ]*}"} name=${name%"${name##*[! ]}"}
  find_mean "$1.percent" "$3" && percent=$(((mean + 50) / 100))
  find_most "$1.memory" "$4" && memory=$most
  is_number "$5" && total=${BASH_REMATCH[1]}
  find_mean "$1.watts" "$6" && printf -v watts '%d.%02d' "$((mean / 100))" "$((mean % 100))"
  gpus[$1]=$1,${name:0:60},${percent-},${memory-},$total,${watts-} gpu_at[$1]=$now
  silent_since=$now
}

# find_mean KEY NUMBER: set mean to that of the numbers under this key since the last sample, in hundredths; fail where
# there is none.
find_mean() {
  local part
  if is_number "$2"; then
    part=${BASH_REMATCH[2]#.}00
    ((sums[$1] += 10#${BASH_REMATCH[1]%%.*}${part:0:2}, counts[$1] += 1))
  fi
  ((${counts[$1]-0})) && mean=$(((sums[$1] + counts[$1] / 2) / counts[$1]))
}

# find_most KEY NUMBER: likewise the largest, as whole number.
find_most() {
  is_number "$2" && ((10#${BASH_REMATCH[1]%%.*} > ${mosts[$1]:--1})) && mosts[$1]=$((10#${BASH_REMATCH[1]%%.*}))
  most=${mosts[$1]-}
  [[ -n $most ]]
}

# To be called after each sample. A GPU of which nothing is read until the next one keeps its row.
begin_readings() { sums=() counts=() mosts=(); }
declare -A sums=() counts=() mosts=()
gpu_at=()
