"""Does `memory_bandwidth` give the bandwidth that a STREAM in C reaches on the same cores? Writes bandwidth.md.

Needs gcc. Frameworks that aren't installed are left out.
"""

from __future__ import annotations

import math
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.pairs import in_turns, ratio
from benchmarks.report import prose, table, write
from dyno.bench.bench import Bench
from dyno.bench.devices.cpu import streamed_bytes

ROUNDS, BUDGET_S, WINDOWS = 10, 4, 20
KERNELS = ("copy", "scale", "add", "triad")
COMPARED = ("triad", "copy")
SOURCE = Path(__file__).with_name("stream.c")
METHOD = """A job of `memory_bandwidth` with a budget of {budget_s:g} s for each framework, and STREAM compiled by
    `gcc -O3 -fopenmp` ({source}), in turns (ABCD, DCBA) on all cores of this machine. All use float32 and arrays of
    {mib:g} MiB; the last-level cache has {cache}. As Dyno's samples, STREAM's windows are means over about 100 ms, and
    its figure is the median of {windows} windows. *Ratio*: the framework's figure divided by STREAM's, the geometric
    mean over {rounds} rounds with its 95 % interval."""


def main(rounds: int = ROUNDS, budget_s: float = BUDGET_S) -> None:
    found: dict[str, dict[str, list[float]]] = {}

    def noted(way: str, figures: dict[str, float]) -> float:
        for kernel, value in figures.items():
            found.setdefault(way, {}).setdefault(kernel, []).append(value)
        return figures["triad"]

    with Bench("cpu") as bench, tempfile.TemporaryDirectory() as folder:
        cache_bytes = bench.device.last_cache_bytes
        array_bytes = streamed_bytes(cache_bytes, bench.device.memory_bytes)
        program = Path(folder) / "stream"
        subprocess.run(["gcc", "-O3", "-fopenmp", "-o", program, SOURCE], check=True)

        def of(way: str) -> Callable[[], float]:
            if way == "gcc":
                return lambda: noted(way, _stream(program, array_bytes))
            return lambda: noted(way, _measured(bench, way, array_bytes, budget_s))

        in_turns({way: of(way) for way in ("gcc", *bench.device.frameworks)}, rounds)
    rows = []
    for way, figures in found.items():
        for kernel in COMPARED:
            of_c = ratio(figures[kernel], found["gcc"][kernel])
            ratios = "" if way == "gcc" else f"{of_c.value:.3f} [{of_c.low:.3f} to {of_c.high:.3f}]"
            rows.append([way, kernel, f"{median(figures[kernel]) / 1e9:.2f}", ratios])
    mib = array_bytes / (1 << 20)
    cache = "an unknown size" if cache_bytes is None else f"{cache_bytes / (1 << 20):g} MiB"
    facts = {"budget_s": budget_s, "source": "benchmarks/stream.c", "mib": mib, "windows": WINDOWS, "rounds": rounds}
    text = METHOD.format(cache=cache, **facts)
    lines = [*prose(text), *table(("program", "kernel", "median, GB/s", "ratio"), rows)]
    write("bandwidth", "Memory bandwidth against STREAM in C", lines)


def _stream(program: Path, array_bytes: int) -> dict[str, float]:
    command = [str(program), str(array_bytes), str(WINDOWS)]
    words = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    return {kernel: float(word) for kernel, word in zip(KERNELS, words, strict=False)}


def _measured(bench: Bench, framework: str, array_bytes: int, budget_s: float) -> dict[str, float]:
    result = bench.run(
        {
            "workload": "memory_bandwidth",
            "framework": framework,
            "params": {"array_bytes": array_bytes, "kernels": [*COMPARED]},
            "measure": {"budget_s": budget_s},
        }
    )
    values = {metric.name: metric.value for metric in result.metrics}
    return {kernel: values[f"bandwidth_{kernel}"] or math.nan for kernel in COMPARED}
