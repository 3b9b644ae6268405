"""Records of runs with chosen figures, and a workload for them, so that results can be computed by hand."""

from __future__ import annotations

import pytest

from dyno.bench.contract import Estimate, MetricSpec, Params, ResolvedSpec, Workload
from dyno.bench.measure.assemble import assemble
from dyno.bench.measure.sampling import SamplingResult, summarise
from dyno.bench.measure.warnings import OUTPUT_CODES
from dyno.models.device import Device, PeakFigure
from dyno.models.result import CoreShares, Phases, Reference
from dyno.models.runner_protocol import RunRecord
from dyno.models.spec import Spec

QUIET = CoreShares(
    others=0.0,
    stolen=0.0,
    beside=0.0,
    waited=0.0,
    most_taken=0.0,
    most_waited=0.0,
    package_busy=0.0,
    package_cores=0,
)


def make_record(
    samples,
    *,
    work=1000.0,
    executions_per_sample=1,
    steady=True,
    stopped_because="target",
    first_execution_s=0.5,
    clock_hz=3000000000.0,
    sensors=None,
    core_shares=QUIET,
    **fields,
):
    wall_s = sum(samples) * executions_per_sample
    taken = SamplingResult(
        warmup=[1.0],
        samples=list(samples),
        executions_per_sample=executions_per_sample,
        steady=steady,
        stopped_because=stopped_because,
        sample_cpu_s=[(0.1, 0.0)] * len(samples),
        warmup_s=1.0,
        wall_s=wall_s,
        user_s=2 * wall_s,
        system_s=0.5,
        epoch_s=wall_s,
    )
    phases = Phases(compile_s=0.25, first_execution_s=first_execution_s)
    summary = summarise(
        taken,
        process_start="forked",
        pid=1,
        phases=phases,
        started_at_s=0.0,
        clock_hz=clock_hz,
        sensors=sensors,
        core_shares=core_shares,
    )
    fields.setdefault("amounts", {"execution": 1.0})
    fields.setdefault("verified", [] if fields.get("precision") is None else sorted(OUTPUT_CODES))
    return RunRecord(summary=summary, warmup=taken.warmup, samples=taken.samples, work=work, **fields)


@pytest.fixture
def record():
    return make_record


@pytest.fixture
def device():
    return Device(
        id="cpu:0-1",
        kind="cpu",
        model="GenuineIntel family 6 model 85 stepping 7",
        host="h",
        cores=[0, 1],
        memory_bytes=2**33,
        last_cache_bytes=2**25,
        isa=["avx2"],
        peak={
            "float32": PeakFigure(value=10_000.0, provenance="measured here"),
            "bfloat16": PeakFigure(value=None, reason="no unit"),
        },
    )


class SomeParams(Params):
    n: int = 2048
    k: int | None = None
    dtype: str = "float32"
    mode: str = "a b"


def no_build(params, context):
    raise AssertionError("nothing is built here")


WORKLOAD = Workload(
    name="some",
    description="some work",
    params=SomeParams,
    metrics=(
        MetricSpec("throughput", "FLOP/s", "higher", "rate"),
        MetricSpec("execution_time", "s", "lower", "time", amount="execution"),
        MetricSpec("startup", "s", "lower", "once", once=True),
        MetricSpec("waiting", "1", "lower", "each run's", each_run=True),
        MetricSpec("slowdown", "times", "lower", "one case by another", against="large"),
    ),
    flops=lambda params: 1000.0,
    estimate=lambda params, device, replicas=1, framework="tensorflow": Estimate(1.0, 1),
    build=no_build,
    references=(Reference(title="t", year="2019", hardware="h", metric="throughput", value=1.0, unit="FLOP/s"),),
    executions=lambda params: f"{params.n} things",
)


@pytest.fixture
def result(record, device):
    """Assembles a job from runs whose samples all last 0.5, 1 and 2 s, or from `records`."""

    def build(records=None, *, on=device, spec=None, **params):
        runs = (
            records
            if records is not None
            else [record([time_s] * 20, amounts={"execution": 1000.0}) for time_s in (0.5, 1.0, 2.0)]
        )
        return assemble("job_1", ResolvedSpec(spec or Spec(workload="some"), WORKLOAD, SomeParams(**params)), on, runs)

    return build
