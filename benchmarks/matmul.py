"""The FLOP/s that Dyno reports for matmul against a bare hand-written loop, interleaved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pydantic import JsonValue

from benchmarks.fleet import Fleet, fleet
from benchmarks.pairs import interleave, ratio, spread
from benchmarks.report import write

N, REPEATS, SECONDS, PAIRS = 2048, 2, 6.0, 16
SPEC: dict[str, JsonValue] = {
    "workload": "matmul",
    "params": {"n": N, "repeats": REPEATS},
    "device": "cpu",
    "measure": {"processes": 1, "min_s": SECONDS, "max_s": SECONDS + 1},
}


def main() -> None:
    with fleet() as dyno:
        ours, bare = interleave(lambda: _reported(dyno), _bare, PAIRS)
    lines = [
        f"`matmul` at n = {N}, float32, {REPEATS} products a chain: the throughput Dyno answers, one process a job,",
        f"against a bare TensorFlow loop in a process of its own; {PAIRS} pairs in the order ABBA. GFLOP/s:",
        "",
        f"- Dyno: {spread(ours, 1e-9)}",
        f"- bare loop: {spread(bare, 1e-9)}",
        f"- Dyno / bare: {ratio(ours, bare)}",
    ]
    write("matmul", "Reported FLOP/s against a bare loop", lines)


def _reported(dyno: Fleet) -> float:
    result = dyno.client.run(SPEC)
    value = next(m.value for m in result.metrics if m.name == "throughput")
    assert value is not None
    return value


def _bare() -> float:
    script = Path(__file__).with_name("bare_matmul.py")
    command = [sys.executable, str(script), str(N), str(REPEATS), str(SECONDS)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
