#!/bin/bash
# Create an environment from a file of packages; JupyterLab and a kernel are added if they are missing.
#
#   create_environment.sh venv WORK_DIR DIR        a virtual environment in DIR, of WORK_DIR/requirements.txt
#   create_environment.sh conda WORK_DIR NAME      a conda environment, by name or path, of WORK_DIR/environment.yml
#   create_environment.sh tidy WORK_DIR            remove an incomplete environment
#
# WORK_DIR/session.env names modules to load first. It prints the output of pip or conda, and finally
# `nbl-made WORK PLACE` or `nbl-failed WORK SENTENCE`, where WORK is the name of WORK_DIR. Existing files are never
# touched; an incomplete environment is removed. WORK_DIR/begun names it, for `tidy`, in case we are killed.

# Bash's default shell options, whatever BASH_ENV and SHELLOPTS say; the same lines are in every script.
[[ -n ${users_options[1]+set} ]] ||
  users_options=("$SHELLOPTS" "$BASHOPTS" "${POSIXLY_CORRECT+$(compgen -e POSIXLY_CORRECT || :)}")
set +o posix; set +aefkmuvCET -B +o pipefail; trap - DEBUG ERR RETURN; [[ -n ${BASH_XTRACEFD-} ]] || set +x
shopt -u failglob nullglob dotglob nocaseglob nocasematch expand_aliases execfail lastpipe xpg_echo
IFS=$' \t\n'; unset GLOBIGNORE

main() {
  local kind=$1 here
  work=$2 target=${3-} child=''
  here=$(dirname -- "${BASH_SOURCE[0]}")
  # shellcheck source=jobscripts/lib/lib.sh
  source "$here/lib.sh"
  # shellcheck source=jobscripts/lib/build_steps.sh
  source "$here/build_steps.sh"
  if [[ $kind == tidy ]]; then remove_begun; return; fi
  NBL_CAUSE_FILE=$work/cause
  trap 'stopped' TERM INT HUP
  trap 'tidy_up' EXIT
  read_settings "$work/session.env"
  (load_modules) || give_up "$(cause_of_failure)"
  load_modules
  [[ $target != */* || $target == /* ]] || target=$PWD/$target
  if [[ $kind == conda ]]; then make_conda; else make_venv; fi
  rm -f -- "$work/begun"
  tell_launcher made "$target"
}

make_venv() {
  local python
  python=$(type -P python3 || type -P python) || give_up "There is no Python on $(uname -n); name a module that has it."
  refuse_existing "$target"
  mkdir -p -- "$(dirname -- "$target")"
  # Fails if somebody else has created it meanwhile.
  mkdir -- "$target" || give_up "The folder $target cannot be made on $(uname -n)."
  begin "$target"
  follow "$python" -m venv "$target" || give_up "$python could make no virtual environment in $target."
  follow "$target/bin/python" -m pip install --quiet --requirement "$work/requirements.txt" ||
    give_up "pip could not install what requirements.txt names."
  [[ -x $target/bin/jupyter-lab ]] || printf 'adding jupyterlab and ipykernel\n'
  follow "$target/bin/python" -m pip install --quiet jupyterlab ipykernel ||
    give_up "pip could not install jupyterlab and ipykernel."
}

# Without -y: with it, `env create` begins by removing what is in its way.
make_conda() {
  local conda by=-n
  conda=$(find_conda) || give_up "There is no conda, mamba or micromamba on $(uname -n); name a module that has one."
  export CONDA_ALWAYS_YES=false MAMBA_ALWAYS_YES=false
  if [[ $target == */* ]]; then
    by=-p places=("$target")
    refuse_existing "$target"
  else
    refuse_existing_name "$conda"
  fi
  begin "${places[@]}"
  follow "$conda" env create "$by" "$target" -f "$work/environment.yml" ||
    give_up "${conda##*/} could not make what environment.yml names."
  follow "$conda" install -y "$by" "$target" -c conda-forge jupyterlab ipykernel ||
    give_up "${conda##*/} could not install jupyterlab and ipykernel."
}

# Print the path of a program that creates conda environments. `conda init` writes into ~/.bashrc, most of which only
# interactive shells execute: programs installed in the home are rarely on the PATH here.
find_conda() {
  local name script
  for name in mamba conda micromamba; do type -P "$name" && return; done
  script=$(find_conda_script)
  for name in "${CONDA_EXE-}" "${MAMBA_EXE-}" "${script:+${script%/etc/*}/bin/mamba}" \
    "${script:+${script%/etc/*}/bin/conda}" "$HOME"/{.local/bin,bin}/micromamba; do
    [[ -f $name && -x $name ]] && printf '%s\n' "$name" && return
  done
  return 1
}

refuse_existing() { [[ ! -e $1 && ! -L $1 ]] || give_up "There is something in $1 already."; }

# Fail if the name is taken: conda lists it, or a folder of environments contains anything of that name. Sets places to
# where the new one may be created.
refuse_existing_name() {
  local listed field fields place
  listed=$("$1" env list 2>&1 </dev/null) || give_up "${1##*/} cannot list its environments: ${listed##*$'\n'}"
  while read -r -a fields; do
    [[ ${fields[0]-} != '#'* ]] || continue
    for field in "${fields[@]}"; do
      [[ ${field##*/} != "$target" ]] || give_up "There is an environment $target already."
    done
  done <<<"$listed"
  find_places "$1"
  ((${#places[@]})) || give_up "${1##*/} does not tell where its environments lie (${1##*/} info); name a path."
  for place in "${places[@]}"; do refuse_existing "$place"; done
}

# Parse `conda info`: "envs directories : /a", followed by lines with only a path.
find_places() {
  local line among=''
  places=()
  while IFS= read -r line; do
    case $line in
      *'envs directories : '*) among=yes line=${line#*: } ;;
      *' : '*) among='' ;;
    esac
    [[ -z $among || $line != */* ]] || places+=("/${line#*/}/$target")
  done < <("$1" info 2>/dev/null </dev/null)
}

# begin PLACE...: from now on, files there are ours.
begin() {
  printf '%s\n' "$@" >"$work/begun" || give_up "The folder $work cannot be written on $(uname -n)."
}

remove_begun() {
  local place
  [[ -f $work/begun ]] || return 0
  while IFS= read -r place; do [[ ! -O $place ]] || rm -rf -- "$place"; done <"$work/begun"
  rm -f -- "$work/begun"
}

# shellcheck disable=SC2317  # called by the trap
tidy_up() {
  [[ -z $child ]] || end_child
  remove_begun
}

main "$@"
exit
