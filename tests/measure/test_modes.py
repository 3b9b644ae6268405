"""Do the runs fall into two groups?"""

from __future__ import annotations

import numpy as np
import pytest

from dyno.measure.modes import LIMITS, multimodal


@pytest.mark.parametrize(
    "medians", [[180, 181, 179, 180, 310], [310, 180, 181, 311, 180.5, 309], [1.0, 1.0, 1.0, 1.0, 1.05]]
)
def test_runs_in_two_groups_are_multimodal(medians: list[float]) -> None:
    raised = multimodal(medians)
    assert raised is not None
    assert raised.code == "MULTIMODAL"


@pytest.mark.parametrize(
    "medians", [[1, 1.5], [180, 180, 180, 310], [1.0] * 9, [1, 1.01, 1.02, 1.03, 1.1], [1.0, 1.0, 1.0, 1.0, 1.01]]
)
def test_runs_in_one_group_too_close_or_too_few_are_not(medians: list[float]) -> None:
    assert multimodal(medians) is None


def test_the_warning_shows_both_groups_in_whatever_order_the_runs_came() -> None:
    raised = multimodal([310e-6, 180e-6, 182e-6, 312e-6, 181e-6, 178e-6])
    assert raised is not None
    assert raised.message == "4 and 2 runs lie 70.5% apart."
    assert raised.evidence["high_group"] == [310e-6, 312e-6]
    # Groups about 180.25 and 311 us: within 8.75 + 2, between 130.75² · 4 · 2 / 6.
    assert raised.evidence["scatter_ratio"] == pytest.approx(130.75**2 * 8 / 6 / 10.75)
    assert raised.evidence["limit"] == 53.0


def test_the_ratio_of_groups_that_do_not_scatter_is_none_and_no_infinity() -> None:
    raised = multimodal([1.0, 1.0, 1.0, 1.0, 1.05])
    assert raised is not None
    assert raised.evidence["scatter_ratio"] is None


@pytest.mark.parametrize("count", [5, 6, 7, 9, 14])
def test_one_mode_is_called_two_in_about_one_of_a_hundred_cases_at_most(count: int) -> None:
    rng = np.random.default_rng(count)
    heavy_tailed = 100 + 3 * rng.standard_t(3, (1000, count))
    assert sum(multimodal(list(medians)) is not None for medians in heavy_tailed) / 1000 < 0.02


@pytest.mark.parametrize(("count", "apart", "found"), [(5, 30, 0.9), (7, 20, 0.9), (10, 15, 0.85), (20, 12, 0.9)])
def test_two_modes_that_were_visited_are_found_where_they_lie_far_apart(count: int, apart: float, found: float) -> None:
    rng = np.random.default_rng(count)
    visits = (rng.random((500, count)) < 0.2).astype(float)
    visits = visits[(visits.sum(axis=1) > 0) & (visits.sum(axis=1) < count)]
    sets = 100 + rng.standard_normal(visits.shape) + apart * visits
    assert sum(multimodal(list(medians)) is not None for medians in sets) / len(sets) > found


def test_the_limits_are_the_percentage_points_that_they_claim_to_be() -> None:
    """Of five runs, by an own calculation of the ratio: the 99 % point of Student's t with 3 degrees of freedom."""
    ordered = np.sort(np.random.default_rng(1).standard_t(3, (40_000, 5)), axis=1)
    within = np.min(
        [ordered[:, :cut].var(1) * cut + ordered[:, cut:].var(1) * (5 - cut) for cut in range(1, 5)], axis=0
    )
    ratio = ordered.var(1) * 5 / within - 1
    assert np.mean(ratio > LIMITS[5]) == pytest.approx(0.01, abs=0.002)
