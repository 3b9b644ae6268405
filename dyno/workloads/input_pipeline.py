"""The cost of a training's input: one compiled step, fed by a pipeline and from a resident batch.

The pipeline is that of a training from files: it shuffles the images for each epoch, decodes those kept as files,
scales them to 0 to 1, stacks them into a batch on the host and copies the batch to the device. `fed` takes every
batch from it; `resident` takes the same batch from the device's memory again and again. Both read the loss of each
step back before they take the next batch: a training that overlaps a step with the next copy may pay less. With
`file_scale` the files hold larger images, each pixel a square, which decode faster than photographs of that size.

Nothing runs in the background between two calls of `execute`, and a call leaves as many batches ready as it found:
each call pays for the batches it takes. `verify` checks that the batches hold images and differ from each other,
because a model learns a repeated batch by heart and no loss tells.

FLOP of one execution, which is one training step: those of the network (`mnist_cnn`, `cifar10_cnn`) for each image.
Decoding counts as none. No article timed this, so there is no reference.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, JsonValue

from dyno.datasets.loading import DataKind
from dyno.devices.device import Device
from dyno.errors import FieldError, RunFailed
from dyno.frameworks.contract import Dataset
from dyno.measure.result_checks import INPUT_LIMIT, constant_data, input_bound, loss_nonfinite, synthetic_data
from dyno.measure.warnings import warning
from dyno.models.result import DataOrigin, ResultWarning
from dyno.models.spec import FrameworkName
from dyno.settings import Settings
from dyno.workloads.cifar10_cnn import PHOTOGRAPHS
from dyno.workloads.contract import BuildContext, Built, Case, Estimate, MetricSpec, Params, Verification, Workload
from dyno.workloads.estimates import batch_warnings, data_warnings, held_bytes, sampling_s, step_warnings
from dyno.workloads.mnist_cnn import DIGITS
from dyno.workloads.training.images import ImageParams, Network
from dyno.workloads.training.schedule import estimate_step
from dyno.workloads.training.step_checks import CompiledStep, StepCounter, check_training
from dyno.workloads.training.workload import model_details

Rows = NDArray[np.intp]
Float32 = NDArray[np.float32]
Fill = Callable[[Rows, Float32], None]  # writes the inputs of these samples, by their numbers, one after the other


@dataclass(frozen=True)
class _Batch:
    inputs: Float32
    rows: Rows
    parts: list[Future[float]]

    def filled_in_s(self) -> float:
        """The processor time of all parts, once they are there. Raises what was raised in a thread."""
        return sum(part.result() for part in self.parts)


class BatchFeed:
    """Enter it to start its threads; they end when it is left, and what they had begun is given up.

    Every sample comes once an epoch, but for those that make no full batch; the order is the seed's, however many
    threads there are. `ahead`: batches that are made before they are asked for. `made_in_s`: the processor time that
    those taken so far took to make.
    """

    def __init__(
        self,
        fill: Fill,
        targets: NDArray[Any],
        shape: tuple[int, ...],
        batch_size: int,
        seed: int,
        threads: int = 1,
        ahead: int = 0,
    ) -> None:
        self._fill, self._targets, self._shape = fill, targets, (batch_size, *shape)
        self._random = np.random.default_rng(seed)
        self._order: Rows = np.empty(0, np.intp)
        bounds = np.linspace(0, batch_size, threads + 1).astype(int).tolist()
        self._parts = [slice(first, last) for first, last in pairwise(bounds) if first < last]
        self.made_in_s = 0.0
        self.taken: Rows = self._order  # the numbers of the samples in the batch taken last
        self._ahead = ahead
        self._batches: deque[_Batch] = deque()
        self._pool: ThreadPoolExecutor

    def __enter__(self) -> BatchFeed:
        self._pool = ThreadPoolExecutor(len(self._parts), thread_name_prefix="feed")
        return self

    def __exit__(self, *raised: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def take(self) -> tuple[Float32, NDArray[Any]]:
        """The next batch, once it is made: inputs and targets. Raises what was raised in a thread."""
        while len(self._batches) <= self._ahead:
            self._batches.append(self._begun())
        batch = self._batches.popleft()
        self.made_in_s += batch.filled_in_s()
        self.taken = batch.rows
        return batch.inputs, self._targets[batch.rows]

    def settle(self) -> None:
        """Wait until the batches made ahead are there. Before it is left, so that they can be taken later."""
        for batch in self._batches:
            batch.filled_in_s()

    def _begun(self) -> _Batch:
        rows, inputs = self._next_rows(), np.empty(self._shape, np.float32)
        parts = [self._pool.submit(_timed, self._fill, rows[part], inputs[part]) for part in self._parts]
        return _Batch(inputs, rows, parts)

    def _next_rows(self) -> Rows:
        size = self._shape[0]
        if len(self._order) < size:
            self._order = self._random.permutation(len(self._targets))
        rows, self._order = self._order[:size], self._order[size:]
        return rows


def _timed(fill: Fill, rows: Rows, into: Float32) -> float:
    """The processor time of this thread alone."""
    began_s = time.thread_time()
    fill(rows, into)
    return time.thread_time() - began_s


Source = Literal["memory", "png", "jpeg"]
_JPEG_QUALITY = 90
_WHITE = np.float32(255)


@dataclass(frozen=True)
class StoredImages:
    """`fill` gives float32 images, 0 to 1; `held_bytes`: of all images, as they are kept."""

    fill: Fill
    held_bytes: int


def store_images(
    images: NDArray[np.uint8], source: Source, scale: int = 1, encoding: Callable[[int], None] = lambda done: None
) -> StoredImages:
    """Images (samples, height, width, 1 or 3), kept in that form.

    `scale`: a file's image is so many times as high and as wide, each pixel a square; it is reduced after decoding.
    `encoding` is told how many files there are, before each: large ones take minutes.
    """
    if source == "memory":
        floats = images.astype(np.float32) / _WHITE
        return StoredImages(lambda rows, into: _gather(floats, rows, into), floats.nbytes)
    files: list[bytes] = []
    for image in images:
        encoding(len(files))
        files.append(_encoded(image.repeat(scale, axis=0).repeat(scale, axis=1), source))
    return StoredImages(lambda rows, into: _decode(files, scale, rows, into), sum(map(len, files)))


def _gather(floats: Float32, rows: Rows, into: Float32) -> None:
    np.take(floats, rows, axis=0, out=into, mode="clip")  # any other mode goes through a copy


def _decode(files: Sequence[bytes], scale: int, rows: Rows, into: Float32) -> None:
    from PIL import Image

    for place, row in enumerate(rows):
        with Image.open(BytesIO(files[row])) as image:
            pixels = np.asarray(image.reduce(scale))
        np.divide(pixels.reshape(into.shape[1:]), _WHITE, out=into[place])


def _encoded(image: NDArray[np.uint8], source: Source) -> bytes:
    from PIL import Image

    file = BytesIO()
    pixels = image[..., 0] if image.shape[-1] == 1 else image
    Image.fromarray(pixels).save(file, source.upper(), quality=_JPEG_QUALITY)
    return file.getvalue()


CHECKED_BATCHES = 3  # batches in a row: where an epoch has two or more, two of these are of one epoch


def check_batches(batches: Sequence[tuple[NDArray[Any], ...]], samples: int) -> ResultWarning | None:
    """`batches` in a row, inputs and targets of each, as the step took them: constant ones, or the same all over again.

    Silent on the second where the `samples` are too few for two whole batches.
    """
    first = batches[0]
    if (constant := constant_data({"batches": np.stack([inputs for inputs, *_ in batches])})) is not None:
        return constant
    repeated = all((part == other).all() for batch in batches[1:] for part, other in zip(first, batch, strict=True))
    if not repeated or samples < 2 * len(first[0]):
        return None
    return warning("RESULT_INCORRECT", "The pipeline delivers one batch again and again.", batches=len(batches))


RESIDENT = "resident"
_DECODING = "whose images may take longer or shorter to decode"


@dataclass(frozen=True)
class _Call:
    """`made_in_s`: the processor time of the threads that made its batches."""

    took_s: float
    waited_s: float
    made_in_s: float


class FedTraining:
    """One execution is one step on a full batch; its loss is read back before the next batch is taken.

    So whatever the step waits for its batch the device waits too, in every framework. Only the fed steps say what was
    learned: a batch that stays is learned by heart.
    """

    def __init__(self, params: InputPipelineParams, network: Network, context: BuildContext) -> None:
        self._params, self._network, self._context, self._shape = params, network, context, network.shape
        with context.phase("data"):
            self._train, self._origin = _loaded(params, network, context)
            self._stored = store_images(
                self._train.inputs,
                params.source,
                params.file_scale,
                lambda done: context.report("data", done, len(self._train), "files"),
            )
        self._feed = self._new_feed(params.input_threads, params.prefetch)
        with context.phase("build"):
            self._model = self._new_model()
            with self._new_feed() as first:
                batch = first.take()
            self._step = context.framework.fed_step(self._model, *batch)
            self._resident = self._step.placed(*batch)
        self._timed = StepCounter.of(self._model)
        self._calls: list[_Call] = []
        self._fed_loss = self._unfit_loss = 0.0
        self.work = float(params.batch_size)
        flops = network.flops_per_sample * self.work
        self.cases = [
            Case(name, self.work, flops, "float32", execute, counted_flops=self._step.counted_flops)
            for name, execute in (("fed", self.execute), (RESIDENT, self._execute_resident))
        ]

    def compile(self) -> None:
        self._step.compile()

    def execute(self, count: int) -> None:
        """Every batch from the pipeline, which is left with as many batches ready as it was found with."""
        self._timed.asked += count
        step, waited_s, made_before_s, began_s = self._step, 0.0, self._feed.made_in_s, time.perf_counter()
        with self._feed as feed:
            for _ in range(count):
                asked_s = time.perf_counter()
                batch = step.placed(*feed.take())
                waited_s += time.perf_counter() - asked_s
                self._fed_loss = step.train(batch)
            asked_s = time.perf_counter()
            feed.settle()
            waited_s += time.perf_counter() - asked_s
        self._calls.append(_Call(time.perf_counter() - began_s, waited_s, self._feed.made_in_s - made_before_s))
        self._note(self._fed_loss)

    def complete(self, compile_s: float, first_execution_s: float) -> None:
        return None

    def verify(self) -> Verification:
        wait_share, core_share = self._shares()
        on_cpu = self._context.device is None or self._context.device.driven_as == "cpu"
        pipeline = self._pipeline()
        bound = input_bound(wait_share, core_share if on_cpu else None, pipeline)
        step = self._one_step() if self._context.run == 0 else None
        found = check_training(self._context, self._model, self._step, self._train, self._timed, step)
        of_run = (
            bound,
            check_batches(self._few_batches(), len(self._train)),
            loss_nonfinite(self._unfit_loss),
            synthetic_data(self._origin, _DECODING),
        )
        return Verification(
            warnings=[*found.warnings, *(each for each in of_run if each is not None)],
            verified=frozenset(found.verified),
            unchecked=found.unchecked,
            precision=found.precision,
            details={
                **pipeline,
                "input_limit": INPUT_LIMIT,
                "held_bytes": self._stored.held_bytes,
                "batch_bytes": int(self.work) * 4 * math.prod(self._shape),
                "batch_size": int(self.work),
                "jit_compile": self._step.jit_compile,
                "data": self._origin.model_dump(mode="json"),
                **model_details(self._model),
                **found.details,
            },
            amounts={"step": self.work},
            figures={"input_wait_share": wait_share, "input_core_share": core_share},
        )

    def _execute_resident(self, count: int) -> None:
        self._timed.asked += count
        loss = 0.0
        for _ in range(count):
            loss = self._step.train(self._resident)
        self._note(loss)

    def _few_batches(self) -> list[tuple[NDArray[Any], ...]]:
        """The next ones, as they lie on the device."""
        framework = self._context.framework
        with self._feed as feed:
            placed = [self._step.placed(*feed.take()) for _ in range(CHECKED_BATCHES)]
            feed.settle()
        return [tuple(framework.numpy(part) for part in batch) for batch in placed]

    def _note(self, loss: float) -> None:
        if not math.isfinite(loss):
            self._unfit_loss = loss

    def _new_model(self) -> Any:
        keras, params = self._context.framework.keras, self._params
        return self._network.model(keras, params.learning_rate, params.jit_compile, scaled_inputs=True)

    def _new_feed(self, threads: int = 1, ahead: int = 0) -> BatchFeed:
        seed, size = self._context.seed, self._params.batch_size
        return BatchFeed(self._stored.fill, self._train.targets, self._shape, size, seed, threads, ahead)

    def _shares(self) -> tuple[float, float]:
        """Of the fed steps' time: waited for batches; of the cores' time in it: spent on making them.

        Warm-up included; the first call, which may compile, only where there is no other.
        """
        counted = self._calls[1:] or self._calls
        took_s = sum(call.took_s for call in counted)
        waited_s, made_in_s = sum(call.waited_s for call in counted), sum(call.made_in_s for call in counted)
        return waited_s / took_s, made_in_s / (took_s * self._context.cores)

    def _one_step(self) -> CompiledStep:
        """Fed with a batch of the pipeline, and held against the labels that the data have for its images."""

        def step() -> tuple[NDArray[Any], NDArray[Any], None]:
            with self._feed as feed:
                inputs, targets = feed.take()
                feed.settle()
            self._timed.asked += 1
            self._step.train(self._step.placed(inputs, targets))
            return inputs, self._train.targets[self._feed.taken], None

        return CompiledStep(self._model, self._new_model, step, self._step.sync)

    def _pipeline(self) -> dict[str, JsonValue]:
        params = self._params
        return {name: getattr(params, name) for name in ("source", "file_scale", "input_threads", "prefetch")}


def _loaded(params: InputPipelineParams, network: Network, context: BuildContext) -> tuple[Dataset, DataOrigin]:
    data = network.load(Settings(data_dir=context.data_dir), params.data).limited(params.train_samples, 1)
    if len(data.train_images) < params.batch_size:
        told = f"a batch of {params.batch_size} can't be drawn from {len(data.train_images)} images"
        raise RunFailed("benchmark", "too_few_samples", told)
    one_hot = np.eye(len(data.classes), dtype=np.float32)[data.train_labels]
    return Dataset(data.train_images, one_hot), data.origin.model_copy(update={"test_samples": 0})


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
    step = estimate_step(params.as_training, device, work, 1)
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
        of_device = step_warnings(estimate_step(params.as_training, device, work, 1), device)
    of_images = data_warnings(params.data, "its images may take longer or shorter to decode")
    return [*of_images, *batch_warnings(params.batch_size, 1), *of_device]


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
