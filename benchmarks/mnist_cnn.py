"""A whole mnist_cnn job over HTTP beside a whole process of plain `model.fit`: what a user gets of either.

`benchmarks.trainings` compares the steps alone. `python -m benchmarks.mnist_cnn` is the process of `model.fit`.
"""

from __future__ import annotations

from functools import partial
from statistics import median

from benchmarks.files import Spec
from benchmarks.jobs import metric_value, own_dyno
from benchmarks.pairs import in_turns, printed, ratio, spread
from benchmarks.report import prose, write

TRAIN_SAMPLES, BATCH, EPOCHS, PAIRS = 10_240, 1024, 4, 10
SPEC: Spec = {
    "workload": "mnist_cnn",
    "params": {"train_samples": TRAIN_SAMPLES, "batch_size": BATCH, "epochs": 1},
    "device": "cpu",
    "measure": {"processes": 1, "min_s": 6, "max_s": 8},
}


def main() -> None:
    with own_dyno() as dyno:
        reported = partial(metric_value, dyno, SPEC, "time_per_sample")
        found = in_turns({"Dyno": reported, "fit": lambda: float(printed("mnist_cnn"))}, PAIRS)
        training = dyno.client.result(dyno.client.jobs(limit=1)[0].id).training
    assert training is not None
    data = training.data
    text = f"""`mnist_cnn`, batch {BATCH}, {data.train_samples} training samples of MNIST ({data.kind}), microseconds a
        sample. Plain `model.fit` has the same model, shuffle, dropout and metrics. A whole job over HTTP beside a whole
        process, in {PAIRS} pairs; fit's median of {EPOCHS - 1} epochs after the first, whichever of its two modes it
        was in. The steps alone, in one process, are compared in [trainings.md](trainings.md)."""
    lines = [*(f"- {way}: {spread(values, 1e6)}" for way, values in found.items())]
    lines.append(f"- Dyno / fit: {ratio(*found.values())}")
    write("mnist_cnn", "A whole job of mnist_cnn against model.fit", [*prose(text), *lines])


def fit_time_per_sample_s() -> float:
    """Of plain `model.fit` in this process."""
    from benchmarks.plain_keras import PLAIN, epochs_s

    plain = PLAIN["mnist_cnn"]()
    data = plain.load(TRAIN_SAMPLES)
    return median(epochs_s(plain.make(False), data, BATCH, EPOCHS)[1:]) / len(data.inputs)


if __name__ == "__main__":
    print(fit_time_per_sample_s())
