"""The articles' experiments: the reported figures, the spec that runs here, and its reductions for a CPU."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import JsonValue

from dyno.bench.references import HARNESS, INTRODUCTION, LABORATORY, NOTEBOOK, STEPS, Article

DAY_S = 86_400
Object = dict[str, JsonValue]
ONCE: Object = {"processes": 1, "max_s": 30}  # the training is the experiment, not its time per step
FIVE: Object = {"processes": 5, "max_s": 30}
LONG: Object = {"processes": 1, "min_samples": 3, "max_s": 30}
REAL: Object = {"data": "real"}


@dataclass(frozen=True)
class Experiment:
    """`figures`: the article's, with its hardware. `shows`, `details`: our metrics and details beside them."""

    article: Article
    what: str
    figures: tuple[str, ...]
    spec: Object
    shows: tuple[str, ...]
    reduced: str = ""
    details: tuple[str, ...] = ()


def _spec(workload: str, params: Object, measure: Object) -> Object:
    return {"workload": workload, "params": params, "device": "cpu", "measure": measure, "timeout_s": DAY_S}


def _notebook(batch: int, gpu_s: float, tpu_s: float, gpu_us: int, tpu_us: int) -> Experiment:
    return Experiment(
        NOTEBOOK,
        f"mnist_cnn, batch {batch}",
        (f"GPU {gpu_s:g} s an epoch, {gpu_us} µs a sample", f"TPU {tpu_s:g} s, {tpu_us} µs"),
        _spec("mnist_cnn", {"batch_size": batch, "epochs": 3} | REAL, FIVE),
        ("epoch_time", "time_per_sample", "first_epoch_time"),
        "3 epochs, as in its log; its code says 10",
    )


def _digits(batch: int, figures: tuple[str, ...], reduced: str) -> Experiment:
    spec = _spec("mnist_cnn", {"batch_size": batch, "epochs": 10} | REAL, ONCE)
    return Experiment(STEPS, f"mnist_cnn, 10 epochs at batch {batch}", figures, spec, ("epoch_time",), reduced)


def _photographs(batch: int, epochs: int, reduced: str) -> Experiment:
    return Experiment(
        LABORATORY,
        f"cifar10_cnn, {epochs} epochs at batch {batch}",
        ("TPU 6 s an epoch, after 50 at batch 128 x 8: 90.06 % of training, 80.79 % of test images right",),
        _spec("cifar10_cnn", {"batch_size": batch, "epochs": epochs} | REAL, ONCE),
        ("train_accuracy", "epoch_time", "first_epoch_time"),
        f"as many images as are there, of 50,000 + 10,000; {reduced}",
        ("recognised",),
    )


def _text(what: str, params: Object, reduced: str) -> Experiment:
    return Experiment(
        STEPS,
        f"shakespeare_lstm, {what}",
        ("no figure given",),
        _spec("shakespeare_lstm", params | REAL, LONG),
        ("time_per_character", "epoch_time"),
        reduced,
        ("better_than", "generated"),
    )


EXPERIMENTS = {
    "matmul": Experiment(
        HARNESS,
        "matmul, 100 chained products of 4096 x 4096",
        ("CPU 0.47 to 0.53 TFLOP/s", "GPU 15.70", "TPU 35.47 cold, 158.91 warm"),
        _spec("matmul", {"n": 4096, "repeats": 100}, {"processes": 3, "min_samples": 2, "max_s": 120}),
        ("throughput", "cold_throughput"),
        "3 processes instead of 5, and 2 samples at least instead of 20: one execution is 13.7 TFLOP",
    ),
    "mnist_256": _notebook(256, 6, 6, 94, 97),
    "mnist_512": _notebook(512, 5, 3, 82, 58),
    "mnist_1024": _notebook(1024, 4, 2, 79, 37),
    "mnist_full_1024": _digits(
        1024,
        ("K80 11 s an epoch", "TPU 3 s", "168 of 10,000 test digits wrong"),
        "the article states no model: the one of the notebook above",
    ),
    "mnist_full_128": _digits(
        128, ("168 of 10,000 test digits wrong",), "as above; a smaller batch, to see what the large one costs"
    ),
    "fashion": Experiment(
        STEPS,
        "fashion_mnist_cnn, 15 epochs at batch 1024",
        ("CPU 11,164 s for all epochs", "GPU 196 s", "TPU 102 s"),
        _spec("fashion_mnist_cnn", {"batch_size": 1024, "epochs": 15} | REAL, ONCE),
        ("training_time", "epoch_time", "first_epoch_time"),
    ),
    "imdb": Experiment(
        INTRODUCTION,
        "imdb_lstm, batch 64",
        ("TPU 680 µs a sample, 17 s an epoch, 83.0 % after 20", "GPU 12 ms a sample, 84.5 %"),
        _spec("imdb_lstm", {"batch_size": 64, "epochs": 3, "trials": 3} | REAL, ONCE),
        ("time_per_sample", "epoch_time"),
        "3 of 20 epochs: at the 15th the article's own validation loss is 25 times its training loss; 3 trainings "
        "instead of 1, for an interval over seeds",
    ),
    "weather": Experiment(
        HARNESS,
        "weather_gru, windows of 1344 hours, batch 256, 10 steps an epoch",
        ("GPU 42 to 44 s an epoch", "TPU 14 s the first, then 5 s", "CPU ran out of memory"),
        _spec("weather_gru", {"train": "full", **REAL}, {"processes": 1, "min_samples": 2, "min_s": 0, "max_s": 60}),
        ("epoch_time", "first_epoch_time"),
        "Beijing's stations instead of the article's; else its size",
        ("signals", "better_than"),
    ),
    "weather_small": Experiment(
        HARNESS,
        "weather_gru, windows of 336 hours, batch 64, 128 units, 20 epochs of 100 steps",
        ("as above; its loss on the TPU rose from 0.0115 to 0.0376 in 5 epochs",),
        _spec(
            "weather_gru",
            {"window": 336, "units": 128, "batch_size": 64, "epochs": 20, "steps_per_epoch": 100} | REAL,
            LONG,
        ),
        ("epoch_time",),
        "a quarter of the hours, units and windows in a step, and 20 times the steps: long enough to learn",
        ("signals", "better_than"),
    ),
    "shakespeare": _text(
        "windows of 100 characters, batch 128",
        {"epochs": 3, "steps_per_epoch": 100, "batch_size": 128},
        "3 epochs of 100 steps on one device's batch of 128, not 8 times that",
    ),
    "shakespeare_small": _text(
        "256 units, batch 64, 10 epochs of 100 steps",
        {"units": 256, "embedding": 128, "batch_size": 64, "epochs": 10, "steps_per_epoch": 100},
        "half the units, a quarter of the embedding, half a device's batch; 3 times the steps: long enough to learn",
    ),
    "cifar10_1024": _photographs(1024, 50, "nothing else: batch and epochs are the article's"),
    "cifar10_128": _photographs(128, 25, "25 of 50 epochs, but 8 times the steps in each: batch 128 on one device"),
    "resnet50": Experiment(
        LABORATORY,
        "resnet50 at 224 x 224, batch 32",
        ("TPU as much as 4 V100", "elsewhere: A100 2470 images/s, V100 1200 (mixed precision)"),
        _spec("resnet50", {"batch_size": 32, "epochs": 1}, LONG | {"min_s": 0, "max_s": 60}),
        ("throughput", "step_time"),
        "float32 and batch 32; an epoch of two steps",
    ),
    "quantized": Experiment(
        INTRODUCTION,
        "quantized_inference of mnist_cnn",
        ("Inception 91 MB in float32, 23 MB in int8", "up to 25 times as fast (TPU)"),
        _spec("quantized_inference", {"model": "mnist_cnn", "train": "full", **REAL}, {"processes": 3, "max_s": 20}),
        (
            *("size_float32", "size_int8", "accuracy_float32", "accuracy_int8", "agreement"),
            *("throughput_float32_batch_256", "throughput_int8_batch_256"),
            *("latency_float32_batch_1", "latency_int8_batch_1"),
        ),
        "the digits' network instead of Inception",
    ),
    "device_info": Experiment(
        LABORATORY,
        "device_info",
        ("8 TPU cores",),
        _spec("device_info", {}, {"processes": 1, "max_s": 5}),
        ("discovery_time",),
    ),
}
