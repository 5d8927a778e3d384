# shellcheck shell=bash
#
# Ray, for workers.sh and worker_node.sh, which source this file: its keys and folder, its variables, and which nodes
# have joined.
#
# shellcheck disable=SC2034,SC2154  # it shares its variables with these two and with lib.sh

# Older versions have no token, so that anybody who can reach them can run code.
framework_name=Ray framework_version='Ray 2.52 or newer'
framework_files=(ray-{ca,ca-key}.pem ray-token)
framework_packages="'ray[default]>=2.52'"
# The first node also computes, as part of Ray's head.
framework_first_node=scheduler

# A socket's path may have 107 characters, of which Ray uses up to 66, and the folders' own names 18.
readonly LONGEST_RAY_PLACE=23

# has_framework PYTHON
has_framework() {
  has_modules "$1" ray && "$1" -c "$not_from_here
from importlib.metadata import version
sys.exit([int(part) for part in version('ray').split('.')[:2]] < [2, 52])" </dev/null 2>/dev/null
}

# The variables that Ray's own clients look for.
name_scheduler() {
  export RAY_ADDRESS=$scheduler_address NBL_DASHBOARD_PORT=$dashboard_port
  # Notebooks connect to Ray by its sockets there.
  ! read_line "$NBL_SESSION_DIR/runtime/ray-folder" || show_ray_folder "$REPLY"
  [[ $dashboard_port == 0 ]] || export RAY_API_SERVER_ADDRESS=http://127.0.0.1:$dashboard_port
  set_framework_variables
}

# Disable Ray's usage reports, and require the session's keys and token from everybody.
set_framework_variables() {
  local keys=$NBL_SESSION_DIR/runtime/ray-$node
  unset RAY_AUTH_TOKEN
  export RAY_USE_TLS=1 RAY_TLS_CA_CERT=$NBL_SESSION_DIR/ray-ca.pem
  export RAY_TLS_SERVER_CERT=$keys-cert.pem RAY_TLS_SERVER_KEY=$keys-key.pem
  export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$NBL_SESSION_DIR/ray-token
  export RAY_USAGE_STATS_ENABLED=0
  # With a single node, listen only on 127.0.0.1, as Ray does on systems where it supports only one node.
  ((NBL_NODES > 1)) || export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0
  # Otherwise anybody who connects to a port could fill the job's log.
  export GRPC_VERBOSITY=${GRPC_VERBOSITY-NONE}
}

# Set nodes, count, threads and memory to those of the nodes that have joined; each has recorded its own.
count_workers() {
  local file cores bytes
  nodes=0 threads=0 memory=0
  for file in "$NBL_SESSION_DIR"/runtime/ray-joined-*; do
    if [[ $file != *.new.* ]] && read_line "$file"; then
      read -r cores bytes <<<"$REPLY"
      ((nodes++, threads += cores, memory += bytes))
    fi
  done
  count=$nodes
}

say_workers() { log "Ray: $nodes nodes with $threads cores, head at $scheduler_address"; }

# Create what Ray needs on this node before it starts: a certificate, and a folder.
prepare_framework() {
  make_certificate
  make_ray_folder
}

# gRPC, with which Ray's processes communicate, requires the node's address in the certificate, and the address is not
# known before the job starts.
make_certificate() {
  local keys=$NBL_SESSION_DIR/runtime/ray-$node said
  type -P openssl >/dev/null || fail workers-failed "openssl was not found on $node; it makes the keys for Ray."
  said=$(
    umask 077
    exec 2>&1
    printf 'subjectAltName=IP:%s,IP:127.0.0.1,DNS:localhost\nkeyUsage=critical,digitalSignature\n' \
      "$NBL_NODE_ADDRESS" >"$keys.cnf" &&
      openssl ecparam -name prime256v1 -genkey -noout -out "$keys-key.pem" &&
      openssl req -new -sha256 -subj "/CN=$node" -key "$keys-key.pem" -out "$keys.csr" &&
      openssl x509 -req -sha256 -days 365 -set_serial "$RANDOM$RANDOM$RANDOM$RANDOM" -extfile "$keys.cnf" \
        -CA "$NBL_SESSION_DIR/ray-ca.pem" -CAkey "$NBL_SESSION_DIR/ray-ca-key.pem" -in "$keys.csr" -out "$keys-cert.pem"
  ) || fail workers-failed "openssl on $node could not make the keys for Ray: ${said##*$'\n'}"
  rm -f -- "$keys.cnf" "$keys.csr"
}

# For sockets, logs, and objects that do not fit into memory. It has the same name on all nodes, as older versions of
# Ray require; the name is random, so that nobody else can create it before, and nobody else may enter it. The files
# that Ray creates in it are open to everybody, including its sockets, which require no token.
make_ray_folder() {
  local place=${RAY_TMPDIR:-/tmp} pair file=$NBL_SESSION_DIR/runtime/ray-folder
  for pair in "${want_env[@]}"; do [[ $pair != RAY_TMPDIR=?* ]] || place=${pair#*=}; done # not exported yet
  if [[ $role == scheduler ]]; then
    if [[ $place != /* || $place == *[:,]* ]] || ((${#place} > LONGEST_RAY_PLACE)); then
      log "RAY_TMPDIR='$place' is not the path of a folder with up to $LONGEST_RAY_PLACE characters and no : or ,; using /tmp"
      place=/tmp
    fi
    NBL_RAY_FOLDER=$(mktemp -d -- "${place%/}/nl-ray-XXXXXXXX") && write_file "$file" "$NBL_RAY_FOLDER"
  else
    read_line "$file" && mkdir -m 700 -- "$REPLY" && NBL_RAY_FOLDER=$REPLY
  fi || fail workers-failed "No folder for Ray could be made on $node: see the job's log."
  export NBL_RAY_FOLDER
  show_ray_folder "$NBL_RAY_FOLDER"
}

# show_ray_folder FOLDER: mount it in a container, unless it is in /tmp, which is mounted anyway.
show_ray_folder() { [[ -z $want_container || $1 == /tmp/* ]] || want_binds+=("$1"); }

clean_up_framework() {
  [[ -z ${NBL_RAY_FOLDER-} ]] || rm -rf -- "$NBL_RAY_FOLDER"
}
