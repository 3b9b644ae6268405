"""Copies between two memories: what is refused, and planted faults that the check finds.

No accelerator is here, so a framework of the test copies between two arrays of NumPy. The cases of frameworks test
PyTorch's own copies.
"""

import numpy as np
import pytest

from dyno.bench.registry import resolve, validate_params, workload
from dyno.errors import InvalidSpec
from dyno.models.spec import Spec
from tests.running import started

TRANSFER = workload("transfer")
SIZE = 4096


class Copies:
    """Copies by NumPy. `copied`: what arrives of the values."""

    route = "memory to memory"

    def __init__(self, values, copied):
        self._values, self._copied, self._target = values, copied, np.full_like(values, np.nan)

    @property
    def bytes(self):
        return self._target.nbytes

    def execute(self, count):
        for _ in range(count):
            arrives = self._copied(self._values)
            self._target[: len(arrives)] = arrives

    def arrived(self):
        return self._target


class TwoMemories:
    name = "torch"

    def __init__(self, copied=lambda values: values):
        self.asked, self._copied = [], copied

    def seed(self, seed):
        pass

    def transfer(self, values, *, to_host, pinned):
        self.asked.append((len(values), to_host, pinned))
        return Copies(values, self._copied)


def params(**fields):
    return validate_params(TRANSFER, fields, 1, "torch")


def test_each_kind_is_a_case_whose_values_are_compared(context):
    memories = TwoMemories()
    built = started(TRANSFER.build(params(copy_bytes=SIZE), context(memories)))
    for case in built.cases:
        case.execute(2)
    found = built.verify()
    assert (found.warnings, found.precision.observed, found.precision.rel_error) == ([], "float32", 0.0)
    assert list(found.details["copies"]) == [case.name for case in built.cases]
    assert memories.asked == [(SIZE // 4, to_host, pinned) for to_host in (False, True) for pinned in (True, False)]
    assert {(case.work, case.bytes, case.counted_bytes()) for case in built.cases} == {(SIZE, SIZE, SIZE)}
    assert built.cases[0].grown(2) is not None
    assert memories.asked[-1] == (SIZE // 2, False, True)
    assert built.cases[0].grown(1 / 3) is None


@pytest.mark.parametrize(
    "copied",
    [
        lambda values: values[:-1],
        lambda values: values[:0],
        lambda values: np.float32(values.view(np.uint32) & 0xFFFF0000),
        lambda values: values[::-1],
    ],
    ids=["a value left out", "nothing copied", "coarser", "another order"],
)
def test_faults_are_found(context, copied):
    built = started(TRANSFER.build(params(copies=["to_host_pinned"], copy_bytes=SIZE), context(TwoMemories(copied))))
    built.execute(1)
    [raised] = built.verify().warnings
    assert (raised.code, raised.evidence["case"]) == ("RESULT_INCORRECT", "to_host_pinned")


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"copies": ["to_host_pinned"] * 2}, "/params/copies"),
        ({"copy_bytes": 6}, "/params/copy_bytes"),
        ({"copy_bytes": 8, "sizes": [8]}, "/params/copy_bytes"),
        ({"sizes": list(range(4, 4 + 4 * 17, 4))}, "/params/sizes"),
    ],
)
def test_errors_name_the_field(fields, pointer):
    with pytest.raises(InvalidSpec) as invalid:
        params(**fields)
    assert [error.pointer for error in invalid.value.errors] == [pointer]


def test_a_cpu_is_refused_with_the_reason(device):
    resolved = resolve(Spec(workload="transfer"))
    assert resolved.spec.framework == "torch"
    [error] = resolved.refusals(device)
    assert error.pointer == "/copies"
    assert "the host's memory" in error.detail
    assert resolved.refusals(device.model_copy(update={"kind": "gpu"})) == []
