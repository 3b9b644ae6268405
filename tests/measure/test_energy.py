"""Energy of a job: what its runs' counters say, per sample and per operation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dyno.measure.energy import energy
from dyno.models.result import Result, Sensors
from dyno.models.runner_protocol import RunRecord

MakeRecord = Callable[..., RunRecord]


def counted(joules: float | None, seconds: float | None = 20.0, **reasons: str) -> Sensors:
    return Sensors(looks=2, energy_j=joules, energy_s=seconds, energy_of="a counter", reasons=reasons)


def test_joules_add_up_and_are_shared_out_over_the_executions(record: MakeRecord) -> None:
    """100 W and 200 W in runs of 20 executions of 1 s each: 150 J for an execution of 1000 samples or FLOP."""
    runs = [record([1.0] * 20, sensors=counted(joules)) for joules in (2000.0, 4000.0)]
    images = energy(runs, "images/s", flops=3e6)
    assert (images.joules, images.window_s, images.covers, images.reason) == (6000.0, 40.0, "a counter", None)
    assert (images.joules_per_sample, images.flop_per_joule) == (pytest.approx(0.15), pytest.approx(2e4))
    products = energy(runs, "FLOP/s", flops=1000.0)
    assert (products.joules_per_sample, products.flop_per_joule) == (None, pytest.approx(1000 / 150))


def test_a_counter_read_over_part_of_the_window_counts_by_its_power(record: MakeRecord) -> None:
    """100 W over the last 10 s of 20 executions that took 20 s."""
    found = energy([record([1.0] * 20, sensors=counted(1000.0, 10.0))], "images/s", flops=0.0)
    assert (found.joules, found.window_s) == (1000.0, 10.0)
    assert (found.joules_per_sample, found.flop_per_joule) == (pytest.approx(0.1), None)


def test_one_run_that_tells_nothing_leaves_the_energy_unknown_and_says_why(record: MakeRecord) -> None:
    silent = counted(None, None, energy_j="root alone may read it")
    found = energy([record([1.0] * 20, sensors=each) for each in (counted(2000.0), silent)], "images/s", 1.0)
    assert (found.joules, found.joules_per_sample, found.reason) == (None, None, "root alone may read it")
    assert energy([record([1.0] * 20)], None, 0.0).reason == "no energy counter was read"


def test_a_result_tells_flop_per_joule_of_its_own_work(result: Callable[..., Result], record: MakeRecord) -> None:
    found = result([record([1.0] * 20, amounts={"execution": 1.0}, sensors=counted(2000.0))] * 2)
    assert (found.energy.joules, found.energy.flop_per_joule) == (4000.0, pytest.approx(10.0))
