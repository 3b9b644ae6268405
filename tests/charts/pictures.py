"""Every kind of picture, of plain figures and of ones that are hard to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Literal

from dyno.bench.measure.compare_results import compare
from dyno.charts import result_charts, several, sweep_charts
from dyno.charts.ladder import ladder
from dyno.charts.load import load
from dyno.charts.roofline import RooflineWork, roofline
from dyno.models.comparison import Comparative, CompareResults, Ratio, names_with_devices
from dyno.models.history import HistoryChange, HistoryContext, HistoryPoint, ResultSeries
from dyno.models.result import BasedOn, Epoch, Phases, Repeat, Result, Roof, RunSamples, RunSummary, Sensors
from dyno.models.sweep import PointMetric, Sweep, SweepPoint, SweepUrls
from tests.comparisons import a_metric, an_entry, times
from tests.results import a_result

LONG = "a name that is far too long for a phone " * 3
NOW = datetime(2026, 11, 28, 10, 15, tzinfo=UTC)


def a_run(clock_hz: float | None = 3.55e9) -> RunSummary:
    return RunSummary(
        process_start="spawned",
        pid=1,
        median=0.5 if clock_hz else None,
        samples=20,
        executions_per_sample=1,
        warmup_samples=1,
        steady=True,
        stopped_because="enough_samples",
        phases=Phases(),
        clock_hz=clock_hz,
        sensors=Sensors(looks=3, temperature_c=61.2) if clock_hz else None,
        started_at_s=0.0,
    )


def with_repeat(low: float, high: float, by_run=(100.0, 101.0, 99.0, 100.5, 99.5)):
    repeat = Repeat(low=low, high=high, based_on=BasedOn(runs=5))
    return a_metric(by_run=list(by_run)).model_copy(update={"repeat": repeat})


def samples_of(runs: int, count: int = 20, warmup: float = 0.4) -> list[RunSamples]:
    return [
        RunSamples(
            run=run,
            warmup=[warmup, 0.3],
            samples=[0.1 + 0.001 * ((7 * index + run) % 13) for index in range(count)],
            sample_cpu_s=[],
            executions_per_sample=1,
        )
        for run in range(runs)
    ]


def epochs_of(count: int, *, validated: bool = True) -> list[Epoch]:
    return [
        Epoch(
            index=index,
            time_s=1.0,
            loss=2.0 / (index + 1),
            accuracy=1 - 0.5 / (index + 1),
            validation_loss=2.2 / (index + 1) if validated else None,
            validation_accuracy=1 - 0.6 / (index + 1) if validated else None,
        )
        for index in range(count)
    ]


def a_ratio(value: float | None, low: float | None = None, high: float | None = None) -> Ratio:
    return Ratio(verdict=Comparative.FASTER, value=value, low=low, high=high, reason=None if value else "no value")


def compared(*by_run, **result):
    entries = [an_entry(list(figures), **result) for figures in by_run]
    asked = CompareResults(jobs=[entry.job.id for entry in entries])
    return compare(asked, entries, None, NOW)


def bars_of(*by_run, **result):
    comparison = compared(*by_run, **result)
    return several.comparison(comparison, names_with_devices(comparison), [list(figures) for figures in by_run])


def a_series(values, *, apart=timedelta(hours=5), changes=(), contexts=0, width=0.01) -> ResultSeries:
    verdicts = ("trusted", "indicative", "untrusted")
    points = [
        HistoryPoint(
            time=NOW + number * apart,
            job=f"job_{number}",
            value=value,
            low=value * (1 - width),
            high=value * (1 + width),
            verdict=verdicts[number % 3],
            warnings=[],
            counted=True,
        )
        for number, value in enumerate(values)
    ]
    return ResultSeries(
        series_id="ser_1",
        spec_id="spc_1",
        hardware_id=None,
        device="cpu:0@here",
        device_model=None,
        workload="matmul",
        framework="tensorflow",
        params={},
        precision=None,
        owner=None,
        emulated=False,
        metric="throughput",
        unit="FLOP/s",
        better="higher",
        clock_hz=None,
        points=points,
        contexts=[
            HistoryContext(context_id=str(n), since=points[n].time, job=points[n].job, points=1, differences=[])
            for n in range(contexts)
        ],
        changes=[
            HistoryChange(
                time=points[n].time, job="", context_id=None, ratio=0.93, low=0.9, high=0.95, z=9, before=3, after=3
            )
            for n in changes
        ],
        of_class=None,
    )


def a_sweep(axes, *, value=lambda *_: 100.0, base=None, repeat=None, emulated=False) -> Sweep:
    names, points = [*axes], []
    verdicts = ("trusted", "indicative", "untrusted")
    for number, values in enumerate(product(*axes.values())):
        figure = value(*values)
        metric = PointMetric(
            name="throughput",
            unit="FLOP/s",
            better="higher",
            value=figure,
            low=0.98 * figure,
            high=1.02 * figure,
            repeat=Repeat(low=repeat[0], high=repeat[1], based_on=BasedOn(runs=5)) if repeat else None,
        )
        ratio = a_ratio(figure / 100, figure / 101, figure / 99) if base is not None and number else None
        points.append(
            SweepPoint(
                values=dict(zip(names, values, strict=True)),
                job=f"job_{number}",
                jobs=[f"job_{number}"],
                status="succeeded",
                metrics=[metric],
                verdict=verdicts[number % 3],
                warnings=["EMULATED_DEVICE"] if emulated and number else [],
                base=0 if base is not None and number else None,
                ratio=ratio,
            )
        )
    return Sweep(
        id="swp_1",
        status="succeeded",
        created_at=NOW,
        workload="matmul",
        axes=axes,
        base=base,
        rounds=1,
        counts={"total": len(points)},
        urls=SweepUrls(self="", cancel="", table="", plot="", jobs=""),
        schema=1,
        metric="throughput",
        points=points,
    )


SIZES = {"params.n": [64, 128, 256, 512, 1024, 2048, 4096]}
TYPES = {"params.dtype": ["float32", "bfloat16"]}


def a_work(name: str, binds: Literal["compute", "memory"], intensity: float, fraction: float) -> RooflineWork:
    """Under a roof of 50 GB/s and 200 GFLOP/s, so its ridge is 4 FLOP/byte."""
    value, unit = (2e11, "FLOP/s") if binds == "compute" else (5e10, "bytes/s")
    roof = Roof(intensity=intensity, dtype="float32", ridge=4.0, binds=binds, value=value, unit=unit, fraction=fraction)
    return RooflineWork(name, roof, "trusted" if fraction > 0.5 else "indicative")


ADDITION = RooflineWork("addition", Roof(intensity=0.0, binds="memory", value=5e10, unit="bytes/s", fraction=0.93))
CACHES = {"L1d": 64 << 10, "L2": 2 << 20, "L3": 32 << 20}


def a_ladder(caches: dict[str, int], kernels: Sequence[str] = ("triad", "copy"), rungs: int = 12) -> Result:
    """With arrays from 4 KiB on, and a bandwidth that halves from rung to rung."""
    cases = {(kernel, 4096 << rung): f"{kernel}_{4 << rung}KiB" for kernel in kernels for rung in range(rungs)}
    metrics = [
        a_metric(by_run=[4e11 * 4096 / size] * 5).model_copy(update={"name": f"bandwidth_{case}"})
        for (_, size), case in cases.items()
    ]
    facts = {case: {"array_bytes": size} for (_, size), case in cases.items()}
    return a_result("job_1").model_copy(
        update={
            "workload": "memory_bandwidth",
            "metrics": metrics,
            "details": {"kernels": facts, "caches": dict(caches)},
        }
    )


def a_load(capacity_per_s: float = 100.0, limit_s: float = 0.1) -> Result:
    """Of an M/M/1 queue: its median is ln 2 / (mu - lambda), its p99 ln 100 / (mu - lambda)."""
    found = capacity_per_s - math.log(100) / limit_s
    rates = [share * found for share in (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.05, 1.1)]
    left = [max(capacity_per_s - rate, 1.0) for rate in rates]
    points = [
        {"rate_per_s": rate, "p50_s": math.log(2) / each, "p99_s": math.log(100) / each}
        for rate, each in zip(rates, left, strict=True)
    ]
    server = {"limit_s": limit_s, "rate_per_s": found, "p50_s": 0.014, "p99_s": 1.1 * limit_s, "curve": points}
    return a_result("job_1").model_copy(update={"workload": "inference", "details": {"server": server}})


WORKS = [a_work("decode", "memory", 0.5, 1.0), a_work("product", "compute", 170.0, 0.5), ADDITION]


def another(work: RooflineWork, name: str, **changes: object) -> RooflineWork:
    return work._replace(name=name, roof=work.roof.model_copy(update=changes))


PRODUCT = WORKS[1]
ROOFS = [
    PRODUCT,
    another(PRODUCT, "about the same", value=1.95e11, ridge=3.9),
    another(PRODUCT, "bfloat16", dtype="bfloat16", value=8e11, ridge=16.0),
    another(PRODUCT, "one of 8 units", value=2.5e10),
    another(PRODUCT, "int8", dtype="int8", unit="OP/s"),
    another(WORKS[0], "in caches", fraction=21.5),
]

PICTURES = {
    "rooflines": roofline("several roofs", ROOFS),
    "ladder": ladder(a_ladder(CACHES)),
    "ladder of all kernels without caches": ladder(a_ladder({}, ["copy", "scale", "add", "triad"], 3)),
    "load": load(a_load()),
    "load of a fast server": load(a_load(2e4, 0.001)),
    "roofline": roofline("cpu:0-1", WORKS),
    "roofline of one point": roofline("a product", WORKS[1:2]),
    "roofline of many like works": roofline(
        LONG, [a_work(f"{LONG}{n}", "memory", 0.5 + n / 100, 2.0 - n / 30) for n in range(40)]
    ),
    "runs": result_charts.runs(with_repeat(98.0, 102.0), [97.0, 103.0]),
    "runs alike": result_charts.runs(with_repeat(100.0, 100.0, [100.0] * 5)),
    "runs with a useless prediction": result_charts.runs(with_repeat(-4e9, 3.9e13, [3.477e11, 3.49e11, 3.496e11])),
    "many runs": result_charts.runs(with_repeat(90.0, 110.0, [100 + index % 7 for index in range(40)]), [250.0]),
    "samples": result_charts.samples(samples_of(5), [a_run()] * 5),
    "samples of unlike runs": result_charts.samples([*samples_of(1, 300), *samples_of(3, 2, 40.0)], [a_run()] * 4),
    "samples of many runs": result_charts.samples(samples_of(30, 60)),
    "histogram": result_charts.histogram(samples_of(5)),
    "histogram of many runs": result_charts.histogram(samples_of(40)),
    "phases": result_charts.phases(Phases(import_s=2.1, build_s=0.004, compile_s=0.9, warmup_s=0.02, steady_s=61.0)),
    "short phases": result_charts.phases(Phases(device_s=1e-6, steady_s=2e-6)),
    "no phases": result_charts.phases(Phases()),
    "training": result_charts.training(epochs_of(5)),
    "a long training": result_charts.training(epochs_of(200, validated=False)),
    "one epoch": result_charts.training(epochs_of(1)),
    "forecast": result_charts.forecast("Temperature", [1.0, 2.0, 3.5], [1.2, 1.9, 3.0], "°C"),
    "comparison": bars_of([100.0, 101.0, 99.0], [193.0, 194.0, 190.0]),
    "comparison far apart": bars_of([100.0, 101.0, 99.0], times(3000, [1.0, 1.2, 0.9])),
    "comparison of one run": bars_of([100.0], [120.0]),
    "long names": several.bars(
        LONG, [several.Bar(LONG, 3.0, 2.9, 3.1, text=LONG), several.Bar("b", None, text="no result")], LONG, "s"
    ),
    "negative bars": several.bars("loss", [several.Bar("a", -2.0, -2.5, -1.5), several.Bar("b", 100.0)], "change"),
    "ratios": several.ratios(
        [("second", a_ratio(1.93, 1.9, 1.95)), ("again", a_ratio(1.001, 0.99, 1.01))], 0.02, "as fast"
    ),
    "wide ratios": several.ratios([(LONG, a_ratio(4.35, 0.001, 1e6)), ("b", a_ratio(0.02))], 0.02, "times as fast"),
    "history": several.history(
        a_series([100.0, 101.0, 99.5, 93.0, 92.5, 93.1], changes=[3], contexts=3), {"main": 100.0}
    ),
    "history of one minute": several.history(a_series([100.0, 100.1], apart=timedelta(seconds=4)), {}),
    "history of one moment": several.history(a_series([100.0, 100.0], apart=timedelta(0)), {}),
    "a long history": several.history(
        a_series([100.0 + index % 9 for index in range(120)], changes=range(5, 100, 6), contexts=20, width=3.0),
        {LONG: 100.0},
    ),
    "trend": several.trend(a_series([100.0, 90.0, 110.0]), "job_1"),
    "curve": sweep_charts.draw(a_sweep(SIZES, value=lambda n: 1e9 * n, repeat=(1e9, 9e12))),
    "curve of near figures": sweep_charts.draw(a_sweep({"params.n": [1, 2, 3]}, value=lambda n: 100.0 + n), "curve"),
    "curves": sweep_charts.draw(a_sweep(SIZES | {"device": [f"gpu:{n}@a-long-host-name" for n in range(9)]}), "curve"),
    "curves of many": sweep_charts.draw(
        a_sweep({"params.n": [1, 10, 1000]} | {"framework": [*map(str, range(20))]}), "curve"
    ),
    "heat map": sweep_charts.draw(
        a_sweep(SIZES | {"params.batch_size": [1, 8, 64]}, value=lambda n, batch: 1.0 * n * batch)
    ),
    "wide heat map": sweep_charts.draw(
        a_sweep({"params.n": [*range(40)], "params.m": [10**9, 2 * 10**9]}, emulated=True)
    ),
    "speed-ups": sweep_charts.draw(
        a_sweep(TYPES, value=lambda kind: 100.0 + 90 * (kind == "bfloat16"), base={"params.dtype": "float32"})
    ),
    "bars": sweep_charts.draw(a_sweep(TYPES, emulated=True)),
}
