from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dyno.datasets import idx
from dyno.errors import DatasetDamaged


def packed(shape: tuple[int, ...], values: bytes, magic: int | None = None) -> bytes:
    header = struct.pack(f">{1 + len(shape)}I", (8 << 8 | len(shape)) if magic is None else magic, *shape)
    return gzip.compress(header + values, mtime=0)  # the same bytes, and names of tests, in every process


GOOD = packed((2, 3), bytes(range(6)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "values-idx2-ubyte.gz"


def test_a_file_is_read_with_its_dimensions_and_its_sum(file: Path) -> None:
    file.write_bytes(GOOD)
    read = idx.read(file, 2)
    assert (read.values == np.arange(6, dtype=np.uint8).reshape(2, 3)).all()
    assert read.sha256 == hashlib.sha256(GOOD).hexdigest()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "too short"),
        (b"no gzip at all", "can't be unpacked"),
        (GOOD[:-9], "can't be unpacked"),
        (GOOD[:20], "can't be unpacked"),
        (GOOD + b"trailing", "can't be unpacked"),
        (GOOD[:-8] + bytes(8), "can't be unpacked"),
        (gzip.compress(b"\0\0", mtime=0), "too short for a header"),
        (packed((2, 3), bytes(5)), "5 values where its header says [2, 3]"),
        (packed((2, 3), bytes(7)), "7 values"),
        (packed((2, 3), bytes(6), magic=0x0D02), "starts with 0x00000d02"),
        (packed((6,), bytes(6)), "starts with 0x00000801"),
        (packed((2**31, 2**31), bytes(6)), "6 values"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(file: Path, content: bytes, complaint: str) -> None:
    file.write_bytes(content)
    with pytest.raises(DatasetDamaged) as damaged:
        idx.read(file, 2)
    assert str(file) in damaged.value.detail
    assert complaint in damaged.value.detail


def test_an_absent_file_is_damage_too(file: Path) -> None:
    with pytest.raises(DatasetDamaged, match="No such file"):
        idx.read(file, 2)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(0, len(GOOD) - 1))
def test_no_truncation_passes_unnoticed(file: Path, cut: int) -> None:
    file.write_bytes(GOOD[:cut])
    with pytest.raises(DatasetDamaged):
        idx.read(file, 2)
