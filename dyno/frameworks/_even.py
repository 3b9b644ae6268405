"""A batch over several replicas: each gets as many samples as any other."""

from __future__ import annotations

from dyno.errors import RunFailed


def full_batch(batch_size: int, samples: int, replicas: int) -> int:
    """The most samples up to `batch_size` that `replicas` share evenly. Raises RunFailed where that is none each."""
    size = min(batch_size, samples)
    if size < replicas:
        raise RunFailed("benchmark", "too_few_samples", f"{size} samples give {replicas} replicas not one each")
    return even(size, replicas)


def even(size: int, replicas: int) -> int:
    """`size`, or the next multiple of the replicas below it."""
    return size - size % replicas
