# shellcheck shell=bash disable=SC2154   # want_… are set by lib.sh
#
# Activates the software that a job asks for: modules, conda, venv, uv, and the profile's own activation code. lib.sh
# sources this file; it is never run.

# ------------------------------------------------------------------------------------------------------- modules

# Define the `module` command if necessary: a batch job's shell reads no profile.
find_module_command() {
  local init
  [[ $(type -t module) == function && -n ${MODULEPATH-} ]] && return
  for init in "${LMOD_PKG:+$LMOD_PKG/init/bash}" "${MODULESHOME:+$MODULESHOME/init/bash}" \
    /etc/profile.d/{lmod,z00_lmod,z01_lmod,modules}.sh \
    /usr/share/lmod/lmod/init/bash /usr/share/{modules,Modules}/init/bash \
    /opt/cray/pe/lmod/lmod/init/bash /opt/modules/default/init/bash; do
    # shellcheck disable=SC1090
    [[ -r $init ]] && source "$init" </dev/null
    [[ $(type -t module) == function && -n ${MODULEPATH-} ]] && return
  done
  [[ $(type -t module) == function ]]
}

load_modules() {
  local item
  ((${#want_modules[@]} + ${#want_module_uses[@]})) || return 0
  find_module_command || fail module-command-missing \
    "There is no 'module' command on $(uname -n), which is needed to load ${want_modules[*]:-${want_module_uses[*]}}."
  for item in "${want_module_uses[@]}"; do
    module use "$item" || fail module-failed "The module directory $item could not be used: see the job's log."
  done
  for item in "${want_modules[@]}"; do
    load_module "$item" || fail module-failed "Module $item could not be loaded on $(uname -n): see the job's log;\
 'module spider ${item%%/*}' on the login node lists what there is."
  done
}

# load_module NAME: fail also if `module load` reports success for a module that does not exist, as the old C
# implementation of Environment Modules does. Lmod's exit status is right, and its names may be aliases; but a job may
# have inherited the login node's `module` although this node has no Lmod.
load_module() {
  local before=${LOADEDMODULES-}
  module load "$1" || return
  [[ -n ${LMOD_VERSION-} && -x ${LMOD_CMD-} || ${LOADEDMODULES-} != "$before" ]] && return
  [[ ":${LOADEDMODULES-}:" == *":$1:"* || ":${LOADEDMODULES-}:" == *":$1/"* ]]
}

# ----------------------------------------------------------------------------------------- conda, venv, activation

# Everything from here to the end of the section runs where JupyterLab will run: inside the container, if there is one.

activate() {
  activate_conda
  activate_venv
  activate_uv
  activate_code
  # Again, after modules and activation: no variable may redirect JupyterLab.
  clean_environment
}

activate_conda() {
  [[ -n $want_conda ]] || return 0
  local nbl_script   # see activate_conda_prefix
  nbl_script=$(find_conda_script)
  if [[ -n $nbl_script ]]; then
    # shellcheck disable=SC1090
    source "$nbl_script" && conda activate "$want_conda" && return
  else
    activate_conda_prefix && return
  fi
  [[ -z $want_container ]] ||
    fail conda-missing "The conda environment $want_conda could not be activated inside the image $want_container, where\
 it is looked for: see the job's log. An environment of the profile without an image uses the conda of the node."
  fail conda-missing "The conda environment $want_conda could not be activated on $(uname -n): see the job's log;\
 'conda env list' shows those there are."
}

# Print the path of conda.sh, which defines `conda activate`.
find_conda_script() {
  local conda base
  conda=${CONDA_EXE:-$(type -P conda || type -P mamba)}
  for base in "${conda:+${conda%/*/*}}" "${MAMBA_ROOT_PREFIX-}" \
    "$HOME"/{miniforge3,mambaforge,miniconda3,anaconda3,micromamba} \
    /opt/{conda,miniforge3,mambaforge,miniconda3,anaconda3}; do
    [[ -n $base && -r $base/etc/profile.d/conda.sh ]] && printf '%s\n' "$base/etc/profile.d/conda.sh" && return
  done
}

# Do what `conda activate` does, but without conda, which an environment does not need; micromamba, a single program,
# has no conda.sh either. Local variables begin with nbl_, because any other name may be a variable of the environment,
# which would then be local as well.
activate_conda_prefix() {
  local nbl_prefix nbl_item nbl_all='' nbl_root=${MAMBA_ROOT_PREFIX:-$HOME/micromamba}
  local nbl_prefixes=("$want_conda" "$nbl_root/envs/$want_conda"
    "$HOME"/{.conda,micromamba,.local/share/mamba,miniforge3}/envs/"$want_conda")
  [[ $want_conda != base ]] || nbl_prefixes+=("$nbl_root" "$HOME"/{.local/share/mamba,miniforge3})
  for nbl_prefix in "${nbl_prefixes[@]}"; do
    [[ -d $nbl_prefix/conda-meta ]] || continue
    export CONDA_PREFIX=$nbl_prefix CONDA_DEFAULT_ENV=$want_conda CONDA_SHLVL=1 PATH=$nbl_prefix/bin:$PATH
    while IFS= read -r -d '' nbl_item; do
      if [[ $nbl_item == *=* ]]; then export "${nbl_item?}"; else nbl_all=yes; fi
    done < <(conda_variables "$nbl_prefix" && printf 'all\0')
    [[ -n $nbl_all ]] || log "the variables of the conda environment $nbl_prefix are not all set"
    for nbl_item in "$nbl_prefix"/etc/conda/activate.d/*.sh; do
      # shellcheck disable=SC1090
      [[ -r $nbl_item ]] && source "$nbl_item"
    done
    return 0
  done
  log "neither conda itself nor an environment directory $want_conda was found"
  return 1
}

# Print the variables of a conda environment as NAME=VALUE, with a NUL after each: those of its packages, and those of
# `conda env config vars set` or an environment.yml, which take precedence. Fails unless all can be read.
conda_variables() {
  local python=$1/bin/python
  compgen -G "$1/etc/conda/env_vars.d/*.json" >/dev/null || [[ -e $1/conda-meta/state ]] || return 0
  [[ -f $python && -x $python ]] || python=python3
  "$python" -I - "$1" <<'END'
import json, pathlib, re, sys

prefix, found, failed = pathlib.Path(sys.argv[1]), {}, 0
for path in [*sorted(prefix.glob("etc/conda/env_vars.d/*.json")), prefix / "conda-meta" / "state"]:
    try:
        values = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        found.update(dict.items(values.get("env_vars", {}) if path.name == "state" else values))
    except Exception as problem:
        failed = print(f"conda: {path} has no variables that can be read: {problem!r}", file=sys.stderr) or 1
for name, value in found.items():
    if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) and isinstance(value, str) and value != "***unset***":
        try:
            sys.stdout.buffer.write(f"{name}={value}".replace("\0", "").encode("utf-8", "surrogateescape") + b"\0")
        except UnicodeError as problem:
            failed = print(f"conda: {name} cannot be set: {problem!r}", file=sys.stderr) or 1
sys.exit(failed)
END
}

activate_venv() {
  [[ -n $want_venv ]] || return 0
  [[ -r $want_venv/bin/activate ]] ||
    fail venv-missing "There is no virtual environment in $want_venv on $(uname -n) (no bin/activate)."
  [[ -x $want_venv/bin/python ]] ||
    fail venv-missing "The virtual environment $want_venv has lost its Python on $(uname -n): make it anew, or load the\
 module it was made with."
  # shellcheck disable=SC1091
  source "$want_venv/bin/activate" || fail venv-missing "The virtual environment $want_venv could not be activated."
}

# Activate what `uv sync` has created in a project. uv itself is not needed, and nothing is downloaded.
activate_uv() {
  [[ -n $want_uv ]] || return 0
  [[ -d $want_uv ]] || fail venv-missing "There is no uv project in $want_uv on $(uname -n)."
  [[ -r $want_uv/.venv/bin/activate ]] || fail venv-missing "The uv project $want_uv has no environment yet (no .venv);\
 on the login node, make it with: uv sync --project $want_uv."
  [[ -x $want_uv/.venv/bin/python ]] || fail venv-missing "The environment of the uv project $want_uv has lost its\
 Python on $(uname -n); on the login node, make it anew: uv sync --project $want_uv."
  # shellcheck disable=SC1091
  source "$want_uv/.venv/bin/activate" || fail venv-missing "The environment of the uv project $want_uv could not be\
 activated."
}

# Run the profile's own shell code. This is the only place where a setting is evaluated, because it is meant to be.
activate_code() {
  local code status
  ((${#want_activate[@]})) || return 0
  for code in "${want_activate[@]}"; do
    # Written before and removed afterwards, because the code may end this shell.
    write_file "$NBL_CAUSE_FILE" \
      "activate-failed The activation code '${code:0:80}' ended the job's shell on $(uname -n)."
    eval "$code"   # not in an `if` or before `||`, where its own `set -e` would have no effect
    status=$?
    set +eu
    ((status == 0)) || fail activate-failed \
      "The activation code '${code:0:80}' failed with exit code $status on $(uname -n): see the job's log."
  done
  rm -f -- "$NBL_CAUSE_FILE"
}

# ------------------------------------------------------------------------------------------------- JupyterLab

# Prefix for the code of `python -c`: without it, Python would look for modules in the working directory first, where
# somebody else may have put a json.py.
not_from_here='import sys; sys.path[:] = [folder for folder in sys.path if folder]'

has_jupyterlab() { type -P jupyter-lab >/dev/null || python3 -c "$not_from_here; import jupyterlab" 2>/dev/null; }
