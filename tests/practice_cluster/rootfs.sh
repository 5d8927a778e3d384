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

addto=/usr/share/lmod/lmod/libexec/addto
mv $addto $addto.lua
cat >$addto <<'SHELL'
#!/bin/sh
# Lmod's own is the one in Lua. A login shell asks it several times: what is plain is answered here, in less time.
lua() { exec "$0.lua" $end "$@"; }
end= is_set= value=
if [ "$1" = --append ]; then end=$1; shift; fi
# each bash below a login shell (BASH_ENV) appends to FPATH what is all there is in it
if [ "$end:$#:$1:$2" = "--append:3:FPATH:$3" ] && [ "$2" = "$FPATH" ]; then echo "$2"; exit; fi
case "$1" in *[!A-Z_]* | "") lua "$@" ;; esac
case "$#$2" in *:*) lua "$@" ;; 2*) ;; *) lua "$@" ;; esac
eval "is_set=\${$1+yes} value=\${$1-}"
case "$is_set:$value:" in
    ::) echo "$2"; exit ;;
    yes:: | yes:::) value= ;;
    *::* | *":$2:"*) lua "$@" ;;
esac
if [ "$end" ]; then echo "$value:$2"; else echo "$2:$value"; fi
SHELL
chmod 755 $addto

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
