# shellcheck shell=bash
#
# Dask, for workers.sh and worker_node.sh, which source this file: its keys, its variables, and which workers joined.
#
# shellcheck disable=SC2034,SC2154  # it shares its variables with these two and with lib.sh

framework_name=Dask framework_version=Dask
framework_files=(dask-{ca,cert,key}.pem)
framework_packages="'dask[distributed]' bokeh"
# Each node has workers; the first node also has the scheduler.
framework_first_node=workers

# has_framework PYTHON
has_framework() { has_modules "$1" distributed; }

# The variables that Dask's own clients look for.
name_scheduler() {
  export DASK_SCHEDULER_ADDRESS=$scheduler_address
  export DASK_DISTRIBUTED__COMM__TLS__CA_FILE=$NBL_SESSION_DIR/dask-ca.pem
  export DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT=$NBL_SESSION_DIR/dask-cert.pem
  export DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY=$NBL_SESSION_DIR/dask-key.pem
}

# Set nodes, count, threads and memory to those of the workers that have joined, as the scheduler has recorded them.
count_workers() {
  read_line "$NBL_SESSION_DIR/runtime/workers" || return 1
  read -r nodes count threads memory <<<"$REPLY"
}

say_workers() {
  log "Dask: $count workers with $threads threads on $nodes nodes, scheduler at $scheduler_address"
}

prepare_framework() { :; }

clean_up_framework() { :; }

# The log shows which workers join and leave, but no other messages of Dask.
set_framework_variables() { export DASK_LOGGING__DISTRIBUTED=${DASK_LOGGING__DISTRIBUTED-warning}; }
