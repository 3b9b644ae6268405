"""Where CIFAR-10's batches lie in a folder, and how each form is unpacked into binary records."""

from __future__ import annotations

import lzma
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from dyno.datasets.unpickle import plain
from dyno.errors import DatasetDamaged

_PUBLISHED = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_NAMES = (*_PUBLISHED, "test_batch_first1000")
_INSIDE = ("cifar-10-batches-bin", "cifar-10-batches-py")  # folders of the two archives
_ARCHIVES = ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz")
_MOST_BYTES = 64 << 20  # of one batch, twice what it takes: a packed file may claim anything

Found = dict[str, tuple[Path, bytes]]


def find(folder: Path) -> Found:
    """Batch name -> (file, binary records); loose files first, then those in the published archives."""
    for inside in (folder, *(folder / name for name in _INSIDE)):
        loose = _loose(inside)
        if loose:
            return loose
    for name in _ARCHIVES:
        if (folder / name).exists():
            return _archived(folder / name)
    return {}


def _loose(folder: Path) -> Found:
    found: Found = {}
    for name in _NAMES:
        for ending in (".bin", ".bin.xz", ""):
            path = folder / f"{name}{ending}"
            if name not in found and path.is_file():
                found[name] = path, _records(path, _content(path))
    return found


def _content(path: Path) -> bytes:
    try:
        if path.suffix != ".xz":
            return path.read_bytes()
        with lzma.open(path) as stream:
            return stream.read(_MOST_BYTES)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise DatasetDamaged(f"{path}: can't be unpacked: {error}") from error


def _records(path: Path, content: bytes) -> bytes:
    """Binary as it is; a pickled batch, which has no ending, put into the same form."""
    return content if ".bin" in path.name else _from_pickle(plain(content, path), path)


def _from_pickle(batch: Any, path: Path) -> bytes:
    try:
        pixels, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"], dtype=np.uint8)
        return np.column_stack([labels, pixels.astype(np.uint8, casting="safe")]).tobytes()
    except (TypeError, KeyError, ValueError, OverflowError, IndexError) as error:
        raise DatasetDamaged(f"{path}: no batch of labels and data: {error!r}") from error


def _archived(path: Path) -> Found:
    found: Found = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = Path(member.name).name
                if member.isfile() and name.removesuffix(".bin") in _NAMES:
                    inside = path / member.name
                    stream = archive.extractfile(member)
                    content = stream.read(_MOST_BYTES) if stream else b""
                    found[name.removesuffix(".bin")] = inside, _records(inside, content)
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError) as error:
        raise DatasetDamaged(f"{path}: can't be unpacked: {error}") from error
    absent = [name for name in _PUBLISHED if name not in found]
    if absent:
        raise DatasetDamaged(f"{path}: incomplete, without {', '.join(absent)}")
    return found
