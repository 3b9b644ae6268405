"""docs/warnings.md has every code of the table, in its class and order, with the thresholds of the code."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from dyno.measure import (
    compare_results,
    correctness,
    execution_checks,
    host_noise,
    regression_band,
    result_checks,
    stability,
    stopping_rule,
)
from dyno.measure.warnings import CODES
from dyno.models.spec import Measure
from dyno.store import leases

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "warnings.md").read_text()
CLASSES = dict(re.findall(r"^## ([ABC]): .*?\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))


FINGERPRINTS = correctness.FINGERPRINTS.values()


def percent(share: float) -> str:
    return f"{100 * share:g} %"


THRESHOLDS = [
    (
        "ASYNC_TIMING",
        f"more than {1e3 * execution_checks.DRAIN_FLOOR_S:g} ms and more than {percent(execution_checks.DRAIN_LIMIT)}",
    ),
    ("UNIT_MISMATCH", f"more than {Fraction(execution_checks.UNIT_LIMIT).limit_denominator(9)} of"),
    ("ABOVE_PEAK", f"{result_checks.PEAK_SLACK['measured here']:g}"),
    ("RESULT_INCORRECT", f"{correctness.MAX_TOLERANCE:g}"),
    ("RESULT_INCORRECT", f"more than {correctness.ALLOWED_ROUNDINGS:g} times what one rounding of each weight does"),
    ("RESULT_INCORRECT", f"less than {percent(correctness.MIN_COMPARED)} of the weights"),
    *(("PRECISION_MISMATCH", f"{error:.1e}".replace(".0e", "e").replace("e-0", "e-")) for error in FINGERPRINTS),
    ("CLOCK_DRIFT", percent(stability.DRIFT_LIMIT)),
    ("NOISY_NEIGHBOUR", f"{percent(host_noise.STEAL_LIMIT)} stolen"),
    ("NOISY_NEIGHBOUR", f"{percent(host_noise.OTHERS_LIMIT)} busy hyperthreads"),
    ("NOISY_NEIGHBOUR", f"more than {percent(host_noise.WAIT_LIMIT)}"),
    ("MULTIMODAL", f"{percent(stability.MULTIMODAL_MIN_SHIFT)} apart"),
    *(
        ("MULTIMODAL", f"{stability.MULTIMODAL_LIMITS[count]:g} for {name}")
        for count, name in ((5, "five"), (20, "twenty"))
    ),
    ("CPU_QUOTA", f"less than {stability.HOST_CORES} of them"),
    ("INSUFFICIENT_SAMPLES", f"{stopping_rule.FLOOR_SAMPLES} samples"),
    ("INSUFFICIENT_SAMPLES", f"{stopping_rule.FLOOR_S:g} s"),
    (
        "INSUFFICIENT_SAMPLES",
        f"{1e3 * stopping_rule.FLOOR_SAMPLE_S['cpu']:g} ms ({1e3 * stopping_rule.FLOOR_SAMPLE_S['gpu']:g} ms",
    ),
    ("NOISY", f"more than {percent(stopping_rule.LOOSEST_REL_CI)} of it"),
    ("NO_STEADY_STATE", f"within {percent(stopping_rule.LOOSEST_REL_CI)} where that is less"),
    ("METRIC_OUT_OF_BAND", f"newest {leases.PEERS_KEPT} results"),
    ("METRIC_OUT_OF_BAND", f"until {leases.PEERS_LIFE_S // 86400} days"),
    ("METRIC_OUT_OF_BAND", f"t at {percent(regression_band.CONFIDENCE)}"),
    ("METRIC_OUT_OF_BAND", f"less than {percent(regression_band.FLOOR)}"),
    ("INPUT_BOUND", f"more than {percent(result_checks.INPUT_LIMIT)}"),
    ("OVERHEAD_BOUND", percent(result_checks.OVERHEAD_FRACTION)),
    ("WEAK_BASELINE", percent(compare_results.WEAK_SHARE)),
]


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_page_has_exactly_one_section_per_code_in_class_and_order() -> None:
    by_class = {name: re.findall(r"^### (\w+)$", text, re.MULTILINE) for name, text in CLASSES.items()}
    expected = {name: [code for code, (severity, _) in CODES.items() if severity == name] for name in "ABC"}
    assert by_class == expected
    assert PAGE.count("\n### ") == len(CODES)


@pytest.mark.parametrize("code", CODES)
def test_each_section_has_meaning_check_and_remedy(code: str) -> None:
    for part in ("Means", "Found", "Do"):
        (text,) = re.findall(rf"\*\*{part}\.\*\* (.*?)(?=\*\*(?:Means|Found|Do)\.|\Z)", SECTIONS[code], re.DOTALL)
        assert len(text.strip()) > 20


@pytest.mark.parametrize(("code", "threshold"), THRESHOLDS)
def test_the_page_names_the_thresholds_of_the_code(code: str, threshold: str) -> None:
    assert threshold in words(SECTIONS[code])


def test_the_loosest_target_is_named_where_targets_are_set() -> None:
    assert f"uses {stopping_rule.LOOSEST_REL_CI:g} to decide" in words(str(Measure.model_json_schema()["description"]))
    assert f"target** than {percent(stopping_rule.LOOSEST_REL_CI)} ends" in (DOCS / "method.md").read_text()


def test_the_method_and_the_readme_link_to_the_page() -> None:
    assert "(warnings.md)" in (DOCS / "method.md").read_text()
    assert "(docs/warnings.md)" in (DOCS.parent / "README.md").read_text()
