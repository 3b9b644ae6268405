import dataclasses
from typing import Any

import numpy as np
import pytest

from dyno.bench.contract import LATENCIES
from dyno.bench.registry import validate_params, workload
from dyno.bench.workloads.resnet50 import (
    Inference,
    convolutions,
    estimate,
    flops,
    forward_flops,
    lint,
    resnet50_model,
)
from dyno.errors import InvalidSpec
from tests.running import started

RESNET = workload("resnet50")


def _params(**params):
    tiny = {"image_size": 32, "classes": 10, "batch_size": 2, "images": 4} | params
    return validate_params(RESNET, tiny)


def _executed(context, **params):
    return started(RESNET.build(_params(**params), context))


@pytest.mark.parametrize(
    ("version", "gflop", "weights"),
    [pytest.param("v1", 7.7, 25_636_712, marks=pytest.mark.verify), ("v1.5", 8.2, 25_610_152)],
)
def test_forward_flops_match_tensorflow_s_count_of_the_graph(tensorflow, version, gflop, weights):
    """25,610,152 are the 25,557,032 weights that torchvision publishes, and the normalisations' running figures."""
    import tensorflow as tf
    from tensorflow.python.framework import ops

    size, classes = 224, 1000  # as published; tracing costs the same at any size
    optimizer = tensorflow.keras.optimizers.SGD(0.01)
    model = resnet50_model(tensorflow.keras, size, classes, "float32", optimizer, False, version)
    graph = tensorflow.forward(model, tf.zeros((1, size, size, 3), tf.uint8)).graph
    products = [node for node in graph.get_operations() if node.type in {"Conv2D", "MatMul"}]
    counted = sum(ops.get_stats_for_node_def(graph, node.node_def, "flops").value for node in products)
    assert len(products) == 54
    assert counted == forward_flops(size, classes, version) == pytest.approx(gflop * 1e9, rel=0.01)
    assert model.count_params() == weights


@pytest.mark.parametrize(("version", "stride"), [pytest.param("v1", 1, marks=pytest.mark.verify), ("v1.5", 3)])
def test_the_version_decides_which_convolution_halves_the_image(tensorflow, version, stride):
    optimizer = tensorflow.keras.optimizers.SGD(0.01)
    model = resnet50_model(tensorflow.keras, 32, 10, "float32", optimizer, False, version)
    convolutions = [layer for layer in model.layers[2].layers if isinstance(layer, tensorflow.keras.layers.Conv2D)]
    halving = [layer.kernel_size[0] for layer in convolutions if layer.strides == (2, 2)]
    assert sorted(halving) == sorted([7, 1, 1, 1, stride, stride, stride])  # the stem, and three shortcuts


def test_version_1_is_the_default_and_version_1_5_counts_its_own_flop():
    assert _params().version == "v1"
    assert flops(_params(version="v1.5", mode="inference")) == 2 * forward_flops(32, 10, "v1.5")


@pytest.mark.verify
def test_inference_with_version_1_5_is_checked_like_that_with_version_1(context):
    found = _executed(context(), mode="inference", version="v1.5").verify()
    assert found.warnings == []
    assert "RESULT_INCORRECT" in found.verified


@pytest.mark.parametrize(
    ("size", "sides"), [(224, [112, 56, 28, 14, 7]), (32, [16, 8, 4, 2, 1]), (33, [17, 9, 5, 3, 2])]
)
def test_the_convolutions_shrink_as_the_images_do(size, sides):
    found = list(convolutions(size))
    assert len(found) == 53
    assert sorted({side for side, *_ in found}, reverse=True) == sides


@pytest.mark.verify
def test_it_trains_and_answers_for_no_accuracy(context):
    built = _executed(context(), batch_size=3, validation_share=0.25)  # one of the four images
    training = built.complete(1.0, 1.0)
    assert training.accuracy is None
    assert (training.data.kind, training.data.train_samples) == ("synthetic", 4)
    assert np.isfinite(training.epochs[0].loss)
    found = built.verify()
    assert found.amounts["step"] == built.work == found.details["batch_size"] == 3.0
    assert found.flops == 3 * flops(_params(images=1, batch_size=1))
    assert {spec.amount for spec in RESNET.metrics if spec.amount} <= found.amounts.keys()


@pytest.mark.verify
def test_mixed_precision_computes_in_bfloat16_and_keeps_weights_and_probabilities_in_float32(tensorflow, context):
    model = resnet50_model(tensorflow.keras, 32, 10, "mixed_bfloat16", tensorflow.keras.optimizers.SGD(0.01), False)
    convolution = next(layer for layer in model.layers[2].layers if layer.name.endswith("_conv"))
    assert (convolution.compute_dtype, convolution.kernel.dtype, model.layers[-1].compute_dtype) == (
        "bfloat16",
        "float32",
        "float32",
    )
    assert tensorflow.keras.config.dtype_policy().name == "float32"
    built = _executed(context(), mode="inference", precision="mixed_bfloat16")
    assert built.verify().warnings == []


@pytest.fixture(scope="module")
def inference(context):
    return _executed(context(), mode="inference", batch_size=3)


@pytest.mark.verify
def test_inference_is_checked_against_keras_own_call(inference):
    assert inference.complete(0.0, 0.0) is None
    found = inference.verify()
    assert found.warnings == []
    assert found.details["difference"] < found.details["difference_tolerance"] / 10  # of one precision
    assert (inference.work, found.amounts) == (3.0, {"step": 3.0})


@pytest.mark.verify
def test_inference_with_another_job_s_weights_is_that_of_its_model(inference, context, tmp_path):
    path = tmp_path / "model.weights.h5"
    inference._model.save_weights(path)
    params = _params(mode="inference", weights={"job": "job_1", "name": path.name})
    there = dataclasses.replace(context(), weights=path)
    there.framework.seed(6)  # fresh weights would be others
    loaded: Any = RESNET.build(params, there)
    for mine, kept in zip(loaded._model.get_weights(), inference._model.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, kept)


@pytest.mark.parametrize(
    "ignored",
    [
        {"epochs": 2},
        {"learning_rate": 0.5},
        {"steps_per_execution": 2},
        {"validation_share": 0.5},
        {"best_weights": True},
        {"trials": 2},
        {"export": "saved_model"},
    ],
)
def test_inference_refuses_training_fields(ignored):
    with pytest.raises(InvalidSpec) as invalid:
        _params(mode="inference", **ignored)
    assert [(error.pointer, error.code) for error in invalid.value.errors] == [
        (f"/params/{next(iter(ignored))}", "nothing-trained")
    ]


def test_only_inference_has_calls_and_their_latency():
    with pytest.raises(InvalidSpec) as invalid:
        _params(mode="train", rate_per_s=10)
    assert [(error.pointer, error.code) for error in invalid.value.errors] == [("/params/rate_per_s", "no-calls")]
    found = RESNET
    named = [{spec.name for spec in found.metrics_for(_params(mode=mode))} for mode in ("train", "inference")]
    assert named[1] - named[0] == {spec.name for spec in LATENCIES}


@pytest.mark.parametrize(("asked", "ran"), [("auto", False), (True, True)])
def test_inference_reports_whether_xla_compiled_it(tensorflow, context, asked, ran):
    small = tensorflow.keras.Sequential([tensorflow.keras.Input((4,)), tensorflow.keras.layers.Dense(2)])
    small.compile(jit_compile=_params(mode="inference", jit_compile=asked).jit_compile is True)
    built = started(Inference(small, np.ones((3, 4), np.float32), context()))
    assert built.verify().details["jit_compile"] is ran


def test_outputs_of_another_model_are_found(inference):
    wrong = np.zeros((3, 10), np.float32)
    wrong[:, 0] = 1
    inference._outputs = inference._framework.array(wrong, "float32")
    assert [raised.code for raised in inference.verify().warnings] == ["RESULT_INCORRECT"]


def test_outputs_that_are_right_for_the_first_inputs_alone_are_found_and_so_are_missing_ones(context):
    keras = context().framework.keras
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(10, activation="softmax")])
    model.compile()
    built = started(Inference(model, np.arange(80, dtype=np.float32).reshape(20, 4), context()))
    assert built.verify().warnings == []
    sound = context().framework.numpy(built._outputs)
    in_the_middle = np.concatenate([sound[:5], 0 * sound[5:15], sound[15:]])
    after_ten = np.concatenate([sound[:10], 0 * sound[10:]])
    for wrong in (in_the_middle, after_ten, sound[:10], np.concatenate([sound, sound])):
        built._outputs = context().framework.array(wrong, "float32")
        assert [raised.code for raised in built.verify().warnings] == ["RESULT_INCORRECT"]


def test_outputs_of_other_inputs_can_not_pass_where_all_are_nearly_alike(context):
    keras = context().framework.keras
    layers = [keras.layers.Dense(10, kernel_initializer=keras.initializers.RandomNormal(stddev=0.01, seed=1))]
    alike = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Softmax()])
    alike.compile()
    built = started(Inference(alike, np.random.default_rng(0).random((20, 4), np.float32), context()))
    assert built.verify().unchecked == {}
    sound = context().framework.numpy(built._outputs)
    for wrong in (sound[::-1], np.repeat(sound[:1], 20, axis=0)):
        built._outputs = context().framework.array(wrong, "float32")
        found = built.verify()
        assert "different inputs" in found.unchecked["RESULT_INCORRECT"]
        assert "RESULT_INCORRECT" not in found.verified


@pytest.mark.parametrize("wrong", [0.0, 0.001])
def test_of_many_classes_whose_probabilities_are_all_small_outputs_that_say_nothing_are_wrong(context, wrong):
    keras = context().framework.keras
    layers = [keras.layers.Dense(1000, kernel_initializer=keras.initializers.RandomNormal(stddev=0.05, seed=1))]
    many = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Softmax()])
    many.compile()
    built = started(Inference(many, np.arange(12, dtype=np.float32).reshape(3, 4), context()))
    assert built.verify().warnings == []
    built._outputs = context().framework.array(np.full((3, 1000), wrong), "float32")
    assert [raised.code for raised in built.verify().warnings] == ["RESULT_INCORRECT"]


def test_a_training_step_counts_three_times_the_forward_pass():
    assert flops(_params()) == 3 * flops(_params(mode="inference")) == 3 * 2 * forward_flops(32, 10)
    assert flops(_params(batch_size=1, images=1)) == 3 * forward_flops(32, 10)


def test_the_estimate_knows_that_large_images_take_memory_and_inference_no_training(device):
    small, large = (
        estimate(_params(image_size=size, batch_size=32, images=64, train="full"), device) for size in (64, 224)
    )
    assert large.memory_bytes > 2 * small.memory_bytes
    assert estimate(_params(image_size=224, batch_size=4), device).memory_bytes == pytest.approx(2.2e9, rel=0.2)
    assert large.start_s > small.start_s
    assert estimate(_params(mode="inference"), device).train_s == 0 < small.train_s


def test_the_peak_is_that_of_the_products_dtype():
    assert [_params(precision=each).dtype for each in ("float32", "mixed_bfloat16")] == ["float32", "bfloat16"]


def test_the_linter_warns_of_random_images():
    assert [raised.code for raised in lint(_params(batch_size=4))] == ["SYNTHETIC_DATA", "BATCH_UNEVEN"]
    assert [raised.code for raised in lint(_params(batch_size=8, images=8))] == ["SYNTHETIC_DATA"]
