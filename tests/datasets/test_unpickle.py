from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyno.datasets.unpickle import object_array, plain
from dyno.errors import DatasetDamaged

FILE = Path("some/file")
BATCH = {b"data": np.arange(12, dtype=np.uint8).reshape(2, 6), b"labels": [3, 1], b"batch_label": b"one"}


class _Calls:
    """Pickles as a call of `function`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self._call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_numbers_text_and_arrays_are_read_whatever_the_protocol(protocol: int) -> None:
    found = plain(pickle.dumps(BATCH, protocol), FILE)
    assert (found[b"data"] == BATCH[b"data"]).all()
    assert found[b"labels"] == [3, 1]


@pytest.mark.parametrize(
    "function", [os.system, eval, exec, __import__, open, getattr, np.load, np.lib.format.open_memmap]
)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_that_calls_anything_is_refused_before_it_runs(function: Any, protocol: int, tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    evil = pickle.dumps({b"data": _Calls(function, f"touch {trace}")}, protocol)
    with pytest.raises(DatasetDamaged, match="which plain data never does") as refused:
        plain(evil, FILE)
    assert str(FILE) in refused.value.detail
    assert not trace.exists()


def test_an_array_of_objects_hides_no_call(tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    stream = io.BytesIO()
    np.save(stream, np.array([_Calls(os.system, f"touch {trace}")], dtype=object), allow_pickle=True)
    with pytest.raises(DatasetDamaged, match="which plain data never does"):
        object_array(stream.getvalue(), FILE)
    assert not trace.exists()


def test_arrays_of_lists_and_of_numbers_are_read() -> None:
    for values in (np.array([[1, 2, 3], [4]], dtype=object), np.array([1, 0])):
        stream = io.BytesIO()
        np.save(stream, values, allow_pickle=True)
        assert object_array(stream.getvalue(), FILE).tolist() == values.tolist()


@given(cut=st.integers(0, 300), flip=st.integers(0, 255))
def test_damage_is_named_or_leaves_plain_data(cut: int, flip: int) -> None:
    content = bytearray(pickle.dumps(BATCH, 2))
    content[cut % len(content)] ^= flip
    for damaged in (bytes(content), bytes(content[:cut])):
        try:
            plain(damaged, FILE)
        except DatasetDamaged as error:
            assert str(FILE) in error.detail  # noqa: PT017 - most bit flips, but not all, are noticed


@pytest.mark.parametrize("content", [b"", b"no array", b"\x93NUMPY\x01\x00"])
def test_what_is_no_array_is_named(content: bytes) -> None:
    with pytest.raises(DatasetDamaged, match="some/file: no array"):
        object_array(content, FILE)
