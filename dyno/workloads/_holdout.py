"""Samples set aside for validation: which ones depends on the seed alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dyno.errors import RunFailed
from dyno.frameworks.contract import Samples


def held_out_count(count: int, share: float) -> int:
    """How many of `count` samples are held out: none, or at least one."""
    return max(1, int(count * share)) if share > 0 else 0


def hold_out(samples: Samples, share: float, seed: int) -> tuple[Samples, Samples | None]:
    """(to train on, to validate with or None). Raises RunFailed where nothing would be left to train on.

    Samples are drawn by `seed`. Of windows over one series the last are held out, and what overlaps them is left out
    altogether: drawn ones would share nearly all of their rows with their neighbours in training.
    """
    count = held_out_count(len(samples), share)
    if count == 0:
        return samples, None
    parts = _drawn(samples, count, seed) if samples.starts is None else _last(samples, count)
    if not len(parts[0]):
        detail = f"{len(samples)} samples are too few to hold out {share:.0%} of them for validation"
        raise RunFailed("benchmark", "too_few_samples", detail)
    return parts


def _drawn(samples: Samples, count: int, seed: int) -> tuple[Samples, Samples]:
    order = np.random.default_rng(seed).permutation(len(samples))
    held, kept = np.sort(order[:count]), np.sort(order[count:])
    return (
        replace(samples, inputs=samples.inputs[kept], targets=samples.targets[kept]),
        replace(samples, inputs=samples.inputs[held], targets=samples.targets[held]),
    )


def _last(samples: Samples, count: int) -> tuple[Samples, Samples]:
    assert samples.starts is not None
    assert samples.window is not None
    starts = np.sort(samples.starts)
    held = starts[-count:]
    kept = starts[starts + samples.window <= held[0]]
    return replace(samples, starts=kept), replace(samples, starts=held)
