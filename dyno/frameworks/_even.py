"""Split a batch over replicas: all get the same number of samples."""

from __future__ import annotations

from dyno.errors import RunFailed


def full_batch(batch_size: int, samples: int, replicas: int) -> int:
    """The largest number of samples up to `batch_size` that `replicas` share evenly.

    Raises RunFailed if a replica would get no sample, or if there are fewer samples than a batch needs.
    """
    if (size := min(batch_size, samples)) < replicas:
        raise RunFailed("benchmark", "too_few_samples", f"{size} samples are too few for {replicas} replicas")
    if samples < batch_size:
        detail = f"a batch of {batch_size} is larger than the {samples} training samples; "
        raise RunFailed("benchmark", "too_few_samples", f"{detail}the largest is {even(samples, replicas)}")
    return even(batch_size, replicas)


def even(size: int, replicas: int) -> int:
    """`size`, or the next multiple of the replicas below it."""
    return size - size % replicas
