"""mnist_cnn's time per sample against plain `model.fit` in its fast mode, interleaved two ways, as `matmul` is."""

from __future__ import annotations

import json
from statistics import fmean, median

from pydantic import JsonValue

from benchmarks.fleet import Fleet, fleet
from benchmarks.pairs import interleave, printed, ratio, spread
from benchmarks.report import write
from dyno.result import DataOrigin

TRAIN_SAMPLES, BATCH, EPOCHS, PAIRS = 10_240, 1024, 4, 10
PROCESSES, PAIRS_EACH = 6, 8
SLOW_MODE = 1.3  # fit's epochs were seen in two modes, 180 and 310 us a sample: above this share of the fastest is slow
SPEC: dict[str, JsonValue] = {
    "workload": "mnist_cnn",
    "params": {"train_samples": TRAIN_SAMPLES, "batch_size": BATCH, "epochs": 1},
    "device": "cpu",
    "measure": {"processes": 1, "min_s": 6, "max_s": 8},
}


def main() -> None:
    inside = [_side_by_side() for _ in range(PROCESSES)]
    with fleet() as dyno:
        ours, fit = interleave(lambda: _reported(dyno), _fit, PAIRS)
        data = _data(dyno)
    write("mnist_cnn", "Time per sample of mnist_cnn against model.fit", _lines(inside, ours, fit, data))


def _lines(
    inside: list[tuple[list[float], list[float]]], ours: list[float], fit: list[float], data: DataOrigin
) -> list[str]:
    fastest = min(time_s for run in inside for time_s in run[1])
    fast = [[pair for pair in zip(*run, strict=True) if pair[1] <= SLOW_MODE * fastest] for run in inside]
    slow = PROCESSES * PAIRS_EACH - sum(map(len, fast))
    medians = [[median(pair[side] for pair in run) for run in fast if run] for side in (0, 1)]
    return [
        f"`mnist_cnn`, batch {BATCH}, {data.train_samples} training samples of MNIST ({data.kind}), microseconds a",
        "sample. Plain `model.fit` has the same model, shuffle, dropout and metrics.",
        "",
        f"In one process, an epoch's worth of Dyno's steps and an epoch of fit in turns; {PROCESSES} processes with",
        f"{PAIRS_EACH} pairs each, fit's slow epochs ({slow} of {PROCESSES * PAIRS_EACH}) left out with their pairs.",
        "Medians of the processes:",
        "",
        f"- Dyno: {spread(medians[0], 1e6)}",
        f"- fit: {spread(medians[1], 1e6)}",
        f"- Dyno / fit: {ratio(*medians)}",
        "",
        "A whole job over HTTP beside a whole process, which shows what a caller gets, at the price of the machine's",
        f"drift ({PAIRS} pairs; fit's median of {EPOCHS - 1} epochs after the first, whichever mode it was in):",
        "",
        f"- Dyno: {spread(ours, 1e6)}",
        f"- fit: {spread(fit, 1e6)}",
        f"- Dyno / fit: {ratio(ours, fit)}",
    ]


def _side_by_side() -> tuple[list[float], list[float]]:
    answer = json.loads(printed("fit_side_by_side", TRAIN_SAMPLES, BATCH, PAIRS_EACH))
    print(f"in one process: {fmean(answer['ours']) / fmean(answer['fit']):.4f}", flush=True)
    return answer["ours"], answer["fit"]


def _reported(dyno: Fleet) -> float:
    result = dyno.client.run(SPEC)
    value = next(m.value for m in result.metrics if m.name == "time_per_sample")
    assert value is not None
    return value


def _data(dyno: Fleet) -> DataOrigin:
    last = dyno.client.result(dyno.client.jobs(limit=1)[0].id)
    assert last.training is not None
    return last.training.data


def _fit() -> float:
    """Seconds per sample in one process."""
    answer = json.loads(printed("plain_fit", TRAIN_SAMPLES, BATCH, EPOCHS))
    return median(answer["times_s"][1:]) / int(answer["samples"])


if __name__ == "__main__":
    main()
