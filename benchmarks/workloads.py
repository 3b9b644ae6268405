"""`python -m benchmarks.workloads [WORKLOAD …]` runs each on every framework. It takes minutes each, and resumes.

Real data sets are read from DYNO_DATA_DIR. Without it, jobs use Dyno's samples or synthetic data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import JsonValue

from benchmarks import results
from benchmarks.files import Spec
from benchmarks.jobs import Answer, KeptJobs, headline, run_all
from benchmarks.report import prose, requested, table, write
from dyno.bench.devices.discovery import installed_frameworks
from dyno.bench.registry import bundled

STATE = Path("build") / "workloads"
MEASURE: dict[str, JsonValue] = {"processes": 3, "max_s": 20}
PARAMS = {name: dict(workload.bench) for name, workload in bundled().items()}


def main(workloads: Iterable[str], folder: Path = STATE) -> None:
    kept, every = KeptJobs(folder), specs(PARAMS, installed_frameworks())

    def publish(found: Mapping[str, Answer]) -> None:
        write("workloads", "Every workload on every framework", lines(every, kept.so_far(every, found)))

    run_all(specs(workloads, installed_frameworks()), kept, publish)


def specs(workloads: Iterable[str], frameworks: Iterable[str]) -> dict[str, Spec]:
    """By "<workload>.<framework>"."""
    return {
        f"{workload}.{name}": {
            "workload": workload,
            "params": PARAMS[workload],
            "framework": name,
            "device": "cpu",
            "measure": MEASURE,
        }
        for workload in workloads
        for name in frameworks
        if name in bundled()[workload].frameworks
    }


def lines(wanted: Mapping[str, Spec], found: Mapping[str, Answer]) -> list[str]:
    machines = sorted({results.hardware(answer.result) for answer in found.values() if answer.result})
    params = {str(spec["workload"]): json.dumps(spec["params"]) for spec in wanted.values()}
    text = f"""One job a row over HTTP, on {" and ".join(machines) or "nothing"}. The first run trains in full, and all
        runs time the same compiled step. A value is the mean of the runs' medians, with Student's t interval over the
        runs; each run is a fresh process. Quality is measured on the test set after a short training; on a sample or
        synthetic data, it only compares the frameworks with each other. Networks with BatchNormalization
        (`fashion_mnist_cnn`, `cifar10_cnn`) predict by running means with momentum 0.99: after the 64 and 96 steps
        here, 53 % and 38 % of such a mean are still its start value. Memory is the peak of the largest process."""
    head = ("workload", "framework", "metric", "value", "quality", "data (train + test)", "memory", "job", "verdict")
    return [
        *prose(text),
        *table(head, [_row(wanted[name], answer) for name, answer in found.items()]),
        *("## Params", "", f"All other params have their defaults; `measure` is `{json.dumps(MEASURE)}`.", ""),
        *(f"- `{workload}`: `{text}`" for workload, text in params.items()),
    ]


def _row(spec: Spec, answer: Answer) -> list[object]:
    result = answer.result
    if result is None:
        return [f"`{spec['workload']}`", spec["framework"], "–", answer.message, *["–"] * 5]
    first = headline(result)
    ran_on = ", ".join([results.framework(result), *(str(note) for note in [result.details.get("int8_note")] if note)])
    learned = (results.quality(result.training), results.data(result.training))
    figures = (
        first.name,
        results.figure(first),
        *learned,
        results.memory(result),
        f"{answer.took_s:.0f} s",
        results.verdict(result),
    )
    return [f"`{result.workload}`", ran_on, *figures]


if __name__ == "__main__":
    main(requested(PARAMS))
