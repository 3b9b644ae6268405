"""The table of codes, and the verdict that follows from what was raised."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dyno
from dyno.measure import warnings
from dyno.measure.warnings import CODES, UNCHECKED, in_order, merged, verdict, warning
from dyno.result import Verdict

A = warning("RESULT_INCORRECT")
B = warning("NOISY", "too wide", rel_half_width=0.2)
C = warning("POW2_ONLY")


def raised_somewhere() -> set[str]:
    sources = [path.read_text() for path in Path(dyno.__file__).parent.rglob("*.py")]
    return {code for text in sources for code in re.findall(r'\bwarning\(\s*"([A-Z0-9_]+)"', text)}


def test_every_grave_code_is_either_checked_somewhere_or_listed_as_unchecked() -> None:
    grave = {code for code, (severity, _) in CODES.items() if severity in "AB"}
    assert grave - raised_somewhere() <= set(UNCHECKED) <= grave


def test_only_codes_of_the_table_are_raised() -> None:
    assert raised_somewhere() <= CODES.keys()


def test_a_code_brings_its_class_and_sentence_and_keeps_its_evidence() -> None:
    assert (A.severity, A.message) == ("A", CODES["RESULT_INCORRECT"][1])
    assert (B.severity, B.message, B.evidence) == ("B", "too wide", {"rel_half_width": 0.2})
    with pytest.raises(KeyError):
        warning("NO_SUCH_CODE")


def test_any_warning_of_class_a_makes_a_result_untrusted() -> None:
    assert verdict([C, B, A], 5, True) is Verdict.UNTRUSTED


def test_nothing_is_better_than_indicative_while_checks_are_missing() -> None:
    assert UNCHECKED
    assert verdict([], 5, True) is Verdict.INDICATIVE


@pytest.mark.parametrize(
    ("raised", "processes", "target_reached", "expected"),
    [
        ([], 5, True, Verdict.TRUSTED),
        ([C], 9, True, Verdict.TRUSTED),
        ([], 4, True, Verdict.INDICATIVE),
        ([], 5, False, Verdict.INDICATIVE),
        ([B, C], 5, True, Verdict.INDICATIVE),
        ([A], 5, True, Verdict.UNTRUSTED),
    ],
)
def test_once_all_is_checked_trust_needs_five_runs_the_target_and_no_grave_warning(
    monkeypatch: pytest.MonkeyPatch,
    raised: list[object],
    processes: int,
    target_reached: bool,
    expected: Verdict,
) -> None:
    monkeypatch.setattr(warnings, "UNCHECKED", ())
    assert verdict(raised, processes, target_reached) is expected  # type: ignore[arg-type]


def test_warnings_of_several_runs_become_one_per_code_that_names_its_runs() -> None:
    other = warning("NOISY", "also", rel_half_width=0.3)
    found = merged([[C, B], [], [other, A]])
    assert [each.code for each in found] == ["RESULT_INCORRECT", "NOISY", "POW2_ONLY"]
    assert found[1].evidence == {"rel_half_width": 0.2, "runs": [0, 2]}
    assert found[0].evidence["runs"] == [2]


def test_the_gravest_come_first_and_unknown_codes_last() -> None:
    unknown = A.model_copy(update={"code": "FROM_THE_FUTURE"})
    assert [each.code for each in in_order([unknown, C, A])] == ["RESULT_INCORRECT", "POW2_ONLY", "FROM_THE_FUTURE"]
