"""A folder for one attempt's files, which goes with it; what killed workers left goes when the next attempt begins."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch_folder(run_dir: Path) -> Iterator[Path]:
    """An empty folder under `run_dir`, deleted with all that is in it at the end of the block.

    Its owner holds a lock on it, which ends with the process however it dies: by that others know what is left over.
    Raises OSError where there can be none.
    """
    root = run_dir / "scratch"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(root):  # or a new folder could be taken for a left-over before its owner has locked it
        _delete_left_overs(root)
        folder = Path(tempfile.mkdtemp(dir=root))
        descriptor = _lock(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = _lock(folder)
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(folder: Path, operation: int = fcntl.LOCK_EX) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, operation)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _delete_left_overs(root: Path) -> None:
    for folder in root.iterdir():
        try:
            descriptor = _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its owner lives, or has just deleted it
            continue
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)
