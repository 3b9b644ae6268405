"""Every workload on every framework, in minutes each: time per sample, accuracy, memory. Goes on where it was ended.

Real data sets are taken from DYNO_DATA_DIR; without it the samples that ship, or synthetic twins.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from benchmarks.files import Spec
from benchmarks.kept import Answer, Kept, answers, so_far
from benchmarks.report import write
from benchmarks.results import data, figure, framework, hardware, headline, memory, quality, verdict
from benchmarks.settings import checked
from dyno.devices.discovery import installed_frameworks
from dyno.workloads import registry

STATE = Path("build") / "workloads"
MEASURE: dict[str, JsonValue] = {"processes": 3, "max_s": 20}
PARAMS = {name: dict(workload.bench) for name, workload in registry().items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.workloads", description=__doc__)
    parser.add_argument("--workload", action="append", choices=list(PARAMS), help="only these; may be repeated")
    parser.add_argument("--framework", action="append", choices=list(installed_frameworks()), help="only these")
    parser.add_argument("--state", type=Path, default=STATE, help="where finished jobs are kept")
    asked = parser.parse_args(arguments)
    kept, every = Kept(asked.state), specs(PARAMS, installed_frameworks())
    wanted = specs(asked.workload or PARAMS, asked.framework or installed_frameworks())
    found: dict[str, Answer] = {}
    try:
        found.update(answers(wanted, kept))
    finally:  # also when it is ended by Ctrl-C
        write("workloads", "Every workload on every framework", lines(every, so_far(every, found, kept)))


def specs(workloads: Iterable[str], frameworks: Sequence[str] | Mapping[str, str]) -> dict[str, Spec]:
    """What is to run, by "<workload>.<framework>"."""
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
        if name in registry()[workload].frameworks
    }


def lines(wanted: Mapping[str, Spec], found: Mapping[str, Answer]) -> list[str]:
    """The page: a row for each workload and framework, and what was asked for."""
    machines = sorted({hardware(answer.result) for answer in found.values() if answer.result})
    params = {str(spec["workload"]): json.dumps(spec["params"]) for spec in wanted.values()}
    return [
        f"One job each over HTTP, on {' and '.join(machines) or 'nothing'}. The first run trains in full, all",
        "of them time the same compiled step; a value is the mean of the runs' medians, its interval Student's t over",
        "the runs, each of them a fresh process. Quality is on the test set; on a sample or a synthetic twin it",
        "compares the frameworks with each other, and with nothing else. It is that of a short training: networks with",
        "BatchNormalization (`fashion_mnist_cnn`, `cifar10_cnn`) predict by running means with momentum 0.99: after",
        "the 64 and 96 steps here, 53 % and 38 % of them are still what they started from. Memory is the peak of the",
        "largest process; last the verdict on the times, with what speaks against them.",
        "",
        "| workload | framework | metric | value | quality | data (train + test) | memory | whole job | verdict |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_row(wanted[name], answer) for name, answer in found.items()),
        "",
        "## Params",
        "",
        f"All others have their defaults; `measure` is `{json.dumps(MEASURE)}`.",
        "",
        *(f"- `{workload}`: `{text}`" for workload, text in params.items()),
    ]


def _row(spec: Spec, answer: Answer) -> str:
    result = answer.result
    if result is None:
        cells = [f"`{spec['workload']}`", str(spec["framework"]), "–", str(answer.message), *["–"] * 5]
    else:
        first = headline(result)
        took = f"{answer.took_s:.0f} s"
        learnt = (quality(result.training), data(result.training))
        ran_on = ", ".join([framework(result), *(str(note) for note in [result.details.get("int8_note")] if note)])
        told = (first.name, figure(first), *learnt, memory(result), took, verdict(result))
        cells = [f"`{result.workload}`", ran_on, *told]
    return f"| {' | '.join(cell.replace('|', '/').replace(chr(10), ' ') for cell in cells)} |"


if __name__ == "__main__":
    with checked():
        main()
