"""By how much something is better than what needs no training: known errors, in and out of order."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dyno.workloads._margins import BLOCKS, FEWEST, Margin, margins

RANDOM = np.random.default_rng(4)


def _margin(own: NDArray[np.float64], theirs: NDArray[np.float64], shortest: int = 10) -> Margin:
    (found,) = margins(own, {"baseline": theirs}, shortest)
    return found


def _sure(found: Margin) -> bool:
    return found.by.low is not None and found.by.low > 0


def _slow(random: np.random.Generator, count: int, memory: float) -> NDArray[np.float64]:
    """Differences around 0 that stay alike for long: of each, this share is in the next one."""
    values = random.standard_normal(count)
    for place in range(1, count):
        values[place] += memory * values[place - 1]
    return values


def test_the_interval_is_student_s_t_over_blocks_in_their_order() -> None:
    own = np.zeros(200)
    theirs = np.repeat(np.arange(20.0), 10)
    found = _margin(own, theirs)
    half = 3.883406 * np.arange(20).std(ddof=1) / 20**0.5  # t of 19 degrees of freedom, 99.95 %
    assert (found.blocks, found.by.value) == (BLOCKS, 9.5)
    assert (found.by.low, found.by.high) == (pytest.approx(9.5 - half), pytest.approx(9.5 + half))
    assert found.told() == {"by": 9.5, "low": found.by.low, "high": found.by.high, "blocks": 20}
    assert _sure(found)


def test_what_is_worse_or_only_perhaps_better_is_not_surely_better() -> None:
    own = RANDOM.random(200)
    assert not _sure(_margin(own + 1, own))
    assert not _sure(_margin(own, own))
    assert not _sure(_margin(own, own + 0.01 + RANDOM.standard_normal(200)))
    assert _sure(_margin(own, own + 1 + RANDOM.standard_normal(200)))


@pytest.mark.parametrize("memory", [0.9, 0.95])
def test_neighbours_that_are_alike_hardly_ever_seem_surely_better(memory: float) -> None:
    """One by one, such values would seem so in a sixth to a quarter of the cases."""
    random = np.random.default_rng(4)
    sure = sum(_sure(_margin(np.zeros(1000), _slow(random, 1000, memory))) for _ in range(200))
    assert sure <= 5  # 2.5 % of 200, as many as 95 % would let through if blocks were independent


def test_too_few_values_for_blocks_give_no_interval_and_say_so() -> None:
    found = _margin(np.zeros(10 * FEWEST - 1), np.ones(10 * FEWEST - 1))
    assert (found.by.value, found.by.low, _sure(found)) == (1.0, None, False)
    assert found.told()["reason"] == "49 values held out make no 5 blocks of 10"
    assert _sure(_margin(np.zeros(10 * FEWEST), np.ones(10 * FEWEST)))
