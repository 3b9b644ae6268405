"""Private folders, folders that all users of a host share (such as the folder of device locks), and write checks.

A shared folder is sticky, like /tmp: every user may add files, but may change and delete only their own files. The
owner of a shared folder may delete and rename all files in it, so private files are never in another user's folder.
"""

import errno
import os
import stat
import tempfile
from pathlib import Path


def make_private(folder: Path) -> None:
    """Create the folder and missing parents with mode 0700, or check an existing folder as `unsafe_reason` does.

    Raises OSError.
    """
    for missing in reversed([parent for parent in (folder, *folder.parents) if not parent.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    if reason := unsafe_reason(folder):
        raise PermissionError(errno.EPERM, reason, str(folder))


def unsafe_reason(folder: Path) -> str | None:
    """Why other users could change this user's files in the folder; None if they couldn't. Raises OSError."""
    status, user = folder.stat(), os.geteuid()
    if (owner := _owner_of_foreign_link(folder)) is not None:
        return f"it is a link that belongs to user {owner}"
    if status.st_uid not in (0, user):
        return f"it belongs to user {status.st_uid}, and this process runs as user {user}"
    if status.st_mode & stat.S_IWOTH:
        return "all users may write in it; run `chmod o-w` on it"
    return None


def _owner_of_foreign_link(folder: Path) -> int | None:
    """The owner of `folder`, if it is a link and its owner is neither root nor this user."""
    status = folder.lstat()
    return status.st_uid if stat.S_ISLNK(status.st_mode) and status.st_uid not in (0, os.geteuid()) else None


def make_shared(folder: Path) -> None:
    """Create the folder, with missing parents, for all users of the host, or check an existing folder.

    An existing folder may also be writable by only root or this user. Raises OSError.
    """
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        pass
    else:
        folder.chmod(0o1777)
    status, users = folder.stat(), (0, os.geteuid())
    if (owner := _owner_of_foreign_link(folder)) is not None:
        raise PermissionError(errno.EPERM, f"{folder} is a link that belongs to user {owner}", str(folder))
    if status.st_mode & stat.S_IWOTH:
        if not status.st_mode & stat.S_ISVTX:
            reason = f"all users may delete files of others in {folder}; run `chmod 1777 {folder}`"
            raise PermissionError(errno.EPERM, reason, str(folder))
    elif status.st_uid not in users:
        reason = f"{folder} belongs to user {status.st_uid}, who can share it with `chmod 1777 {folder}`"
        raise PermissionError(errno.EPERM, reason, str(folder))


def private_folder(shared: Path) -> Path:
    """This user's own folder, in `shared` or, if another user owns `shared`, in the folder for temporary files.

    Creates both folders. Raises OSError.
    """
    make_shared(shared)
    user = os.geteuid()
    base = shared if shared.stat().st_uid in (0, user) else Path(tempfile.gettempdir())
    folder = base / f"dyno-{user}"
    make_private(folder)
    return folder


def nearest(folder: Path) -> Path:
    """`folder`, or its nearest parent that exists. Raises OSError if a parent can't be read."""
    return next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())


def write_error(folder: Path) -> str | None:
    """Why `folder` can't hold this user's files (it isn't writable, or others can write in it), or None if it can.

    Creates a temporary folder in it, since root may write despite the folder's mode.
    """
    existing = folder
    try:
        existing = nearest(folder)
        if not existing.is_dir():
            return "it is not a folder" if existing == folder else f"{existing} is not a folder"
        if existing == folder and (reason := unsafe_reason(folder)):
            return reason
        with tempfile.TemporaryDirectory(prefix=".dyno-", dir=existing):
            return None
    except OSError as error:
        return f"{existing} isn't writable: {error.strerror}"


def fsync_path(path: Path) -> None:
    """Sync a file or a folder. A power failure can lose a new file until its folder is synced too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
