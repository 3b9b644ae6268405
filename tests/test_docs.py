"""README.md and docs/: a short README, links that lead somewhere, and tables that list what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.generate import GENERATED, generated
from dyno.measure.stopping_rule import LOOSEST_REL_CI
from dyno.models.spec import Measure
from dyno.settings import Settings
from dyno.sweep_presets import presets

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
MOST_LINES = 150
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/*.md"))]


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("page", GENERATED)
def test_the_generated_part_of_a_page_is_up_to_date(page: str) -> None:
    assert (ROOT / page).read_text() == generated(page), "run make docs"


def test_the_loosest_target_is_named_where_targets_are_set() -> None:
    assert f"uses {LOOSEST_REL_CI:g} to decide" in " ".join(str(Measure.model_json_schema()["description"]).split())
    method = " ".join((ROOT / "docs" / "method.md").read_text().split())
    assert f"With a target looser than {100 * LOOSEST_REL_CI:g} %, the check for steadiness" in method


def test_the_page_of_settings_lists_every_setting_and_no_other() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    cells = re.findall(r"^\| (`DYNO_[^|]+) \|", page, re.MULTILINE)
    names = [name for cell in cells for name in re.findall(r"`DYNO_(\w+)`", cell)]
    assert len(names) == len(set(names))
    assert set(names) == {name.upper() for name in Settings.model_fields} | {"URL", "API_KEY"}


def test_the_page_of_articles_names_every_preset_and_no_other() -> None:
    page = (ROOT / "docs" / "articles.md").read_text()
    assert set(re.findall(r"--preset ([a-z0-9-]+)", page)) == presets().keys()
    assert set(re.findall(r"^\| _(.+?)_ \|", page, re.MULTILINE)) == {preset.article for preset in presets().values()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_heading_that_exist(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_every_file_of_the_code_that_a_page_names_exists(page: Path) -> None:
    folders = "dyno|service|workers|tests|api_tests|deploy|docs"
    named = re.findall(rf"`((?:{folders})/[\w/]+\.(?:py|lua|csv|md|acl|json))`", page.read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []
