"""What machines can say of style: ruff, mypy --strict, sizes, and words that don't belong."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parent.parent
MAX_LINES = 250
FORBIDDEN_NAMES = {"manager", "helper", "helpers", "utils", "util", "common", "misc", "core"}
TREES = ("dyno", "service", "workers", "tests", "api_tests", "benchmarks")


def _tool(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _sources() -> list[Path]:
    return sorted(path for tree in TREES for path in (ROOT / tree).rglob("*.py"))


def test_ruff_finds_nothing() -> None:
    _tool("ruff", "check", "--no-cache")


def test_the_code_is_formatted() -> None:
    _tool("ruff", "format", "--check", "--no-cache")


def test_mypy_is_content_in_strict_mode() -> None:
    _tool("mypy", "--cache-dir", "/dev/null")


@pytest.mark.parametrize("path", _sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_fits_in_the_head(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES


def test_the_median_file_is_short() -> None:
    packages = [p for p in _sources() if p.relative_to(ROOT).parts[0] in ("dyno", "service", "workers")]
    assert median(len(p.read_text().splitlines()) for p in packages) <= 110


def test_no_file_has_a_name_that_says_nothing() -> None:
    names = {part for path in _sources() for part in re.split(r"[_/.]", str(path.relative_to(ROOT)))}
    assert not names & FORBIDDEN_NAMES
