"""Safe readers for data set files: idx, NumPy's .npz, and pickles of plain data.

Readers raise DatasetDamaged with the file's name and never return partial data. A pickle can run any code, so the
unpickler resolves only the names in `_ALLOWED`, to functions of this module that check what they get, and rejects all
others before they run. .npz archives are read without unpickling.

idx is the gzipped format of MNIST's files. Layout, big-endian: two zero bytes, a type byte (8: unsigned byte), the
number of dimensions, each dimension as uint32, then the values, last dimension fastest.
http://yann.lecun.com/exdb/mnist/, "the IDX file format".
"""

import gzip
import hashlib
import io
import math
import pickle
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

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
    """Read a file of unsigned bytes with that number of dimensions. Raises DatasetDamaged."""
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
    """The arrays `names` of the archive, and the file's SHA-256. Raises DatasetDamaged if `sha256` differs from it."""
    found = file_sha256(path)
    if sha256 is not None and found != sha256:
        raise DatasetDamaged(f"{path}: not the published {path.name}: sha256 {found}, expected {sha256}")
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in names}, found
    except Exception as error:  # damaged bytes raise BadZipFile, zlib.error, KeyError and more
        raise DatasetDamaged(f"{path}: can't be read: {error!r}") from error


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file. Raises DatasetDamaged if it can't be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DatasetDamaged(f"{path}: {error}") from error


class _Dtype:
    """A dtype in a pickle. NumPy's `dtype.__setstate__` trusts any state, and changes it for the whole process."""

    def __init__(self, code: str | bytes, *_: object) -> None:
        text = _text(code)
        if not _PLAIN_DTYPE.fullmatch(text):
            raise pickle.UnpicklingError(f"its type {text!r} isn't plain data")
        self.dtype = np.dtype(text)

    def __setstate__(self, state: tuple[object, str | bytes, *tuple[object, ...]]) -> None:
        self.dtype = self.dtype.newbyteorder(_BYTE_ORDERS[_text(state[1])])


class _Array(np.ndarray[Any, np.dtype[Any]]):
    """An array whose shape, type and content are compared before NumPy uses them. It is filled once."""

    def __setstate__(self, state: tuple[object, tuple[int, ...], _Dtype, bool, bytes | list[object]]) -> None:  # type: ignore[override]
        _, shape, kind, fortran, content = state
        _check(not self.size and type(kind) is _Dtype, "an array's type isn't plain data")
        expected, each = (list, 1) if kind.dtype.hasobject else (bytes, kind.dtype.itemsize)
        # Exact types, as a number of NumPy's overflows in a product.
        fits = type(content) is expected and all(type(size) is int and size >= 0 for size in shape)
        _check(fits and len(content) == each * math.prod(shape), "an array's content doesn't fit its shape")
        super().__setstate__((1, shape, kind.dtype, bool(fortran), content))  # type: ignore[arg-type]  # the stubs are wrong


def _empty_array(*_: object) -> _Array:
    return _Array(0)


def _scalar(kind: _Dtype, content: bytes) -> Any:
    return _copied(kind, content)[0]


def _from_buffer(
    content: bytes, kind: _Dtype, shape: tuple[int, ...], order: str, axes: tuple[int, ...] | None = None
) -> NDArray[Any]:
    flat = _copied(kind, content)
    if axes is not None:  # since NumPy 2.4, for memory in another order
        return flat.reshape(shape).transpose(axes)
    return flat.reshape(shape, order="F" if order == "F" else "C")


def _copied(kind: _Dtype, content: bytes) -> NDArray[Any]:
    """A copy, since a view of an array that is filled again would show memory that was freed."""
    _check(type(kind) is _Dtype and type(content) in (bytes, bytearray), "an array's content isn't plain data")
    return np.frombuffer(bytes(content), kind.dtype)


def _latin1(text: str, encoding: str | bytes, *_: object) -> bytes:
    """Bytes of Python 2, or of Python 3 by an old protocol."""
    _check(type(text) is str and _text(encoding) in ("latin1", "latin-1"), "a text has another encoding than latin1")
    return text.encode("latin-1")


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _check(is_plain: bool, otherwise: str) -> None:
    if not is_plain:
        raise pickle.UnpicklingError(otherwise)


_PLAIN_DTYPE = re.compile(r"[biufc]\d{1,2}|O\d|[SU][1-9]\d{0,3}")
_BYTE_ORDERS: dict[str, Literal["<", ">", "|", "="]] = {"<": "<", ">": ">", "|": "|", "=": "="}
# Names in the pickles of NumPy 1 and 2.
_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    **{
        (f"numpy.{core}.{module}", name): function
        for core in ("core", "_core")
        for module, name, function in (
            ("multiarray", "_reconstruct", _empty_array),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _from_buffer),
        )
    },
    ("numpy", "ndarray"): _empty_array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _latin1,
}


class _PlainData(pickle._Unpickler):  # noqa: SLF001 - the one in C reserves as much memory as damaged bytes ask for
    stack: list[Any]
    read: Callable[[int], bytes]
    append: Callable[[object], None]
    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)  # noqa: SLF001
    _build = dispatch[pickle.BUILD[0]]

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it contains {module}.{name}, which isn't plain data") from None

    def load_build(self) -> None:
        """Else a pickle could set attributes of this module's functions."""
        _check(type(self.stack[-2]) in (_Dtype, _Array), "it changes something else than an array")
        self._build()

    def load_bytearray8(self) -> None:
        """Without memory reserved for more bytes than there are."""
        (size,) = struct.unpack("<Q", self.read(8))
        self.append(bytearray(self.read(size)))

    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8


def unpickle_plain(content: bytes, path: Path) -> Any:
    """Unpickle `content`. Raises DatasetDamaged with `path` for anything except plain data."""
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
    found = unpickle_plain(content[stream.tell() :], path)
    if not isinstance(found, np.ndarray):
        raise DatasetDamaged(f"{path}: contains a {type(found).__name__}, expected an array")
    return np.asarray(found)
