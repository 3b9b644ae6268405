"""Stopping rule, warm-up and steady state, with a simulated clock."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from itertools import chain, repeat

import pytest

from dyno.bench.measure.sampling import HostClock, sample
from dyno.bench.measure.stopping_rule import MAX_SAMPLES, StoppingRule
from dyno.models.spec import Measure, Processes
from tests.bench.measure.bench import Bench, run


def alternating(low, high):
    while True:
        yield low
        yield high


def test_a_steady_benchmark_stops_at_twenty_samples_and_two_seconds():
    samples, _ = run(repeat(0.125))
    assert samples.samples == [0.125] * 20
    assert samples.stopped_because == "target"
    assert samples.steady
    assert samples.wall_s == 2.5


def test_short_executions_are_repeated_until_a_sample_lasts_a_tenth_of_a_second():
    samples, bench = run(repeat(2.0**-12))
    assert samples.executions_per_sample * 2.0**-12 >= 0.1
    assert samples.executions_per_sample * 2.0**-12 < 0.13
    assert set(samples.samples) == {2.0**-12}
    assert len(bench.executed) < 30


def test_on_an_accelerator_samples_of_half_that_length_are_enough():
    rule = StoppingRule.of(Measure(), "gpu")
    samples, _ = run(repeat(2.0**-10), rule)
    assert 0.05 <= samples.executions_per_sample * 2.0**-10 < 0.065
    assert samples.wall_s >= 2.0


def test_calibration_readings_are_kept_as_warm_up_and_the_last_counts_as_a_sample():
    samples, bench = run(repeat(0.03125))
    assert bench.executed[:2] == [1, 4]
    assert samples.warmup == [0.03125]
    assert len(samples.samples) == len(bench.executed) - 1


def test_a_reading_of_a_twentieth_of_a_sample_is_enough_to_find_its_length():
    _, bench = run(repeat(0.000095))
    assert bench.executed[:4] == [1, 10, 100, 1158]


def test_scatter_above_the_target_takes_two_hundred_samples():
    samples, _ = run(alternating(0.125, 0.1875))
    assert len(samples.samples) == MAX_SAMPLES
    assert samples.stopped_because == "max_samples"
    assert samples.steady  # it scatters, but it doesn't drift


def test_any_small_target_is_accepted():
    samples, _ = run(alternating(0.125, 0.1875), StoppingRule(target_rel_ci=1e-200, max_s=600.0))
    assert (len(samples.samples), samples.stopped_because) == (MAX_SAMPLES, "max_samples")


def test_an_outlier_is_kept():
    samples, _ = run(chain(repeat(0.125, 12), [3.0], repeat(0.125)))
    assert 3.0 in samples.samples


def test_max_s_ends_sampling_that_misses_its_target():
    rule = StoppingRule(max_s=6.0)
    samples, bench = run(alternating(0.25, 0.375), rule)
    assert samples.stopped_because == "max_s"
    assert 6.0 <= bench.time_s - 100.0 < 6.5


def test_sampling_without_a_steady_state_reports_it_and_ends():
    def forever_faster():
        length = 0.5
        while True:
            yield length
            length *= 0.98

    samples, _ = run(forever_faster(), StoppingRule(max_s=10.0, min_sample_s=0.001))
    assert not samples.steady
    assert samples.stopped_because == "max_s"


def test_an_execution_longer_than_max_s_gives_one_sample():
    samples, bench = run(repeat(90.0))
    assert samples.samples == [90.0]
    assert bench.executed == [1]
    assert samples.stopped_because == "max_s"
    assert not samples.steady


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_request_for_few_samples_gets_exactly_these_at_once(count):
    measure = Measure(processes=Processes(min=1, max=1), min_samples=count, min_s=0.0, max_s=1.0)
    samples, bench = run(repeat(0.001), StoppingRule.of(measure, "cpu"))
    assert len(samples.samples) == count
    assert samples.stopped_because == "max_samples"
    assert not samples.steady
    assert bench.time_s - 100.0 < 1.0


def test_samples_are_shortened_to_fit_the_time():
    measure = Measure(min_samples=4, min_s=0.0, max_s=0.1)
    samples, bench = run(repeat(0.001), StoppingRule.of(measure, "cpu"))
    assert len(samples.samples) == 4
    assert bench.time_s - 100.0 < 0.2


@pytest.mark.parametrize("min_samples", [3, 20])
def test_sampling_lasts_as_long_as_requested(min_samples):
    rule = StoppingRule.of(Measure(min_s=45, min_samples=min_samples), "cpu")
    samples, _ = run(repeat(0.01), rule)
    assert samples.wall_s >= 45
    assert samples.stopped_because != "max_s"


def test_the_window_counts_wall_user_and_system_time_of_samples_only():
    samples, _ = run(chain([0.5] * 10, repeat(0.125)))
    assert samples.wall_s == pytest.approx(sum(samples.samples))
    assert samples.user_s == pytest.approx(2 * samples.wall_s)
    assert samples.system_s == pytest.approx(samples.wall_s / 4)
    assert samples.warmup_s == pytest.approx(sum(samples.warmup))
    assert samples.sample_cpu_s == [(0.25, 0.03125)] * len(samples.samples)


def test_the_window_s_length_by_the_wall_clock_is_kept():
    bench = Bench(repeat(0.125), epoch_drift=1.5)
    samples = sample(bench.execute, StoppingRule(), bench, lambda taken, expected: None)
    assert samples.epoch_s == pytest.approx(1.5 * samples.wall_s)


def progress(durations_s):
    """The samples, and each (samples taken, samples expected) that was reported between samples."""
    bench, seen = Bench(durations_s), list[tuple[int, int | None]]()

    def report(*told):
        assert not bench.inside
        seen.append(told)

    return sample(bench.execute, StoppingRule(), bench, report).samples, seen


def test_progress_is_reported_between_samples_and_reaches_its_total():
    samples, seen = progress(repeat(0.125))
    assert (seen[0], seen[-1]) == ((0, 20), (len(samples), len(samples)))
    assert [taken for taken, _ in seen] == sorted(taken for taken, _ in seen)


def test_expected_samples_grow_with_the_scatter():
    expected = [total for _, total in progress(alternating(0.125, 0.1875))[1]]
    assert expected[-1] == MAX_SAMPLES
    assert MAX_SAMPLES in expected[:40]


def test_no_more_samples_are_expected_than_fit_into_the_longest_time():
    seen = progress(alternating(4.0, 5.0))[1]
    taken, expected = seen[-1]
    assert taken == expected < 20
    assert [total for done, total in seen if done and total and total > taken + 1] == []


def test_sampling_empty_work_ends():
    bench = Bench(repeat(0.0))
    rule = StoppingRule(min_samples=3, max_samples=3, min_s=0.0, max_s=1.0)
    counted: Callable[[int], None] = bench.executed.append
    assert sample(counted, rule, bench, lambda taken, expected: None).samples == [0.0] * 3


def test_the_host_clock_times_real_work():
    rule = StoppingRule(min_samples=6, max_samples=12, min_s=0.0, max_s=1.0, target_rel_ci=1.0, min_sample_s=0.002)
    clock = HostClock()

    def spin(count):
        end_s = clock.now_s() + count * 1e-4
        while clock.now_s() < end_s:
            pass

    samples = sample(spin, rule, clock, lambda taken, expected: None)
    assert min(samples.samples) >= 1e-4
    assert 0 < samples.user_s + samples.system_s <= 1.5 * samples.wall_s + 0.02
    assert abs(samples.epoch_s - samples.wall_s) < 60  # an absolute time would be 50 years


def test_gradual_warm_up_is_found_and_kept_separately():
    falling = [0.5, 0.45, 0.4, 0.36, 0.33, 0.3, 0.28, 0.26, 0.24, 0.22]
    samples, _ = run(chain(falling, repeat(0.2)))
    assert samples.steady
    everything = [*samples.warmup, *samples.samples]
    assert everything == pytest.approx(falling + [0.2] * (len(everything) - 10))
    assert len(samples.warmup) >= 7
    assert statistics.median(samples.samples) == pytest.approx(0.2)


def test_a_plateau_at_the_beginning_is_warm_up_too():
    turbo = [0.15] * 8
    samples, _ = run(chain(turbo, repeat(0.2)))
    assert samples.steady
    assert samples.warmup == pytest.approx(turbo)
    assert samples.samples == pytest.approx([0.2] * 20)


def test_executions_that_get_faster_during_warm_up_get_longer_samples():
    samples, _ = run(chain(repeat(0.05, 15), repeat(0.005)))
    assert samples.executions_per_sample * 0.005 >= 0.1
    assert samples.steady
    assert samples.samples == pytest.approx([0.005] * 20)


@pytest.mark.parametrize("slow", [10, 15])
def test_samples_get_longer_too_if_only_a_change_point_shows_faster_executions(slow):
    """Another process ends: the search for plateaus sees it after 10 of 20 samples, the sharper one after 15."""
    samples, _ = run(chain(repeat(0.06, 1 + 2 * slow), repeat(0.04)))
    assert samples.executions_per_sample * 0.04 >= 0.1
    assert samples.steady
    assert samples.samples == pytest.approx([0.04] * len(samples.samples))


def test_a_change_after_warm_up_moves_no_samples_and_is_not_a_steady_state():
    rule = StoppingRule(min_samples=100)
    samples, _ = run(chain(repeat(0.125, 60), repeat(0.1875)), rule)
    assert samples.samples[0] == 0.125
    assert samples.warmup == []
    assert not samples.steady


@pytest.mark.parametrize("target_rel_ci", [0.5, 0.02])
def test_a_loose_target_does_not_make_drift_steady(target_rel_ci):
    """Each sample takes 1 % longer, which is 21 % over twenty samples."""
    lengths = (0.125 * 1.01**index for index in range(10_000))
    samples, _ = run(lengths, StoppingRule(target_rel_ci=target_rel_ci, max_s=60.0))
    assert not samples.steady


def test_a_tight_target_finds_changes_that_the_default_accepts():
    def steps():
        return chain(repeat(0.125, 60), repeat(0.125 * 1.006))

    by_default, _ = run(steps(), StoppingRule(min_samples=100))
    tight, _ = run(steps(), StoppingRule(min_samples=100, target_rel_ci=0.004))
    assert (by_default.steady, tight.steady) == (True, False)


def falling_by_less_than_the_target():
    """From 0.6 % above to nothing over 18 samples: windows of five agree at once."""
    return [0.2 * (1 + 0.006 * (18 - index) / 18) for index in range(18)]


def test_warm_up_hidden_in_windows_of_five_is_found_in_twenty_samples():
    samples, _ = run(chain(falling_by_less_than_the_target(), repeat(0.2)))
    assert len(samples.warmup) >= 9
    assert len(samples.samples) >= 20
    assert statistics.median(samples.samples) == pytest.approx(0.2)
    assert samples.stopped_because == "target"


def test_late_warm_up_stays_without_time_for_as_many_samples_again():
    rule = StoppingRule(max_s=7.0)  # twenty samples take four
    samples, _ = run(chain(falling_by_less_than_the_target(), repeat(0.2)), rule)
    assert samples.warmup == []
    assert len(samples.samples) == 20


def test_late_warm_up_is_cut_at_most_three_times():
    steps = chain.from_iterable(repeat(0.2 * (1 + 0.004 * (level % 2)), 11) for level in range(100))
    samples, bench = run(steps, StoppingRule(max_s=1000.0))
    assert len(samples.warmup) > 0
    assert len(bench.executed) < 4 * 2 * 20


def test_a_slow_drift_that_windows_miss_is_not_a_steady_state():
    def slower_by_a_trifle():
        length = 0.125
        while True:
            yield length
            length *= 1.0003

    samples, _ = run(slower_by_a_trifle(), StoppingRule(min_samples=100))
    assert not samples.steady
    assert samples.stopped_because == "max_samples"
