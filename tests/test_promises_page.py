"""docs/promises.md and docs/dev/mechanisms.md: the same rows, full cells, and tests and faults that exist."""

import ast
import re
from pathlib import Path

import pytest

from tests.life.faults import FAULTS

ROOT = Path(__file__).parent.parent
PROMISES, MECHANISMS = (
    (ROOT / "docs" / "promises.md").read_text(),
    (ROOT / "docs" / "dev" / "mechanisms.md").read_text(),
)
PARTS = ["Submit", "Claim", "Runner", "Worker", "Redis", "Device", "Time", "Upgrade", "Keys", "Connections", "Webhooks"]
AREAS = [*PARTS, "Every order of events", "Numbers"]
COLUMNS = {PROMISES: ["fault", "guarantee"], MECHANISMS: ["test", "mechanism", "without the mechanism"]}
NAMED = re.findall(r"`((?:api_)?tests/[\w/]+\.py)::(\w+)`", MECHANISMS)


def rows(page):
    """The cells of each row, after its area and its number."""
    return {
        (area.partition("\n")[0], int(cells[0])): cells[1:]
        for area in page.split("\n## ")[1:]
        for line in area.splitlines()
        if re.match(r"\| \d", line) and (cells := [cell.strip() for cell in line.strip("|").split(" | ")])
    }


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED)), ids=lambda part: part if "/" not in part else "")
def test_every_test_that_it_names_exists(path, name):
    tree = ast.parse((ROOT / path).read_text())
    assert name in {each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("page", COLUMNS, ids=["promises", "mechanisms"])
def test_every_area_has_a_table_whose_rows_are_full(page):
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == AREAS
    assert page.count("\n| | " + " | ".join(COLUMNS[page]) + " |\n") == len(AREAS)
    assert len(rows(page)) == len(re.findall(r"^\| \d", page, re.MULTILINE))
    assert {len(cells) for cells in rows(page).values()} == {len(COLUMNS[page])}
    assert all(cell for cells in rows(page).values() for cell in cells)


def test_every_promise_has_its_tests_and_its_mechanism():
    assert list(rows(PROMISES)) == list(rows(MECHANISMS))
    assert all("::test_" in tests for tests, _, _ in rows(MECHANISMS).values())
    for area in AREAS:
        numbers = [number for part, number in rows(PROMISES) if part == area]
        assert numbers == list(range(1, len(numbers) + 1)), area


def test_every_file_that_it_names_exists():
    named = re.findall(r"`([\w/]+/[\w.]+\.(?:py|lua))`", MECHANISMS)
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_faults_that_it_quotes_are_planted():
    quoted = {
        words
        for _, _, without in rows(MECHANISMS).values()
        for words in re.findall(r'"([^"]+)"', without)
        if not words.endswith("…")
    }
    assert quoted
    assert quoted <= FAULTS.keys()
    assert f"plants {len(FAULTS)} faults" in " ".join(MECHANISMS.split())


def test_the_readme_links_to_it():
    assert "(docs/promises.md)" in (ROOT / "README.md").read_text()
