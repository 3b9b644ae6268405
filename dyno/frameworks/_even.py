"""A batch over several replicas: each gets as many samples as any other."""

from __future__ import annotations

from dyno.errors import RunFailed


def full_batch(batch_size: int, samples: int, replicas: int) -> int:
    """The most samples up to `batch_size` that `replicas` share evenly.

    Raises RunFailed where that is none each, and where there are fewer samples than a batch needs.
    """
    if (size := min(batch_size, samples)) < replicas:
        raise RunFailed("benchmark", "too_few_samples", f"{size} samples give {replicas} replicas not one each")
    if samples < batch_size:
        detail = f"a batch of {batch_size} needs more than the {samples} samples that there are to train on; "
        raise RunFailed("benchmark", "too_few_samples", f"{detail}the largest is {even(samples, replicas)}")
    return even(batch_size, replicas)


def even(size: int, replicas: int) -> int:
    """`size`, or the next multiple of the replicas below it."""
    return size - size % replicas
