"""The served document compared with the reviewed one: the contract doesn't change unnoticed."""

from __future__ import annotations

import difflib
import json
import subprocess
import sys
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.openapi.__main__ import REVIEWED, text
from service.openapi.compatibility import breaks

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def served(http: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = http.get("/openapi.json").raise_for_status().json()
    return found


@pytest.fixture(scope="module")
def reviewed() -> str:
    return (ROOT / REVIEWED).read_text()


def test_the_served_document_breaks_no_client_of_the_reviewed_one(served: dict[str, Any], reviewed: str) -> None:
    broken = "\n".join(breaks(json.loads(reviewed), served))
    assert not broken, (
        f"this breaks clients:\n{broken}\nIf intended, run `make openapi BREAKING=yes` and add it to CHANGELOG.md"
    )


def test_the_served_document_is_the_reviewed_one(served: dict[str, Any], reviewed: str) -> None:
    now = text(served)
    if now != reviewed:  # pytest's own comparison of such long texts takes minutes
        lines = difflib.unified_diff(reviewed.splitlines(), now.splitlines(), "reviewed", "served", n=1, lineterm="")
        pytest.fail("\n".join([f"{REVIEWED} is out of date; write it anew with: make openapi", *islice(lines, 60)]))


def test_the_command_writes_the_document_but_no_breaking_changes(tmp_path: Path, reviewed: str) -> None:
    kept = tmp_path / REVIEWED
    kept.parent.mkdir()
    older, newer = json.loads(reviewed), json.loads(reviewed)
    older["paths"].pop("/v1/me")
    newer["paths"]["/v1/gone"] = deepcopy(newer["paths"]["/v1/me"])

    def command(*arguments: str) -> tuple[int, str, bool]:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "service.openapi", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, kept.read_text() == reviewed

    kept.write_text(json.dumps(older))
    assert command() == (0, "", True)
    kept.write_text(json.dumps(newer))
    assert command() == (1, "GET /v1/gone: is gone\n", False)
    assert command("--breaking") == (0, "GET /v1/gone: is gone\n", True)
