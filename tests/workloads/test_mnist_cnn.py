from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dyno.devices.device import Device
from dyno.errors import RunFailed
from dyno.frameworks.contract import Samples, Trainer
from dyno.frameworks.tensorflow import TensorFlow
from dyno.result import Training
from dyno.workloads import validate_params, workload
from dyno.workloads._digits import digit_model
from dyno.workloads.contract import BuildContext, Built
from dyno.workloads.mnist_cnn import MnistCnnParams, estimate, flops, flops_per_sample, lint

MNIST = workload("mnist_cnn")
Context = Callable[..., BuildContext]


def _params(**params: Any) -> MnistCnnParams:
    tiny = {"data": "sample", "batch_size": 64, "epochs": 2, "train_samples": 200, "test_samples": 50} | params
    valid = validate_params(MNIST, tiny)
    assert isinstance(valid, MnistCnnParams)
    return valid


def _ready(context: BuildContext, **params: Any) -> Built:
    training = MNIST.build(_params(**params), context)
    training.compile()
    training.execute(1)
    return training


@pytest.fixture(scope="module")
def built(context: Context) -> Built:
    return _ready(context())


@pytest.fixture(scope="module")
def training(built: Built) -> Training:
    return built.complete(compile_s=100.0, first_execution_s=10.0)


def test_the_flops_are_those_that_tensorflow_counts_in_its_own_graph(tensorflow: TensorFlow) -> None:
    import tensorflow as tf
    from tensorflow.python.framework import ops

    batch = 10
    model = digit_model(tensorflow.keras, 1e-3, False)
    images, labels = tf.zeros((batch, 28, 28, 1)), tf.zeros((batch, 10))
    graph = tf.function(model.train_step, autograph=False).get_concrete_function((images, labels)).graph
    counted = sum(
        ops.get_stats_for_node_def(graph, node.node_def, "flops").value
        for node in graph.get_operations()
        if node.type in {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "MatMul"}
    )
    assert counted == flops_per_sample() * batch
    assert flops_per_sample() == pytest.approx(13.3e6, rel=0.01)


def test_the_model_has_the_weights_of_the_reference(tensorflow: TensorFlow) -> None:
    model = digit_model(tensorflow.keras, 0.25, False)
    expected = (4 * 64 + 64) + (4 * 64 * 32 + 32) + (1568 * 256 + 256) + (256 * 10 + 10)
    assert model.count_params() == expected
    assert float(model.optimizer.learning_rate) == 0.25


def test_the_first_run_trains_every_epoch_and_evaluates(training: Training) -> None:
    assert [epoch.index for epoch in training.epochs] == [0, 1]
    assert training.epochs[1].loss < training.epochs[0].loss
    assert training.data.kind == "sample"
    assert (training.data.train_samples, training.data.test_samples) == (200, 50)
    assert training.wrong is not None
    assert training.accuracy == pytest.approx(1 - training.wrong / 50)
    assert training.accuracy_low is not None
    assert training.accuracy_high is not None
    assert training.accuracy_low < training.accuracy < training.accuracy_high


def test_the_first_epoch_takes_in_compiling_and_the_first_step(training: Training) -> None:
    assert [epoch.includes_compile for epoch in training.epochs] == [True, False]
    assert training.epochs[0].time_s > 110 > training.epochs[1].time_s


def test_an_epoch_sees_each_sample_once_though_they_make_no_whole_batches(training: Training) -> None:
    for epoch in training.epochs:
        assert epoch.accuracy is not None
        right = epoch.accuracy * 200
        assert right == pytest.approx(round(right), abs=1e-3)


def test_metrics_are_told_what_an_epoch_is_and_how_long_the_first_took(built: Built, training: Training) -> None:
    found = built.verify()
    assert found.amounts == {"epoch": 200.0}
    assert found.figures == {"first_epoch_time": training.epochs[0].time_s}
    assert found.details["jit_compile"] is False
    assert 0 < len(found.details["wrong_digits"]) <= 32
    assert {spec.amount for spec in MNIST.metrics if spec.amount} <= found.amounts.keys()
    assert {spec.name for spec in MNIST.metrics if spec.once} <= found.figures.keys()


def test_one_execution_is_one_full_batch_even_of_less_data_than_was_asked_for(context: Context) -> None:
    assert MNIST.build(_params(), context()).work == 64
    assert MNIST.build(_params(batch_size=1024), context()).work == 200


def test_timing_goes_on_past_the_end_of_the_data(built: Built) -> None:
    built.execute(7)
    assert built.work == 64


def test_it_learns_digits(context: Context) -> None:
    training = _ready(context(), train_samples=1500, test_samples=300, epochs=3).complete(0.0, 0.0)
    assert training.accuracy is not None
    assert training.accuracy > 0.7


class Poisoned(TensorFlow):
    """The real framework, on data with a NaN in it."""

    def __init__(self, sound: TensorFlow) -> None:
        super().__init__()
        self._tf, self._keras = sound._tf, sound._keras

    def trainer(
        self, model: Any, samples: Samples, batch_size: int, seed: int, steps_per_execution: int = 1
    ) -> Trainer:
        samples.targets[0, 0] = np.nan
        return super().trainer(model, samples, batch_size, seed, steps_per_execution)


def test_a_loss_that_is_no_number_fails_the_run(tensorflow: TensorFlow, context: Context) -> None:
    training = MNIST.build(_params(train_samples=128), context(Poisoned(tensorflow)))
    training.compile()
    with pytest.raises(RunFailed, match="loss became nan") as failed:
        training.execute(2)
    assert (failed.value.failure_class, failed.value.reason) == ("benchmark", "nonfinite_loss")


def test_an_estimate_grows_with_what_is_asked_for(device: Device) -> None:
    small, usual = estimate(_params(epochs=1), device), estimate(MnistCnnParams(), device)
    assert usual.train_s > 100 * small.train_s
    assert usual.memory_bytes > 1.5 * small.memory_bytes
    assert estimate(MnistCnnParams(batch_size=60_000), device).memory_bytes > 50 << 30


def test_an_estimate_and_the_flops_count_no_more_data_than_the_sample_has(device: Device) -> None:
    sample, real = MnistCnnParams(data="sample"), MnistCnnParams(data="real")
    assert estimate(sample, device).train_s < 0.2 * estimate(real, device).train_s
    assert estimate(sample, device).memory_bytes < estimate(real, device).memory_bytes
    assert flops(MnistCnnParams(data="sample", batch_size=20_000)) == 8000 * flops_per_sample()
    assert flops(MnistCnnParams(data="real", batch_size=20_000)) == 20_000 * flops_per_sample()


def test_the_linter_says_when_accuracy_will_not_be_comparable() -> None:
    assert [raised.code for raised in lint(_params(data="synthetic"))] == ["SYNTHETIC_DATA"]
    assert lint(_params(data="auto")) == []
