"""What a careful person would write by hand: a chain of products in one tf.function, timed; prints FLOP/s."""

from __future__ import annotations

import sys
import time
from statistics import median

import numpy as np
import tensorflow as tf


def main(n: int, repeats: int, seconds: float) -> None:
    generator = np.random.default_rng(0)
    x = tf.constant(generator.standard_normal((n, n), dtype=np.float32))
    q = tf.constant(np.linalg.qr(generator.standard_normal((n, n)))[0].astype(np.float32))

    @tf.function
    def chain(y: tf.Tensor) -> tf.Tensor:
        for _ in range(repeats):
            y = y @ q
        return tf.reduce_sum(y)

    for _ in range(3):
        float(chain(x))
    times = []
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        start_s = time.perf_counter()
        float(chain(x))
        times.append(time.perf_counter() - start_s)
    print(2 * n**3 * repeats / median(times))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
