"""Networks of other sizes than the references', trained by other optimisers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dyno.errors import InvalidSpec
from dyno.frameworks.tensorflow import TensorFlow
from dyno.workloads import validate_params, workload
from dyno.workloads._digits import digits
from dyno.workloads._images import Network
from dyno.workloads.cifar10_cnn import photographs
from dyno.workloads.contract import BuildContext
from dyno.workloads.fashion_mnist_cnn import clothes

Context = Callable[..., BuildContext]
SMALL = {"data": "synthetic", "epochs": 1, "train_samples": 64, "test_samples": 16, "batch_size": 32}
SIZES = {"mnist_cnn": [5, 3], "fashion_mnist_cnn": [3, 4, 5], "cifar10_cnn": [3, 4, 5, 6]}
NETWORKS = {"mnist_cnn": digits, "fashion_mnist_cnn": clothes, "cifar10_cnn": photographs}


def weights_of(network: Network, keras: Any) -> int:
    """The kernels', as Keras counts them: biases and normalisation have one dimension only."""
    model = network.model(keras, 1e-3, False)
    return sum(int(weight.shape.num_elements()) for weight in model.trainable_weights if len(weight.shape) > 1)


@pytest.mark.parametrize("name", SIZES)
def test_the_counts_are_those_of_the_network_that_is_made(name: str, tensorflow: TensorFlow) -> None:
    network = NETWORKS[name](SIZES[name], 7)
    assert network.weights == weights_of(network, tensorflow.keras)
    of_reference = NETWORKS[name]()
    assert network.flops_per_sample < of_reference.flops_per_sample / 10


@pytest.mark.parametrize("name", SIZES)
def test_a_training_has_the_sizes_and_the_optimiser_asked_for(name: str, context: Context) -> None:
    of = workload(name)
    params = validate_params(of, SMALL | {"filters": SIZES[name], "dense_units": 7, "optimizer": "sgd"})
    built = of.build(params, context())
    built.compile()
    built.execute(1)
    details = built.verify().details
    assert details["optimizer"] == "SGD"
    kernels = NETWORKS[name](SIZES[name], 7).weights
    assert kernels < details["weights"] < 1.5 * kernels
    assert of.flops(params) == 32 * NETWORKS[name](SIZES[name], 7).flops_per_sample


@pytest.mark.parametrize("filters", [[], [8], [8, 8, 8], [0, 8], [8, 1e4]])
def test_as_many_widths_as_convolutions_are_taken(filters: list[float]) -> None:
    with pytest.raises(InvalidSpec) as refused:
        validate_params(workload("mnist_cnn"), {"filters": filters})
    assert all(error.pointer.startswith("/params/filters") for error in refused.value.errors)


@pytest.mark.parametrize("name", ["imdb_lstm", "weather_gru", "shakespeare_lstm", "resnet50"])
def test_an_optimiser_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidSpec, match="optimizer"):
        validate_params(workload(name), {"optimizer": "adagrad"})
