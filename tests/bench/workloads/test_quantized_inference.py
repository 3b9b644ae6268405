import dataclasses
from typing import Any

import numpy as np
import pytest

from dyno.bench.contract import HasCases
from dyno.bench.registry import validate_params, workload
from dyno.bench.workloads.cifar10_cnn import PHOTOGRAPHS
from dyno.bench.workloads.quantized_inference import (
    convert_model,
    estimate,
    flops,
)
from dyno.errors import InvalidSpec, RunFailed
from tests.running import started

QUANTIZED = workload("quantized_inference")
CASES = ["int8_batch_8", "float32_batch_8", "int8_batch_1", "float32_batch_1"]


def _params(**params):
    tiny = {"data": "sample", "train_samples": 600, "test_samples": 100, "batch_size": 8, "epochs": 1}
    return validate_params(QUANTIZED, tiny | params)


def _run(context, **params):
    return started(QUANTIZED.build(_params(**params), context))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="module")
def run(context, folder):
    return _run(context(artifacts=folder))


@pytest.fixture(scope="module")
def training(run):
    return run.complete(0.0, 0.0)


def test_both_formats_are_timed_in_batches_and_one_by_one(run):
    assert isinstance(run, HasCases)
    assert [case.name for case in run.cases] == CASES == list(QUANTIZED.cases_of(_params()))
    assert [case.work for case in run.cases] == [8.0, 8.0, 1.0, 1.0]
    assert [case.dtype for case in run.cases] == ["int8", "float32"] * 2
    assert run.cases[0].flops == flops(_params()) == 8 * run.cases[2].flops
    for case in run.cases:
        case.execute(2)


def test_the_int8_model_is_a_quarter_of_the_size_and_mostly_agrees(run, training):
    found = run.verify()
    figures = found.figures
    assert 3.5 < figures["size_float32"] / figures["size_int8"] < 4.0
    assert training.accuracy == figures["accuracy_float32"]
    assert figures["agreement"] > 0.5  # of ten classes: by chance a tenth; with eleven seeds 0.97 at least
    assert abs(figures["accuracy_int8"] - figures["accuracy_float32"]) <= 1 - figures["agreement"] + 1e-9
    low, high = found.details["accuracy_int8_interval"]
    assert low <= figures["accuracy_int8"] <= high
    assert {spec.name for spec in QUANTIZED.metrics if spec.once} == figures.keys()
    assert {spec.amount for spec in QUANTIZED.metrics if spec.amount} <= found.amounts.keys()
    assert [raised.code for raised in found.warnings] == ["SYNTHETIC_DATA"]


@pytest.mark.parametrize("name", ["_float32", "_int8"])
def test_nonfinite_outputs_of_either_format_raise_a_warning(run, monkeypatch, name):
    sound = getattr(run, name)
    broken = dataclasses.replace(sound, predict=lambda batch: sound.predict(batch) * np.float32(np.nan))
    monkeypatch.setattr(run, name, broken)
    found = run.verify()
    assert found.details["largest_difference"] is None
    [raised] = [each for each in found.warnings if each.code == "OUTPUT_NONFINITE"]
    assert (raised.evidence["nonfinite"], raised.evidence["elements"]) == (80, 160)


def test_a_float_model_instead_of_int8_is_a_precision_mismatch(run, monkeypatch):
    sound = run.verify()
    assert sound.precision is None
    assert sound.unchecked.keys() == {"DEGENERATE_DATA", "RESULT_INCORRECT"}
    monkeypatch.setattr(run, "_int8", run._float32)
    found = run.verify().precision
    assert (found.requested, found.observed) == ("int8", "float32")


def test_no_tensor_of_the_int8_file_but_input_and_output_is_left_in_float32(run):
    details = run.verify().details
    assert details["engine"] == "litert"
    assert details["int8"]["tensors"]["float32"] == 2
    assert details["int8"]["tensors"]["int8"] > 8
    assert "int8" not in details["float32"]["tensors"]


@pytest.mark.usefixtures("training")
def test_both_files_are_saved_with_those_of_the_training(run, folder):
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert {"model.float32.tflite", "model.int8.tflite", "model.weights.h5"} <= sizes.keys()
    assert sizes["model.int8.tflite"] == run.verify().figures["size_int8"]


@pytest.mark.usefixtures("training")
@pytest.mark.verify
def test_another_job_s_weights_are_not_trained_any_further(run, context, folder):
    weights = {"job": "job_1", "name": "model.weights.h5"}
    there = dataclasses.replace(context(), weights=folder / "model.weights.h5")
    loaded = _run(there, weights=weights, epochs=3, recognise=99)
    assert loaded.complete(0.0, 0.0) is None
    for name in ("accuracy_float32", "accuracy_int8", "agreement"):
        assert loaded.verify().figures[name] == run.verify().figures[name]
    details = loaded.verify().details
    assert details["recognised"]["index"] == 99
    assert loaded.verify().params == {"engine": "litert", "data": "sample", "train_samples": 600, "test_samples": 100}
    assert (details["data"]["train_samples"], run.verify().details["data"]["train_samples"]) == (0, 600)
    assert "not trained in this job" in details["data"]["note"]


@pytest.mark.verify
def test_a_later_run_with_keras_quantisation_reports_float32_layers_and_skips_evaluation(context):
    run = _run(context(run=1), engine="keras")
    for case in run.cases:
        case.execute(1)
    found = run.verify()
    assert [len(found.details["int8"][f"{dtype}_layers"]) for dtype in ("int8", "float32")] == [2, 2]
    assert found.details["float32"]["int8_layers"] == []
    assert found.details["int8_flop_share"] == pytest.approx(0.18, abs=0.01)
    assert found.details["int8_note"].startswith("82% of the multiplications stay in float32")
    assert [case.dtype for case in run.cases] == ["int8+float32", "float32"] * 2
    assert found.details["largest_difference"] < 0.05
    assert found.figures.keys() == {"size_float32", "size_int8"}
    assert found.figures["size_int8"] < 0.3 * found.figures["size_float32"]
    assert "training" not in found.details


@pytest.mark.verify
def test_keras_models_are_compiled_in_the_phase_of_that_name(context):
    ready = context(run=1)
    built = QUANTIZED.build(_params(engine="keras"), ready)
    before = len(ready.framework.traced() or ())
    built.compile()
    compiled = len(ready.framework.traced() or ())
    for case in built.cases:
        case.execute(1)
    assert len(ready.framework.traced() or ()) == compiled >= before + len(CASES)


@pytest.mark.verify
def test_the_photographs_network_is_quantised_whole_with_its_normalisation(context):
    keras = context().framework.keras
    model = keras.Sequential([keras.Input(PHOTOGRAPHS.shape), *PHOTOGRAPHS.make(keras)])
    images = np.random.default_rng(0).random((16, *PHOTOGRAPHS.shape), dtype=np.float32)
    float32, int8 = convert_model(model, "litert", images, context())
    tensors: Any = int8.details["tensors"]
    assert tensors["float32"] == 2
    assert len(float32.file[1]) > 3 * len(int8.file[1])
    np.testing.assert_allclose(int8.predict(images), float32.predict(images), atol=0.05)


def test_litert_is_refused_where_it_would_not_run_on_the_device(context, device):
    on_gpu = dataclasses.replace(context(), device=device.model_copy(update={"kind": "gpu"}))
    with pytest.raises(RunFailed, match="runs on a CPU") as failed:
        QUANTIZED.build(_params(engine="litert"), on_gpu)
    assert (failed.value.failure_class, failed.value.reason) == ("unsupported", "engine_unsupported")


@pytest.mark.parametrize(
    "ignored", [{"epochs": 1}, {"trials": 2}, {"export": "saved_model"}, {"jit_compile": True}, {"best_weights": True}]
)
def test_training_fields_are_refused_with_another_job_s_weights(ignored):
    with pytest.raises(InvalidSpec) as invalid:
        _params(**({"epochs": 3} | ignored), weights={"job": "job_1", "name": "model.weights.h5"})
    assert [error.pointer for error in invalid.value.errors] == [f"/params/{next(iter(ignored))}"]


def test_weights_of_another_job_cost_no_training(device):
    weights = {"job": "job_1", "name": "model.weights.h5"}
    assert estimate(_params(weights=weights, epochs=3), device).train_s == 0 < estimate(_params(), device).train_s
