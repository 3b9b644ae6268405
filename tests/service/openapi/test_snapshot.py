"""docs/openapi.json is up to date, so that reviews see every change of the contract."""

import difflib
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from service.openapi.__main__ import REVIEWED, text

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def served(http):
    return http.get("/openapi.json").raise_for_status().json()


@pytest.fixture(scope="module")
def reviewed():
    return (ROOT / REVIEWED).read_text()


def test_the_served_document_is_the_reviewed_one(served, reviewed):
    now = text(served)
    if now != reviewed:  # pytest's own comparison of such long texts takes minutes
        lines = difflib.unified_diff(reviewed.splitlines(), now.splitlines(), "reviewed", "served", n=1, lineterm="")
        pytest.fail("\n".join([f"{REVIEWED} is out of date; write it anew with: make openapi", *islice(lines, 60)]))


@pytest.mark.verify
def test_the_command_writes_the_document(tmp_path, reviewed):
    kept = tmp_path / REVIEWED
    kept.parent.mkdir()
    kept.write_text("{}")
    subprocess.run([sys.executable, "-P", "-m", "service.openapi"], cwd=tmp_path, check=True)
    assert kept.read_text() == reviewed
