"""A small training over several replicas: `python -m tests.bench.frameworks.replicated 4` prints its results.

Also called in pytest's own process, for one replica: virtual devices can't be made once TensorFlow has started.
"""

import json
import os
import sys

import numpy as np

from dyno.bench.frameworks.interface import Dataset
from dyno.bench.frameworks.tensorflow import TensorFlow
from dyno.errors import RunFailed

SAMPLES, CLASSES, BATCH = 70, 3, 16


def trained(framework):
    """Three steps, then an epoch of one step and its tail, then predictions."""
    samples = _samples()
    trainer = framework.trainer(made(framework, jit_compile=False), samples, BATCH, 3)
    trainer.compile()
    losses = [trainer.steps(2), trainer.steps(1)]
    trainer.finish_epoch()
    trainer.shuffle()
    losses += [trainer.steps(1), trainer.tail()]
    return {
        "replicas": trainer.replicas,
        "losses": losses,
        "epoch": trainer.finish_epoch(),
        "predicted": trainer.predict(samples.inputs[:6], BATCH).tolist(),
        "all": trainer.predict(samples.inputs, BATCH).argmax(-1).tolist(),
    }


def in_calls_of_two(framework):
    """The losses of the same three steps, two of them in one call."""
    trainer = framework.trainer(made(framework, jit_compile=False), _samples(), BATCH, 3, 2)
    return [trainer.steps(2), trainer.steps(1)]


def _samples():
    rows = np.arange(SAMPLES)
    inputs = np.random.default_rng(0).normal(size=(SAMPLES, 8)).astype(np.float32)
    inputs[rows, rows % CLASSES] += 2
    return Dataset(inputs, (rows % CLASSES).astype(np.uint8))


def made(framework, *, jit_compile):
    framework.seed(7)
    keras = framework.keras
    layers = [keras.Input((8,)), keras.layers.Dense(5, "relu"), keras.layers.Dense(CLASSES, "softmax")]
    with framework.scope():
        model = keras.Sequential(layers)
        loss = "sparse_categorical_crossentropy"
        model.compile(keras.optimizers.Adam(0.05), loss, metrics=["accuracy"], jit_compile=jit_compile)
    return model


def refusals(framework):
    """The error reasons for unsupported options over replicas: XLA, and fewer samples than replicas."""
    found = []
    for jit_compile, count in ((True, 16), (False, 2)):
        samples = Dataset(np.zeros((count, 8), np.float32), np.zeros(count, np.uint8))
        try:
            framework.trainer(made(framework, jit_compile=jit_compile), samples, count, 0)
        except RunFailed as refused:
            found.append(refused.reason)
    return found


def main():
    replicas = int(sys.argv[1])
    framework = TensorFlow()
    framework.load()
    framework.start("cpu", len(os.sched_getaffinity(0)), replicas)
    found = {**trained(framework), "in_calls_of_two": in_calls_of_two(framework), "refusals": refusals(framework)}
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
