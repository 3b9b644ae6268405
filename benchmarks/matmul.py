"""The FLOP/s that Dyno reports for matmul against a bare hand-written loop, interleaved two ways.

Samples of both alternate in one process, which shows a difference in the timing itself: if the speed drifts by a tenth
within seconds, nothing else shows 1 %. Jobs over HTTP alternate with whole processes, which shows a user's figures.

`python -m benchmarks.matmul bare|side_by_side` is such a process. It prints FLOP/s, or Dyno's over the bare loop's.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

from benchmarks.files import Spec
from benchmarks.in_process import compiled
from benchmarks.jobs import metric_named, own_dyno
from benchmarks.pairs import in_turns, printed, ratio, spread
from benchmarks.report import prose, write
from dyno.bench.measure.sampling import HostClock, sample
from dyno.bench.measure.stopping_rule import StoppingRule
from dyno.client import Client
from dyno.models.spec import Measure

N, REPEATS, SECONDS, PAIRS = 2048, 2, 6.0, 10
PROCESSES, SAMPLES = 12, 25
SPEC: Spec = {
    "workload": "matmul",
    "params": {"n": N, "repeats": REPEATS},
    "device": "cpu",
    "measure": {"processes": 1, "min_s": SECONDS, "max_s": SECONDS + 1},
}


def main(processes: int = PROCESSES, pairs: int = PAIRS) -> None:
    ratios = []
    for _ in range(processes):
        ratios.append(float(printed("matmul", "side_by_side")))
        print(f"in one process: {ratios[-1]:.4f}", flush=True)
    with own_dyno() as client:
        ways = {"Dyno": lambda: _reported(client), "bare loop": lambda: float(printed("matmul", "bare"))}
        found = in_turns(ways, pairs)
    of_jobs = f"""`matmul` at n = {N}, float32, {REPEATS} products a chain: the throughput that Dyno reports, one
        process a job, against a bare TensorFlow loop in a separate process; {pairs} pairs in the order ABBA.
        GFLOP/s:"""
    of_samples = f"""The same two loops in one process: after each sample of Dyno's sampling code, one of the bare loop.
        At least {SAMPLES} samples each, {processes} fresh processes, ratio of the medians:"""
    lines = [
        *prose(of_jobs),
        *(f"- {way}: {spread(values, 1e-9)}" for way, values in found.items()),
        *(f"- Dyno / bare: {ratio(*found.values())}", ""),
        *prose(of_samples),
        f"- Dyno / bare: {ratio(ratios, [1.0] * processes)}; {spread(ratios)}",
    ]
    write("matmul", "Reported FLOP/s against a bare loop", lines)


def _reported(client: Client) -> float:
    value = metric_named(client.run(SPEC), "throughput").value
    assert value is not None
    return value


def bare() -> float:
    """FLOP/s of the hand-written loop in this process."""
    execute, times_s = bare_loop(), []
    execute(3)
    end_s = time.perf_counter() + SECONDS
    while time.perf_counter() < end_s:
        times_s.append(execute(1))
    return 2 * N**3 * REPEATS / median(times_s)


def side_by_side() -> float:
    """Dyno's own sampling, and after each of its samples as many chains of the bare loop."""
    built, bare = compiled("matmul", {"n": N, "repeats": REPEATS}), bare_loop()
    counts: list[int] = []
    bare_s: list[float] = []

    def execute(count: int) -> None:
        counts.append(count)
        built.execute(count)

    def after_sample(taken: int, expected: int | None) -> None:
        if counts:
            bare_s.append(bare(counts[-1]))

    bare(1)
    measure = Measure(min_samples=SAMPLES, target_rel_ci=1e-6, max_s=SAMPLES)
    taken = sample(execute, StoppingRule.of(measure, "cpu"), HostClock(), after_sample)
    return median(bare_s[-len(taken.samples) :]) / median(taken.samples)


def bare_loop() -> Callable[[int], float]:
    """A loop as a careful person writes it by hand: executes `count` chains, returns seconds per chain."""
    import numpy as np
    import tensorflow as tf

    generator = np.random.default_rng(0)
    start = tf.constant(generator.standard_normal((N, N), dtype=np.float32))
    factor = tf.constant(np.linalg.qr(generator.standard_normal((N, N)))[0].astype(np.float32))

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def chain(value: tf.Tensor) -> tf.Tensor:
        for _ in range(REPEATS):
            value = value @ factor
        return tf.reduce_sum(value)

    def execute(count: int) -> float:
        begin_s = time.perf_counter()
        for _ in range(count):
            float(chain(start))
        return (time.perf_counter() - begin_s) / count

    return execute


if __name__ == "__main__":
    print({"bare": bare, "side_by_side": side_by_side}[sys.argv[1]]())
