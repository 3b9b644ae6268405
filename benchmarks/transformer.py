"""Is `transformer` as fast as the same network written by hand in the same framework? Writes transformer.md.

`python -m benchmarks.transformer FRAMEWORK MODE` is one of its processes. It prints the hand-written loop's time
divided by Dyno's, and Dyno's time.
"""

from __future__ import annotations

import math
import sys
import time
from importlib.util import find_spec
from statistics import median

from benchmarks.in_process import compiled
from benchmarks.pairs import printed, ratio
from benchmarks.plain_decoder import LOOPS
from benchmarks.report import prose, table, write
from dyno.bench.frameworks import framework
from dyno.bench.workloads import _decoder as decoder

PRESET, PROCESSES, WINDOWS, WINDOW_S = "small", 5, 12, 0.4
MODES = {"train": (4, 64), "prefill": (1, 256), "decode": (1, 512)}  # sequences, and tokens of each
METHOD = """The preset `{preset}` with the default batch and context, in float32 on all cores, beside the same network
    written by hand (benchmarks/plain_decoder.py). In each of {processes} fresh processes per row, {windows} windows of
    at least {window_s:g} s of both alternate. *Ratio*: the hand-written loop's median time divided by Dyno's, so above
    1 Dyno is faster; the geometric mean over the processes with its 95 % interval. Training compiles its step with XLA
    in both frameworks; prefill and decode do in JAX only."""


def main(processes: int = PROCESSES) -> None:
    rows = []
    for name, mode in LOOPS:
        if find_spec(name) is not None:
            batch, length = MODES[mode]
            found = [tuple(map(float, printed("transformer", name, mode).split())) for _ in range(processes)]
            ratios, times_s = zip(*found, strict=True)
            of_both = ratio(ratios, [1.0] * processes)
            per_s = batch * (1 if mode == "decode" else length) / median(times_s)
            bounds = f"{of_both.value:.3f} [{of_both.low:.3f} to {of_both.high:.3f}]"
            rows.append([name, mode, f"{median(times_s) * 1e3:.4g}", f"{per_s:.4g}", bounds])
            print(rows[-1], flush=True)
    facts = {"preset": PRESET, "processes": processes, "windows": WINDOWS, "window_s": WINDOW_S}
    head = ("framework", "mode", "Dyno's time, ms", "tokens/s", "ratio")
    write(
        "transformer",
        "A language model against a hand-written loop",
        [*prose(METHOD.format(**facts)), *table(head, rows)],
    )


def side_by_side(name: str, mode: str) -> tuple[float, float]:
    engine = framework(name)
    batch, length = MODES[mode]
    params = {"mode": mode, "preset": PRESET, "batch_size": batch, "context": length}
    built = compiled("transformer", params, {"jit_compile": mode == "train"}, engine)
    bare = LOOPS[name, mode](decoder.PRESETS[PRESET], batch, length)

    def ours(count: int) -> float:
        begin_s = time.perf_counter()
        built.execute(count)
        return (time.perf_counter() - begin_s) / count

    count = math.ceil(WINDOW_S / min(ours(2), bare(2)))
    ways, times = [ours, bare], {ours: list[float](), bare: list[float]()}
    for _ in range(WINDOWS):
        for way in ways:
            times[way].append(way(count))
        ways.reverse()
    return median(times[bare]) / median(times[ours]), median(times[ours])


if __name__ == "__main__":
    print(*side_by_side(*sys.argv[1:]))
