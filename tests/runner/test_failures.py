from __future__ import annotations

import errno

import pytest

from dyno.errors import DatasetDamaged, DeviceUnavailable, FieldError, FrameworkMissing, InvalidSpec, RunFailed
from dyno.frameworks.tensorflow import TensorFlow
from dyno.runner.failures import failed


@pytest.mark.parametrize(
    ("error", "failure_class", "reason", "message"),
    [
        (MemoryError("2 TiB"), "resource", "out_of_memory", "2 TiB"),
        (RunFailed("benchmark", "nonfinite_loss", "the loss became nan"), "benchmark", "nonfinite_loss", "loss became"),
        (DatasetDamaged("t10k: too short"), "benchmark", "dataset_damaged", "t10k: too short"),
        (FrameworkMissing("no module"), "unsupported", "framework_missing", "no module"),
        (DeviceUnavailable("no gpu"), "unsupported", "no_such_device", "no gpu"),
        (InvalidSpec([FieldError("/params/n", "x", "is wrong")]), "unsupported", "invalid_spec", "/params/n: is wrong"),
        (OSError(errno.ENOSPC, "No space left on device"), "resource", "disk_full", "No space left"),
        (OSError(errno.EIO, "Input/output error"), "benchmark", "workload_error", "Input/output"),
        (ZeroDivisionError("division by zero"), "benchmark", "workload_error", "ZeroDivisionError: division by zero"),
        (AssertionError(), "benchmark", "workload_error", "AssertionError"),
        (KeyboardInterrupt(), "benchmark", "workload_error", "KeyboardInterrupt"),
    ],
)
def test_whatever_ends_a_run_has_a_class_and_a_reason(
    error: BaseException, failure_class: str, reason: str, message: str
) -> None:
    frame = failed(error, TensorFlow())
    assert (frame.failure_class, frame.reason) == (failure_class, reason)
    assert message in frame.message


def test_a_run_that_fails_before_it_has_a_framework_is_classed_too() -> None:
    assert failed(MemoryError(), None).reason == "out_of_memory"
