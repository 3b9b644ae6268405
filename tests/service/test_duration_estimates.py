"""Jobs that another version queued have no estimated duration; bugs in a workload's estimate raise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from dyno.bench.registry import registry
from dyno.models.device import Device
from dyno.models.spec import Spec
from service.state import expected_s


@pytest.mark.parametrize("spec", [{"workload": "matmul_of_tomorrow"}, {"workload": "matmul", "params": {"new": 1}}])
def test_jobs_of_another_version_have_no_estimate(device: Callable[..., Device], spec: dict[str, Any]) -> None:
    assert expected_s(registry(), Spec.model_validate(spec), device()) is None


def test_a_bug_in_an_estimate_raises(device: Callable[..., Device]) -> None:
    def estimate(*_: object) -> NoReturn:
        raise KeyError("a bug")

    broken = replace(registry()["matmul"], estimate=estimate)
    with pytest.raises(KeyError, match="a bug"):
        expected_s({"matmul": broken}, Spec(workload="matmul"), device())
