"""What the input of a training costs: the same compiled step, fed by a pipeline and from a batch that stays there.

The pipeline is that of a training from files: images in an order drawn anew for each epoch, decoded where they are kept
as files, made 0 to 1, stacked into a batch on the host and brought to the device. `fed` takes every batch from it,
`resident` takes the same batch from the device's memory again and again. The loss of each step is read back before the
next batch is taken, in both: a training that lets a step overlap with the next one's copying may pay less. With
`file_scale` the files hold larger images, each pixel a square, which are decoded faster than photographs of that size.

FLOP of one execution, which is one training step: those of the network (`mnist_cnn`, `cifar10_cnn`) for each image.
Decoding counts as none. No article timed this, so nothing stands beside it.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from dyno.datasets.kinds import DataKind
from dyno.devices.device import Device
from dyno.errors import FieldError
from dyno.models.result import ResultWarning
from dyno.models.spec import FrameworkName
from dyno.workloads._cost import held_bytes, sampling_s
from dyno.workloads._digits import DIGITS
from dyno.workloads._estimate import step_of
from dyno.workloads._fed_training import RESIDENT, FedTraining
from dyno.workloads._image_source import Source
from dyno.workloads._images import ImageParams, Network
from dyno.workloads._lint import of_batch, of_data, of_step
from dyno.workloads.cifar10_cnn import PHOTOGRAPHS
from dyno.workloads.contract import BuildContext, Built, Estimate, MetricSpec, Params, Workload

NETWORKS: dict[str, Network] = {"mnist_cnn": DIGITS, "cifar10_cnn": PHOTOGRAPHS}
# An image on one thread, and each of its pixels; encoding it takes longer, but happens once.
_FILE_S, _PIXEL_S = 1e-4, 3e-9
_SMALLER = 10  # times, that a file is than its pixels where several are alike
_BYTES_PER_WEIGHT = 4 * 4  # it, its gradient and Adam's two moments
_STARTED_IN_S = 5.0  # building and compiling


class InputPipelineParams(Params):
    how: ClassVar[frozenset[str]] = frozenset(
        {"batch_size", "source", "file_scale", "input_threads", "prefetch", "jit_compile"}
    )

    model: Literal["mnist_cnn", "cifar10_cnn"] = "mnist_cnn"
    batch_size: Annotated[int, Field(ge=1, le=10_000)] = 128
    source: Source = Field(
        "png", description="memory: images as float32, gathered; png, jpeg: a file each, decoded in every epoch"
    )
    file_scale: Annotated[int, Field(ge=1, le=32)] = Field(
        1,
        description="Files hold images so many times as high and as wide as the network takes, reduced when decoded",
    )
    input_threads: Annotated[int, Field(ge=1, le=64)] = Field(
        1, description="Threads that make batches, each a part of every one, on the device's cores"
    )
    prefetch: Annotated[int, Field(ge=0, le=64)] = Field(
        2, description="Batches made ahead of the step; 0: each is made when the step asks for it"
    )
    train_samples: Annotated[int, Field(ge=1, le=50_000)] = Field(10_000, description="Images of an epoch, at most")
    data: DataKind = Field("auto", description="auto: the real set if the worker has it, else what ships or is made")
    learning_rate: Annotated[float, Field(gt=0, le=10)] = Field(1e-3, description="Adam's")
    jit_compile: bool = Field(False, description="By XLA; JAX always does, PyTorch never")

    def conflicts(self) -> list[FieldError]:
        found = []
        if self.data == "sample" and not self.network.ships_sample:
            found.append(FieldError("/data", "no-sample", f"of the images of {self.model} no sample ships"))
        if self.source == "memory" and self.file_scale > 1:
            found.append(FieldError("/file_scale", "no-files", "in memory there are no files to be larger"))
        if self.train_samples < self.batch_size:
            detail = f"{self.train_samples} images make no batch of {self.batch_size}"
            found.append(FieldError("/train_samples", "too-few-samples", detail))
        return found

    @property
    def network(self) -> Network:
        return NETWORKS[self.model]

    @property
    def as_training(self) -> ImageParams:
        """The training that is fed, as its own workload would be asked for it."""
        return ImageParams(
            batch_size=self.batch_size, train_samples=self.train_samples, test_samples=1, data=self.data, epochs=1
        )


def flops(params: InputPipelineParams) -> float:
    """Of one execution: a training step on a full batch."""
    return params.network.flops_per_sample * params.batch_size


def estimate(
    params: InputPipelineParams, device: Device, replicas: int = 1, framework: FrameworkName = "tensorflow"
) -> Estimate:
    """Both cases; in memory all images, as files and as float32 at most, and batches made ahead."""
    work = params.network.work(params.as_training)
    step = step_of(params.as_training, device, work, 1)
    values, file_s = work.sample_bytes, _file_s(params)
    float_bytes = 4 * values
    kept = float_bytes if params.source == "memory" else values * max(1, params.file_scale**2 // _SMALLER)
    batch_bytes = params.batch_size * float_bytes
    return Estimate(
        time_s=_STARTED_IN_S
        + 2 * params.train_samples * file_s
        + sampling_s(step.time_s + params.batch_size * file_s)
        + sampling_s(step.time_s),
        memory_bytes=held_bytes(
            device,
            1,
            once=params.train_samples * (values + kept) + (params.prefetch + 1) * batch_bytes,
            each=2 * batch_bytes + _BYTES_PER_WEIGHT * work.weights,
            shared=params.batch_size * work.step_bytes_per_sample,
        ),
    )


def _file_s(params: InputPipelineParams) -> float:
    """To decode one."""
    height, width, _ = params.network.shape
    return 0.0 if params.source == "memory" else _FILE_S + params.file_scale**2 * height * width * _PIXEL_S


def lint(params: InputPipelineParams, device: Device | None = None, replicas: int = 1) -> list[ResultWarning]:
    of_device = []
    if device is not None:
        work = params.network.work(params.as_training)
        of_device = of_step(step_of(params.as_training, device, work, 1), device)
    of_images = of_data(params.data, "its images may take longer or shorter to decode")
    return [*of_images, *of_batch(params.batch_size, 1), *of_device]


def build(params: InputPipelineParams, context: BuildContext) -> Built:
    return FedTraining(params, params.network, context)


WORKLOAD = Workload(
    name="input_pipeline",
    description="The same training step fed by a pipeline of images and from a resident batch: what the input costs",
    params=InputPipelineParams,
    metrics=(
        MetricSpec("throughput", "images/s", "higher", "Images trained on per second, fed by the pipeline"),
        MetricSpec("time_per_sample", "s", "lower", "Time of one image in steady steps"),
        MetricSpec("step_time", "s", "lower", "Time of one step, its input included", amount="step"),
        MetricSpec(
            "input_slowdown",
            "times",
            "lower",
            "How many times as long a step takes fed as on a resident batch",
            against=RESIDENT,
        ),
        MetricSpec(
            "input_wait_share",
            "1",
            "lower",
            "Share of the fed steps' time before their batch was there, from the end of the step before",
            each_run=True,
        ),
        MetricSpec(
            "input_core_share",
            "1",
            "lower",
            "Processor time that making the batches takes, as a share of the worker's cores over the fed steps",
            each_run=True,
        ),
    ),
    flops=flops,
    estimate=estimate,
    build=build,
    lint=lint,
    datasets=("mnist", "cifar10"),
    cases_of=lambda params: ("fed", RESIDENT),
    executions=lambda params: f"a training step on a full batch of {params.batch_size} images",
)
