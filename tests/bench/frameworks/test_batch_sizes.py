import numpy as np
import pytest

from dyno.bench.frameworks.interface import Dataset, divisible_size, full_batch
from dyno.bench.frameworks.jax_trainer import JaxTrainer
from dyno.bench.frameworks.torch import TorchTrainer
from dyno.errors import RunFailed


def test_pytorch_refuses_a_batch_larger_than_the_data_like_the_others():
    three = Dataset(np.ones((3, 1), np.float32), np.ones((3, 1), np.float32))
    with pytest.raises(RunFailed, match="a batch of 8 is larger than the 3 training samples"):
        TorchTrainer(None, "cpu", None, three, batch_size=8, seed=0, steps_per_execution=1)


@pytest.mark.parametrize(("batch_size", "samples", "replicas", "size"), [(8, 100, 4, 8), (7, 7, 4, 4), (5, 9, 1, 5)])
def test_a_batch_is_the_largest_that_the_replicas_share_evenly(batch_size, samples, replicas, size):
    assert full_batch(batch_size, samples, replicas) == size
    assert divisible_size(size, replicas) == size


def test_a_batch_of_more_samples_than_there_are_is_refused_with_the_largest():
    with pytest.raises(
        RunFailed, match=r"a batch of 8 is larger than the 7 training samples; the largest is 4"
    ) as failed:
        full_batch(8, 7, 4)
    assert (failed.value.failure_class, failed.value.reason) == ("benchmark", "too_few_samples")


def test_fewer_samples_than_replicas_fail_before_jax_is_used():
    three = Dataset(np.ones((3, 1), np.float32), np.ones((3, 1), np.float32))
    with pytest.raises(RunFailed, match="3 samples are too few for 4 replicas") as failed:
        JaxTrainer(None, [None] * 4, None, three, batch_size=8, seed=0, steps_per_execution=1)
    assert (failed.value.failure_class, failed.value.reason) == ("benchmark", "too_few_samples")
