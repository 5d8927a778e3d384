"""Print the students' files in the folder of a class, as one JSON object per file.

    python3 -I - FOLDER FILE MOST_BYTES [USER...] <class_folder.py

FOLDER has a folder for each student, FILE is a name in it; without a name, no file is read. With users, only theirs are
read. Everything that students own is hostile until checked: a folder or file must belong to the user whose name the
folder has, nobody else may be able to write to it, no link is followed, no pipe or device blocks, and a file may have
at most MOST_BYTES. Each check is made on what was opened, because a name may refer to something else a moment later.

Printed lines:   {"folder": PATH, "owner": NAME, "group": NAME, "mode": "3770"}       first, or {"problem": WHY} alone
                 {"user": NAME, "text": TEXT}
                 {"user": NAME, "problem": WHY}                                       it is not read

It runs on a login node with any Python: 3.6 must be able to read it.
"""

import errno
import grp
import json
import os
import pwd
import stat
import sys

MOST_FOLDERS = 20000


def main(folder, file, most, *users):
    """Print the folder, then each student's file."""
    try:
        root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        return tell(problem=f"{folder} cannot be read: {error.strerror}")
    found = os.fstat(root)
    tell(
        folder=folder,
        owner=user_named(found.st_uid),
        group=group_named(found.st_gid),
        mode=f"{stat.S_IMODE(found.st_mode):04o}",
    )
    for name in sorted(users or os.listdir(root))[:MOST_FOLDERS]:  # noqa: PTH208 (of what was opened)
        if name.startswith(".") or "/" in name:
            continue
        try:
            text = read(root, name, file, int(most))
        except OSError as error:
            # students who have no folder yet, and other entries, are no problem
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                tell(user=name, problem=error.strerror or str(error))
        else:
            tell(user=name, text=text)
    return 0


def read(root, name, file, most):
    """Return a student's file as text. Raises ``OSError`` with the reason if it is not trusted or cannot be read."""
    place = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=root)
    try:
        owner = private(os.fstat(place), "the folder")
        if user_named(owner) != name:
            raise OSError(errno.EPERM, f"the folder belongs to {user_named(owner)}")
        if not file:
            return ""
        opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
    finally:
        os.close(place)
    with os.fdopen(opened, "rb") as content:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if private(found, "the file") != owner:
            raise OSError(errno.EPERM, f"the file belongs to {user_named(found.st_uid)}")
        data = content.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most} bytes")
    return data.decode("utf-8", "replace")


def private(found, what):
    """Return the owner's uid. Raises ``OSError`` if anybody else may write to it."""
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(errno.EPERM, f"others may write {what}")
    return found.st_uid


def user_named(uid):
    """Return a user's name, or the uid if there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_named(gid):
    """Return a group's name, or the gid if there is none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def tell(**what):
    """Print a line of JSON."""
    sys.stdout.write(json.dumps(what) + "\n")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
