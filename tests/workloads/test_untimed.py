"""The params that two comparable results may differ in."""

from __future__ import annotations

import pytest

from dyno.workloads import registry


@pytest.mark.parametrize("name", sorted(registry()))
def test_what_is_untimed_is_a_param_and_what_makes_the_work_is_not_untimed(name: str) -> None:
    params = registry()[name].params
    assert params.untimed <= params.model_fields.keys()
    work = {"n", "m", "k", "repeats", "sizes", "dtype", "mode", "batch_size", "units", "window", "precision", "model"}
    work |= {"filters", "dense_units", "dropout_rates"}
    assert not params.untimed & (work | {"jit_compile", "steps_per_execution", "train_samples", "validation_share"})


def test_of_a_training_where_it_starts_its_length_and_what_is_done_after_it_are_untimed() -> None:
    assert {"weights", "epochs", "trials", "export", "recognise"} <= registry()["mnist_cnn"].params.untimed
    assert {"epochs", "generate", "prompt"} <= registry()["shakespeare_lstm"].params.untimed
    assert {"weights", "epochs"} <= registry()["quantized_inference"].params.untimed
    assert registry()["matmul"].params.untimed == frozenset()
