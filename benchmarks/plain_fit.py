"""mnist_cnn through plain `model.fit` in a process of its own; prints epoch times as JSON."""

from __future__ import annotations

import json
import sys

from benchmarks.trainings.plain import epochs_s
from benchmarks.trainings.plain_images import mnist_cnn


def main(train_samples: int, batch_size: int, epochs: int) -> None:
    plain = mnist_cnn()
    data = plain.load(train_samples)
    times_s = epochs_s(plain.make(False), data, batch_size, epochs)
    print(json.dumps({"samples": len(data.inputs), "times_s": times_s}))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:4]))
