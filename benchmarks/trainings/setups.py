"""What is trained: each workload at a size of which an epoch's worth takes a few seconds on two cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

XLA_ON_LOOPS = "XLA was not tried: on a CPU it made recurrent loops slower and took 4 to 10 times the memory or more"


@dataclass(frozen=True)
class Setup:
    """`params` of Dyno's workload: an epoch of theirs is `steps` full batches. The plain model is told of `sizes`."""

    params: Mapping[str, int]
    steps: int
    reduced: str  # beside the workload's defaults
    sizes: Mapping[str, int] = field(default_factory=dict)
    no_xla: str | None = None  # why `jit_compile` isn't tried

    @property
    def batch_size(self) -> int:
        return self.params["batch_size"]

    @property
    def samples(self) -> int:
        return self.steps * self.batch_size


SETUPS = {
    "mnist_cnn": Setup({"batch_size": 1024, "train_samples": 10_240}, 10, "10,240 of 60,000 digits"),
    "fashion_mnist_cnn": Setup(
        {"batch_size": 128, "train_samples": 1024}, 8, "batch 128 instead of 1024; 1,024 of 60,000 images"
    ),
    "cifar10_cnn": Setup({"batch_size": 128, "train_samples": 2560}, 20, "2,560 of 50,000 images"),
    "imdb_lstm": Setup({"batch_size": 64, "train_samples": 1536}, 24, "1,536 of 25,000 reviews", no_xla=XLA_ON_LOOPS),
    "weather_gru": Setup(
        {"batch_size": 32, "steps_per_epoch": 3, "window": 336},
        3,
        "batch 32 instead of 256, windows of 336 hours instead of 1344",
        {"window": 336},
        XLA_ON_LOOPS,
    ),
    "shakespeare_lstm": Setup(
        {"batch_size": 32, "steps_per_epoch": 3},
        3,
        "batch 32 instead of 128",
        no_xla=XLA_ON_LOOPS,
    ),
    "resnet50": Setup(
        {"batch_size": 16, "images": 96, "image_size": 64},
        6,
        "batch 16 instead of 32, images of 64 x 64 instead of 224 x 224",
        {"image_size": 64},
    ),
}
