"""Collective operations over virtual devices: right values on every unit, right bytes, and planted faults.

`python -m tests.bench.workloads.test_collectives` prints the outcome of each operation on JAX, which needs a process of
its own: JAX takes the number of virtual devices when it starts.
"""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

import pytest

from dyno.bench.contract import BuildContext
from dyno.bench.frameworks import jax_collectives
from dyno.bench.frameworks.jax import Jax
from dyno.bench.registry import resolve, validate_params, with_defaults_of, workload
from dyno.bench.workloads import collectives
from dyno.errors import InvalidSpec
from dyno.models.spec import Spec
from tests.quick_xla import QUICK_XLA
from tests.running import started

COLLECTIVES = workload("collectives")
UNITS, MESSAGE = 4, 4096
ON_A_CPU = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive"]
FAULTS = {
    "left out": lambda lax, honest: {**honest, "all_reduce": lambda row: row},
    "one unit left out": lambda lax, honest: {**honest, "all_reduce": lambda row: honest["all_reduce"](row) - row},
    "in bfloat16": lambda lax, honest: {
        **honest,
        "all_reduce": lambda row: honest["all_reduce"](row.astype("bfloat16")).astype("float32"),
    },
    "half of the message": lambda lax, honest: {
        **honest,
        "all_reduce": lambda row: honest["all_reduce"](row[: len(row) // 2]),
    },
}


def params(framework="jax", replicas=UNITS, **fields):
    return validate_params(COLLECTIVES, fields, replicas, framework)


def outcome(framework, operation):
    """What the checks of one operation find: warnings, the observed precision, and bytes declared and counted."""
    context = BuildContext(framework, 0, 0, 2, lambda name: nullcontext(), lambda *_: None, replicas=UNITS)
    built = started(COLLECTIVES.build(params(operations=[operation], message_bytes=MESSAGE), context))
    built.execute(300)  # so many operations at once that their threads would wait for each other
    found, [case] = built.verify(), built.cases
    twice = case.grown(2)
    twice(1)
    return {
        "warnings": [raised.code for raised in found.warnings],
        "observed": found.precision.observed,
        "bytes": [case.bytes, case.counted_bytes()],
    }


def main():
    jax = Jax()
    jax.load()
    jax.start("cpu", 2, UNITS)
    outcomes = {operation: outcome(jax, operation) for operation in ON_A_CPU}
    honest = jax_collectives._operations
    for name, fault in FAULTS.items():
        jax_collectives._operations = lambda lax, units, fault=fault: fault(lax, honest(lax, units))
        outcomes[name] = outcome(jax, "all_reduce")
    print(json.dumps(outcomes))  # noqa: T201


@pytest.fixture(scope="module")
def outcomes():
    if find_spec("jax") is None:
        pytest.skip("JAX is not installed here")
    command = [sys.executable, "-P", "-m", __name__]
    ran = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, env=os.environ | QUICK_XLA, cwd=Path(__file__).parents[3]
    )
    return json.loads(ran.stdout)


@pytest.mark.parametrize("operation", ON_A_CPU)
def test_every_unit_gets_exactly_what_it_should(outcomes, operation):
    found = outcomes[operation]
    assert (found["warnings"], found["observed"]) == ([], "float32")
    assert found["bytes"][0] == found["bytes"][1]


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(outcomes, fault):
    assert outcomes[fault]["warnings"] == ["RESULT_INCORRECT"]


def test_half_of_the_message_shows_in_the_counted_bytes(outcomes):
    declared, counted = outcomes["half of the message"]["bytes"]
    assert (declared, counted) == (2 * UNITS * MESSAGE, 1.5 * UNITS * MESSAGE)


@pytest.mark.parametrize(
    ("operation", "factor"),
    [("all_reduce", 1.5), ("all_gather", 0.75), ("reduce_scatter", 0.75), ("all_to_all", 0.75), ("send_receive", 1)],
)
def test_bus_bandwidth_is_that_of_nccl_tests(operation, factor):
    """https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md, for 4 ranks."""
    assert collectives._BUS[operation](UNITS) == factor


@pytest.mark.parametrize(
    ("operation", "values"), [("all_reduce", 8), ("all_gather", 5), ("reduce_scatter", 5), ("send_receive", 8)]
)
def test_traffic_by_hand(operation, values):
    """Four units, each with a message of four values: all-gather reads one value of them and writes four."""
    assert collectives.traffic_bytes(operation, part=1, units=4) == 4 * values * 4


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"replicas": 1}, "/replicas"),
        ({"operations": ["all_reduce", "all_reduce"]}, "/params/operations"),
        ({"sizes": [4096], "message_bytes": 4096}, "/params/message_bytes"),
        ({"sizes": list(range(1024, 1024 + 4 * 33, 4)), "operations": ["all_reduce", "all_gather"]}, "/params/sizes"),
        ({"replicas": 512, "message_bytes": 1024}, "/params/message_bytes"),
    ],
)
def test_errors_name_the_field(fields, pointer):
    with pytest.raises(InvalidSpec) as invalid:
        params(**fields)
    assert [error.pointer for error in invalid.value.errors] == [pointer]


def test_a_spec_without_framework_and_replicas_runs():
    resolved = resolve(Spec(workload="collectives")).spec
    assert (resolved.framework, resolved.replicas) == ("jax", 2)
    named = Spec(workload="collectives", framework="tensorflow", replicas=1)
    assert with_defaults_of(COLLECTIVES, named) == named


def test_a_broadcast_needs_an_accelerator(device):
    asked = params(operations=["broadcast"])
    assert [error.pointer for error in COLLECTIVES.refuses(asked, device)] == ["/operations"]
    assert COLLECTIVES.refuses(asked, device.model_copy(update={"kind": "gpu"})) == []


def test_virtual_units_are_named_before_the_job_runs(device):
    spec = Spec(workload="collectives", framework="jax", replicas=2)
    [raised] = COLLECTIVES.lint(resolve(spec).params, device, 2)
    assert (raised.code, raised.severity) == ("EMULATED_DEVICE", "A")
    assert COLLECTIVES.lint(resolve(spec).params, device.model_copy(update={"kind": "gpu"}), 2) == []


if __name__ == "__main__":
    main()
