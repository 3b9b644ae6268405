"""A whole mnist_cnn job over HTTP beside a whole process of plain `model.fit`: what a caller gets of either.

The steps alone are compared in `benchmarks.trainings`.
"""

from __future__ import annotations

import json
from statistics import median

from pydantic import JsonValue

from benchmarks.fleet import Fleet, fleet
from benchmarks.pairs import interleave, printed, ratio, spread
from benchmarks.report import write
from dyno.models.result import DataOrigin

TRAIN_SAMPLES, BATCH, EPOCHS, PAIRS = 10_240, 1024, 4, 10
SPEC: dict[str, JsonValue] = {
    "workload": "mnist_cnn",
    "params": {"train_samples": TRAIN_SAMPLES, "batch_size": BATCH, "epochs": 1},
    "device": "cpu",
    "measure": {"processes": 1, "min_s": 6, "max_s": 8},
}


def main() -> None:
    with fleet() as dyno:
        ours, fit = interleave(lambda: _reported(dyno), _fit, PAIRS)
        data = _data(dyno)
    write("mnist_cnn", "A whole job of mnist_cnn against model.fit", _lines(ours, fit, data))


def _lines(ours: list[float], fit: list[float], data: DataOrigin) -> list[str]:
    return [
        f"`mnist_cnn`, batch {BATCH}, {data.train_samples} training samples of MNIST ({data.kind}), microseconds a",
        "sample. Plain `model.fit` has the same model, shuffle, dropout and metrics.",
        "",
        "A whole job over HTTP beside a whole process, which shows what a caller gets, at the price of the machine's",
        f"drift ({PAIRS} pairs; fit's median of {EPOCHS - 1} epochs after the first, whichever of its two modes it was",
        "in). The steps alone, in one process, are compared in [trainings.md](trainings.md).",
        "",
        f"- Dyno: {spread(ours, 1e6)}",
        f"- fit: {spread(fit, 1e6)}",
        f"- Dyno / fit: {ratio(ours, fit)}",
    ]


def _reported(dyno: Fleet) -> float:
    result = dyno.client.run(SPEC)
    value = next(m.value for m in result.metrics if m.name == "time_per_sample")
    assert value is not None
    return value


def _data(dyno: Fleet) -> DataOrigin:
    client = dyno.client
    last = client.result(client.jobs(limit=1)[0].id)
    assert last.training is not None
    return last.training.data


def _fit() -> float:
    """Seconds per sample in one process."""
    answer = json.loads(printed("plain_fit", TRAIN_SAMPLES, BATCH, EPOCHS))
    return median(answer["times_s"][1:]) / int(answer["samples"])


if __name__ == "__main__":
    main()
