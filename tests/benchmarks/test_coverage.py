"""The simulations that show what an interval is worth, at few trials, with bounds that a wrong interval breaks."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import coverage
from benchmarks.coverage import FIVE, GROWING, bootstrap_of_means, count_selected, within
from benchmarks.recorded import lag_one
from benchmarks.synthetic import DEPENDENT, EVERY_EFFECT, NOISES, OPERATION_S, Case, SimulatedProcess
from dyno.measure.statistics import median


@pytest.mark.parametrize("name", NOISES)
def test_every_noise_has_the_median_nought_and_a_deviation_of_one(name: str) -> None:
    drawn = NOISES[name](np.random.default_rng(1), (20_000, 20))
    assert np.median(drawn) == pytest.approx(0, abs=0.01)
    assert np.std(drawn) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("effect", [EVERY_EFFECT[name] for name in ("normal", "heavy-tailed", "skewed")])
def test_every_effect_has_the_mean_nought_and_a_deviation_of_one(effect: object) -> None:
    assert callable(effect)
    drawn = effect(np.random.default_rng(1), (400_000,))
    assert np.mean(drawn) == pytest.approx(0, abs=0.01)
    assert np.std(drawn) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("name", DEPENDENT)
def test_effects_that_tell_of_the_next_have_no_mean_and_a_deviation_of_one_either(name: str) -> None:
    drawn = DEPENDENT[name](np.random.default_rng(1), (4000, 40))
    assert np.mean(drawn) == pytest.approx(0, abs=0.03)
    assert np.std(drawn) == pytest.approx(1, abs=0.05)
    assert np.mean([lag_one(row) for row in drawn]) > 0.3


def test_runs_of_a_second_mode_lie_where_the_truth_says() -> None:
    case = Case("normal", "normal", 0.01, 0.02, distance=0.5)
    samples, visits = case.draw(np.random.default_rng(2), 4000)
    assert samples.shape == (4000, 5, 20)
    assert visits.mean() == pytest.approx(0.2, abs=0.01)
    assert np.median(samples, axis=2).mean() == pytest.approx(case.truth, abs=0.005)


def test_the_interval_over_runs_holds_the_truth_where_pooling_and_a_bootstrap_do_not() -> None:
    found = coverage.count(Case("heavy-tailed", "drifting", 0.02, 0.005), np.random.default_rng(3), 400)
    assert 0.92 <= found.covered / 400 <= 0.985  # 95 % give or take three deviations of 400 trials
    assert found.pooled / 400 < 0.6
    assert found.bootstrap is not None
    assert found.bootstrap / 400 < 0.9


def test_runs_that_resemble_their_neighbours_are_a_miss_and_counted_as_one() -> None:
    found = coverage.count(Case("correlated 0.8", "normal", 0.02, 0.005), np.random.default_rng(6), 400)
    assert found.covered / 400 < 0.7
    assert not within(found.covered, found.trials)


def test_results_chosen_for_their_narrow_interval_hold_the_truth_less_often() -> None:
    five, grown = (
        count_selected("normal", 0.015, processes, np.random.default_rng(7), 1000) for processes in (FIVE, GROWING)
    )
    assert five.covered / 1000 == pytest.approx(0.95, abs=0.025)
    assert five.covered_of_reached / five.reached < 0.85
    assert 0.88 < grown.covered_of_reached / grown.reached < grown.covered / 1000 + 0.02 < 0.96
    assert five.processes == 5 < grown.processes < 30


def test_windows_of_a_trend_hold_the_mean_of_all_only_in_its_middle() -> None:
    held, of = coverage.count_windows(1 + np.linspace(-0.05, 0.05, 30), 5)
    assert (held, of) == (4, 26)  # the half-width is 1.96 steps


def test_a_second_mode_that_was_visited_is_in_the_interval_or_raised_and_one_that_was_not_is_neither() -> None:
    found = coverage.count(Case("normal", "normal", 0.005, 0.02, distance=0.7), np.random.default_rng(4), 300)
    assert found.shown_covered_or_raised == found.visited == found.covered_or_raised == found.raised
    assert found.visited / 300 == pytest.approx(1 - 0.8**5 - 0.2**5, abs=0.09)


def test_the_bootstrap_counts_every_resample_there_is() -> None:
    values = [1.0, 2.0, 4.0]
    means = sorted((a + b + c) / 3 for a in values for b in values for c in values)
    found = bootstrap_of_means(values)
    assert found.value == pytest.approx(7 / 3)
    assert (found.low, found.high) == (pytest.approx(means[0]), pytest.approx(means[-1]))  # 1 of 27 is above 2.5 %


def test_a_simulated_run_sheds_its_warm_up_in_the_real_sampler() -> None:
    run = SimulatedProcess(np.random.default_rng(5), 1.1, "normal", 0.005, "a plateau of 12 samples").sampled()
    assert run.steady
    assert len(run.warmup) >= 9
    assert median(run.samples) / OPERATION_S == pytest.approx(1.1, rel=0.01)


def test_the_page_has_a_row_for_every_case_and_counts_what_misses() -> None:
    lines = coverage.lines(trials=3, trials_sampled=1)
    cases = [*coverage.ONE_MODE, *coverage.SKEWED, *coverage.NEIGHBOURS, *coverage.TWO_MODES]
    sampled = len(coverage.SAMPLED)
    grown, recorded = 2 * len(coverage.SELECTED), len(coverage.forked())
    parts = sum(line.startswith("## ") for line in lines)
    assert sum(line.startswith("| ") for line in lines) == len(cases) + sampled + grown + recorded + 3 * parts + 2
    figures = len(cases) + sampled + 2 * grown + 2 * recorded
    assert f" of {figures} figures**" in " ".join(lines)
