#!/bin/bash
# Runs inside a fresh root file system (by chroot) and turns it into one for the boxes of the cluster.
# Arguments: NAME:UID:SHELL:PASSWORD of each user, PASSWORD empty for users who log in with a key.
set -euo pipefail

for entry in "$@"; do
    IFS=: read -r name uid shell password <<<"$entry"
    useradd --no-create-home --uid "$uid" --user-group --shell "$shell" "$name"
    # "*" instead of useradd's "!": no password fits, but the account is not a locked one.
    if [ -n "$password" ]; then echo "$name:$password" | chpasswd; else usermod -p '*' "$name"; fi
done

# Every box gets a host key of its own when it starts.
rm -f /etc/ssh/ssh_host_*
mkdir -p /sw /etc/slurm /opt/launcher /opt/notebook-launcher /var/log/slurm /var/lib/slurm
chown slurm: /var/log/slurm /var/lib/slurm
rm -rf /etc/slurm/* /var/log/slurm/* /var/lib/slurm/*

# Apptainer does not build without one; boxes of the cluster bring their own.
echo '127.0.0.1 localhost' >/etc/hosts

cat >/etc/motd <<'MOTD'
This is a practice cluster: real Slurm, real ssh, real containers, no real GPUs.

MOTD

cat >/etc/lmod/modulespath <<'PATHS'
/sw/modules
/etc/lmod/modules
/usr/share/lmod/lmod/modulefiles/
PATHS

# Lmod's own runs twenty programs at each login, and one in each bash below it (BASH_ENV). What these find out is known.
cat >/etc/profile.d/lmod.sh <<'SHELL'
if [ -z "${MODULEPATH_ROOT:-}" ]; then
  export MODULEPATH_ROOT=/usr/share/modulefiles LMOD_sys=Linux USER="${USER-$LOGNAME}"
  while read -r dir; do
    [ ! -d "$dir" ] || export MODULEPATH="${MODULEPATH:+$MODULEPATH:}$dir"
  done </etc/lmod/modulespath
  export BASH_ENV="${BASH_ENV:-/usr/share/lmod/lmod/init/bash}"
  export MANPATH="/usr/share/lmod/lmod/share/man:${MANPATH:-}"
fi
if [ "${BASH_VERSION:-}" ]; then . /usr/share/lmod/lmod/init/bash; else . /usr/share/lmod/lmod/init/sh; fi >/dev/null
SHELL
functions=/usr/share/lmod/lmod/init/ksh_funcs
sed -i "s|^export FPATH=.*|case :\${FPATH-}: in *:$functions:*) ;; *) export FPATH=\${FPATH:+\$FPATH:}$functions ;; esac|" \
    /usr/share/lmod/lmod/init/bash

# A site's Podman: it has images for everybody, and keeps what it makes on the node and not in homes. Podman does not
# look up the images of /etc/containers/storage.conf for ordinary users.
cat >/etc/containers/storage-of-users.conf <<'STORAGE'
[storage]
driver = "overlay"
rootless_storage_path = "/var/tmp/containers-$USER"

[storage.options]
additionalimagestores = ["/sw/images/podman-store"]

[storage.options.overlay]
mount_program = "/usr/bin/fuse-overlayfs"
STORAGE
cat >/usr/local/bin/podman <<'SHELL'
#!/bin/sh
test "$(id -u)" = 0 || export CONTAINERS_STORAGE_CONF="${CONTAINERS_STORAGE_CONF:-/etc/containers/storage-of-users.conf}"
exec /usr/bin/podman "$@"
SHELL
chmod 755 /usr/local/bin/podman

cat >/usr/local/bin/launch-notebook <<'PYTHON'
#!/opt/launcher/bin/python3
"""Start the launcher from the checkout that is mounted at /opt/notebook-launcher."""
import sys

from notebook_launcher.cli import main

sys.exit(main())
PYTHON
chmod 755 /usr/local/bin/launch-notebook
