"""When sensors are looked at, and what counts of what they said. Time and readings are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dyno.devices.sensors.source import Look, Users
from dyno.devices.sensors.watch import Watch
from dyno.measure.clock import HostClock
from dyno.measure.rule import StoppingRule
from dyno.measure.sampling import sample
from dyno.models.result import Sensors


class Replayed:
    """Gives `looks` one after the other, the last one for ever; each takes `cost_s`, and time stands still else."""

    energy_of, least_energy_s = "a replayed counter", 10.0

    def __init__(self, looks: Sequence[Look], cost_s: float = 0.0) -> None:
        self._looks, self._cost_s = list(looks), cost_s
        self.now_s, self.taken = 0.0, 0

    def look(self) -> Look:
        self.taken += 1
        self.now_s += self._cost_s
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]

    def users(self) -> Users:
        return Users(other_processes=2, utilisation=0.5)

    def reasons(self) -> dict[str, str]:
        return {}


def watched(source: Replayed, samples: int, sample_s: float, warmup: int = 0) -> Sensors:
    watch = Watch(source, lambda: source.now_s)
    for _ in range(samples):
        watch.look()
        source.now_s += sample_s
    return watch.over(warmup)


def test_energy_is_counted_from_the_first_sample_that_counts_to_the_end_of_the_last() -> None:
    counter = [Look(energy_j=joules) for joules in (100.0, 900.0, 1000.0, 1200.0, 1500.0)]
    found = watched(Replayed(counter), samples=4, sample_s=10.0, warmup=2)
    assert (found.energy_j, found.energy_s, found.energy_of) == (500.0, 20.0, "a replayed counter")


def test_a_window_too_short_for_the_counter_has_no_energy_and_says_how_long_it_must_be() -> None:
    counter = [Look(energy_j=0.0), Look(energy_j=90.0)]
    found = watched(Replayed(counter), samples=1, sample_s=9.0)
    assert (found.energy_j, found.energy_s) == (None, None)
    assert found.reasons["energy_j"] == "the counter was read over 9.0 s; 10 s are needed (measure.min_s)"


def test_one_look_alone_counts_nothing_and_says_why() -> None:
    counter = Look(energy_j=5.0, throttle_events=3, temperature_c=50.0)
    found = watched(Replayed([counter], cost_s=1.0), samples=3, sample_s=0.1, warmup=1)
    assert (found.looks, found.temperature_c) == (1, 50.0)
    assert (found.energy_j, found.throttle_events) == (None, None)
    assert found.reasons.keys() == {"energy_j", "throttle_events"}


def test_the_hottest_moment_the_median_clock_and_every_reason_are_told() -> None:
    hot = Look(temperature_c=81.0, clocks_hz={"sm": 1.2e9}, throttle_reasons=frozenset({"power cap"}))
    cool = Look(temperature_c=60.0, clocks_hz={"sm": 1.9e9}, throttle_reasons=frozenset())
    found = watched(Replayed([cool, hot, cool, cool]), samples=3, sample_s=0.1)
    assert (found.looks, found.temperature_c, found.clocks_hz) == (4, 81.0, {"sm": 1.9e9})
    assert (found.throttle_reasons, found.throttled_share) == (["power cap"], 0.25)
    assert (found.other_processes, found.utilisation) == (2, 0.5)


def test_what_was_seen_while_warming_up_does_not_count() -> None:
    looks = [Look(temperature_c=90.0, throttle_events=1), *(Look(temperature_c=50.0, throttle_events=4),) * 3]
    found = watched(Replayed(looks), samples=3, sample_s=0.1, warmup=1)
    assert (found.looks, found.temperature_c, found.throttle_events) == (3, 50.0, 0)


def test_a_device_that_tells_nothing_leaves_every_figure_null() -> None:
    found = watched(Replayed([Look()]), samples=3, sample_s=20.0)
    silent = found.model_dump(exclude={"looks", "reasons", "other_processes", "utilisation"})
    assert {str(value) for value in silent.values()} == {"None", "{}"}


@pytest.mark.parametrize(("cost_s", "looks"), [(0.0001, 101), (0.002, 26)])
def test_a_slow_sensor_is_read_so_rarely_that_it_takes_half_a_percent_of_the_time(cost_s: float, looks: int) -> None:
    source = Replayed([Look()], cost_s)
    watched(source, samples=100, sample_s=0.11)
    assert source.taken == looks


def test_samplers_look_right_before_each_sample_and_warmup_is_counted_alike() -> None:
    events: list[str] = []
    rule = StoppingRule(min_samples=10, min_s=0.0, max_s=5.0, target_rel_ci=10.0, min_sample_s=1e-4)

    def execute(count: int) -> None:
        events.append("sample")
        sum(range(2000 * count))

    def look() -> None:
        events.append("look")

    def ignore(*_: Any) -> None:
        return

    taken = sample(execute, rule, HostClock(), ignore, look)
    assert events == ["look", "sample"] * (len(taken.warmup) + len(taken.samples))
