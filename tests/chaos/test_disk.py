"""The workers' small disk: full to the last byte, and free again."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.disk import SmallDisk

pytestmark = pytest.mark.verify  # of the tool that `make chaos` is


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk")
    disk.mount()
    if disk.left_out is not None:
        pytest.skip(disk.left_out)
    yield disk
    disk.unmount()


def test_nothing_can_be_written_while_it_is_full(disk: SmallDisk) -> None:
    (disk.folder / "before").write_text("kept")
    disk.fill()
    with pytest.raises(OSError, match="No space") as full:
        (disk.folder / "meanwhile").write_text("lost")
    assert full.value.errno == errno.ENOSPC
    disk.free()
    disk.free()
    (disk.folder / "after").write_text("kept")
    assert (disk.folder / "before").read_text() == "kept"


def test_it_goes_with_all_that_is_in_it_though_a_file_is_open(disk: SmallDisk) -> None:
    with (disk.folder / "open").open("w"):
        disk.unmount()
        assert not disk.folder.is_mount()
    assert list(disk.folder.iterdir()) == []


def test_where_none_can_be_mounted_it_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    disk = SmallDisk(tmp_path / "disk")
    disk.mount()
    assert disk.left_out is not None
    assert "mount" in disk.left_out
