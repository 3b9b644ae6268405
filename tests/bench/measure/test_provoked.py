"""Every warning has a test that provokes it, for real where possible, and a test that shows it silent.

The tests say so: `@pytest.mark.provokes("CODE")` and `@pytest.mark.silent("CODE")`. `how="recorded"`: the test plays
back recorded responses of a sensor or driver that test machines can't produce. `how="made"`: the figures are made up.
"""

import ast
from pathlib import Path

import pytest

from dyno.bench.measure.warning_codes import CODES
from tests.bench.runner.test_checked_runs import WRONG

ROOT = Path(__file__).parents[3]
SOURCES = [path.read_text() for folder in ("tests", "api_tests") for path in (ROOT / folder).rglob("test_*.py")]
MARKS = [
    eval(mark, {"pytest": pytest, "WRONG": WRONG})
    for source in SOURCES
    if "@pytest.mark.provokes(" in source or "@pytest.mark.silent(" in source
    for test in ast.parse(source).body
    if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef)
    for mark in map(ast.unparse, test.decorator_list)
    if mark.startswith(("pytest.mark.provokes(", "pytest.mark.silent("))
]


def _marked(name, **how):
    return {code for mark in MARKS if mark.name == name and mark.kwargs.items() >= how.items() for code in mark.args}


@pytest.mark.parametrize("name", ["provokes", "silent"])
def test_every_code_has_a_test_with_each_mark(name):
    assert _marked(name) == CODES.keys()


def test_only_class_c_warnings_use_made_up_figures_and_only_sensors_are_recorded():
    assert _marked("provokes", how="recorded") == {"THROTTLED", "CLOCK_DRIFT", "DEVICE_SHARED"}
    assert {CODES[code].severity for code in _marked("provokes", how="made")} == {"C"}
