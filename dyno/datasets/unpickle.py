"""Pickles of plain data only: containers, numbers, text and NumPy arrays. A pickle can run any code; this one can't.

Only the names in `_ALLOWED` are ever looked up, so a pickle that asks for any other is refused before it does a thing.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from dyno.errors import DatasetDamaged

# what NumPy's own pickles name, of versions 1 and 2; latin-1 text is how Python 2's bytes come
_ALLOWED = {
    (f"numpy.{core}.{module}", name)
    for core in ("core", "_core")
    for module, name in (("multiarray", "_reconstruct"), ("multiarray", "scalar"), ("numeric", "_frombuffer"))
} | {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}


class _PlainData(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which plain data never does")
        return super().find_class(module, name)


def plain(content: bytes, path: Path) -> Any:
    """The object pickled in `content`. Raises DatasetDamaged, naming `path`, for anything else than plain data."""
    try:
        return _PlainData(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:
        raise DatasetDamaged(f"{path}: no pickle of plain data: {error}") from error


def object_array(content: bytes, path: Path) -> np.ndarray[Any, np.dtype[Any]]:
    """An array in NumPy's .npy format, of objects or of numbers. Raises DatasetDamaged."""
    stream = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        _, _, dtype = read_header(stream)
        if not dtype.hasobject:
            return np.asarray(np.load(io.BytesIO(content), allow_pickle=False))
    except (ValueError, EOFError, OSError) as error:
        raise DatasetDamaged(f"{path}: no array: {error}") from error
    found = plain(content[stream.tell() :], path)
    if not isinstance(found, np.ndarray):
        raise DatasetDamaged(f"{path}: a {type(found).__name__} where an array belongs")
    return found
