"""A small disk for the workers alone, so that filling it doesn't affect other processes."""

from __future__ import annotations

import errno
import os
import subprocess
from contextlib import suppress
from pathlib import Path

_SIZE = "64m"
_PIECE = bytes(1 << 20)
_BALLAST = "ballast"


class SmallDisk:
    """A tmpfs at `folder`. If this process can't mount one, `left_out` has the reason."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.left_out: str | None = None

    def mount(self) -> None:
        self.folder.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE},mode=700", "dyno-chaos", str(self.folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            self.left_out = f"no small disk can be mounted: {error}"
            return
        if done.returncode != 0:
            self.left_out = f"no small disk can be mounted: {done.stderr.strip() or done.returncode}"

    def unmount(self) -> None:
        """Unmount lazily, as a process may still use it."""
        if self.folder.is_mount():
            subprocess.run(["umount", "-l", str(self.folder)], check=False)

    def fill(self) -> None:
        """Fill the disk to the last byte. As on most full disks, folders and empty files can still be created."""
        descriptor = os.open(self.folder / _BALLAST, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            while _took(descriptor):
                pass
        finally:
            os.close(descriptor)

    def free(self) -> None:
        with suppress(FileNotFoundError):
            (self.folder / _BALLAST).unlink()


def _took(descriptor: int) -> bool:
    """Write as much as fits; returns whether any byte did."""
    try:
        return os.write(descriptor, _PIECE) > 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False
