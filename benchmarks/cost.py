"""What does measuring cost? All sensors and checks of a run against none of them, in turns in one process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from benchmarks.files import Files, Spec
from benchmarks.pairs import Ratio, printed, ratio
from benchmarks.report import prose, table, write
from dyno.measure.statistics import median

STATE = Path("build") / "cost"
PROCESSES, PAIRS = 12, 6
AIM = 0.01
PARAMS: dict[str, dict[str, JsonValue]] = {
    "matmul": {"n": 512, "repeats": 10},
    "mnist_cnn": {"train_samples": 2048, "batch_size": 256, "epochs": 1},
}


def main(processes: int = PROCESSES, pairs: int = PAIRS, state: Path = STATE) -> None:
    files, found = Files(state), {name: list[dict[str, Any]]() for name in PARAMS}
    try:
        for process in range(processes):
            for name, params in PARAMS.items():
                found[name].append(_taken(files, f"{name}.{process:02}", name, params, pairs))
    finally:  # also when it is ended by Ctrl-C
        write("cost", "What measuring costs", lines({name: of for name, of in found.items() if len(of) > 1}))


def change(processes: Sequence[Mapping[str, Any]]) -> Ratio:
    """Time per execution with everything on to that with nothing, over the processes' own medians."""
    on, off = ([median(each["medians_s"][way]) for each in processes] for way in ("on", "off"))
    return ratio(on, off)


def lines(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    text = f"""*On* is what a runner does around and between its samples: sensors, neighbours, clocks, progress through
        a pipe to another process. *Off* is the same sampler with nothing of that. Blocks of 20 samples and 2 s
        in turns (ABBA) in one process. *Change*: of the time per execution, on to off, the geometric mean over
        processes of the ratio of their medians (Student's t on logarithms); its one-sided upper bound is to stay below
        {AIM:.0%}. The checks of the output (*verify*) come after the last sample, so they cost time but change nothing;
        a *block* lasts as long as what lies between its samples, too."""
    rows = [[f"`{name}`", len(of), *_cells(of)] for name, of in found.items()]
    head = ("workload", "processes", "change [95 %]", "upper bound (95 %)", "block on", "block off", "verify")
    params = [f"- `{name}`: `{json.dumps(PARAMS[name])}`" for name in found]
    return [*prose(text), *table(head, rows), *params]


def _cells(processes: Sequence[Mapping[str, Any]]) -> list[str]:
    of = change(processes)
    on_s, off_s = (median([block for each in processes for block in each["blocks_s"][way]]) for way in ("on", "off"))
    return [
        f"{of.value - 1:+.2%} [{of.low - 1:+.2%} to {of.high - 1:+.2%}]",
        f"**{of.upper_95 - 1:+.2%}**",
        f"{on_s:.3f} s",
        f"{off_s:.3f} s",
        f"{median([each['verify_s'] for each in processes]):.3f} s",
    ]


def _taken(files: Files, name: str, workload: str, params: Mapping[str, JsonValue], pairs: int) -> dict[str, Any]:
    """One process, or what was kept of it."""
    spec: Spec = {"workload": workload, "params": dict(params), "pairs": pairs}
    kept = files.get(name, spec)
    if kept is None:
        kept = json.loads(printed("cost_side_by_side", workload, json.dumps(params), pairs))
        files.put(name, spec, kept)
        print(f"{name}: {ratio(kept['medians_s']['on'], kept['medians_s']['off'])}", flush=True)
    return kept


if __name__ == "__main__":
    main()
