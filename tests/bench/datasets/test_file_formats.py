import gzip
import hashlib
import io
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dyno.bench.datasets import file_formats
from dyno.bench.datasets.file_formats import read_object_array, unpickle_plain
from dyno.errors import DatasetDamaged


def packed(shape, values, magic=None):
    header = struct.pack(f">{1 + len(shape)}I", (8 << 8 | len(shape)) if magic is None else magic, *shape)
    return gzip.compress(header + values, mtime=0)  # the same bytes, and names of tests, in every process


GOOD = packed((2, 3), bytes(range(6)))


@pytest.fixture
def file(tmp_path):
    return tmp_path / "values-idx2-ubyte.gz"


def test_a_file_is_read_with_its_dimensions_and_its_sum(file):
    file.write_bytes(GOOD)
    read = file_formats.read_idx(file, 2)
    assert (read.values == np.arange(6, dtype=np.uint8).reshape(2, 3)).all()
    assert read.sha256 == hashlib.sha256(GOOD).hexdigest()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "too few"),
        (b"no gzip at all", "can't be unpacked"),
        (GOOD[:-9], "can't be unpacked"),
        (GOOD[:20], "can't be unpacked"),
        (GOOD + b"trailing", "can't be unpacked"),
        (GOOD[:-8] + bytes(8), "can't be unpacked"),
        (gzip.compress(b"\0\0", mtime=0), "too few for a header"),
        (packed((2, 3), bytes(5)), "5 values, but the header declares [2, 3]"),
        (packed((2, 3), bytes(7)), "7 values"),
        (packed((2, 3), bytes(6), magic=0x0D02), "starts with 0x00000d02"),
        (packed((6,), bytes(6)), "starts with 0x00000801"),
        (packed((2**31, 2**31), bytes(6)), "6 values"),
    ],
)
def test_the_error_for_a_damaged_file_names_file_and_fault(file, content, complaint):
    file.write_bytes(content)
    with pytest.raises(DatasetDamaged) as damaged:
        file_formats.read_idx(file, 2)
    assert str(file) in damaged.value.detail
    assert complaint in damaged.value.detail


def test_an_absent_file_is_damage_too(file):
    with pytest.raises(DatasetDamaged, match="No such file"):
        file_formats.read_idx(file, 2)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, len(GOOD) - 1))
def test_no_truncation_passes_unnoticed(file, cut):
    file.write_bytes(GOOD[:cut])
    with pytest.raises(DatasetDamaged):
        file_formats.read_idx(file, 2)


FILE = Path("some/file")
BATCH = {b"data": np.arange(12, dtype=np.uint8).reshape(2, 6), b"labels": [3, 1], b"batch_label": b"one"}


class _Calls:
    """An object that pickles as a call of `function`."""

    def __init__(self, function, *arguments):
        self._call = function, arguments

    def __reduce__(self):
        return self._call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_numbers_text_and_arrays_are_read_whatever_the_protocol(protocol):
    found = unpickle_plain(pickle.dumps(BATCH, protocol), FILE)
    assert (found[b"data"] == BATCH[b"data"]).all()
    assert found[b"labels"] == [3, 1]


@pytest.mark.parametrize(
    "function", [os.system, eval, exec, __import__, open, getattr, np.load, np.lib.format.open_memmap]
)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_that_calls_anything_is_refused_before_it_runs(function, protocol, tmp_path):
    trace = tmp_path / "ran"
    evil = pickle.dumps({b"data": _Calls(function, f"touch {trace}")}, protocol)
    with pytest.raises(DatasetDamaged, match="which isn't plain data") as refused:
        unpickle_plain(evil, FILE)
    assert str(FILE) in refused.value.detail
    assert not trace.exists()


def test_an_array_of_objects_hides_no_call(tmp_path):
    trace = tmp_path / "ran"
    stream = io.BytesIO()
    np.save(stream, np.array([_Calls(os.system, f"touch {trace}")], dtype=object), allow_pickle=True)
    with pytest.raises(DatasetDamaged, match="which isn't plain data"):
        read_object_array(stream.getvalue(), FILE)
    assert not trace.exists()


def test_arrays_of_lists_and_of_numbers_are_read():
    for values in (np.array([[1, 2, 3], [4]], dtype=object), np.array([1, 0])):
        stream = io.BytesIO()
        np.save(stream, values, allow_pickle=True)
        assert read_object_array(stream.getvalue(), FILE).tolist() == values.tolist()


@pytest.mark.parametrize("content", [b"", b"no array", b"\x93NUMPY\x01\x00"])
def test_the_error_names_a_file_without_an_array(content):
    with pytest.raises(DatasetDamaged, match="some/file: not an array"):
        read_object_array(content, FILE)
