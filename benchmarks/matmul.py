"""The FLOP/s that Dyno reports for matmul against a bare hand-written loop, interleaved two ways.

Sample by sample in one process, which shows a difference in the timing itself; and whole jobs over HTTP beside whole
processes, which shows what a caller gets, at the price of the machine's drift.
"""

from __future__ import annotations

from pydantic import JsonValue

from benchmarks.fleet import Fleet, fleet
from benchmarks.pairs import interleave, printed, ratio, spread
from benchmarks.report import write

N, REPEATS, SECONDS, PAIRS = 2048, 2, 6.0, 10
PROCESSES, SAMPLES = 12, 25
SPEC: dict[str, JsonValue] = {
    "workload": "matmul",
    "params": {"n": N, "repeats": REPEATS},
    "device": "cpu",
    "measure": {"processes": 1, "min_s": SECONDS, "max_s": SECONDS + 1},
}


def main() -> None:
    ratios = [_side_by_side() for _ in range(PROCESSES)]
    with fleet() as dyno:
        ours, bare = interleave(lambda: _reported(dyno), _bare, PAIRS)
    lines = [
        f"`matmul` at n = {N}, float32, {REPEATS} products a chain: the throughput Dyno answers, one process a job,",
        f"against a bare TensorFlow loop in a process of its own; {PAIRS} pairs in the order ABBA. GFLOP/s:",
        "",
        f"- Dyno: {spread(ours, 1e-9)}",
        f"- bare loop: {spread(bare, 1e-9)}",
        f"- Dyno / bare: {ratio(ours, bare)}",
        "",
        "The same two loops in one process, a bare sample after each of Dyno's (its own sampling code),",
        f"at least {SAMPLES} samples each, {PROCESSES} fresh processes, ratio of the medians:",
        "",
        f"- Dyno / bare: {ratio(ratios, [1.0] * PROCESSES)}; {spread(ratios)}",
    ]
    write("matmul", "Reported FLOP/s against a bare loop", lines)


def _reported(dyno: Fleet) -> float:
    result = dyno.client.run(SPEC)
    value = next(m.value for m in result.metrics if m.name == "throughput")
    assert value is not None
    return value


def _bare() -> float:
    return float(printed("bare_matmul", N, REPEATS, SECONDS))


def _side_by_side() -> float:
    found = float(printed("matmul_side_by_side", N, REPEATS, SAMPLES))
    print(f"in one process: {found:.4f}", flush=True)
    return found


if __name__ == "__main__":
    main()
