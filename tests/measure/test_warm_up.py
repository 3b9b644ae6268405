"""What counts as warm-up and what as no steady state, over a clock whose readings are input."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import chain, repeat

import pytest

from dyno.measure.rule import StoppingRule
from tests.measure.bench import run


def test_gradual_warm_up_is_found_and_kept_apart() -> None:
    falling = [0.5, 0.45, 0.4, 0.36, 0.33, 0.3, 0.28, 0.26, 0.24, 0.22]
    samples, _ = run(chain(falling, repeat(0.2)))
    assert samples.steady
    everything = [*samples.warmup, *samples.samples]
    assert everything == pytest.approx(falling + [0.2] * (len(everything) - 10))
    assert len(samples.warmup) >= 7
    assert statistics.median(samples.samples) == pytest.approx(0.2)


def test_a_plateau_at_the_beginning_is_warm_up_too() -> None:
    turbo = [0.15] * 8
    samples, _ = run(chain(turbo, repeat(0.2)))
    assert samples.steady
    assert samples.warmup == pytest.approx(turbo)
    assert samples.samples == pytest.approx([0.2] * 20)


def test_executions_that_get_faster_while_warming_up_get_longer_samples() -> None:
    samples, _ = run(chain(repeat(0.05, 15), repeat(0.005)))
    assert samples.executions_per_sample * 0.005 >= 0.1
    assert samples.steady
    assert samples.samples == pytest.approx([0.005] * 20)


@pytest.mark.parametrize("slow", [10, 15])
def test_samples_get_longer_too_where_only_a_change_point_tells_that_executions_got_faster(slow: int) -> None:
    """A neighbour that leaves: 10 of 20 samples show it in the search for plateaus, 15 in the sharper one later."""
    samples, _ = run(chain(repeat(0.06, 1 + 2 * slow), repeat(0.04)))
    assert samples.executions_per_sample * 0.04 >= 0.1
    assert samples.steady
    assert samples.samples == pytest.approx([0.04] * len(samples.samples))


def test_a_change_after_the_warm_up_moves_nothing_and_is_no_steady_state() -> None:
    rule = StoppingRule(min_samples=100)
    samples, _ = run(chain(repeat(0.125, 60), repeat(0.1875)), rule)
    assert samples.samples[0] == 0.125
    assert samples.warmup == []
    assert not samples.steady


@pytest.mark.parametrize("target_rel_ci", [0.5, 0.02])
def test_a_loose_target_makes_no_drift_steady(target_rel_ci: float) -> None:
    """1 % more each time, 21 % over twenty samples."""
    lengths = (0.125 * 1.01**index for index in range(10_000))
    samples, _ = run(lengths, StoppingRule(target_rel_ci=target_rel_ci, max_s=60.0))
    assert not samples.steady


def test_a_tight_target_finds_changes_that_the_default_lets_pass() -> None:
    def steps() -> Iterator[float]:
        return chain(repeat(0.125, 60), repeat(0.125 * 1.006))

    by_default, _ = run(steps(), StoppingRule(min_samples=100))
    tight, _ = run(steps(), StoppingRule(min_samples=100, target_rel_ci=0.004))
    assert (by_default.steady, tight.steady) == (True, False)


def falling_by_less_than_the_target() -> list[float]:
    """From 0.6 % above to nothing over 18 samples: windows of five agree at once."""
    return [0.2 * (1 + 0.006 * (18 - index) / 18) for index in range(18)]


def test_what_five_samples_cannot_tell_from_noise_is_warm_up_once_twenty_show_it() -> None:
    samples, _ = run(chain(falling_by_less_than_the_target(), repeat(0.2)))
    assert len(samples.warmup) >= 9
    assert len(samples.samples) >= 20
    assert statistics.median(samples.samples) == pytest.approx(0.2)
    assert samples.stopped_because == "target"


def test_without_time_for_as_many_samples_again_a_late_warm_up_stays() -> None:
    rule = StoppingRule(max_s=7.0)  # twenty samples take four
    samples, _ = run(chain(falling_by_less_than_the_target(), repeat(0.2)), rule)
    assert samples.warmup == []
    assert len(samples.samples) == 20


def test_a_run_that_never_settles_is_cut_three_times_at_most() -> None:
    steps = chain.from_iterable(repeat(0.2 * (1 + 0.004 * (level % 2)), 11) for level in range(100))
    samples, bench = run(steps, StoppingRule(max_s=1000.0))
    assert len(samples.warmup) > 0
    assert len(bench.executed) < 4 * 2 * 20


def test_a_slow_drift_that_windows_miss_is_no_steady_state() -> None:
    def slower_by_a_trifle() -> Iterator[float]:
        length = 0.125
        while True:
            yield length
            length *= 1.0003

    samples, _ = run(slower_by_a_trifle(), StoppingRule(min_samples=100))
    assert not samples.steady
    assert samples.stopped_because == "max_samples"
