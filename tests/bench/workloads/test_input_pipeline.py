"""The fed and the resident training step on the real TensorFlow: timing, details, warnings and errors."""

import math
import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dyno.bench.contract import HasCases
from dyno.bench.registry import validate_params, workload
from dyno.bench.workloads.input_pipeline import _Call, estimate, flops
from dyno.errors import InvalidSpec, RunFailed
from tests.running import started
from tests.waiting import eventually
from tests.wrong_steps import StartedTensorFlow

PIPELINE = workload("input_pipeline")
CORES = sorted(os.sched_getaffinity(0))
SMALL = {"data": "sample", "train_samples": 512, "batch_size": 32}
STARVED: dict[str, Any] = {
    "source": "png",
    "file_scale": 32,
    "prefetch": 0,
    "batch_size": 16,
    "train_samples": 32,
    "data": "sample",
}
FED_WELL: dict[str, Any] = {
    "model": "cifar10_cnn",
    "source": "memory",
    "data": "synthetic",
    "batch_size": 64,
    "train_samples": 128,
}


class Mislabelled(StartedTensorFlow):
    """Feeds every batch with labels of other images."""

    def fed_step(self, model, inputs, targets):
        step, random = super().fed_step(model, inputs, targets), np.random.default_rng(0)
        placed = step.placed
        step.placed = lambda inputs, targets: placed(inputs, random.permutation(targets))
        return step


def _params(**params):
    return validate_params(PIPELINE, SMALL | params)


def _run(context, steps=4, **params):
    built = started(PIPELINE.build(_params(**params), context))
    built.complete(0.0, 0.0)
    built.execute(steps)
    built.cases[1].execute(2)
    return built


def _codes(found):
    return {raised.code for raised in found.warnings}


@pytest.mark.verify
@pytest.mark.provokes("INPUT_BOUND")
def test_a_step_that_waits_for_large_files_is_bound_by_its_input(context):
    found = _run(context(), **STARVED).verify()
    [raised] = [each for each in found.warnings if each.code == "INPUT_BOUND"]
    share = found.figures["input_wait_share"]
    assert 0.1 < share < 1  # 800,000 pixels of each of 16 files are decoded for a step on 784: 0.9 and more
    assert raised.severity == "C"
    assert raised.evidence == {
        "wait_share": share,
        "core_share": found.figures["input_core_share"],
        "limit": 0.1,
        "source": "png",
        "file_scale": 32,
        "input_threads": 1,
        "prefetch": 0,
    }


@pytest.mark.verify
@pytest.mark.silent("INPUT_BOUND")
def test_a_step_that_outlasts_its_input_is_not(context):
    """A single delay on the host can outlast several of these steps."""

    def unbound():
        found = _run(context(), **FED_WELL).verify()
        return found if found.figures["input_wait_share"] < 0.1 else None

    found = eventually(unbound, what="no step waits for its input")
    assert "INPUT_BOUND" not in _codes(found)
    assert found.figures["input_wait_share"] > 0


def test_the_first_call_counts_only_without_another_call(context):
    run = _run(context())
    run._calls = [_Call(took_s=100.0, waited_s=0.0, made_in_s=0.0)]
    assert run.verify().figures == {"input_wait_share": 0, "input_core_share": 0}
    run._calls += [_Call(1.0, 0.2, len(CORES) * 0.5), _Call(3.0, 2.6, len(CORES) * 1.1)]
    assert run.verify().figures == pytest.approx({"input_wait_share": 0.7, "input_core_share": 0.4})


@pytest.mark.verify
def test_batches_made_ahead_count_as_input_only_on_the_device_s_own_cores(context, device):
    run = _run(context())
    run._calls = [_Call(took_s=1.0, waited_s=0.0, made_in_s=len(CORES) * 0.3)]
    assert "INPUT_BOUND" in _codes(run.verify())
    run._context = replace(run._context, device=device.model_copy(update={"kind": "gpu"}))
    assert "INPUT_BOUND" not in _codes(run.verify())


def test_a_call_waits_until_as_many_batches_are_ready_as_before_and_counts_the_wait(context):
    run = _run(context(), **STARVED | {"prefetch": 3})
    run._calls.clear()
    run.execute(1)
    found = run.verify().figures
    assert found["input_wait_share"] > 0.1
    assert found["input_core_share"] > 0


def test_both_cases_are_a_step_on_as_many_images_and_count_the_same(context):
    run = _run(context())
    assert isinstance(run, HasCases)
    assert [case.name for case in run.cases] == ["fed", "resident"] == [*PIPELINE.cases_of(_params())]
    for case in run.cases:
        assert (case.work, case.flops, case.dtype) == (32.0, flops(_params()), "float32")
        assert case.flops / (case.counted_flops() or 0) == pytest.approx(1.0, abs=0.05)
    assert {spec.amount for spec in PIPELINE.metrics if spec.amount} <= run.verify().amounts.keys()
    assert {spec.name for spec in PIPELINE.metrics if spec.each_run} == run.verify().figures.keys()


@pytest.mark.verify
def test_batches_made_ahead_survive_until_the_next_call_even_after_the_checks(context):
    run = _run(context(), **STARVED | {"prefetch": 3, "input_threads": 2})
    run.verify()
    run.execute(2)
    assert len(run._feed._batches) == 3
    assert all(part.done() for batch in run._feed._batches for part in batch.parts)


@pytest.mark.verify
def test_the_fed_step_agrees_with_a_plain_one(with_room):
    found = _run(with_room()).verify()
    assert found.verified == {"DEGENERATE_DATA", "OUTPUT_NONFINITE", "RESULT_INCORRECT"}
    assert found.unchecked == {}
    assert _codes(found) - {"INPUT_BOUND"} == {"SYNTHETIC_DATA"}  # how long a batch took is no part of what it taught
    assert found.details["data"]["train_samples"] == 512
    assert "RESULT_INCORRECT" not in _run(with_room(run=1)).verify().verified


@pytest.mark.verify
def test_labels_of_other_images_are_detected(with_room, tensorflow):
    assert "RESULT_INCORRECT" in _codes(_run(with_room(framework=Mislabelled(tensorflow))).verify())


def test_a_nonfinite_loss_raises_a_warning(context, monkeypatch):
    run = _run(context())
    monkeypatch.setattr(run._step, "train", lambda batch: math.inf)
    run.cases[1].execute(1)
    assert "LOSS_NONFINITE" in _codes(run.verify())


def test_an_image_that_can_not_be_decoded_ends_the_run(context, monkeypatch):
    run = _run(context())

    def truncated(rows, into):
        raise OSError("image file is truncated")

    monkeypatch.setattr(run._feed, "_fill", truncated)
    with pytest.raises(OSError, match="truncated"):
        run.execute(4)


def test_steps_that_diverge_raise_a_warning(context, monkeypatch):
    run = _run(context(), batch_size=32)
    assert "LOSS_RISING" not in _codes(run.verify())
    monkeypatch.setattr(run._step, "train", lambda batch: 2.4e9)
    run.execute(1)
    assert "LOSS_RISING" in _codes(run.verify())


def test_fewer_images_than_a_batch_end_it_too(context, monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))  # without the real images
    many = _params(batch_size=9000, train_samples=9000, data="auto")
    with pytest.raises(RunFailed, match="9000 can't be drawn from 8000") as failed:
        PIPELINE.build(many, context())
    assert (failed.value.failure_class, failed.value.reason) == ("benchmark", "too_few_samples")


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"batch_size": 513}, "/params/train_samples"),
        ({"model": "cifar10_cnn"}, "/params/data"),
        ({"source": "memory", "file_scale": 2}, "/params/file_scale"),
    ],
)
def test_params_that_contradict_each_other_are_refused(wrong, pointer):
    with pytest.raises(InvalidSpec) as refused:
        _params(**wrong)
    assert [error.pointer for error in refused.value.errors] == [pointer]


def test_larger_files_are_expected_to_take_longer_and_more_images_more_memory(device):
    small, large = (estimate(_params(file_scale=scale, batch_size=512), device) for scale in (1, 32))
    assert small.start_s + sum(small.executions_s) < large.start_s + sum(large.executions_s)
    few, many = (
        estimate(_params(source="memory", train_samples=count, data="auto"), device) for count in (512, 50_000)
    )
    assert many.memory_bytes - few.memory_bytes > 4 * 28 * 28 * 49_000
    assert many.train_s == 0


def test_the_linter_warns_as_a_training_s_linter_does(device):
    cached = device.model_copy(update={"last_cache_bytes": 1 << 30})
    told = {raised.code for raised in PIPELINE.lint(_params(batch_size=1), cached, 1)}
    assert told == {"SYNTHETIC_DATA", "BATCH_UNEVEN", "BATCH_SMALL", "CACHE_RESIDENT"}
    assert PIPELINE.lint(_params(data="auto", batch_size=64), None, 1) == []


@pytest.mark.verify
def test_a_pipeline_that_delivers_one_batch_for_ever_teaches_it_by_heart_and_is_found(context, monkeypatch):
    run = _run(context(), steps=60)
    assert not _codes(run.verify()) & {"RESULT_INCORRECT", "DEGENERATE_DATA"}
    with run._feed as feed:
        batch = feed.take()
        feed.settle()
    monkeypatch.setattr(run._feed, "take", lambda: batch)
    run.execute(60)
    found = run.verify()
    assert "RESULT_INCORRECT" in _codes(found)
    monkeypatch.setattr(run._feed, "take", lambda: (0 * batch[0], batch[1]))
    assert "DEGENERATE_DATA" in _codes(run.verify())


def test_images_that_make_a_single_batch_may_come_again(context, monkeypatch):
    run = _run(context(), train_samples=32)
    with run._feed as feed:
        batch = feed.take()
        feed.settle()
    monkeypatch.setattr(run._feed, "take", lambda: batch)
    assert "RESULT_INCORRECT" not in _codes(run.verify())


def test_a_step_counted_but_not_made_raises_a_warning_in_both_cases(context, monkeypatch):
    run = _run(context())
    assert "UNIT_MISMATCH" not in _codes(run.verify())
    monkeypatch.setattr(run._step, "train", lambda batch: 1.0)
    run.cases[1].execute(1)
    assert "UNIT_MISMATCH" in _codes(run.verify())
