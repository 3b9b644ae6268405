"""One process: an epoch's worth of Dyno's own training steps, an epoch of plain `model.fit`, in turns (ABBA).

Prints both as JSON, seconds per sample. The first epoch of each is left out: it compiles.
"""

from __future__ import annotations

import json
import sys
import time

import keras

from benchmarks.in_process import compiled
from benchmarks.plain_fit import Clock, digits, model
from dyno.workloads.contract import Built


def main(train_samples: int, batch_size: int, pairs: int) -> None:
    built = compiled("mnist_cnn", {"train_samples": train_samples, "batch_size": batch_size})
    images, labels = digits(train_samples)
    network, clock = model(), Clock()
    steps = len(images) // batch_size
    ours: list[float] = []
    for pair in range(pairs + 1):
        turns = [lambda: ours.append(_steps_s(built, steps)), lambda: _fit(network, images, labels, batch_size, clock)]
        for turn in turns if pair % 2 == 0 else reversed(turns):
            turn()
    samples = steps * batch_size
    fit = [time_s / samples for time_s in clock.times_s[1:]]
    print(json.dumps({"ours": [time_s / samples for time_s in ours[1:]], "fit": fit}))


def _steps_s(built: Built, steps: int) -> float:
    begin_s = time.perf_counter()
    built.execute(steps)
    return time.perf_counter() - begin_s


def _fit(network: keras.Model, images: object, labels: object, batch_size: int, clock: Clock) -> None:
    network.fit(images, labels, batch_size=batch_size, epochs=1, verbose=0, callbacks=[clock])


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:4]))
