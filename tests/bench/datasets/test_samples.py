"""The shipped samples: small in total, each with its source, licence and sums."""

import hashlib
from pathlib import Path

import pytest

import dyno.bench.datasets

FOLDERS = sorted((Path(dyno.bench.datasets.__file__).parent / "samples").iterdir())
LICENCES = {"mnist": "CC BY-SA 3.0", "fashion-mnist": "MIT License", "tinyshakespeare": "MIT", "weather": "CC BY 4.0"}


def test_together_they_take_no_more_than_8_mb():
    files = [file for folder in FOLDERS for file in folder.iterdir()]
    assert sum(file.stat().st_size for file in files) <= 8_000_000


def test_no_set_ships_whose_licence_is_not_stated():
    assert {folder.name for folder in FOLDERS} == set(LICENCES)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_each_sample_has_source_licence_and_sums(folder):
    note = (folder / "SOURCE.md").read_text()
    assert LICENCES[folder.name] in note
    for file in folder.iterdir():
        if file.name != "SOURCE.md":
            assert hashlib.sha256(file.read_bytes()).hexdigest() in note
            assert f"{file.stat().st_size:,}" in note
