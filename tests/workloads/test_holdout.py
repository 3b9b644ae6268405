from __future__ import annotations

import numpy as np
import pytest

from dyno.errors import RunFailed
from dyno.frameworks.contract import Samples
from dyno.workloads._holdout import held_out_count, hold_out

NUMBERED = Samples(np.arange(40)[:, np.newaxis], np.arange(40))


def _validation(samples: Samples, share: float, seed: int) -> Samples:
    held = hold_out(samples, share, seed)[1]
    assert held is not None
    return held


def test_every_sample_is_either_trained_on_or_held_out_with_its_target() -> None:
    kept, held = hold_out(NUMBERED, 0.25, 3)
    assert held is not None
    assert (len(kept), len(held)) == (30, 10)
    assert sorted([*kept.targets, *held.targets]) == list(range(40))
    for part in (kept, held):
        assert (part.inputs[:, 0] == part.targets).all()


def test_which_ones_are_held_out_depends_on_the_seed_alone() -> None:
    first, again, other = (_validation(NUMBERED, 0.25, seed).targets.tolist() for seed in (3, 3, 4))
    assert first == again
    assert first != other
    assert first != list(range(30, 40))


def test_windows_held_out_are_the_last_and_share_no_row_with_those_trained_on() -> None:
    series = np.zeros((60, 1), np.float32)
    windows = Samples(series, series, window=10, starts=np.arange(50, dtype=np.int32)[::-1].copy())
    kept, held = hold_out(windows, 0.2, 3)
    assert held is not None
    assert kept.starts is not None
    assert held.starts is not None
    assert held.starts.tolist() == list(range(40, 50))
    assert kept.starts.max() + 10 == held.starts.min()


def test_nothing_is_held_out_unless_asked_for_and_then_at_least_one() -> None:
    assert hold_out(NUMBERED, 0.0, 3) == (NUMBERED, None)
    assert len(_validation(NUMBERED, 0.001, 3)) == held_out_count(40, 0.001) == 1


def test_data_too_small_to_hold_any_out_is_named() -> None:
    one = Samples(NUMBERED.inputs[:1], NUMBERED.targets[:1])
    with pytest.raises(RunFailed, match="too few to hold out 50%") as failed:
        hold_out(one, 0.5, 3)
    assert failed.value.reason == "too_few_samples"
