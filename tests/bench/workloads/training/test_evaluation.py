"""Held-out samples, and margins over baselines with known errors, in and out of order."""

import numpy as np
import pytest

from dyno.bench.frameworks.interface import Dataset
from dyno.bench.training.evaluation import MAX_BLOCKS, MIN_BLOCKS, held_out_count, hold_out, margins
from dyno.errors import RunFailed

NUMBERED = Dataset(np.arange(40)[:, np.newaxis], np.arange(40))


def _validation(samples, share, seed):
    return hold_out(samples, share, seed)[1]


def test_every_sample_is_either_trained_on_or_held_out_with_its_target():
    kept, held = hold_out(NUMBERED, 0.25, 3)
    assert (len(kept), len(held)) == (30, 10)
    assert sorted([*kept.targets, *held.targets]) == list(range(40))
    for part in (kept, held):
        assert (part.inputs[:, 0] == part.targets).all()


def test_the_held_out_samples_depend_on_the_seed_alone():
    first, again, other = (_validation(NUMBERED, 0.25, seed).targets.tolist() for seed in (3, 3, 4))
    assert first == again
    assert first != other
    assert first != list(range(30, 40))


def test_windows_held_out_are_the_last_and_share_no_row_with_those_trained_on():
    series = np.zeros((60, 1), np.float32)
    windows = Dataset(series, series, window=10, starts=np.arange(50, dtype=np.int32)[::-1].copy())
    kept, held = hold_out(windows, 0.2, 3)
    assert held.starts.tolist() == list(range(40, 50))
    assert kept.starts.max() + 10 == held.starts.min()


def test_nothing_is_held_out_unless_asked_for_and_then_at_least_one():
    assert hold_out(NUMBERED, 0.0, 3) == (NUMBERED, None)
    assert len(_validation(NUMBERED, 0.001, 3)) == held_out_count(40, 0.001) == 1


def test_data_too_small_to_hold_any_out_is_named():
    one = Dataset(NUMBERED.inputs[:1], NUMBERED.targets[:1])
    with pytest.raises(RunFailed, match="too few to hold out 50%") as failed:
        hold_out(one, 0.5, 3)
    assert failed.value.reason == "too_few_samples"


RANDOM = np.random.default_rng(4)


def _margin(own, theirs, shortest=10):
    (found,) = margins(own, {"baseline": theirs}, shortest)
    return found


def _sure(found):
    return found.by.low is not None and found.by.low > 0


def _slow(random, count, memory):
    """Autocorrelated differences around 0: each keeps this share of the previous one."""
    values = random.standard_normal(count)
    for place in range(1, count):
        values[place] += memory * values[place - 1]
    return values


def test_the_interval_is_student_s_t_over_blocks_in_their_order():
    own = np.zeros(200)
    theirs = np.repeat(np.arange(20.0), 10)
    found = _margin(own, theirs)
    half = 3.883406 * np.arange(20).std(ddof=1) / 20**0.5  # t of 19 degrees of freedom, 99.95 %
    assert (found.blocks, found.by.value) == (MAX_BLOCKS, 9.5)
    assert (found.by.low, found.by.high) == (pytest.approx(9.5 - half), pytest.approx(9.5 + half))
    assert found.to_json() == {"by": 9.5, "low": found.by.low, "high": found.by.high, "blocks": 20}
    assert _sure(found)


def test_worse_and_uncertain_models_are_not_better():
    own = RANDOM.random(200)
    assert not _sure(_margin(own + 1, own))
    assert not _sure(_margin(own, own))
    assert not _sure(_margin(own, own + 0.01 + RANDOM.standard_normal(200)))
    assert _sure(_margin(own, own + 1 + RANDOM.standard_normal(200)))


@pytest.mark.parametrize("memory", [0.9, 0.95])
def test_neighbours_that_are_alike_hardly_ever_seem_surely_better(memory):
    """Treated as independent, such values would seem better in a sixth to a quarter of the cases."""
    random = np.random.default_rng(4)
    sure = sum(_sure(_margin(np.zeros(1000), _slow(random, 1000, memory))) for _ in range(200))
    assert sure <= 5  # 2.5 % of 200, as many as 95 % would let through if blocks were independent


def test_too_few_values_for_blocks_give_no_interval_and_say_so():
    found = _margin(np.zeros(10 * MIN_BLOCKS - 1), np.ones(10 * MIN_BLOCKS - 1))
    assert (found.by.value, found.by.low, _sure(found)) == (1.0, None, False)
    assert found.to_json()["reason"] == "49 held-out values are too few for 5 blocks of 10"
    assert _sure(_margin(np.zeros(10 * MIN_BLOCKS), np.ones(10 * MIN_BLOCKS)))
