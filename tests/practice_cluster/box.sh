#!/bin/bash
# The first process of a box. Started in new namespaces (mount, PID, UTS, IPC, network), it assembles the root file
# system, moves into it, starts the services, prints "ready PID", and from then on only reaps orphans.
#
#   box.sh NAME ROOTFS STATE "DEVICE..." [SERVICE...]
#
# STATE/upper  what the box changes on top of ROOTFS (the host may put files there beforehand)
# STATE/binds  one directory or file of the host per line: ro|rw <tab> source <tab> target
set -euo pipefail

name=$1 rootfs=$2 state=$3 null_devices=$4
shift 4
root=$state/root

# /proc is still the host's: it has the process id of this process on the host.
read -r host_pid _ </proc/self/stat

mount --make-rprivate /
mkdir -p "$root" "$state/upper" "$state/work"
mount -t overlay overlay -o "lowerdir=$rootfs,upperdir=$state/upper,workdir=$state/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
# Read-only, so that Podman can detect the cgroup version.
mount -t cgroup2 -o ro cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755,nosuid tmpfs "$root/dev"
mkdir -p "$root"/dev/{pts,shm,mqueue} "$root"/run/{munge,sshd,mysqld,lock,user}
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/dev/shm"

while read -r device major minor; do
    mknod -m 666 "$root/dev/$device" c "$major" "$minor"
done <<'DEVICES'
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
fuse 10 229
DEVICES
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"

for device in $null_devices; do mknod -m 666 "$root/dev/$device" c 1 3; done

while IFS=$'\t' read -r mode source target; do
    if [ ! -e "$root$target" ]; then mkdir -p "$root$target"; fi
    # With the mounts inside it: some homes are separate file systems.
    mount --rbind "$source" "$root$target"
    if [ "$mode" = ro ]; then mount -o remount,bind,ro "$root$target"; fi
done <"$state/binds"

hostname "$name"
ip link set lo up

# pivot_root and not chroot: inside a chroot the kernel refuses user namespaces, which Apptainer needs.
cd "$root"
mkdir -p .old
pivot_root . .old
cd /
umount -l /.old
rmdir /.old

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8

for service in "$@"; do
    case $service in
    munge)
        chown munge:munge /run/munge /var/log/munge /var/lib/munge /etc/munge
        chmod 755 /run/munge
        setpriv --reuid=munge --regid=munge --init-groups munged
        ;;
    sshd) /usr/sbin/sshd ;;
    *) echo "box.sh: there is no service $service" >&2 && exit 1 ;;
    esac
done

echo "ready $host_pid"
# bash waits for every child, including orphans.
# shellcheck disable=SC2016
exec env -i PATH="$PATH" HOME=/root LANG=C.UTF-8 TERM=dumb \
    /bin/bash -c 'trap : TERM INT HUP; while :; do sleep 3600 & wait $!; done' >/dev/null 2>&1 </dev/null
