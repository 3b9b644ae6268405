"""STREAM's kernels: right values, right bytes, kernels that XLA keeps, and planted faults that checks find."""

import math
import os
import re
import subprocess
import sys

import pytest

from dyno.bench.measure.warning_codes import CODES
from dyno.bench.registry import validate_params, workload
from dyno.bench.workloads import memory_bandwidth
from dyno.errors import InvalidSpec
from dyno.models.spec import Measure, Spec
from tests.running import codes, job_of, started
from tests.waiting import eventually

BANDWIDTH = workload("memory_bandwidth")
KIB, MIB = 1 << 10, 1 << 20


def built(context, **params):
    of_all = started(BANDWIDTH.build(validate_params(BANDWIDTH, params), context))
    for case in of_all.cases[1:]:
        case.execute(2)
    return of_all


@pytest.mark.parametrize("sizes", [[4 * KIB, 12_004], [32 * MIB]], ids=["looped", "called"])
def test_every_kernel_is_exact(context, sizes):
    verified = built(context(), sizes=sizes).verify()
    assert verified.warnings == []
    assert {details["rel_error"] for details in verified.details["kernels"].values()} == {0.0}


@pytest.mark.parametrize(
    ("kernels", "array_bytes", "observed"),
    [(["copy", "add"], 32 * KIB, "float32"), (["scale", "triad"], 1 * KIB, "float32"), (["copy"], 1 * KIB, None)],
)
def test_exact_values_show_the_precision_where_they_need_it(context, kernels, array_bytes, observed):
    verified = built(context(), kernels=kernels, array_bytes=array_bytes).verify()
    assert (verified.warnings, verified.precision.observed) == ([], observed)


def test_a_copy_rounded_to_11_bits_is_found(context, monkeypatch):
    def rounded(kernel, times, operands):
        ops = ready.framework.keras.ops
        return lambda y: ops.cast(ops.cast(operands.x / 1024, "float16"), "float32") * 1024

    ready = context()
    monkeypatch.setattr(ready.framework, "stream", rounded)
    verified = built(ready, kernels=["copy"], array_bytes=32 * KIB).verify()
    assert [raised.code for raised in verified.warnings] == ["RESULT_INCORRECT"]
    assert (verified.precision.observed, verified.precision.rel_error > 0) == (None, True)


BRIEF = Measure.model_validate({"processes": 1, "min_samples": 3, "min_s": 0, "max_s": 0.15})
SPEC = Spec(workload="memory_bandwidth", params={"kernels": ["triad"], "array_bytes": 1 * MIB}, measure=BRIEF)


def test_every_check_of_the_work_is_made(device, tensorflow):
    """On a busy machine, readings may scatter too much to decide WORK_ELIMINATED: then the job is run again."""
    of_the_work = {code for code, row in CODES.items() if row.severity == "A"}
    eventually(lambda: of_the_work.isdisjoint(job_of(BANDWIDTH, SPEC, device).unchecked))


def test_twice_the_bytes_are_found(device, tensorflow, monkeypatch):
    honest = memory_bandwidth.bytes_of
    monkeypatch.setattr(memory_bandwidth, "bytes_of", lambda *of_kernel: 2 * honest(*of_kernel))
    [raised] = [raised for raised in job_of(BANDWIDTH, SPEC, device).warnings if raised.code == "UNIT_MISMATCH"]
    assert raised.evidence["declared_bytes"] == 2 * raised.evidence["counted_bytes"] == 2 * 128 * 3 * MIB


@pytest.mark.parametrize(
    ("kernel", "array_bytes", "kind", "expected"),
    [
        ("copy", 64 * MIB, "cpu", 2 * 64 * MIB),  # reads an array and writes one
        ("triad", 64 * MIB, "gpu", 3 * 64 * MIB),
        ("add", 1 * MIB, "cpu", 128 * 3 * MIB),
        ("scale", 4 * KIB, "cpu", 32768 * 2 * 4 * KIB),
    ],
)
def test_bytes_by_hand(kernel, array_bytes, kind, expected):
    assert memory_bandwidth.bytes_of(kernel, array_bytes, memory_bandwidth.kernels_in(array_bytes, kind)) == expected


def test_arrays_are_four_times_as_large_as_the_cache_by_default(device):
    params = validate_params(BANDWIDTH, {})
    large = device.model_copy(update={"memory_bytes": 64 << 30, "last_cache_bytes": 32 * MIB})
    assert params.arrays(large) == [128 * MIB]
    assert params.arrays(device.model_copy(update={"memory_bytes": 64 << 30})) == [64 * MIB]
    assert params.arrays(large.model_copy(update={"memory_bytes": 1 << 30})) == [64 * MIB]  # a sixteenth
    assert validate_params(BANDWIDTH, {"array_bytes": 4 * KIB}).arrays(large) == [4 * KIB]
    accelerator = large.model_copy(update={"id": "gpu:0", "kind": "gpu", "memory_bytes": 80 << 30})
    assert params.arrays(accelerator) == [1 << 30]


@pytest.mark.parametrize(("params", "is_resident"), [({"array_bytes": 64 * KIB}, True), ({"sizes": [64 * KIB]}, False)])
def test_a_single_small_size_is_reported_as_cached(context, params, is_resident):
    details = built(context(), kernels=["copy"], **params).verify().details
    assert details.get("working_set_bytes", math.inf) == (64 * KIB if is_resident else math.inf)


@pytest.mark.parametrize(
    ("params", "pointer"),
    [
        ({"kernels": ["copy", "copy"]}, "/params/kernels"),
        ({"sizes": [4096, 4096]}, "/params/sizes"),
        ({"sizes": [4096 + 4 * step for step in range(17)]}, "/params/sizes"),
        ({"sizes": [4096], "array_bytes": 8192}, "/params/array_bytes"),
        ({"array_bytes": 4098}, "/params/array_bytes"),
    ],
)
def test_errors_name_the_field(params, pointer):
    with pytest.raises(InvalidSpec) as invalid:
        validate_params(BANDWIDTH, params)
    assert [error.pointer for error in invalid.value.errors] == [pointer]


def test_half_of_a_copy_is_found(context, monkeypatch):
    def halved(kernel, times, operands):
        half = len(operands.x) // 2
        return lambda y: ready.framework.keras.ops.concatenate([operands.x[:half], y[half:]])

    ready = context()
    monkeypatch.setattr(ready.framework, "stream", halved)
    [raised] = built(ready, kernels=["copy"], array_bytes=4 * KIB).verify().warnings
    assert (raised.code, raised.evidence["case"]) == ("RESULT_INCORRECT", "copy")


@pytest.mark.parametrize("kernel", ["copy", "triad"])
def test_elided_kernels_are_found(device, tensorflow, monkeypatch, kernel):
    """Only the first call computes. Later calls return its arrays."""
    honest = type(tensorflow).stream

    def elided(framework, kernel, times, operands):
        call, results = honest(framework, kernel, times, operands), []

        def first_only(y):
            if not results:
                results.append(call(y))
            return results[0]

        return first_only

    monkeypatch.setattr(type(tensorflow), "stream", elided)
    spec = SPEC.model_copy(update={"params": {"kernels": [kernel], "array_bytes": 1 * MIB}})
    eventually(lambda: "WORK_ELIMINATED" in codes(job_of(BANDWIDTH, spec, device)), what="WORK_ELIMINATED is raised")


COUNTING = """
import numpy, sys
from dyno.bench.frameworks import framework
from dyno.bench.frameworks.interface import StreamOperands
one = framework(sys.argv[1])
one.load()
one.start("cpu", 2)
array = lambda: one.array(numpy.ones(262144), "float32")
scalar = one.array(numpy.array(1.0), "float32")
one.stream(sys.argv[2], 64, StreamOperands(array(), array(), scalar, scalar))(array())
"""


@pytest.mark.verify
@pytest.mark.parametrize("framework", ["tensorflow", "jax"])
@pytest.mark.parametrize("kernel", ["copy", "add", "triad"])
def test_xla_executes_a_kernel_in_each_turn_of_the_loop_and_copies_nothing(tmp_path, framework, kernel):
    flags = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=.*loop.*"
    subprocess.run(
        [sys.executable, "-c", COUNTING, framework, kernel], env=os.environ | {"XLA_FLAGS": flags}, check=True
    )
    [optimised] = tmp_path.glob("*cpu_after_optimizations.txt")
    array = r"= f32\[262144\]\S* "
    [body] = re.findall(r"\n%\S*(?:body|region)\S* \(.*?\n}", optimised.read_text(), re.DOTALL)[:1]
    assert len(re.findall(array + r"(?:fusion|add|multiply)\(", body)) == 1
    assert not re.findall(array + r"copy\(", body)
