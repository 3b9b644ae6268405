"""Specs that can't run are refused before they are queued, with a pointer to the field."""

import pytest

from dyno.bench.registry import resolve, workload
from dyno.errors import InvalidSpec
from dyno.models.spec import Spec

JAX, TORCH = {"framework": "jax"}, {"framework": "torch"}
WEIGHTS = {"job": "job_1", "name": "model.weights.h5"}


def _refused(name, params, envelope):
    with pytest.raises(InvalidSpec) as invalid:
        resolve(Spec.model_validate({"workload": name, "params": params} | envelope))
    return [(error.pointer, error.code) for error in invalid.value.errors]


@pytest.mark.parametrize(
    ("name", "params", "envelope", "refused"),
    [
        ("mnist_cnn", {"export": "saved_model"}, JAX, ("/params/export", "export-unsupported")),
        ("imdb_lstm", {"export": "saved_model"}, TORCH, ("/params/export", "export-unsupported")),
        ("mnist_cnn", {"jit_compile": True}, {"replicas": 2}, ("/params/jit_compile", "jit-over-replicas")),
        ("mnist_cnn", {}, TORCH | {"replicas": 2}, ("/replicas", "not-replicable")),
        ("resnet50", {"mode": "inference"}, {"replicas": 2}, ("/replicas", "not-replicable")),
        ("quantized_inference", {"engine": "litert"}, JAX, ("/params/engine", "engine-unsupported")),
        (
            "quantized_inference",
            {"engine": "litert", "weights": WEIGHTS},
            JAX,
            ("/params/engine", "engine-unsupported"),
        ),
    ],
)
def test_what_the_framework_or_its_replicas_can_not_do(name, params, envelope, refused):
    assert _refused(name, params, envelope) == [refused]


@pytest.mark.parametrize(
    ("name", "params", "envelope", "pointer"),
    [
        ("mnist_cnn", {"train_samples": 1, "validation_share": 0.5}, {}, "/params/train_samples"),
        ("imdb_lstm", {"train_samples": 1, "validation_share": 0.1}, {}, "/params/train_samples"),
        ("resnet50", {"images": 1, "validation_share": 0.1}, {}, "/params/images"),
        ("cifar10_cnn", {"train_samples": 7}, {"replicas": 8}, "/params/train_samples"),
        ("mnist_cnn", {"train_samples": 8, "validation_share": 0.1}, {"replicas": 8}, "/params/train_samples"),
    ],
)
def test_samples_that_are_too_few_to_share_out(name, params, envelope, pointer):
    assert _refused(name, params, envelope) == [(pointer, "too-few-samples")]


@pytest.mark.parametrize(
    ("name", "params", "envelope", "most"),
    [
        ("mnist_cnn", {"train_samples": 200, "batch_size": 60_000}, {}, 200),
        ("fashion_mnist_cnn", {"train_samples": 200, "batch_size": 181, "validation_share": 0.1}, {}, 180),
        ("cifar10_cnn", {"train_samples": 15, "batch_size": 16}, {"replicas": 4}, 12),
        ("imdb_lstm", {"train_samples": 63, "batch_size": 64}, {}, 63),
        ("resnet50", {"images": 7, "batch_size": 8}, {}, 7),
        ("resnet50", {"images": 7, "batch_size": 8, "mode": "inference"}, {}, 7),
        ("quantized_inference", {"train_samples": 255, "batch_size": 256}, {}, 255),
        ("mnist_cnn", {"data": "sample", "batch_size": 8001}, {}, 8000),
        ("fashion_mnist_cnn", {"data": "sample", "train_samples": 4000, "batch_size": 4001}, {}, 4000),
        ("mnist_cnn", {"batch_size": 60_000, "validation_share": 0.1}, {}, 54_000),
        ("cifar10_cnn", {"batch_size": 50_000, "validation_share": 0.5}, {}, 25_000),
        ("imdb_lstm", {"batch_size": 25_000, "validation_share": 0.2}, {}, 20_000),
    ],
)
def test_a_batch_larger_than_the_requested_samples(name, params, envelope, most):
    with pytest.raises(InvalidSpec, match=f"at most {most}$") as raised:
        resolve(Spec.model_validate({"workload": name, "params": params} | envelope))
    assert [(each.pointer, each.code) for each in raised.value.errors] == [("/params/batch_size", "batch-too-large")]
    largest = {"workload": name, "params": params | {"batch_size": most}} | envelope
    assert resolve(Spec.model_validate(largest)).spec.params["batch_size"] == most


@pytest.mark.parametrize(
    ("name", "params", "most"),
    [
        ("mnist_cnn", {"batch_size": 1024}, 58),
        ("mnist_cnn", {"data": "sample", "batch_size": 1000}, 8),
        ("cifar10_cnn", {"train_samples": 512, "batch_size": 128, "validation_share": 0.25}, 3),
        ("imdb_lstm", {"batch_size": 64}, 390),
        ("weather_gru", {"steps_per_epoch": 10}, 10),
        ("shakespeare_lstm", {"steps_per_epoch": 7}, 7),
        ("resnet50", {"batch_size": 8}, 2),
        ("quantized_inference", {"train_samples": 512, "batch_size": 256}, 2),
    ],
)
def test_more_steps_per_execution_than_an_epoch_has(name, params, most):
    asked = params | {"steps_per_execution": most + 1}
    assert _refused(name, asked, {}) == [("/params/steps_per_execution", "too-many-steps")]
    resolve(Spec.model_validate({"workload": name, "params": asked | {"steps_per_execution": most}}))


@pytest.mark.parametrize(
    ("name", "params", "refused"),
    [
        ("mnist_cnn", {"data": "sample", "train_samples": 8001}, ("/params/train_samples", "too-many-samples")),
        ("mnist_cnn", {"data": "sample", "test_samples": 2001}, ("/params/test_samples", "too-many-samples")),
        (
            "quantized_inference",
            {"model": "cifar10_cnn", "train_samples": 50_001},
            ("/params/train_samples", "too-many-samples"),
        ),
        ("input_pipeline", {"data": "sample", "train_samples": 8001}, ("/params/train_samples", "too-many-samples")),
        ("shakespeare_lstm", {"window": 10_000, "test_samples": 12}, ("/params/test_samples", "too-many-samples")),
        ("mnist_cnn", {"data": "sample", "recognise": 2000}, ("/params/recognise", "no-such-image")),
        ("cifar10_cnn", {"test_samples": 32, "recognise": 32}, ("/params/recognise", "no-such-image")),
        (
            "quantized_inference",
            {"weights": WEIGHTS, "test_samples": 5, "recognise": 5},
            ("/params/recognise", "no-such-image"),
        ),
        ("input_pipeline", {"batch_size": 4, "input_threads": 5}, ("/params/input_threads", "too-many-threads")),
    ],
)
def test_more_of_the_data_than_there_is(name, params, refused):
    assert _refused(name, params, {}) == [refused]


@pytest.mark.parametrize(
    ("name", "params", "fitted"),
    [
        ("cifar10_cnn", {"test_samples": 3}, {"recognise": 2}),
        ("cifar10_cnn", {"test_samples": 4}, {"recognise": 3}),
        ("input_pipeline", {"data": "sample"}, {"train_samples": 8000}),
        ("shakespeare_lstm", {"window": 10_000, "test_samples": 11}, {"test_samples": 11}),
    ],
)
def test_defaults_stay_within_the_data(name, params, fitted):
    spec = resolve(Spec.model_validate({"workload": name, "params": params})).spec
    assert fitted.items() <= spec.params.items()
    assert resolve(spec).spec == spec


@pytest.mark.parametrize(("envelope", "kind", "refused"), [(JAX, "cpu", 1), (JAX, "gpu", 0), ({}, "cpu", 0)])
def test_steps_that_jax_makes_one_by_one_on_a_cpu(device, envelope, kind, refused):
    on = device.model_copy(update={"kind": kind, "memory_bytes": 1 << 40})
    asked = resolve(Spec.model_validate({"workload": "mnist_cnn", "params": {"steps_per_execution": 2}} | envelope))
    assert [found.pointer for found in asked.refusals(on)] == ["/steps_per_execution"] * refused
    assert asked.can_run(on) is not bool(refused)


@pytest.mark.parametrize(
    ("name", "params", "envelope", "batch_size"),
    [
        ("mnist_cnn", {}, {}, 1024),
        ("mnist_cnn", {"train_samples": 200}, {}, 200),
        ("mnist_cnn", {"train_samples": 200, "validation_share": 0.1}, {}, 180),
        ("cifar10_cnn", {"train_samples": 1001}, {"replicas": 8}, 1000),
        ("cifar10_cnn", {"train_samples": 5000}, {"replicas": 8}, 1024),
        ("imdb_lstm", {"train_samples": 10}, {}, 10),
        ("resnet50", {"images": 5}, {}, 5),
        ("quantized_inference", {"train_samples": 100}, {}, 100),
    ],
)
def test_the_default_batch_shrinks_to_the_samples_and_is_recorded(name, params, envelope, batch_size):
    spec = resolve(Spec.model_validate({"workload": name, "params": params} | envelope)).spec
    assert spec.params["batch_size"] == batch_size
    assert resolve(spec).spec == spec


@pytest.mark.parametrize(
    ("name", "params", "pointers"),
    [
        ("weather_gru", {"window": 4000}, ["/params/window", "/params/validation_share"]),
        ("weather_gru", {"window": 3484, "validation_share": 0}, ["/params/window"]),
        ("weather_gru", {"validation_share": 0.01}, ["/params/validation_share"]),
        ("shakespeare_lstm", {"validation_share": 1e-5}, ["/params/validation_share"]),
    ],
)
def test_windows_longer_than_the_held_out_part(name, params, pointers):
    asked = {"best_weights": False, "early_stopping_patience": None, "reduce_lr_patience": None} | params
    assert [pointer for pointer, _ in _refused(name, asked, {})] == pointers


@pytest.mark.parametrize(
    ("name", "params"), [("cifar10_cnn", {}), ("imdb_lstm", {}), ("quantized_inference", {"model": "cifar10_cnn"})]
)
def test_a_sample_of_a_data_set_without_one(name, params):
    assert [pointer for pointer, _ in _refused(name, params | {"data": "sample"}, {})] == ["/params/data"]


@pytest.mark.parametrize(
    ("name", "params", "envelope"),
    [
        ("mnist_cnn", {"export": "saved_model", "jit_compile": True}, {}),
        ("mnist_cnn", {"jit_compile": True}, JAX | {"replicas": 2}),
        ("mnist_cnn", {"train_samples": 2, "validation_share": 0.5}, {}),
        ("cifar10_cnn", {"train_samples": 8}, {"replicas": 8}),
        ("weather_gru", {"window": 3000, "horizon_h": 100}, {}),
        ("quantized_inference", {"engine": "keras"}, JAX),
        ("quantized_inference", {"model": "mnist_cnn", "data": "sample"}, {}),
    ],
)
def test_limit_values_are_accepted(name, params, envelope):
    resolve(Spec.model_validate({"workload": name, "params": params} | envelope))


def test_litert_is_for_devices_that_are_driven_as_a_cpu(device):
    quantized = workload("quantized_inference")
    asked = quantized.params.model_validate({"engine": "litert"})
    gpu = device.model_copy(update={"kind": "gpu"})
    assert [found.pointer for found in quantized.refuses(asked, gpu)] == ["/engine"]
    assert quantized.refuses(asked, gpu.model_copy(update={"emulated": True})) == []
    assert quantized.refuses(quantized.params(), gpu) == []
