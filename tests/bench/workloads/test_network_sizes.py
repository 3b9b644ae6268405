"""The networks of the references, and networks with other sizes, dropout rates and optimisers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dyno.bench.registry import validate_params, workload
from dyno.bench.workloads.cifar10_cnn import photographs
from dyno.bench.workloads.fashion_mnist_cnn import clothes
from dyno.bench.workloads.mnist_cnn import digits
from dyno.errors import InvalidSpec
from tests.running import started

SMALL = {"data": "synthetic", "epochs": 1, "train_samples": 64, "test_samples": 16, "batch_size": 32}
RATES = {"mnist_cnn": [0.1, 0, 0.9], "fashion_mnist_cnn": [0.1, 0, 0.2, 0.9], "cifar10_cnn": [0, 0.2, 0.9]}
SIZES = {"mnist_cnn": [5, 3], "fashion_mnist_cnn": [3, 4, 5], "cifar10_cnn": [3, 4, 5, 6]}
NETWORKS = {"mnist_cnn": digits, "fashion_mnist_cnn": clothes, "cifar10_cnn": photographs}


# By name: MFLOP per sample, layers after the rescaling, convolutions (channels, kernel, activation, padding), dense
# units, dropout rates, batch size and epochs.
REFERENCES = {
    "mnist_cnn": (
        13.3,
        ["Conv2D", "MaxPooling2D", "Dropout"] * 2,
        [(64, 2, "relu", "same"), (32, 2, "relu", "same")],
        [256, 10],
        [0.3, 0.3, 0.5],
        (1024, 10),
    ),
    "fashion_mnist_cnn": (
        493,
        ["BatchNormalization", "Conv2D", "MaxPooling2D", "Dropout"] * 3,
        [(64, 5, "elu", "same"), (128, 5, "elu", "same"), (256, 5, "elu", "same")],
        [256, 10],
        [0.25, 0.25, 0.25, 0.5],
        (1024, 15),
    ),
    "cifar10_cnn": (
        143,
        ["BatchNormalization", "Conv2D", "Conv2D", "MaxPooling2D", "Dropout"] * 2,
        [(32, 3, "relu", "same"), (32, 3, "relu", "same"), (64, 3, "relu", "same"), (64, 3, "relu", "valid")],
        [512, 10],
        [0.25, 0.25, 0.5],
        (128, 50),
    ),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_layers_defaults_and_flops_match_the_reference(name, tensorflow):
    mflop, blocks, convolutions, dense, rates, defaults = REFERENCES[name]
    network, params = NETWORKS[name](), workload(name).params()
    model = network.model(tensorflow.keras, 0.25, False)
    assert float(model.optimizer.learning_rate) == 0.25
    by_kind: dict[str, list[Any]] = {}
    for layer in model.layers:
        by_kind.setdefault(type(layer).__name__, []).append(layer)
    kinds = [type(layer).__name__ for layer in model.layers]
    assert kinds == ["Rescaling", *blocks, "Flatten", "Dense", "Dropout", "Dense"]
    found = [(one.filters, *set(one.kernel_size), one.activation.__name__, one.padding) for one in by_kind["Conv2D"]]
    assert found == convolutions
    assert [layer.units for layer in by_kind["Dense"]] == dense
    assert [layer.rate for layer in by_kind["Dropout"]] == rates
    assert (params.batch_size, params.epochs, params.learning_rate) == (*defaults, 1e-3)
    assert network.flops_per_sample == pytest.approx(mflop * 1e6, rel=0.01)
    assert workload(name).flops(params) == params.batch_size * network.flops_per_sample


@pytest.mark.parametrize(
    "name", [name if name == "mnist_cnn" else pytest.param(name, marks=pytest.mark.verify) for name in REFERENCES]
)
def test_flops_match_tensorflow_s_count_of_the_graph(name, tensorflow, graph_flops):
    """For the two gradients of an unpadded convolution TensorFlow counts the places of its input, 16 x 16.

    The products are those of its output, 14 x 14: every one of the forward pass comes back once in each gradient.
    """
    network, overcounted = NETWORKS[name](), 0.0
    if name == "cifar10_cnn":
        last = network.convolutions[-1]
        overcounted = 2 * (replace(last, side=16).flops - last.flops)
    assert graph_flops(network.model(tensorflow.keras, 1e-3, False)) - overcounted == network.flops_per_sample


def _params(name, rates, **further):
    sizes = {"filters": SIZES[name], "dense_units": 7, "dropout_rates": rates}
    return validate_params(workload(name), SMALL | sizes | further)


def _pointers(name, rates):
    with pytest.raises(InvalidSpec) as refused:
        validate_params(workload(name), {"dropout_rates": rates})
    return {error.pointer for error in refused.value.errors}


def weights_of(network, keras):
    """The kernels' weights, as Keras counts them: biases and normalisation have only one dimension."""
    model = network.model(keras, 1e-3, False)
    return sum(int(weight.shape.num_elements()) for weight in model.trainable_weights if len(weight.shape) > 1)


@pytest.mark.parametrize("name", SIZES)
def test_the_counts_match_the_network(name, tensorflow):
    network = NETWORKS[name](SIZES[name], 7)
    assert network.weights == weights_of(network, tensorflow.keras)
    of_reference = NETWORKS[name]()
    assert network.flops_per_sample < of_reference.flops_per_sample / 10


@pytest.mark.parametrize(
    "name", [name if name == "mnist_cnn" else pytest.param(name, marks=pytest.mark.verify) for name in SIZES]
)
def test_a_training_uses_the_requested_sizes_and_optimiser(name, context):
    of = workload(name)
    params = validate_params(of, SMALL | {"filters": SIZES[name], "dense_units": 7, "optimizer": "sgd"})
    built = started(of.build(params, context()))
    details = built.verify().details
    assert details["optimizer"] == "SGD"
    kernels = NETWORKS[name](SIZES[name], 7).weights
    assert kernels < details["weights"] < 1.5 * kernels
    assert of.flops(params) == 32 * NETWORKS[name](SIZES[name], 7).flops_per_sample


@pytest.mark.parametrize("filters", [[], [8], [8, 8, 8], [0, 8], [8, 1e4]])
def test_the_number_of_widths_must_match_the_convolutions(filters):
    with pytest.raises(InvalidSpec) as refused:
        validate_params(workload("mnist_cnn"), {"filters": filters})
    assert all(error.pointer.startswith("/params/filters") for error in refused.value.errors)


@pytest.mark.parametrize(
    "name", [name if name == "mnist_cnn" else pytest.param(name, marks=pytest.mark.verify) for name in RATES]
)
def test_each_dropout_layer_uses_the_requested_rate(name, context):
    built: Any = workload(name).build(_params(name, RATES[name]), context())
    layers = built._model.layers
    assert [layer.rate for layer in layers if type(layer).__name__ == "Dropout"] == RATES[name]
    assert built._plan.flops_per_sample == NETWORKS[name](SIZES[name], 7).flops_per_sample


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("mnist_cnn", ".weights.h5"),
        *(pytest.param(name, ".keras", marks=pytest.mark.verify) for name in RATES),
        *(pytest.param(name, ".weights.h5", marks=pytest.mark.verify) for name in RATES if name != "mnist_cnn"),
    ],
)
def test_weights_load_into_a_model_with_other_dropout_rates(name, suffix, context, tmp_path):
    rates = RATES[name]
    before = started(workload(name).build(_params(name, rates), replace(context(), artifacts=tmp_path)))
    before.complete(0.0, 0.0)
    weights = {"job": "job_1", "name": f"model{suffix}"}
    for other in (rates[::-1], [0] * len(rates)):
        there = replace(context(), weights=tmp_path / weights["name"])
        after: Any = workload(name).build(_params(name, other, weights=weights), there)
        for mine, theirs in zip(after._model.get_weights(), before._model.get_weights(), strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize("last", [1, 1.5, -0.1, "0.5", True, None, float("nan"), [0.5]])
def test_a_rate_is_a_number_from_0_to_below_1(name, last):
    place = len(RATES[name]) - 1
    assert _pointers(name, [*RATES[name][:-1], last]) == {f"/params/dropout_rates/{place}"}


@pytest.mark.parametrize("name", RATES)
def test_the_number_of_rates_must_match_the_dropout_layers(name):
    for wrong in ([], RATES[name][1:], [*RATES[name], 0.5], 0.5, None):
        assert _pointers(name, wrong) == {"/params/dropout_rates"}


@pytest.mark.parametrize("name", ["imdb_lstm", "weather_gru", "shakespeare_lstm", "resnet50"])
def test_an_unknown_optimiser_is_refused(name):
    with pytest.raises(InvalidSpec, match="optimizer"):
        validate_params(workload(name), {"optimizer": "adagrad"})
