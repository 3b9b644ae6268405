"""The table of codes, and the verdict that follows from raised warnings."""

import ast
import functools
import re
from pathlib import Path

import pytest

import dyno
from dyno.bench.measure.warning_codes import CODES
from dyno.bench.measure.warnings import (
    OUTPUT_CODES,
    merged_warnings,
    sorted_warnings,
    unchecked_codes,
    verdict,
    warning,
)
from dyno.models.result import Peak, Precision, Verdict

A = warning("RESULT_INCORRECT")
B = warning("TARGET_MISSED", "too wide", rel_half_width=0.2)
C = warning("POW2_ONLY")


ROOT = Path(dyno.__file__).parents[1]
SOURCES = [path.read_text() for package in ("dyno", "service") for path in (ROOT / package).rglob("*.py")]


def raised_somewhere():
    return {code for text in SOURCES for code in re.findall(r'\bwarning\(\s*"([A-Z0-9_]+)"', text)}


@functools.cache
def nodes():
    return [node for text in SOURCES for node in ast.walk(ast.parse(text))]


def test_every_class_a_or_b_code_is_checked_somewhere():
    grave = {code for code, row in CODES.items() if row.severity in "AB"}
    assert grave <= raised_somewhere() <= CODES.keys()


def test_the_table_has_the_gravest_codes_first():
    severities = [row.severity for row in CODES.values()]
    assert severities == sorted(severities)


def test_every_check_is_called_outside_the_tests():
    checks = {
        node.name
        for node in nodes()
        if isinstance(node, ast.FunctionDef) and node.returns and ast.unparse(node.returns) == "ResultWarning | None"
    }
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        for node in nodes()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
    }
    assert {"above_peak", "noisy_neighbour", "multimodal"} <= checks
    assert checks <= called


def test_a_warning_has_the_class_and_sentence_of_its_code_and_keeps_its_evidence():
    assert (A.severity, A.message) == ("A", CODES["RESULT_INCORRECT"].sentence)
    assert (B.severity, B.message, B.evidence) == ("B", "too wide", {"rel_half_width": 0.2})
    with pytest.raises(KeyError):
        warning("NO_SUCH_CODE")


def test_any_warning_of_class_a_makes_a_result_untrusted():
    assert verdict([C, B, A], [], 5) is Verdict.UNTRUSTED


@pytest.mark.parametrize("code", ["RESULT_INCORRECT", "ABOVE_PEAK", "THROTTLED"])
def test_nothing_is_better_than_indicative_while_a_check_is_missing(code):
    assert verdict([], [code], 5) is Verdict.INDICATIVE


SEEN = Precision(requested="float32", observed="float32", rel_error=3e-7)
UNSEEN = Precision(requested="float32", observed=None, rel_error=3e-7)


@pytest.mark.parametrize(
    ("precisions", "peak", "verified", "more"),
    [
        ([SEEN, SEEN], 1e12, OUTPUT_CODES, set()),
        ([SEEN, SEEN], None, OUTPUT_CODES, {"ABOVE_PEAK"}),
        ([SEEN, UNSEEN], 1e12, OUTPUT_CODES, {"PRECISION_MISMATCH"}),
        ([None, None], 1e12, {"OUTPUT_NONFINITE"}, {"DEGENERATE_DATA", "RESULT_INCORRECT", "PRECISION_MISMATCH"}),
    ],
)
def test_codes_that_a_result_could_not_check_are_unchecked_too(precisions, peak, verified, more):
    missing = unchecked_codes(precisions, Peak(value=peak), verified)
    assert set(missing) == more
    assert missing == sorted(missing, key=list(CODES).index)


def test_work_without_flop_is_bounded_by_its_bytes():
    assert unchecked_codes([SEEN], Peak(value=None), OUTPUT_CODES, by_bytes=True) == []


@pytest.mark.parametrize(
    ("raised", "runs", "expected"),
    [
        ([], 5, Verdict.TRUSTED),
        ([C], 9, Verdict.TRUSTED),
        ([], 4, Verdict.INDICATIVE),
        ([B, C], 5, Verdict.INDICATIVE),
        ([A], 5, Verdict.UNTRUSTED),
    ],
)
def test_a_fully_checked_result_needs_five_runs_and_no_class_a_or_b_warning(raised, runs, expected):
    assert verdict(raised, [], runs) is expected


def test_warnings_of_several_runs_become_one_per_code_that_names_its_runs():
    other = warning("TARGET_MISSED", "also", rel_half_width=0.3)
    found = merged_warnings([[C, B], [], [other, A]])
    assert [each.code for each in found] == ["RESULT_INCORRECT", "TARGET_MISSED", "POW2_ONLY"]
    assert found[1].evidence == {"rel_half_width": 0.2, "runs": [0, 2]}
    assert found[0].evidence["runs"] == [2]


def test_the_gravest_warnings_come_first_and_unknown_codes_last():
    unknown = A.model_copy(update={"code": "FROM_THE_FUTURE"})
    assert [each.code for each in sorted_warnings([unknown, C, A])] == [
        "RESULT_INCORRECT",
        "POW2_ONLY",
        "FROM_THE_FUTURE",
    ]
