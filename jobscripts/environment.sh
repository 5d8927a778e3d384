#!/bin/bash
# Make an environment from a file of packages; JupyterLab and a kernel are added where they are missing.
#
#   environment.sh venv WORK_DIR DIR        a virtual environment in DIR, of WORK_DIR/requirements.txt
#   environment.sh conda WORK_DIR NAME      a conda environment, by name or path, of WORK_DIR/environment.yml
#
# WORK_DIR/session.env names modules that are loaded first. It prints what pip or conda says, and at last
# `nbl-made PLACE` or `nbl-failed SENTENCE`. What was there before is never touched; what is half made is removed.

main() {
  local kind=$1
  work=$2 target=$3 made=''
  # shellcheck source=jobscripts/lib.sh
  source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
  NBL_CAUSE_FILE=$work/cause
  trap 'exit 143' TERM INT HUP
  trap 'tidy_up' EXIT
  read_settings "$work/session.env"
  (load_modules) || give_up "$(cause_of_failure)"
  load_modules
  if [[ $kind == conda ]]; then make_conda; else make_venv; fi
  made=yes
  printf 'nbl-made %s\n' "$target"
}

make_venv() {
  local python
  python=$(type -P python3 || type -P python) || give_up "There is no Python on $(uname -n); name a module that has it."
  [[ ! -e $target ]] || give_up "There is something in $target already."
  new=$target
  mkdir -p -- "$(dirname -- "$target")"
  "$python" -m venv "$target" 2>&1 </dev/null ||
    give_up "$python could make no virtual environment in $target."
  "$target/bin/python" -m pip install --quiet --requirement "$work/requirements.txt" 2>&1 </dev/null ||
    give_up "pip could not install what requirements.txt names."
  [[ -x $target/bin/jupyter-lab ]] || printf 'adding jupyterlab and ipykernel\n'
  "$target/bin/python" -m pip install --quiet jupyterlab ipykernel 2>&1 </dev/null ||
    give_up "pip could not install jupyterlab and ipykernel."
}

make_conda() {
  local conda name path by=-n
  for name in mamba conda micromamba; do conda=$(type -P "$name" || true) && [[ -n $conda ]] && break; done
  [[ -n $conda ]] || conda=${CONDA_EXE-}
  [[ -n $conda ]] || give_up "There is neither mamba nor conda on $(uname -n); name a module that has it."
  [[ $target != */* ]] || by=-p
  while read -r name _ path; do
    [[ $name != "$target" && ${path:-$name} != "$target" ]] || give_up "There is an environment $target already."
  done < <("$conda" env list 2>/dev/null)
  "$conda" env create -y "$by" "$target" -f "$work/environment.yml" 2>&1 </dev/null ||
    give_up "${conda##*/} could not make what environment.yml names."
  "$conda" install -y "$by" "$target" -c conda-forge jupyterlab ipykernel 2>&1 </dev/null ||
    give_up "${conda##*/} could not install jupyterlab and ipykernel."
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

# shellcheck disable=SC2317  # called by the trap
tidy_up() { [[ -n $made || -z ${new-} ]] || rm -rf -- "$new"; }

main "$@"
exit
