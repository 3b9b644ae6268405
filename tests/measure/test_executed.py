"""What readings must look like to raise a doubt; the readings themselves are provoked in tests/frameworks/cases."""

from __future__ import annotations

import pytest

from dyno.measure.executed import (
    Drained,
    Growth,
    async_timing,
    compile_in_timing,
    retraced,
    unit_mismatch,
    work_eliminated,
)


@pytest.mark.parametrize(
    ("execution_s", "drain_s", "late"),
    [(0.05, 0.0026, True), (0.05, 0.0024, False), (0.01, 0.0009, False), (0.01, 0.0011, True), (0.1, 0.0, False)],
)
def test_a_drain_is_late_above_5_percent_and_a_millisecond(execution_s: float, drain_s: float, late: bool) -> None:
    assert (async_timing([Drained(execution_s, drain_s)]) is not None) is late


def test_what_it_takes_to_be_told_that_nothing_is_left_is_no_wait() -> None:
    assert async_timing([Drained(0.05, 0.02, idle_s=0.019)]) is None
    assert async_timing([Drained(0.05, 0.02, idle_s=0.001)]) is not None


def test_one_reading_without_a_wait_clears_the_clock() -> None:
    late, clean = Drained(0.05, 0.04), Drained(0.05, 0.0)
    assert async_timing([]) is None
    assert async_timing([late, clean]) is None
    assert (raised := async_timing([late, Drained(0.06, 0.03), late])) is not None
    assert raised.severity == "A"
    assert (raised.evidence["drain_s"], raised.evidence["execution_s"]) == (0.03, 0.06)
    assert "30.0 ms" in raised.message


@pytest.mark.parametrize(("grown_s", "raised"), [(2.0, False), (1.5, False), (1.49, True), (1.0, True), (0.9, True)])
def test_twice_the_work_takes_half_as_long_again_at_least(grown_s: float, raised: bool) -> None:
    assert (work_eliminated(Growth(2, 1.0, grown_s), "executions") is not None) is raised


def test_a_call_that_outweighs_its_work_hides_it_until_enough_is_added() -> None:
    """A call of 0.9 s with 0.1 s of work, which the device at its best would do in 0.05 s."""
    honest = {times: Growth(times, 1.0, 0.9 + 0.1 * times, 0.05) for times in (2, 16)}
    assert not honest[2].telling
    assert work_eliminated(honest[2], "work") is None
    assert honest[16].telling
    assert work_eliminated(honest[16], "work") is None
    none_of_it = Growth(16, 1.0, 1.02, 0.05)
    assert (raised := work_eliminated(none_of_it, "work in one execution")) is not None
    assert raised.message == "16 times the work in one execution took 1.02 times as long."
    assert raised.evidence["least_added_s"] == pytest.approx(0.5 * 15 * 0.05)


def test_a_rate_above_the_ceiling_is_judged_by_its_own_time() -> None:
    """The device needs ten times as long: the figure is above its peak, and the work still has to grow with itself."""
    assert work_eliminated(Growth(2, 1.0, 2.0, 10.0), "work") is None
    assert work_eliminated(Growth(2, 1.0, 1.1, 10.0), "work") is not None


@pytest.mark.parametrize(("counted", "raised"), [(1.0, False), (1.66, False), (0.61, False), (2.0, True), (0.5, True)])
def test_units_differ_beyond_two_thirds(counted: float, raised: bool) -> None:
    found = unit_mismatch(1.0, counted)
    assert (found is not None) is raised
    assert found is None or found.evidence["counted_flop"] == counted


def test_what_was_compiled_is_named_once_each_and_counted_each_time() -> None:
    assert compile_in_timing([]) is None
    assert (raised := compile_in_timing(["step", "step", "loss"])) is not None
    assert raised.evidence == {"times": 3, "functions": ["step", "loss"]}


def test_only_a_function_that_was_known_is_retraced() -> None:
    assert retraced(["step"], []) is None
    assert retraced(["step"], ["another"]) is None
    assert (raised := retraced(["step"], ["another", "step"])) is not None
    assert raised.evidence == {"times": 1, "functions": ["step"]}
