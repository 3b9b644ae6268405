"""When one training step is the same as another: how far rounding may move it, and what can't be told."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dyno.measure.step_agreement import ALLOWED, Agreement, Step, agreement, rounding, step_incorrect

BEFORE = [np.full((8, 8), 2.0, np.float32), np.zeros(8, np.float32)]
CHANGE = [np.full((8, 8), 1e-2, np.float32), np.full(8, 1e-2, np.float32)]


def _after(*changes: NDArray[Any], loss: float | None = 1.0) -> Step:
    return Step(loss, [before + change for before, change in zip(BEFORE, changes, strict=True)])


def _found(timed: Step, off: float = 1e-3, plain: Step | None = None, rounded_loss: float = 1.0) -> Agreement:
    plain = plain or _after(*CHANGE)
    rounded = _after(*(each * (1 + off) for each in CHANGE), loss=rounded_loss)
    return agreement(BEFORE, timed, plain, rounded, "float32")


@pytest.mark.parametrize(("times", "agrees"), [(0.0, True), (3.5, True), (5.0, False)])
def test_a_step_may_be_off_by_four_times_what_one_rounding_does(times: float, agrees: bool) -> None:
    found = _found(_after(*(each * (1 + times * 1e-3) for each in CHANGE)))
    assert found.agrees is agrees
    assert found.compared == 1.0
    assert found.bound == pytest.approx(ALLOWED * 1e-3, rel=0.1)


NO_STEP, BACKWARDS, A_PART = [0 * each for each in CHANGE], [-each for each in CHANGE], [CHANGE[0], 0 * CHANGE[1]]


@pytest.mark.parametrize("wrong", [NO_STEP, BACKWARDS, A_PART])
def test_no_change_another_direction_and_a_single_array_left_out_are_found(wrong: list[NDArray[Any]]) -> None:
    found = _found(_after(*wrong))
    assert found.agrees is False
    assert found.rel_error >= 0.99


def test_an_array_that_rounding_alone_moves_by_half_is_left_out() -> None:
    plain = _after(*CHANGE)
    rounded = _after(CHANGE[0], CHANGE[1] * 1.2)
    found = agreement(BEFORE, _after(CHANGE[0], -CHANGE[1]), plain, rounded, "float32")
    assert (found.agrees, found.compared, found.array) == (True, 64 / 72, 0)


def test_a_change_that_no_rounding_moves_is_held_to_how_weights_are_stored() -> None:
    found = _found(_after(*CHANGE), off=0.0)
    assert found.agrees is True
    assert 0 < found.bound < 1e-4


def test_where_rounding_moves_most_of_the_weights_nothing_is_told() -> None:
    found = _found(_after(*CHANGE), off=0.2)
    assert (found.agrees, found.compared, found.array) == (None, 0.0, None)
    assert found.details()["rel_error"] is None


def test_a_step_that_changes_nothing_by_plan_tells_nothing() -> None:
    still = _after(*(0 * each for each in CHANGE))
    assert agreement(BEFORE, still, still, still, "float32").agrees is None


@pytest.mark.parametrize(("loss", "agrees"), [(1.0, True), (1.0 + 2.0**-15, True), (1.001, False), (math.nan, False)])
def test_the_loss_is_held_to_the_same(loss: float, agrees: bool) -> None:
    assert _found(_after(*CHANGE, loss=loss)).agrees is agrees


def test_a_loss_that_is_not_told_is_not_compared() -> None:
    assert _found(_after(*CHANGE, loss=None)).agrees is True


def test_a_plain_step_whose_loss_is_not_finite_tells_nothing() -> None:
    assert _found(_after(*CHANGE), plain=_after(*CHANGE, loss=math.inf)).agrees is None


def test_weights_that_became_nan_in_the_timed_step_alone_are_found() -> None:
    found = _found(_after(*(each * math.nan for each in CHANGE)))
    assert found.agrees is False
    assert step_incorrect(found, "kernel", 3).evidence["rel_error"] is None


def test_a_rounding_is_the_precision_s_own_or_that_of_a_long_sum() -> None:
    assert [rounding(each) for each in ("float32", "tf32", "bfloat16")] == [2.0**-16, 2.0**-11, 2.0**-8]
