"""Every warning has a test that provokes it, for real where possible, and a test that shows it silent."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from dyno.measure.warnings import CODES
from tests.measure.provoked import PROVOKED, Provoked
from tests.runner.test_checked_runs import WRONG

ROOT = Path(__file__).parents[2]
GRAVE = {code for code, (severity, _) in CODES.items() if severity in "AB"}


@cache
def _tests(path: str) -> set[str]:
    return {each.name for each in ast.parse((ROOT / path).read_text()).body if isinstance(each, ast.FunctionDef)}


def test_the_table_has_every_code_in_the_order_of_the_codes() -> None:
    assert list(PROVOKED) == list(CODES)


@pytest.mark.parametrize(("code", "row"), PROVOKED.items(), ids=list(PROVOKED))
def test_both_tests_of_a_warning_exist_and_the_provoking_file_names_it(code: str, row: Provoked) -> None:
    for named in (row.by, row.silent):
        path, name = named.split("::")
        assert name in _tests(path)
    assert code in (ROOT / row.by.split("::")[0]).read_text()


def test_a_parametrised_test_runs_for_every_code_that_refers_to_it() -> None:
    by_wrong_work = {code for code, row in PROVOKED.items() if row.by == PROVOKED["ASYNC_TIMING"].by}
    assert by_wrong_work == WRONG.keys()


def test_only_class_c_warnings_use_made_up_figures_and_only_sensors_are_recorded() -> None:
    assert {code for code, row in PROVOKED.items() if row.how == "recorded"} == {
        *("THROTTLED", "CLOCK_DRIFT", "DEVICE_SHARED")
    }
    assert not {code for code, row in PROVOKED.items() if row.how == "made"} & GRAVE
