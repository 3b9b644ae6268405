"""Jobs that another version queued have no estimated duration; bugs in a workload's estimate raise."""

from dataclasses import replace

import pytest

from dyno.bench.registry import registry
from dyno.models.spec import Spec
from service.admission import expected_s


@pytest.mark.parametrize("spec", [{"workload": "matmul_of_tomorrow"}, {"workload": "matmul", "params": {"new": 1}}])
def test_jobs_of_another_version_have_no_estimate(device, spec):
    assert expected_s(registry(), Spec.model_validate(spec), device()) is None


def test_a_bug_in_an_estimate_raises(device):
    def estimate(*_):
        raise KeyError("a bug")

    broken = replace(registry()["matmul"], estimate=estimate)
    with pytest.raises(KeyError, match="a bug"):
        expected_s({"matmul": broken}, Spec(workload="matmul"), device())
