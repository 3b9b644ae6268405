"""What does measuring cost? What a runner does between samples, and a worker beside it, against the sampler alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from benchmarks.files import Files, Spec, here
from benchmarks.pairs import Ratio, printed, ratio
from benchmarks.report import prose, table, write
from dyno.measure.statistics import median

STATE = Path("build") / "cost"
PROCESSES, ROUNDS = 12, 10
AIM = 0.01
PARAMS: dict[str, dict[str, JsonValue]] = {
    "matmul": {"n": 512, "repeats": 10},
    "mnist_cnn": {"train_samples": 2048, "batch_size": 256, "epochs": 1},
}
COSTLY = ("on", "worker")


def main() -> None:
    files, found = Files(STATE, here()), {name: list[dict[str, Any]]() for name in PARAMS}
    try:
        for process in range(PROCESSES):
            for name in PARAMS:
                found[name].append(_taken(files, f"{name}.{process:02}", name))
    finally:  # also when Ctrl-C ends it
        write("cost", "What measuring costs", lines({name: of for name, of in found.items() if len(of) > 1}))


def change(processes: Sequence[Mapping[str, Any]], way: str) -> Ratio:
    """Time per execution in that way to that of the sampler alone: in each turn, then by process, then over these."""
    turns = [ratio(each["medians_s"][way], each["medians_s"]["off"]).value for each in processes]
    return ratio(turns, [1.0] * len(turns))


def lines(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    text = f"""*Off* is the sampler alone. *On* adds what a runner does around and between its samples: sensors, clocks,
        what neighbours used (`/proc`), what the framework has traced, draining its queue, and progress into a pipe that
        another process reads. *Worker* is the same with a supervisor's monitor at the other end of the pipe, which
        sends heartbeats to a Redis on this machine. Left out: the launcher's look at a runner's memory and files, the
        API, Celery, and that Redis while it idles. Blocks of 10 samples and 1 s in turns (ABC, CBA, …) in one process,
        on all of the device's cores: half of what a run takes at least. *Change*: of the time per execution to that of
        *off*, the geometric mean of the turns' ratios and then of the processes' (Student's t on logarithms); its
        one-sided upper bound is to stay below {AIM:.0%}. A *block* lasts as long as what lies between its samples,
        too."""
    rows = [[f"`{name}`", way, len(of), *_cells(of, way)] for name, of in found.items() for way in COSTLY]
    head = ("workload", "way", "processes", "change [95 %]", "upper bound (95 %)", "block", "block off")
    after = """What comes after the last sample costs time and changes nothing: *verify* checks the output, *doubts* is
        what the first run of a job looks into (is the queue drained, does more work take longer)."""
    return [*prose(text), *table(head, rows), *prose(after), *_once(found), "", *prose(_sensors(found))]


def _cells(processes: Sequence[Mapping[str, Any]], way: str) -> list[str]:
    of = change(processes, way)
    blocks_s = [median([block_s for each in processes for block_s in each["blocks_s"][name]]) for name in (way, "off")]
    return [
        f"{of.value - 1:+.2%} [{of.low - 1:+.2%} to {of.high - 1:+.2%}]",
        f"**{of.upper_95 - 1:+.2%}**",
        *(f"{block_s:.3f} s" for block_s in blocks_s),
    ]


def _once(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    return [
        f"- `{name}` with `{json.dumps(PARAMS[name])}`: verify {_median(of, 'verify_s'):.3f} s, "
        f"doubts {_median(of, 'doubts_s'):.3f} s; {_median(of, 'heartbeats'):g} heartbeats a process"
        for name, of in found.items()
    ]


def _sensors(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    names = sorted({f"`{name}`" for of in found.values() for each in of for name in each["sensors"]["told"]})
    answered = ", ".join(names) or "none, so that *on* pays for asking and not for reading"
    return f"Sensors that answered on this machine: {answered}. Any result from here says why the others didn't."


def _median(processes: Sequence[Mapping[str, Any]], name: str) -> float:
    return median([each[name] for each in processes])


def _taken(files: Files, name: str, workload: str) -> dict[str, Any]:
    """The answer of one process, kept or new."""
    spec: Spec = {"workload": workload, "params": dict(PARAMS[workload]), "rounds": ROUNDS}
    kept = files.get(name, spec)
    if kept is None:
        kept = json.loads(printed("cost_process", workload, json.dumps(PARAMS[workload]), ROUNDS))
        files.put(name, spec, kept)
        for way in COSTLY:
            print(f"{name}: {way} {ratio(kept['medians_s'][way], kept['medians_s']['off'])}", flush=True)
    return kept
