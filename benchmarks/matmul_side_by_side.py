"""One process: Dyno's own sampling of matmul, and after each of its samples a bare hand-written loop of as many chains.

A machine whose speed drifts by a tenth within seconds shows a difference of 1 % only like this. Prints the ratio of the
median of Dyno's samples to the median of the bare ones, as FLOP/s.
"""

from __future__ import annotations

import sys
import time
from statistics import median

import tensorflow as tf

from benchmarks.bare_matmul import chain_of
from benchmarks.in_process import compiled
from dyno.measure.sampling import HostClock, sample
from dyno.measure.stopping_rule import StoppingRule
from dyno.models.spec import Measure


def main(n: int, repeats: int, samples: int) -> None:
    built = compiled("matmul", {"n": n, "repeats": repeats})
    chain, start = chain_of(n, repeats)
    counts: list[int] = []
    bare_s: list[float] = []

    def execute(count: int) -> None:
        counts.append(count)
        built.execute(count)

    def bare(taken: int, expected: int | None) -> None:
        if counts:
            bare_s.append(_time(chain, start, counts[-1]))

    float(chain(start))
    measure = Measure(min_samples=samples, target_rel_ci=1e-6, max_s=samples)
    taken = sample(execute, StoppingRule.of(measure, "cpu"), HostClock(), bare)
    print(median(bare_s[-len(taken.samples) :]) / median(taken.samples))


def _time(chain: tf.types.experimental.PolymorphicFunction, start: tf.Tensor, count: int) -> float:
    begin_s = time.perf_counter()
    for _ in range(count):
        float(chain(start))
    return (time.perf_counter() - begin_s) / count


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:4]))
