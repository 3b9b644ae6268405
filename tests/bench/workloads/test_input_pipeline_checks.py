"""Pipelines without images or with repeated ones, and steps that are counted but not made."""

import pytest

from dyno.bench.registry import validate_params, workload

PIPELINE = workload("input_pipeline")
SMALL = {"data": "sample", "train_samples": 512, "batch_size": 32}


def _run(context, steps=4, **params):
    built = PIPELINE.build(validate_params(PIPELINE, SMALL | params), context)
    built.compile()
    built.execute(steps)
    built.cases[1].execute(2)
    return built


def _codes(found):
    return {raised.code for raised in found.warnings}


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
