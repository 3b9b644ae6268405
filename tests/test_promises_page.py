"""docs/promises.md names tests and faults that exist, and leaves no cell of its tables empty."""

import ast
import re
from pathlib import Path

import pytest

from tests.life.faults import FAULTS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "promises.md").read_text()
PARTS = ["Submit", "Claim", "Runner", "Worker", "Redis", "Device", "Time", "Upgrade", "Keys", "Connections", "Webhooks"]
AREAS = [*PARTS, "Every order of events", "Numbers"]
COLUMNS = ["fault", "guarantee", "test", "mechanism", "without the mechanism"]
NAMED = re.findall(r"`((?:api_)?tests/[\w/]+\.py)::(\w+)`", PAGE)
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(f"| {COLUMNS[0]}")
]


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED)), ids=lambda part: part if "/" not in part else "")
def test_every_test_that_it_names_exists(path, name):
    tree = ast.parse((ROOT / path).read_text())
    assert name in {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_area_has_a_table_whose_rows_are_full():
    assert re.findall(r"^## (.+)$", PAGE, re.MULTILINE) == AREAS
    assert PAGE.count("| " + " | ".join(COLUMNS) + " |") == len(AREAS)
    assert {len(row) for row in ROWS} == {len(COLUMNS)}
    assert all(cell for row in ROWS for cell in row)
    assert all("::test_" in row[COLUMNS.index("test")] for row in ROWS)


def test_every_file_that_it_names_exists():
    named = re.findall(r"`([\w/]+/[\w.]+\.(?:py|lua))`", PAGE)
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_faults_that_it_quotes_are_planted():
    quoted = {words for row in ROWS for words in re.findall(r'"([^"]+)"', row[-1]) if not words.endswith("…")}
    assert quoted
    assert quoted <= FAULTS.keys()
    assert f"plants {len(FAULTS)} faults" in " ".join(PAGE.split())


def test_the_readme_links_to_it():
    assert "(docs/promises.md)" in (ROOT / "README.md").read_text()
