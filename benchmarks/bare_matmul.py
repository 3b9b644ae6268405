"""What a careful person would write by hand: a chain of products in one tf.function, timed; prints FLOP/s."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import tensorflow as tf


def chain_of(n: int, repeats: int) -> tuple[Callable[[tf.Tensor], tf.Tensor], tf.Tensor]:
    """The compiled chain and what it starts from."""
    generator = np.random.default_rng(0)
    start = tf.constant(generator.standard_normal((n, n), dtype=np.float32))
    factor = tf.constant(np.linalg.qr(generator.standard_normal((n, n)))[0].astype(np.float32))

    @tf.function
    def chain(value: tf.Tensor) -> tf.Tensor:
        for _ in range(repeats):
            value = value @ factor
        return tf.reduce_sum(value)

    return chain, start


def main(n: int, repeats: int, seconds: float) -> None:
    chain, start = chain_of(n, repeats)
    for _ in range(3):
        float(chain(start))
    times = []
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        begin_s = time.perf_counter()
        float(chain(start))
        times.append(time.perf_counter() - begin_s)
    print(2 * n**3 * repeats / median(times))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
