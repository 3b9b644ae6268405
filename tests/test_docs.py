"""README.md and docs/: a short README, links that lead somewhere, and tables that list what the code has."""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from typer.testing import CliRunner

from docs.generate import GENERATED, generated
from dyno.bench.measure.stopping_rule import LOOSEST_REL_CI
from dyno.cli import app
from dyno.models.spec import Measure
from dyno.models.sweep import presets
from tests import guides

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
MOST_LINES = 150
PAGES = [*guides.GUIDES, ROOT / "CHANGELOG.md"]


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("page", GENERATED)
def test_the_generated_part_of_a_page_is_up_to_date(page: str) -> None:
    text = generated(page)
    assert (ROOT / page).read_text() == text, "run make docs"
    assert re.findall(r"\{[a-z_.]+\.[A-Z_]{2,}[^}]*\}", text) == [], "a constant that wasn't found"


def test_the_loosest_target_is_named_where_targets_are_set() -> None:
    assert f"uses {LOOSEST_REL_CI:g} to decide" in " ".join(str(Measure.model_json_schema()["description"]).split())
    method = " ".join((ROOT / "docs" / "method.md").read_text().split())
    assert f"With a target looser than {100 * LOOSEST_REL_CI:g} %, the check for steadiness" in method


def test_the_page_of_articles_names_every_preset_and_no_other() -> None:
    page = (ROOT / "docs" / "articles.md").read_text()
    of_articles = {name: preset for name, preset in presets().items() if preset.article}
    assert set(re.findall(r"--preset ([a-z0-9-]+)", page)) == of_articles.keys()
    assert set(re.findall(r"^\| _(.+?)_ \|", page, re.MULTILINE)) == {row.article for row in of_articles.values()}


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


@pytest.mark.parametrize("page", guides.GUIDES, ids=lambda page: page.name)
def test_every_file_of_the_code_that_a_page_names_exists(page: Path) -> None:
    folders = "dyno|service|workers|tests|api_tests|deploy|docs"
    named = re.findall(rf"`((?:{folders})/[\w/]+\.(?:py|lua|csv|md|acl|json))`", page.read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []


each_guide = pytest.mark.parametrize("page", guides.GUIDES, ids=lambda page: page.name)
# The beginning of a command in the text -> its test. tests/service/test_runbooks.py runs what begins with RUN there.
TESTED_COMMANDS = {
    "nginx -s reload": "tests/service/server/test_nginx.py",
    "promtool test rules deploy/prometheus/dyno.rules.test.yml": "tests/service/test_monitoring.py",
    "redis-check-aof --fix": "tests/service/test_runbooks.py",
} | dict.fromkeys(guides.RUN, "tests/service/test_runbooks.py")


@each_guide
def test_code_in_a_guide_is_fenced_and_names_its_language(page: Path) -> None:
    """api_tests/test_readme.py finds commands only in blocks that are fenced and marked `sh`."""
    assert guides.languages(page) <= guides.LANGUAGES
    assert guides.indented(page) == []


@each_guide
def test_every_command_in_the_text_is_checked_or_tested_or_marked_as_untested(page: Path) -> None:
    for command in guides.spans(page):
        program, *words = guides.words_of(command.text)
        if any(command.text.startswith(text) for text in TESTED_COMMANDS) or program in command.section.untested:
            continue
        assert program in CHECKS, f"name a test, or mark it as untested: {command.text}"
        CHECKS[program](words)


def _dyno_has(words: list[str]) -> None:
    """The command exists, for a workload if it names one, and has these options."""
    named = [word for word in words if re.fullmatch("[a-z][a-z0-9_-]*|--.*", word)]
    names = [*named[: next((n for n, word in enumerate(named) if word.startswith("--")), len(named))]]
    done = CliRunner().invoke(app, [*names, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert done.exit_code == 0, (words, done.output)
    assert [word for word in words if word.startswith("--") and word.partition("=")[0] not in done.output] == []


def _make_has(words: list[str]) -> None:
    assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), words


def _python_has(words: list[str]) -> None:
    """The module exists, and the benchmark of that name if it is benchmarks."""
    [module, *names] = words[words.index("-m") + 1 :]
    assert importlib.util.find_spec(module), words
    assert module != "benchmarks" or importlib.util.find_spec(f"benchmarks.{names[0]}"), words


def _pip_has(words: list[str]) -> None:
    """Extras are ours, and other packages those that pyproject.toml speaks of."""
    text = (ROOT / "pyproject.toml").read_text()
    extras = tomllib.loads(text)["project"]["optional-dependencies"].keys()
    assert words[0] == "install"
    for word in shlex.split(" ".join(words[1:])):
        name = "tensordyno" + word[1:] if word.startswith(".") else word
        assert Requirement(name).extras <= extras
        assert name.startswith("tensordyno") or name in text, word


CHECKS = {"dyno": _dyno_has, "make": _make_has, "python": _python_has, "pip": _pip_has}


@each_guide
def test_what_a_guide_marks_as_untested_is_on_the_page_and_has_a_reason(page: Path) -> None:
    for reason in guides.reasons(page):
        assert re.search(guides.REASON, reason), reason
    for section in guides.sections(page):
        used = "\n".join([*(b.text for b in guides.blocks(page)), *(span.text for span in guides.spans(page))])
        assert section.untested <= guides.programs_of(used), section.untested


def test_every_test_of_a_command_exists_and_every_tested_command_is_on_a_page() -> None:
    assert all((ROOT / test).exists() for test in TESTED_COMMANDS.values())
    found = [span.text for page in guides.GUIDES for span in guides.spans(page)]
    assert [text for text in TESTED_COMMANDS if not any(each.startswith(text) for each in found)] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DYNO_URL=x .venv/bin/dyno run matmul && kubectl apply -k .", {"dyno", "kubectl"}),
        ("cp a \\\n  docker\nPASSWORD=$(openssl rand -hex 24) | redis-cli -x", {"openssl", "redis-cli"}),
        ("dynos and kubectls", set()),
    ],
)
def test_the_programs_of_a_command_are_found(text: str, expected: set[str]) -> None:
    assert guides.programs_of(text) == expected


def test_a_guide_with_an_unmarked_command_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n\n`kubectl get pods`\n\n## B\n\n**Untested:** `kubectl`, since none is here.\n\n`kubectl get nodes`\n"
    )
    marked = {span.text: span.section.untested for span in guides.spans(page)}
    assert marked == {"kubectl get pods": frozenset(), "kubectl get nodes": frozenset({"kubectl"})}
    page.write_text("# A\n\n    make test\n\n1. x\n\n    y\n\n    ```sh\n    make test\n    ```\n")
    assert guides.indented(page) == ["    make test"]
    assert [block.text for block in guides.blocks(page)] == ["make test\n"]
