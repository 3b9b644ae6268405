"""docs/audit.md holds every figure that the workloads quote, in the section of its article, as the article wrote it."""

import math
import re
from pathlib import Path

import pytest

from dyno.bench.references import ELSEWHERE
from dyno.bench.registry import registry

PAGE = (Path(__file__).parents[3] / "docs" / "audit.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
QUOTED = [
    (name, figure)
    for name, workload in registry().items()
    for figure in workload.references
    if figure.title != ELSEWHERE.title
]
# What articles write for one of the result's units.
SCALES = {
    "FLOP/s": [1e-12],
    "s": [1, 1e3, 1e6, 1 / 60, 1 / 3600],
    "1": [1, 100],
    "bytes": [1e-6],
}


def heading(figure):
    """Title and year; if the title ends in brackets, the year goes inside them."""
    if figure.title.endswith(")"):
        return f"{figure.title[:-1]}, {figure.year})"
    return f"{figure.title} ({figure.year})"


def numbers(text):
    return [float(found.replace(",", "")) for found in re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", text)]


def told(value, unit, text):
    scaled = [value * scale for scale in SCALES.get(unit, [1])]
    return any(math.isclose(number, each, rel_tol=1e-6) for number in numbers(text) for each in scaled)


def test_articles_and_sections_match_one_to_one():
    assert {heading(figure) for _, figure in QUOTED} == SECTIONS.keys()


@pytest.mark.parametrize(
    ("name", "figure"), QUOTED, ids=lambda part: part if isinstance(part, str) else f"{part.metric}-{part.value}"
)
def test_each_figure_is_in_its_article_s_section(name, figure):
    rows = [line for line in SECTIONS[heading(figure)].splitlines() if line.startswith("|")]
    if figure.value is None:
        assert any(re.search(r"not run|out of memory", row, re.IGNORECASE) for row in rows)
    else:
        assert any(told(figure.value, figure.unit, row) for row in rows)


def test_a_missing_figure_is_detected():
    (rows,) = (text for title, text in SECTIONS.items() if title.startswith("How to harness"))
    assert told(15.70e12, "FLOP/s", rows)
    assert not told(15.71e12, "FLOP/s", rows)


def test_an_article_is_of_one_year():
    of = {(figure.title, figure.year) for workload in registry().values() for figure in workload.references}
    assert len({title for title, _ in of}) == len(of) == 6


def test_a_tpu_s_version_is_stated_only_if_the_article_states_it():
    for workload in registry().values():
        for figure in workload.references:
            assert "v2" not in figure.hardware or figure.title.startswith(("Google's free", "Published elsewhere"))


def test_figures_published_elsewhere_are_those_of_resnet50():
    found = {figure.value for figure in registry()["resnet50"].references if figure.title == ELSEWHERE.title}
    assert found == {2470, 1200, 3186}
