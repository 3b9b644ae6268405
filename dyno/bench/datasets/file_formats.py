"""Safe readers for data set files: idx, NumPy's .npz, and pickles of plain data.

Readers raise DatasetDamaged with the file's name and never return partial data. A pickle can run any code, so the
unpickler resolves only the names in `_ALLOWED` and rejects all others before they run. .npz archives are read without
unpickling.

idx is the gzipped format of MNIST's files. Layout, big-endian: two zero bytes, a type byte (8: unsigned byte), the
number of dimensions, each dimension as uint32, then the values, last dimension fastest.
http://yann.lecun.com/exdb/mnist/, "the IDX file format".
"""

import gzip
import hashlib
import io
import math
import pickle
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dyno.errors import DatasetDamaged

_UNSIGNED_BYTE = 8
_MOST_BYTES = 1 << 30  # headers are untrusted, and gzip compresses up to a thousandfold


@dataclass(frozen=True)
class IdxFile:
    """`values`: uint8 in the file's dimensions. `sha256`: of the compressed file."""

    values: NDArray[np.uint8]
    sha256: str


def read_idx(path: Path, dimensions: int) -> IdxFile:
    """Read an IDX file, whose array of unsigned bytes must have `dimensions` dimensions. Raises DatasetDamaged."""
    try:
        packed = path.read_bytes()
        content = _unpacked(packed)
    except (OSError, EOFError, zlib.error) as error:  # BadGzipFile is an OSError
        raise DatasetDamaged(f"{path}: can't be unpacked: {error}") from error
    return IdxFile(_parsed(content, dimensions, path), hashlib.sha256(packed).hexdigest())


def _unpacked(packed: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
        return stream.read(_MOST_BYTES)


def _parsed(content: bytes, dimensions: int, path: Path) -> NDArray[np.uint8]:
    header_bytes = 4 + 4 * dimensions
    if len(content) < header_bytes:
        raise DatasetDamaged(f"{path}: {len(content)} bytes are too few for a header of {header_bytes}")
    magic, *shape = struct.unpack(f">{1 + dimensions}I", content[:header_bytes])
    expected = _UNSIGNED_BYTE << 8 | dimensions
    if magic != expected:
        raise DatasetDamaged(
            f"{path}: starts with {magic:#010x}, expected {expected:#010x} (unsigned bytes, {dimensions} dimensions)"
        )
    if len(content) - header_bytes != math.prod(shape):
        raise DatasetDamaged(f"{path}: {len(content) - header_bytes} values, but the header declares {shape}")
    return np.frombuffer(content, np.uint8, offset=header_bytes).reshape(shape)


def read_npz(path: Path, names: Sequence[str], sha256: str | None = None) -> tuple[dict[str, NDArray[Any]], str]:
    """The arrays `names` of the archive, and the file's SHA-256. Raises DatasetDamaged if it isn't `sha256`."""
    digest = file_sha256(path)
    if sha256 is not None and digest != sha256:
        raise DatasetDamaged(f"{path}: not the published {path.name}: sha256 {digest}, expected {sha256}")
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in names}, digest
    except Exception as error:  # damaged bytes raise BadZipFile, zlib.error, KeyError and more
        raise DatasetDamaged(f"{path}: can't be read: {error!r}") from error


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file. Raises DatasetDamaged if it can't be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DatasetDamaged(f"{path}: {error}") from error


# Names in the pickles of NumPy 1 and 2. `_codecs.encode` is for Python 2's bytes, stored as latin-1 text.
_ALLOWED = {
    (f"numpy.{core}.{module}", name)
    for core in ("core", "_core")
    for module, name in (("multiarray", "_reconstruct"), ("multiarray", "scalar"), ("numeric", "_frombuffer"))
} | {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}


class _PlainData(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it contains {module}.{name}, which isn't plain data")
        return super().find_class(module, name)


def unpickle_plain(content: bytes, path: Path) -> Any:
    """Unpickle `content`. Raises DatasetDamaged with `path` for anything except plain data.

    Check the checksum of `content` first: a damaged dtype changes NumPy's own dtype, and the whole process crashes.
    """
    try:
        return _PlainData(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:
        raise DatasetDamaged(f"{path}: not a pickle of plain data: {error}") from error


def read_object_array(content: bytes, path: Path) -> np.ndarray[Any, np.dtype[Any]]:
    """Read an array of objects or numbers in NumPy's .npy format. Raises DatasetDamaged."""
    stream = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        _, _, dtype = read_header(stream)
        if not dtype.hasobject:
            return np.asarray(np.load(io.BytesIO(content), allow_pickle=False))
    except (ValueError, EOFError, OSError) as error:
        raise DatasetDamaged(f"{path}: not an array: {error}") from error
    array = unpickle_plain(content[stream.tell() :], path)
    if not isinstance(array, np.ndarray):
        raise DatasetDamaged(f"{path}: contains a {type(array).__name__}, expected an array")
    return array
